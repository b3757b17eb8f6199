//! Submits the run of a request: to the session that its conversation continues, or to a new one. Then waits for the end
//! of the run.

use std::sync::Arc;

use axum::http::HeaderMap;
use hermod_actors::{
    AcceptedRun, RunResult,
    model::{AgentName, Hash, Hasher, Lane, Message, Outcome, RunId, RunRow, RunState, ThinkingLevel},
};

use super::{
    conversation::ClientConversation,
    error::ApiError,
    sessions::{KnownSessions, LastAnswer, SessionClaim},
};
use crate::{
    host::{BudgetLimits, RunInput, Submission},
    service::{Service, problem::Problem, reach::Reach, routes::idempotency_key},
};

/// What the operations of this module use.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) service: Arc<Service>,
    pub(super) sessions: KnownSessions,
}

/// The run that a client asks for.
#[derive(Debug)]
pub(super) struct ClientRun {
    reach: Reach,
    pub(super) agent: AgentName,
    pub(super) conversation: ClientConversation,
    thinking: Option<ThinkingLevel>,
    /// The run whose conversation goes on, if the client names it.
    previous: Option<RunRow>,
    key: Option<Arc<str>>,
    request_hash: Hash,
}

/// Where a run is submitted.
#[derive(Debug, Default)]
struct Target {
    /// The session that goes on; `None` is a new one.
    session: Option<SessionClaim>,
    /// The conversation before the first run of a new session.
    history: Vec<Message>,
    /// The entry of the conversation, which is put back if the run is refused.
    taken: Option<(Hash, LastAnswer)>,
}

impl ClientRun {
    /// A run of the agent that the request calls its model. `operation` keeps requests of different operations apart that
    /// have the same body.
    pub(super) fn new(
        reach: Reach,
        (model, previous): (Option<String>, Option<RunRow>),
        conversation: ClientConversation,
        headers: &HeaderMap,
        (operation, body): (&str, Hash),
    ) -> Result<Self, ApiError> {
        let agent = match (&model, &previous) {
            (Some(model), _) => find_agent(&reach, model)?,
            (None, Some(previous)) => previous.agent.clone(),
            (None, None) => AgentName::default(),
        };
        if !reach.sees(&agent) {
            return Err(ApiError::forbidden_agent(&reach.token().name, agent.as_str()));
        }
        let key = idempotency_key(headers, reach.token())?;
        let mut hasher = Hasher::default();
        hasher.part(operation.as_bytes());
        hasher.part(body.as_bytes());
        let request_hash = hasher.finish();
        Ok(Self { reach, agent, conversation, thinking: None, previous, key, request_hash })
    }

    pub(super) fn with_thinking(self, thinking: Option<ThinkingLevel>) -> Self {
        Self { thinking, ..self }
    }

    fn submission(&self, target: &Target) -> Submission {
        let input = RunInput {
            text: self.conversation.input().into(),
            images: self.conversation.images(),
            history: target.history.clone(),
            isolation_key: None,
            expects: Vec::new(),
            request_hash: Some(self.request_hash),
        };
        Submission {
            input,
            session: target.session.as_ref().map(|claim| claim.session().to_string()),
            agent: Some(self.agent.to_string()),
            model: None,
            workspace: None,
            budget: BudgetLimits::default(),
            timeout: None,
            thinking: self.thinking,
            system: self.conversation.system(),
            deliver_to: None,
            must_answer: Some(true),
            lane: Lane::Main,
            idempotency_key: self.key.clone(),
            message: None,
            occurrence: None,
        }
    }
}

/// The agent that the request calls its model.
fn find_agent(reach: &Reach, model: &str) -> Result<AgentName, ApiError> {
    let agents = reach.service().submitter.agents();
    let agent = agents.into_iter().find(|agent| agent.as_str() == model);
    agent.ok_or_else(|| ApiError::no_agent(model, &reach.agents()))
}

impl Door {
    /// Submits the run, to its end even if the client is gone meanwhile. When this resolves with `Ok`, the run is durable.
    pub(super) async fn submit(&self, run: &ClientRun) -> Result<AcceptedRun, ApiError> {
        if let Some(first) = self.first_of_key(run).await? {
            return Ok(first);
        }
        self.service.check_ready()?;
        let target = self.target(run).await?;
        let submission = run.reach.admit(run.submission(&target)).await?;
        let Target { session, taken, .. } = target;
        let service = Arc::clone(&self.service);
        let submitted = tokio::spawn(async move {
            let submitted = service.submit(submission).await;
            drop(session);
            submitted
        });
        let error = match submitted.await.map_err(|_| Problem::stopping())? {
            Ok(accepted) => return Ok(accepted),
            Err(error) => error,
        };
        // A repeat may have come before its first request was durable.
        if let Some(first) = self.first_of_key(run).await? {
            return Ok(first);
        }
        if let Some((prefix, answer)) = taken {
            self.sessions.put(prefix, answer);
        }
        Err(ApiError::of_submission(error, run.key.is_some()))
    }

    /// The run that an earlier request with the same key began, if that was the same request. Its session may have gone on
    /// since, so the conversation is not looked for again.
    async fn first_of_key(&self, run: &ClientRun) -> Result<Option<AcceptedRun>, ApiError> {
        let Some(key) = &run.key else { return Ok(None) };
        let reader = self.service.handler.reader();
        let row = reader.read(|rows| rows.run_of_key(key)).await.map_err(Problem::from)?;
        let Some(row) = row else { return Ok(None) };
        let accepted = reader.acceptance(&row).await.map_err(Problem::from)?;
        if accepted.request_hash != Some(run.request_hash) {
            let text = format!(
                "the header Idempotency-Key stands for run {}, which another request began; repeat that request as it was, \
                 or give this one another key",
                row.id
            );
            return Err(Problem::unprocessable(text).into());
        }
        Ok(Some(AcceptedRun { run: row.id, session: row.session, at: row.accepted_at }))
    }

    async fn target(&self, run: &ClientRun) -> Result<Target, ApiError> {
        if let Some(previous) = &run.previous {
            return self.after(previous, run).await;
        }
        if !run.conversation.has_history() {
            return Ok(Target::default());
        }
        let prefix = run.conversation.prefix(&run.reach.token().id, run.agent.as_str());
        if let Some(answer) = self.sessions.take(prefix)
            && let Some(claim) = self.claim_after(answer).await?
        {
            return Ok(Target { session: Some(claim), history: Vec::new(), taken: Some((prefix, answer)) });
        }
        Ok(Target { history: run.conversation.history(), ..Target::default() })
    }

    /// The session of a run if the run is its last one, else a new session with the history up to that run.
    async fn after(&self, previous: &RunRow, run: &ClientRun) -> Result<Target, ApiError> {
        if previous.state != RunState::Ended {
            let reason = format!("run {} has not ended yet; wait for it, or cancel it", previous.id);
            return Err(ApiError::field("previous_response_id", reason));
        }
        let answer = LastAnswer { session: previous.session, run: previous.id };
        // Only a new session takes messages that no run of it has made, and a session has one agent.
        if !run.conversation.has_history()
            && previous.agent == run.agent
            && let Some(claim) = self.claim_after(answer).await?
        {
            return Ok(Target { session: Some(claim), ..Target::default() });
        }
        let mut history = self.service.runtime.messages_until(previous).await.map_err(Problem::from)?;
        history.retain(|message| !matches!(message, Message::System(_)));
        history.extend(run.conversation.history());
        Ok(Target { history, ..Target::default() })
    }

    /// Claims a session whose last run is this one and has ended.
    async fn claim_after(&self, answer: LastAnswer) -> Result<Option<SessionClaim>, ApiError> {
        let Some(claim) = self.sessions.claim(answer.session) else { return Ok(None) };
        let reader = self.service.handler.reader();
        let last = reader.read(|rows| rows.runs(Some(answer.session), 1)).await.map_err(Problem::from)?;
        let is_last = last.last().is_some_and(|row| row.id == answer.run && row.state == RunState::Ended);
        Ok(is_last.then_some(claim))
    }

    /// Waits for the end of a run. After a completed one its conversation can go on.
    pub(super) async fn wait(&self, run: &ClientRun, accepted: RunId) -> Result<RunResult, ApiError> {
        let waited = tokio::select! {
            waited = self.service.runtime.wait(accepted, None) => waited,
            () = self.service.closing.cancelled() => return Err(ApiError::stopping(accepted)),
        };
        let result = waited.map_err(|error| ApiError::of_run(accepted, error))?;
        // A client that names the run before does not bring its conversation.
        if result.ended.outcome == Outcome::Completed && run.previous.is_none() {
            let answer = result.text().unwrap_or_default();
            let prefix = run.conversation.next_prefix(&run.reach.token().id, run.agent.as_str(), answer);
            self.sessions.put(prefix, LastAnswer { session: result.session, run: result.run });
        }
        Ok(result)
    }
}
