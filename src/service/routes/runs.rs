//! `/v1/runs`: submit, list, show, wait, stop and steer runs, and their events.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{get, post},
};
use hermod_actors::{
    RunError, SteerReceipt,
    model::{LimitIncrease, RunId, RunState, ThinkingLevel},
};
use serde::Deserialize;

use crate::{
    access::TokenEntry,
    host::{RunInput, Submission, millis},
    service::{
        Service,
        authorization::{Granted, Read, Steer, Submit},
        events,
        extract::{JsonBody, PathRun, Query},
        fields::{BudgetField, DurationField, own_key},
        page::{Page, RunsQuery},
        problem::Problem,
    },
    view::{BudgetView, ResultView, RunAcceptedView, RunDetailView, RunSummaryView, RunView, RunWaitView},
};

/// Time of a wait that names none, and the longest one.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
const MAX_WAIT: Duration = Duration::from_mins(10);

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/runs", get(list).post(submit))
        .route("/v1/runs/{run}", get(show))
        .route("/v1/runs/{run}/wait", get(wait))
        .route("/v1/runs/{run}/stop", post(stop))
        .route("/v1/runs/{run}/steer", post(steer))
        .route("/v1/runs/{run}/events", get(events_of_run))
        .route("/v1/runs/{run}/result", get(result))
        .route("/v1/runs/{run}/budget", get(budget).post(raise))
}

/// The body of a submission.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmitBody {
    /// The task.
    input: String,
    /// The model, as `provider/model`.
    model: Option<String>,
    /// The agent; absent is that of the session, for a new one `default`.
    agent: Option<String>,
    /// Id or key of the session.
    session: Option<String>,
    /// The folder in which the tools work.
    workspace: Option<String>,
    /// Limits of the run.
    #[serde(default)]
    budget: BudgetField,
    /// Time after which the run ends as timed out.
    timeout: Option<DurationField>,
    /// How much the models are to think.
    thinking: Option<ThinkingLevel>,
    /// A system message for this run only.
    system: Option<String>,
}

/// The query of a wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitQuery {
    /// Time after which the wait ends, not the run.
    timeout: Option<DurationField>,
}

/// The body of a steering message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SteerBody {
    /// The text of the message.
    text: String,
}

/// Accepts a run: when this answers 202, the run is durable and will reach an outcome.
async fn submit(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: JsonBody<SubmitBody>,
) -> Result<(StatusCode, Json<RunAcceptedView>), Problem> {
    let JsonBody { value: body, hash } = body;
    let named = [
        ("agent", &body.agent),
        ("session", &body.session),
        ("model", &body.model),
        ("workspace", &body.workspace),
    ];
    for (field, text) in named {
        if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Problem::unprocessable(format!("{field}: is empty; leave it out, or name one")));
        }
    }
    let key = idempotency_key(&headers, &granted.token)?;
    let input = RunInput {
        text: body.input.into(),
        images: Vec::new(),
        history: Vec::new(),
        isolation_key: None,
        request_hash: Some(hash),
    };
    let submission = Submission {
        input,
        session: body.session,
        agent: body.agent,
        model: body.model,
        workspace: body.workspace.map(Into::into),
        budget: body.budget.0,
        timeout: body.timeout.map(|timeout| timeout.0),
        thinking: body.thinking,
        system: body.system,
        idempotency_key: key,
    };
    service.check_ready()?;
    let submission = granted.reach(Arc::clone(&service)).admit(submission).await?;
    let accepted = service.submit(submission).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted.into())))
}

/// The idempotency key of a request.
pub(in crate::service) fn idempotency_key(
    headers: &HeaderMap,
    token: &TokenEntry,
) -> Result<Option<Arc<str>>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = own_key(token, key.to_str().unwrap_or_default());
    key.map(Some).map_err(|rule| Problem::bad_request(format!("the header Idempotency-Key {rule}")))
}

async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<RunsQuery>,
) -> Result<Json<Page<RunSummaryView, RunId>>, Problem> {
    Ok(Json(query.page(&granted.reach(service)).await?))
}

async fn show(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<RunDetailView>, Problem> {
    Ok(Json(service.handler.run(&row.id.to_string()).await?))
}

/// Waits for the outcome; a wait whose time is over answers with the state of the run.
async fn wait(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    Query(query): Query<WaitQuery>,
) -> Result<Json<RunWaitView>, Problem> {
    let limit = query.timeout.map_or(DEFAULT_WAIT, |timeout| timeout.0.min(MAX_WAIT));
    let waited = tokio::select! {
        waited = service.runtime.wait(row.id, Some(limit)) => waited,
        () = service.closing.cancelled() => Err(RunError::WaitTimedOut(row.id)),
    };
    match waited {
        Ok(result) => Ok(Json(RunWaitView::from(&result))),
        Err(RunError::WaitTimedOut(_)) => Ok(Json(service.runtime.row(row.id).await?.into())),
        Err(error) => Err(error.into()),
    }
}

/// Stops a run and its subagents, and shows it afterwards.
async fn stop(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<RunWaitView>, Problem> {
    let stopped = crate::control::stop(&service.runtime, vec![row.clone()]).await?;
    Ok(Json(stopped.into_iter().next().unwrap_or(row).into()))
}

/// Sends a message to a run under way: it is durable when this answers.
async fn steer(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    JsonBody { value: body, .. }: JsonBody<SteerBody>,
) -> Result<(StatusCode, Json<SteerReceipt>), Problem> {
    service.check_revived()?;
    Ok((StatusCode::ACCEPTED, Json(service.runtime.steer(row.id, body.text).await?)))
}

/// The result of a run that has ended, with its messages.
async fn result(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<ResultView>, Problem> {
    if row.state != RunState::Ended {
        let detail = format!("run {} has no outcome yet; wait for it at /v1/runs/{0}/wait", row.id);
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    Ok(Json(ResultView::from(&service.runtime.wait(row.id, Some(MAX_WAIT)).await?)))
}

/// The limits of a run and what it has used of them.
async fn budget(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<BudgetView>, Problem> {
    Ok(Json(service.handler.budget(&row.id.to_string()).await?))
}

/// The body of a raise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RaiseBody {
    /// What is added to the limits.
    add: BudgetField,
}

/// Raises limits of a run. One that has used up its budget goes on.
async fn raise(
    _: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    JsonBody { value: body, .. }: JsonBody<RaiseBody>,
) -> Result<Json<RunView>, Problem> {
    let BudgetField(limits) = body.add;
    let by = LimitIncrease { budget: limits.amounts, wall_ms: limits.wall.map(millis) };
    if by == LimitIncrease::default() {
        return Err(Problem::unprocessable("add: names no limit; write it like {\"iterations\": 10}"));
    }
    Ok(Json(service.raise(row, by).await?.into()))
}

/// The events of a run as a stream that ends with the run.
async fn events_of_run(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_run(granted.reach(service), &row, &headers)
}
