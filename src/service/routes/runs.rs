//! `/v1/runs`: submit, list, show, wait, stop and steer runs, and their events.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use hermod_actors::{
    RunError, SteerReceipt,
    model::{Expectation, Lane, LimitIncrease, RunState, ThinkingLevel},
};
use serde::Deserialize;
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        Schema,
        schema::{AllOfBuilder, ObjectBuilder, Ref},
    },
};

use crate::{
    access::TokenEntry,
    host::{RunInput, Submission, millis},
    service::{
        Service,
        authorization::{Granted, Read, Steer, Submit},
        events,
        expectation_field::ExpectationField,
        extract::{JsonBody, PathRun, Query},
        fields::{BudgetField, DurationField, DurationText, LimitFields, own_key},
        operations::Operations,
        page::{Page, RunsQuery},
        problem::Problem,
    },
    view::{
        BudgetView, ResultView, RunAcceptedView, RunDetailView, RunSummaryView, RunView, RunWaitView, schema,
    },
};

/// Time of a wait that names none, and the longest one.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
const MAX_WAIT: Duration = Duration::from_mins(10);

pub(super) fn routes() -> Operations {
    Operations::default()
        .with(__path_list, list)
        .with(__path_submit, submit)
        .with(__path_show, show)
        .with(__path_wait, wait)
        .with(__path_stop, stop)
        .with(__path_steer, steer)
        .with(__path_events_of_run, events_of_run)
        .with(__path_result, result)
        .with(__path_budget, budget)
        .with(__path_raise, raise)
}

/// A submission.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SubmitBody {
    /// The task; not blank.
    #[schema(pattern = r"\S")]
    input: String,
    /// The model, as `provider/model`, or a name that one provider has.
    #[schema(pattern = r"\S")]
    model: Option<String>,
    /// The agent; absent is that of the session, for a new one `default`.
    agent: Option<String>,
    /// Id or key of the session; a key that no session has names a new one. Without it, a new session.
    #[schema(pattern = r"\S")]
    session: Option<String>,
    /// The folder in which the tools work; it must exist. Without it, that of the session's last run, else the service's.
    #[schema(pattern = r"\S")]
    workspace: Option<String>,
    /// Limits of the run.
    #[serde(default)]
    #[schema(value_type = Option<LimitFields>)]
    budget: BudgetField,
    /// Time after which the run ends as timed out.
    timeout: Option<DurationField>,
    /// How much the models are to think.
    #[schema(value_type = Option<schema::Thinking>)]
    thinking: Option<ThinkingLevel>,
    /// A system message for this run only.
    system: Option<String>,
    /// What must hold before the run completes. What misses is told to the model once, then the run fails.
    #[serde(default)]
    #[schema(value_type = Vec<ExpectationField>, max_items = 16)]
    expects: Vec<Expectation>,
    /// The names of the targets that get the result; absent takes those of the agent.
    deliver_to: Option<Vec<String>>,
    /// Whether an answer is due; absent is as the agent is configured.
    reply: Option<ReplyDue>,
    /// The lane in which the run needs a place, if that has a limit; absent is `main`.
    lane: Option<SubmitLane>,
}

/// A lane that a submission may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SubmitLane {
    /// Submitted runs.
    Main,
    /// Runs that begin at a time.
    Cron,
}

impl From<SubmitLane> for Lane {
    fn from(lane: SubmitLane) -> Self {
        match lane {
            SubmitLane::Main => Self::Main,
            SubmitLane::Cron => Self::Cron,
        }
    }
}

/// Whether an answer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReplyDue {
    /// A model that answers `NO_REPLY` is called once more.
    Required,
    /// `NO_REPLY` is an answer: nothing is delivered.
    Optional,
}

/// The query of a wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// Time after which the wait ends, not the run; 30s if it is absent, and never more than 10 minutes.
    #[param(value_type = DurationText, required = false)]
    timeout: Option<DurationField>,
}

/// A steering message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SteerBody {
    /// The text of the message; not blank.
    #[schema(pattern = r"\S")]
    text: String,
}

/// Begins a run
///
/// When this answers 202, the run is durable and will reach an outcome. With an `Idempotency-Key`, a repeat gets the
/// first run; the same key with another body is refused with 422, as is a model, an agent or a workspace that does not
/// exist.
#[utoipa::path(
    post, path = "/v1/runs", request_body = SubmitBody,
    params(IdempotencyKey),
    responses(
        (status = 202, description = "The run is durable", body = RunAcceptedView),
        (status = 409, description = "The session cannot be read by this version"),
        (status = 429, description = "Too much waits"),
    ),
    security(("token" = ["submit"])),
)]
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
        expects: body.expects,
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
        deliver_to: body.deliver_to,
        must_answer: body.reply.map(|reply| reply == ReplyDue::Required),
        lane: body.lane.map_or(Lane::Main, Lane::from),
        idempotency_key: key,
        message: None,
        occurrence: None,
    };
    service.check_ready()?;
    let submission = granted.reach(Arc::clone(&service)).admit(submission).await?;
    let accepted = service.submit(submission).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted.into())))
}

/// The header of a request that may be repeated.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only the document has it")]
pub(in crate::service) struct IdempotencyKey {
    /// Stands for this request: a repeat gets the first run. It belongs to the token.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        max_length = 256,
        pattern = "^[!-~]([ -~]*[!-~])?$"
    )]
    key: String,
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

/// The runs, the newest first
///
/// A run fits if it has all that is named. A page may have fewer rows than `max` although there are more.
#[utoipa::path(
    get, path = "/v1/runs", params(RunsQuery),
    responses((status = 200, description = "A page", body = Page<RunSummaryView>)),
    security(("token" = ["read"])),
)]
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<RunsQuery>,
) -> Result<Json<Page<RunSummaryView>>, Problem> {
    Ok(Json(query.page(&granted.reach(service)).await?))
}

/// A run with all details
#[utoipa::path(
    get, path = "/v1/runs/{run}", params(PathRun),
    responses((status = 200, description = "The run", body = RunDetailView)),
    security(("token" = ["read"])),
)]
async fn show(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<RunDetailView>, Problem> {
    Ok(Json(service.handler.run(&row.id.to_string()).await?))
}

/// Waits for the outcome
///
/// When the time of the wait is over, it answers with the state of the run: then `outcome` is null.
#[utoipa::path(
    get, path = "/v1/runs/{run}/wait", params(PathRun, WaitQuery),
    responses((status = 200, description = "The run as it is now", body = RunWaitView)),
    security(("token" = ["read"])),
)]
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

/// Stops a run and its subagents, and shows it afterwards
#[utoipa::path(
    post, path = "/v1/runs/{run}/stop", params(PathRun),
    responses((status = 200, description = "The run after the stop", body = RunWaitView)),
    security(("token" = ["steer"])),
)]
async fn stop(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<RunWaitView>, Problem> {
    let stopped = crate::control::stop(&service.runtime, vec![row.clone()]).await?;
    Ok(Json(stopped.into_iter().next().unwrap_or(row).into()))
}

/// Sends a message to a run under way
///
/// It is durable when this answers 202.
#[utoipa::path(
    post, path = "/v1/runs/{run}/steer", params(PathRun), request_body = SteerBody,
    responses(
        (status = 202, description = "The message is durable", body = schema::Steered),
        (status = 409, description = "The run has ended"),
    ),
    security(("token" = ["steer"])),
)]
async fn steer(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    JsonBody { value: body, .. }: JsonBody<SteerBody>,
) -> Result<(StatusCode, Json<SteerReceipt>), Problem> {
    service.check_revived()?;
    Ok((StatusCode::ACCEPTED, Json(service.runtime.steer(row.id, body.text).await?)))
}

/// The result of a run that has ended, with its messages
#[utoipa::path(
    get, path = "/v1/runs/{run}/result", params(PathRun),
    responses(
        (status = 200, description = "The result", body = ResultView),
        (status = 409, description = "The run has not ended"),
    ),
    security(("token" = ["read"])),
)]
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

/// The limits of a run and what it has used of them
#[utoipa::path(
    get, path = "/v1/runs/{run}/budget", params(PathRun),
    responses((status = 200, description = "The accounts", body = BudgetView)),
    security(("token" = ["read"])),
)]
async fn budget(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
) -> Result<Json<BudgetView>, Problem> {
    Ok(Json(service.handler.budget(&row.id.to_string()).await?))
}

/// A raise of limits.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RaiseBody {
    /// What is added to the limits; at least one.
    #[schema(schema_with = some_limits)]
    add: BudgetField,
}

fn some_limits() -> Schema {
    let limits = Ref::from_schema_name(LimitFields::name());
    let one = ObjectBuilder::new().min_properties(Some(1));
    AllOfBuilder::new().item(limits).item(one).into()
}

/// Raises limits of a run
///
/// A run that has used up its budget goes on.
#[utoipa::path(
    post, path = "/v1/runs/{run}/budget", params(PathRun), request_body = RaiseBody,
    responses(
        (status = 200, description = "The run with its new limits", body = RunView),
        (status = 409, description = "The run cannot go on, or has no such limit"),
    ),
    security(("token" = ["submit"])),
)]
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

/// The events of a run, until its end
///
/// A client that reconnects with `Last-Event-ID` gets each record once, in order.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events",
    params(PathRun, events::SeenRecord),
    responses(
        (status = 200, description = "Server-sent events", body = schema::ServerSentEvent, content_type = "text/event-stream"),
        (status = 204, description = "The client has seen the end of the run"),
    ),
    security(("token" = ["read"])),
)]
async fn events_of_run(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_run(granted.reach(service), &row, &headers)
}
