//! `agent` and `agent.wait`: begin a run, and wait for its outcome.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RunError,
    model::{AgentName, Lane, Outcome, RunId, RunRow, RunState, Timestamp},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{Method, run};
use crate::{
    access::Scope,
    host::{BudgetLimits, MessageOptions, RunInput, Submission},
    service::{
        Service,
        problem::Problem,
        reach::Reach,
        rpc::{client::Call, error::RpcError, params},
    },
    view::{RunStateView, RunWaitView},
};

/// The method that begins runs.
pub(in crate::service::rpc) const AGENT: &str = "agent";
pub(super) const AGENT_METHOD: Method =
    Method::new(AGENT, Scope::Submit, |call, params| run(call, params, agent));
pub(super) const WAIT_METHOD: Method =
    Method::new("agent.wait", Scope::Read, |call, params| run(call, params, wait));

/// Milliseconds of a wait that names none, and of the longest one.
const DEFAULT_WAIT_MS: u64 = 30_000;
const MAX_WAIT_MS: u64 = 600_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AgentParams {
    message: String,
    agent_id: Option<String>,
    session_key: Option<String>,
    session_id: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    thinking: Option<String>,
    /// In seconds.
    timeout: Option<u64>,
    extra_system_prompt: Option<String>,
    cwd: Option<String>,
    deliver: Option<bool>,
    idempotency_key: Option<String>,
}

/// A run that is durable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentAccepted {
    run_id: RunId,
    session_key: String,
    session_id: String,
    status: &'static str,
    accepted_at: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WaitParams {
    run_id: String,
    timeout_ms: Option<u64>,
}

/// The outcome of a run, or its state when the wait is over.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentWaited {
    run_id: RunId,
    status: WaitStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    /// Why the run did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The outcome of a run that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// The state of a run that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RunStateView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// True if the answer was `NO_REPLY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent: Option<bool>,
    /// The last text of a run that did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum WaitStatus {
    Ok,
    Error,
    Timeout,
}

/// What a method that begins a run takes from its parameters.
#[derive(Debug, Default)]
pub(super) struct NewRun {
    pub(super) message: String,
    pub(super) agent: Option<AgentName>,
    pub(super) session: Option<String>,
    pub(super) model: Option<String>,
    pub(super) workspace: Option<String>,
    pub(super) system: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) timeout: Option<Duration>,
    /// With the token that it belongs to.
    pub(super) key: Option<Arc<str>>,
    /// How it queues, if it is a message to its session.
    pub(super) options: Option<MessageOptions>,
}

/// Begins a run: it is durable when this answers.
async fn agent(call: Call, params: AgentParams) -> Result<AgentAccepted, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    params::no_delivery(params.deliver)?;
    let fields = [
        ("sessionKey", &params.session_key),
        ("sessionId", &params.session_id),
        ("provider", &params.provider),
        ("model", &params.model),
        ("cwd", &params.cwd),
    ];
    fields.into_iter().try_for_each(|(field, text)| params::non_empty(field, text.as_deref()))?;
    if params.session_key.is_some() && params.session_id.is_some() {
        return Err(RpcError::param(
            "sessionId",
            "stands beside sessionKey; name the session by one of them",
        ));
    }
    let session = params.session_key.or(params.session_id);
    if let Some(name) = &session
        && let Some(row) = reach.session(name).await?
    {
        params::check_agent(&row, agent.as_ref())?;
    }
    let new = NewRun {
        key: params::key(reach.token(), params.idempotency_key.as_deref())?,
        message: params.message,
        agent,
        session,
        model: model(params.provider.as_deref(), params.model)?,
        workspace: params.cwd,
        system: params.extra_system_prompt,
        thinking: params.thinking,
        timeout: params.timeout.map(Duration::from_secs),
        options: None,
    };
    let accepted = submit(&call, new).await?;
    let row = reach.service().runtime.session(accepted.session).await?;
    Ok(AgentAccepted {
        run_id: accepted.run,
        session_key: row.key.to_string(),
        session_id: row.id.to_string(),
        status: "accepted",
        accepted_at: accepted.at.0,
    })
}

/// The name of the model, with that of its provider.
fn model(provider: Option<&str>, model: Option<String>) -> Result<Option<String>, RpcError> {
    match (provider, model) {
        (None, model) => Ok(model),
        (Some(provider), Some(model)) => Ok(Some(format!("{provider}/{model}"))),
        (Some(_), None) => {
            Err(RpcError::param("provider", "stands without a model; name one, or leave it out"))
        }
    }
}

/// Submits a run, to its end even if the client is gone meanwhile.
pub(super) async fn submit(call: &Call, new: NewRun) -> Result<AcceptedRun, RpcError> {
    if new.message.trim().is_empty() {
        return Err(RpcError::param("message", "is empty; say what the agent is to do"));
    }
    let input = RunInput {
        text: new.message.into(),
        images: Vec::new(),
        history: Vec::new(),
        isolation_key: None,
        expects: Vec::new(),
        request_hash: Some(call.request_hash),
    };
    let submission = Submission {
        input,
        session: new.session,
        agent: new.agent.map(|agent| agent.to_string()),
        model: new.model,
        workspace: new.workspace.map(Into::into),
        budget: BudgetLimits::default(),
        timeout: params::timeout(new.timeout),
        thinking: params::thinking(new.thinking.as_deref())?,
        system: new.system,
        deliver_to: None,
        must_answer: None,
        lane: Lane::Main,
        idempotency_key: new.key,
        message: new.options,
        occurrence: None,
    };
    let reach = &call.client.reach;
    reach.service().check_ready()?;
    let submission = reach.admit(submission).await?;
    Ok(reach.service().submit(submission).await?)
}

/// Waits for the outcome of a run. When the time is over, only the wait ends.
async fn wait(call: Call, params: WaitParams) -> Result<AgentWaited, RpcError> {
    let reach = &call.client.reach;
    let Some(run) = reach.message(&params.run_id).await?.ok_or_else(|| no_run(&params.run_id))?.run else {
        return dropped(reach, &params.run_id).await;
    };
    let limit = params.timeout_ms.unwrap_or(DEFAULT_WAIT_MS).min(MAX_WAIT_MS);
    wait_for(reach.service(), run, Some(Duration::from_millis(limit))).await
}

async fn wait_for(service: &Service, run: RunId, limit: Option<Duration>) -> Result<AgentWaited, RpcError> {
    let waited = tokio::select! {
        waited = service.runtime.wait(run, limit) => waited,
        () = service.closing.cancelled() => Err(RunError::WaitTimedOut(run)),
    };
    let view = match waited {
        Ok(result) => Some(RunWaitView::from(&result)),
        Err(RunError::WaitTimedOut(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(AgentWaited::new(&service.runtime.row(run).await?, view))
}

/// The answer about a message that was dropped before it was in a run.
async fn dropped(reach: &Reach, id: &str) -> Result<AgentWaited, RpcError> {
    let run_id: RunId = id.parse().map_err(|_| no_run(id))?;
    let fate = reach.message(id).await?.ok_or_else(|| no_run(id))?;
    Ok(AgentWaited {
        run_id,
        status: WaitStatus::Error,
        started_at: None,
        ended_at: None,
        error: fate.reason,
        outcome: None,
        state: None,
        answer: None,
        silent: None,
        partial: None,
    })
}

fn no_run(id: &str) -> Problem {
    Problem::not_found(format!("runId: there is no run and no message `{id}`; see `hermod runs list`"))
}

/// The row of the run with this id.
pub(super) async fn run_row(reach: &Reach, id: &str) -> Result<RunRow, RpcError> {
    let missing = || Problem::not_found(format!("runId: there is no run `{id}`; see `hermod runs list`"));
    let run: RunId = id.parse().map_err(|_| missing())?;
    Ok(reach.run(run).await?.ok_or_else(missing)?)
}

impl AgentWaited {
    /// `ended` is the result if the run has one.
    fn new(row: &RunRow, ended: Option<RunWaitView>) -> Self {
        let ms = |at: Option<Timestamp>| at.map(|at| at.0);
        let waited = Self {
            run_id: row.id,
            status: WaitStatus::Timeout,
            started_at: ms(row.started_at),
            ended_at: None,
            error: None,
            outcome: None,
            state: None,
            answer: None,
            silent: None,
            partial: None,
        };
        let Some(ended) = ended else { return Self { state: Some(row.state.into()), ..waited } };
        let is_ok = ended.outcome.as_deref() == Some(Outcome::Completed.name());
        Self {
            status: if is_ok { WaitStatus::Ok } else { WaitStatus::Error },
            // A run that was continued since is not over, but this leg of it is.
            ended_at: ms(row.ended_at),
            error: ended.reason,
            outcome: ended.outcome,
            answer: ended.answer,
            silent: ended.silent.then_some(true),
            partial: ended.partial,
            ..waited
        }
    }
}

/// The second answer that OpenClaw's clients expect to a call of `agent`, when its run has ended: `Ok` if it completed.
/// `accepted` is the first answer.
pub(in crate::service::rpc) async fn final_answer(
    reach: &Reach,
    accepted: &RawValue,
) -> Option<Result<Value, String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Accepted {
        run_id: RunId,
    }
    let Accepted { run_id } = serde_json::from_str(accepted.get()).ok()?;
    let waited = wait_for(reach.service(), run_id, None).await.ok()?;
    match waited.status {
        WaitStatus::Ok => Some(Ok(json!({
            "runId": run_id,
            "status": "ok",
            "summary": "completed",
            "result": { "payloads": payloads(waited.answer) },
        }))),
        WaitStatus::Error => Some(Err(waited.error.unwrap_or_else(|| "the run did not complete".into()))),
        // The service stops, and the run goes on at its next start.
        WaitStatus::Timeout => None,
    }
}

/// What is delivered of a run: nothing if it is silent.
fn payloads(answer: Option<String>) -> Vec<Value> {
    answer.into_iter().map(|text| json!({ "text": text })).collect()
}

/// Whether a run has not ended.
pub(super) const fn is_open(row: &RunRow) -> bool {
    !matches!(row.state, RunState::Ended)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{OutcomeCause, OutcomeDetail, SessionId, StopReason};

    use super::*;

    #[test]
    fn a_wait_shows_the_outcome_or_the_state() {
        let check = |row: &RunRow, has_ended: bool, expect: Value| {
            let ended = has_ended.then(|| RunWaitView::from(row.clone()));
            let mut shown = json!(AgentWaited::new(row, ended));
            assert_eq!(shown.as_object_mut().unwrap().remove("runId"), Some(json!(row.id)));
            assert_eq!(shown, expect);
        };
        let row = RunRow::new(RunId::from_bits(1), SessionId::from_bits(2), Timestamp(0), 1);
        check(&row, false, json!({ "status": "timeout", "state": "queued" }));
        let row = RunRow { state: RunState::Running, started_at: Some(Timestamp(5)), ..row };
        check(&row, false, json!({ "status": "timeout", "state": "running", "startedAt": 5 }));
        let row = RunRow { state: RunState::Ended, ended_at: Some(Timestamp(9)), ..row };
        let ended = |detail: OutcomeDetail| RunRow { ended: Some(detail), ..row.clone() };
        let completed = ended(OutcomeDetail { outcome: Outcome::Completed, cause: None });
        check(
            &completed,
            true,
            json!({ "status": "ok", "startedAt": 5, "endedAt": 9, "outcome": "completed" }),
        );
        let stop =
            OutcomeDetail::with_cause(Outcome::Stopped, OutcomeCause::Stop { reason: StopReason::Command });
        let reason = stop.to_string();
        check(
            &ended(stop),
            true,
            json!({ "status": "error", "startedAt": 5, "endedAt": 9, "outcome": "stopped", "error": reason }),
        );
    }

    #[test]
    fn a_provider_goes_with_its_model() {
        assert_eq!(model(None, Some("m".into())), Ok(Some("m".into())));
        assert_eq!(model(Some("p"), Some("m/n".into())), Ok(Some("p/m/n".into())));
        assert_eq!(model(None, None), Ok(None));
        assert!(model(Some("p"), None).is_err());
    }
}
