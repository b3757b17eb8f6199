//! A scrape: the counters of the feed, and what the runtime and the process are at the moment.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use hermod_actors::{
    ProviderStatus, RunError,
    model::{BreakerState, Lane, Timestamp},
};

use super::{
    exposition::{Exposition, TextFormat},
    messages_and_hooks::{add_deliveries, add_hooks, add_messages},
    process,
    totals::{ModelTotals, RecordTotals},
};
use crate::{
    clock,
    service::{Service, problem::Problem},
};

/// Nano-dollars of a dollar.
const NANO: f64 = 1e9;
/// Most models of a provider whose breakers are shown.
const MAX_BREAKERS: usize = 200;

/// The text of a scrape, in the format that the client accepts.
pub(in crate::service) async fn scrape(
    service: &Arc<Service>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = TextFormat::accepted(accept);
    let mut exposition = Exposition::default();
    let waits = service.metrics.with_totals(&service.closing, |totals| {
        add_totals(&mut exposition, totals);
        totals.waits()
    });
    let waits = waits.await.map_err(RunError::Read)?;
    add_runs(&mut exposition, service, service.metrics.run_states.counts(), waits);
    add_messages(&mut exposition, &service.metrics.messages.get());
    add_deliveries(&mut exposition, &service.metrics.outbox, clock::now());
    add_schedules(&mut exposition, service);
    add_hooks(&mut exposition, &service.submitter.hooks());
    add_runtime(&mut exposition, service).await?;
    add_providers(&mut exposition, &service.runtime.providers().await);
    add_process(&mut exposition, service);
    let commits = (
        "hermod_commit_duration_seconds",
        "Duration of commits to the store, each with the writes of all sessions that waited.",
        service.metrics.commits.histogram(),
    );
    let text = exposition.text(format, commits).map_err(|_| {
        Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written as text")
    })?;
    Ok(([(header::CONTENT_TYPE, format.media_type())], text).into_response())
}

fn add_totals(to: &mut Exposition, totals: &RecordTotals) {
    let models = |value: fn(&ModelTotals) -> u64| {
        totals.models.iter().map(move |(model, totals)| (Arc::clone(model), value(totals)))
    };
    to.counter("hermod_runs_accepted", "Accepted runs: of clients, and of subagents.")
        .by("origin", totals.accepted.clone());
    to.counter("hermod_runs_ended", "Ended runs by outcome. A run that is reopened ends again.")
        .by("outcome", totals.ended.clone());
    to.counter("hermod_runs_reopened", "Runs that were reopened with larger limits.").is(totals.reopened);
    to.counter("hermod_iterations", "Answers of models to iterations of runs.")
        .by("model", models(|totals| totals.iterations));
    let tokens = to.counter(
        "hermod_tokens",
        "Tokens by model as reported: input with the cached ones, output, cached input, and those written to a cache.",
    );
    totals.models.iter().fold(tokens, |series, (model, totals)| {
        let usage = &totals.usage;
        series
            .sample([("model", model), ("kind", "input")], usage.input_total())
            .sample([("model", model), ("kind", "output")], usage.output_total())
            .sample([("model", model), ("kind", "cached")], usage.cached_tokens)
            .sample([("model", model), ("kind", "cache_write")], usage.cache_write_tokens)
    });
    #[expect(clippy::cast_precision_loss, reason = "dollars are shown, not counted")]
    let dollars = totals.models.iter().map(|(model, totals)| (model, totals.nano_usd as f64 / NANO));
    to.counter("hermod_cost_usd", "Dollars by model, as far as prices are known.").by("model", dollars);
    to.counter("hermod_unpriced_calls", "Calls of models whose cost is not known.")
        .by("model", models(|totals| totals.unpriced));
    let failures = to.counter("hermod_model_failures", "Failed attempts of calls of models.");
    totals.failures.iter().fold(failures, |series, ((provider, class), count)| {
        series.sample([("provider", provider), ("class", class)], *count)
    });
    to.counter("hermod_tool_calls", "Ended tool calls by status.").by("status", totals.tool_calls.clone());
    to.counter("hermod_compactions", "Views of conversations that were made shorter.").is(totals.compactions);
    to.counter("hermod_approvals_requested", "Calls that waited for a person.").is(totals.approvals);
    to.counter("hermod_sessions_revived", "Sessions that were opened again.").is(totals.revived);
    to.counter("hermod_records_unreadable", "Records that cannot be read.").is(totals.unreadable);
}

fn add_runs(
    to: &mut Exposition,
    service: &Service,
    states: BTreeMap<&'static str, u64>,
    mut waits: BTreeMap<&'static str, u64>,
) {
    for (reason, state) in [("queue", "queued"), ("person", "parked")] {
        waits.insert(reason, states.get(state).copied().unwrap_or_default());
    }
    to.gauge("hermod_runs_unfinished", "Unfinished runs by state.").by("state", states);
    to.gauge(
        "hermod_waits",
        "What calls wait for that this process has begun; runs behind others (queue) and for persons.",
    )
    .by("reason", waits);
    let lanes = to.gauge("hermod_lane_runs", "Runs that have a place in their lane, or wait for one.");
    Lane::ALL.into_iter().fold(lanes, |series, lane| {
        let (under_way, waiting) = service.runtime.lane_counts(lane);
        let of = |state| [("lane", lane.name()), ("state", state)];
        series.sample(of("under_way"), under_way).sample(of("waiting"), waiting)
    });
    to.gauge("hermod_submissions_pending", "Submissions that wait until they are durable.")
        .is(service.runtime.pending_submissions());
    to.gauge("hermod_revival_runs", "Unfinished runs of earlier processes that were found at the start.")
        .is(service.metrics.revived_runs);
    to.gauge("hermod_probation", "1 while unfinished runs go on one at a time, after repeated crashes.")
        .is(!service.submitter.may_submit());
}

fn add_schedules(to: &mut Exposition, service: &Service) {
    to.counter(
        "hermod_schedule_occurrences",
        "Occurrences of schedules that ran, were missed, or were skipped.",
    )
    .by("state", service.metrics.schedules.by_state());
    // It is started before clients are served.
    let Some(health) = service.runtime.scheduler_health() else { return };
    to.gauge("hermod_schedules", "Schedules by state.")
        .by("state", [("active", health.schedules.saturating_sub(health.paused)), ("paused", health.paused)]);
    #[expect(clippy::cast_precision_loss, reason = "an age is shown")]
    let age = health.tick_age_ms as f64 / 1e3;
    to.gauge("hermod_schedule_tick_age_seconds", "How long ago the scheduler looked at its schedules.")
        .is(age);
}

async fn add_runtime(to: &mut Exposition, service: &Service) -> Result<(), Problem> {
    let (actors, sessions) = service.runtime.supervision_counts().await?;
    let restarts = to.counter("hermod_actor_restarts", "Restarts of actors after crashes.");
    let restarts = actors
        .iter()
        .fold(restarts, |series, actor| series.sample([("actor", &actor.name)], u64::from(actor.restarts)));
    restarts.sample([("actor", "Session")], sessions.crashes);
    to.gauge("hermod_sessions_live", "Sessions with an actor.").is(sessions.live);
    let health = service.runtime.health_probe();
    let age = health.writing_since().map_or(0.0, |since| seconds(since, clock::now()));
    to.gauge("hermod_write_age_seconds", "Age of the commit under way.").is(age);
    to.gauge("hermod_disk_full", "1 while a write waits for space on the disk.")
        .is(health.disk_full().is_some());
    to.gauge("hermod_stalled_handlers", "Message handlers that have not returned for 3 s.")
        .is(health.stalled_handlers().len());
    Ok(())
}

fn add_providers(to: &mut Exposition, providers: &[ProviderStatus]) {
    let breakers = to.gauge(
        "hermod_breaker_open",
        "Circuit breakers by provider and model, the endpoint's without a model: 0 closed, 0.5 half open, 1 open.",
    );
    providers.iter().fold(breakers, |series, provider| {
        let endpoint = [("provider", &*provider.name), ("model", "")];
        let mut models = BTreeMap::<&str, f64>::new();
        for status in provider.models.iter().take(MAX_BREAKERS) {
            let open = models.entry(&status.model).or_default();
            *open = open.max(openness(status.breaker));
        }
        models
            .into_iter()
            .fold(series.sample(endpoint, openness(provider.endpoint)), |series, (model, open)| {
                series.sample([("provider", &*provider.name), ("model", model)], open)
            })
    });
}

const fn openness(breaker: BreakerState) -> f64 {
    match breaker {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 0.5,
        BreakerState::Open { .. } => 1.0,
    }
}

fn add_process(to: &mut Exposition, service: &Service) {
    let metrics = &service.metrics;
    to.gauge("hermod_http_connections", "Open HTTP connections.").is(metrics.connections.get());
    let expiry = to.gauge(
        "hermod_tls_certificate_expiry_seconds",
        "When the certificate of the service expires, in seconds since 1970; absent without TLS.",
    );
    if let Some(at) = service.tls.as_ref().and_then(|tls| tls.expires_at()) {
        expiry.is(seconds(Timestamp(0), at));
    }
    to.gauge("hermod_event_streams", "Open streams of events.").is(metrics.streams.get());
    to.counter("hermod_spans_exported", "Spans that a collector has taken.").is(metrics.spans.exported());
    to.counter("hermod_span_export_failures", "Requests to the collector that failed, each repetition too.")
        .is(metrics.spans.failures());
    _ = to
        .gauge("hermod_build_info", "The version of this process.")
        .sample([("version", env!("CARGO_PKG_VERSION"))], true);
    let start = seconds(Timestamp(0), metrics.started_at);
    to.gauge("process_start_time_seconds", "When the process began to serve, in seconds since 1970.")
        .is(start);
    if let Some(bytes) = process::resident_bytes() {
        to.gauge("process_resident_memory_bytes", "Resident memory.").is(bytes);
    }
    if let Some(seconds) = process::cpu_seconds() {
        to.counter("process_cpu_seconds", "Processor time of all threads.").is(seconds);
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of some centuries are exact")]
pub(super) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.ms_since(from) as f64 / 1_000.0
}
