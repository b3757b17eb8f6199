//! What a client reaches: a token that is limited to agents finds the runs and sessions of these, and all others look to
//! it as if they did not exist. Every operation that names or lists runs, sessions, approvals, deliveries or schedules gets them here, and every
//! submission passes here (`tests/architecture.rs`).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::StatusCode;
use hermod_actors::{
    model::{
        AgentName, ApprovalScope, CallId, DeliveryState, MessageFate, Record, RunId, RunRow, ScheduleName,
        Seq, SessionId, SessionRow, Timestamp,
    },
    port::StoredRecord,
};

use super::{Service, problem::Problem, session_search::TextSearch};
use crate::{
    access::TokenEntry,
    clock,
    control::DeliveryFilter,
    host::Submission,
    view::{
        ApprovalView, DaysView, DeliveryView, EventView, MessageAcceptedView, NodeView, OccurrenceView,
        PeriodUsageView, ScheduleView,
    },
};

/// Most sessions of which a stream remembers whether its client reaches them.
const MAX_KNOWN_SESSIONS: usize = 10_000;

/// The part of a service that one token reaches.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    service: Arc<Service>,
    token: Arc<TokenEntry>,
    /// The sessions that a stream has asked for.
    known: Arc<Mutex<BTreeMap<SessionId, bool>>>,
}

/// A submission that its token may make.
#[derive(Debug)]
pub(super) struct AdmittedSubmission(Submission);

impl AdmittedSubmission {
    pub(super) fn into_inner(self) -> Submission {
        self.0
    }
}

/// What a webhook of another service reaches: the message that it has become, and sessions of its agent.
#[derive(Debug)]
pub(super) struct InboundReach(pub(super) Arc<Service>);

impl InboundReach {
    /// The first message of this key, and its session. Keys have the name of the endpoint in them, so no other door has
    /// written it.
    pub(super) async fn first_of_key(&self, key: &str) -> Result<Option<MessageAcceptedView>, Problem> {
        let reader = self.0.handler.reader();
        let Some(message) = reader.read(|rows| rows.id_of_key(key)).await? else { return Ok(None) };
        let session = match reader.read(|rows| rows.message(message)).await? {
            Some(row) => Some(row.session),
            None => reader.read(|rows| rows.run(message)).await?.map(|row| row.session),
        };
        Ok(session.map(|session| MessageAcceptedView { message, session }))
    }

    /// Checks that a message goes to a session of this agent, or to a new one.
    pub(super) async fn admit(
        &self,
        submission: Submission,
        agent: &str,
    ) -> Result<AdmittedSubmission, Problem> {
        let name = submission.session.as_deref().unwrap_or_default();
        let session = self.0.handler.reader().read(|rows| rows.session_of_key(name)).await?;
        if session.is_some_and(|row| row.agent.as_str() != agent) {
            let detail =
                format!("session: `{name}` belongs to another agent than `{agent}`; take another key");
            return Err(Problem::unprocessable(detail).with_field("session"));
        }
        Ok(AdmittedSubmission(Submission { agent: Some(agent.to_owned()), ..submission }))
    }
}

impl Reach {
    pub(super) fn new(service: Arc<Service>, token: Arc<TokenEntry>) -> Self {
        Self { service, token, known: Arc::default() }
    }

    pub(super) const fn token(&self) -> &Arc<TokenEntry> {
        &self.token
    }

    pub(super) const fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// True if the token is limited to some agents.
    fn is_limited(&self) -> bool {
        self.token.agents.is_some()
    }

    /// True if the token reaches what this agent does.
    pub(super) fn sees(&self, agent: &AgentName) -> bool {
        self.token.may_use_agent(agent.as_str())
    }

    /// The agents that the token may use: `default` first, then the others by name.
    pub(super) fn agents(&self) -> Vec<AgentName> {
        self.service.submitter.agents().into_iter().filter(|agent| self.sees(agent)).collect()
    }

    /// The run with this id.
    pub(super) async fn run(&self, run: RunId) -> Result<Option<RunRow>, Problem> {
        let row = self.service.handler.reader().read(|rows| rows.run(run)).await?;
        Ok(row.filter(|row| self.sees(&row.agent)))
    }

    /// What became of the message with this id. A submitted run counts as a message, which is answered when it completes.
    pub(super) async fn message(&self, id: &str) -> Result<Option<MessageFate>, Problem> {
        let Ok(id) = id.parse::<RunId>() else { return Ok(None) };
        let Some((session, fate)) = self.service.runtime.message(id).await? else { return Ok(None) };
        Ok(self.sees_session(session).await?.then_some(fate))
    }

    /// The session with this id or this key.
    pub(super) async fn session(&self, name: &str) -> Result<Option<SessionRow>, Problem> {
        let row = self.service.handler.reader().session_of_id_or_key(name).await?;
        Ok(row.filter(|row| self.sees(&row.agent)))
    }

    /// True if the token reaches this session; false if that is gone and the token is limited.
    pub(super) async fn sees_session(&self, session: SessionId) -> Result<bool, Problem> {
        if !self.is_limited() {
            return Ok(true);
        }
        // Ignores poisoning: each update is one call.
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_seen) = known().get(&session) {
            return Ok(*is_seen);
        }
        let row = self.service.handler.reader().read(|rows| rows.session(session)).await?;
        let is_seen = row.is_some_and(|row| self.sees(&row.agent));
        let mut known = known();
        if known.len() >= MAX_KNOWN_SESSIONS {
            known.clear();
        }
        known.insert(session, is_seen);
        Ok(is_seen)
    }

    /// At most `max` runs before this one, the newest last, and whether there are no more before them. Runs that the token
    /// does not reach are `None`.
    pub(super) async fn runs_before(
        &self,
        before: Option<RunId>,
        max: usize,
    ) -> Result<(Vec<(RunId, Option<RunRow>)>, bool), Problem> {
        let read = self.service.handler.reader().read(|rows| match before {
            Some(before) => rows.runs_before(before, max),
            None => rows.runs(None, max),
        });
        let rows = read.await?;
        let is_all = rows.len() < max;
        let seen = rows.into_iter().map(|row| (row.id, Some(row).filter(|row| self.sees(&row.agent))));
        Ok((seen.collect(), is_all))
    }

    /// The session of a run whose row came from here; `None` if the run is not its newest, or if it was removed meanwhile.
    pub(super) async fn session_with_newest(&self, run: &RunRow) -> Result<Option<SessionRow>, Problem> {
        let reader = self.service.handler.reader();
        let newest = reader.read(|rows| rows.runs(Some(run.session), 1)).await?;
        if newest.first().is_none_or(|newest| newest.id != run.id) {
            return Ok(None);
        }
        Ok(reader.read(|rows| rows.session(run.session)).await?)
    }

    /// The beginning of the first task of a session whose row came from here; `None` if it cannot be read.
    pub(super) async fn first_task(&self, session: &SessionRow) -> Result<Option<String>, Problem> {
        Ok(self.service.handler.reader().first_task(session.id).await?)
    }

    /// At most `max` sessions before this one, as [`Reach::runs_before`] has runs.
    pub(super) async fn sessions_before(
        &self,
        before: Option<SessionId>,
        max: usize,
    ) -> Result<(Vec<(SessionId, Option<SessionRow>)>, bool), Problem> {
        let read = self.service.handler.reader().read(|rows| match before {
            Some(before) => rows.sessions_before(before, max),
            None => rows.sessions(max),
        });
        let rows = read.await?;
        let is_all = rows.len() < max;
        let seen = rows.into_iter().map(|row| (row.id, Some(row).filter(|row| self.sees(&row.agent))));
        Ok((seen.collect(), is_all))
    }

    /// What stands around a text in a session whose row came from here, and the number of records that were read. A
    /// session that cannot be read is searched as far as it can.
    pub(super) async fn search_session(
        &self,
        session: &SessionRow,
        search: &TextSearch,
    ) -> Result<(Option<String>, usize), Problem> {
        let (mut found, mut read) = (None, 0);
        let take = |_, record: &Record| {
            read += 1;
            if found.is_none() {
                found = search.in_record(record);
            }
        };
        self.service.handler.reader().readable_records(session.id, 1, take).await?;
        Ok((found, read))
    }

    /// Passes the records of a run to `each`; its row came from here.
    pub(super) async fn records_of_run(
        &self,
        row: &RunRow,
        each: impl FnMut(&Record) + Send,
    ) -> Result<(), Problem> {
        Ok(self.service.handler.reader().records_of_run(row, each).await?)
    }

    /// The newest runs of a session that the token reaches, at most `max`, the newest last.
    pub(super) async fn runs_of(&self, session: &SessionRow, max: usize) -> Result<Vec<RunRow>, Problem> {
        Ok(self.service.handler.reader().read(|rows| rows.runs(Some(session.id), max)).await?)
    }

    /// A page of the records of a run whose row came from here, and where the next one begins.
    pub(super) async fn run_records(
        &self,
        row: &RunRow,
        from: Option<Seq>,
    ) -> Result<(Vec<EventView>, Option<Seq>), Problem> {
        let page = self.service.handler.reader().run_records(row, from).await?;
        let view = |stored: &StoredRecord| {
            EventView::new(stored.seq, &stored.record).map_err(|error| {
                let text = format!("record {} cannot be shown as JSON: {error}", stored.seq);
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            })
        };
        Ok((page.records.iter().map(view).collect::<Result<_, _>>()?, page.next))
    }

    /// What the runs of the newest days cost.
    pub(super) async fn days(&self, count: u32) -> Result<DaysView, Problem> {
        Ok(self.service.handler.days(count, |agent| self.sees(agent)).await?)
    }

    /// All unfinished runs that the token reaches.
    pub(super) async fn unfinished_runs(&self) -> Result<Vec<RunRow>, Problem> {
        let mut rows = self.service.handler.reader().read(|rows| rows.open_runs()).await?;
        rows.retain(|row| self.sees(&row.agent));
        Ok(rows)
    }

    /// The unfinished runs of a session that the token reaches.
    pub(super) async fn unfinished_runs_of(&self, session: &SessionRow) -> Result<Vec<RunRow>, Problem> {
        let mut rows = self.unfinished_runs().await?;
        rows.retain(|row| row.session == session.id);
        Ok(rows)
    }

    /// The limits of all runs of the store together, and what is used of them; empty for a token that is limited to agents.
    pub(super) async fn store_limits(&self) -> Result<Vec<PeriodUsageView>, Problem> {
        if self.is_limited() {
            return Ok(Vec::new());
        }
        let limits = self.service.runtime.store_limits();
        Ok(self.service.handler.reader().periods(&limits, clock::now()).await?)
    }

    /// The calls that wait for a person.
    pub(super) async fn approvals(&self) -> Result<Vec<ApprovalView>, Problem> {
        let mut approvals = self.service.handler.reader().approvals().await?;
        if self.is_limited() {
            let mut seen = Vec::new();
            for approval in approvals {
                seen.extend(self.run(approval.run).await?.map(|_| approval));
            }
            approvals = seen;
        }
        Ok(approvals)
    }

    /// Messages to targets, at most `max` of each state before those of other agents are left out.
    pub(super) async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        max: usize,
    ) -> Result<Vec<DeliveryView>, Problem> {
        let mut deliveries = self.service.handler.reader().deliveries(filter, max).await?;
        if self.is_limited() {
            let mut seen = Vec::new();
            for delivery in deliveries {
                seen.extend(self.run(delivery.run).await?.map(|_| delivery));
            }
            deliveries = seen;
        }
        Ok(deliveries)
    }

    /// The message to a target with this id.
    pub(super) async fn delivery(&self, id: &str) -> Result<DeliveryView, Problem> {
        let unknown = || Problem::not_found(format!("there is no message {id}"));
        let found = self.service.handler.reader().find_delivery(id).await?.ok_or_else(unknown)?;
        let is_seen = !self.is_limited() || self.run(found.delivery.message.run).await?.is_some();
        is_seen.then(|| DeliveryView::new(found)).ok_or_else(unknown)
    }

    /// Sends a dead message again.
    pub(super) async fn retry_delivery(&self, id: &str) -> Result<DeliveryView, Problem> {
        let DeliveryView { state, .. } = self.delivery(id).await?;
        if state != DeliveryState::Dead {
            let detail = format!("message {id} is {state}; only dead ones are sent again");
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        self.service.handler.retry_deliveries(Some(id), None).await?;
        self.delivery(id).await
    }

    /// The schedules whose agent the token reaches.
    pub(super) async fn schedules(&self) -> Result<Vec<ScheduleView>, Problem> {
        let mut schedules = self.service.handler.reader().schedules().await?;
        schedules.retain(|schedule| self.sees_schedule(schedule));
        Ok(schedules)
    }

    /// True if the token reaches what this schedule does.
    pub(super) fn sees_schedule(&self, schedule: &ScheduleView) -> bool {
        schedule.definition.agent.as_deref().map_or_else(
            || self.sees(&AgentName::default()),
            |agent| agent.parse().is_ok_and(|agent| self.sees(&agent)),
        )
    }

    /// The schedule of this name, also if the token does not reach it: the name is taken.
    pub(super) async fn find_schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleView>, Problem> {
        let reader = self.service.handler.reader();
        match reader.read(|rows| rows.schedule(name.clone())).await? {
            Some(schedule) => Ok(Some(reader.schedule_view(schedule).await?)),
            None => Ok(None),
        }
    }

    /// The schedule of this name.
    pub(super) async fn schedule(&self, name: &ScheduleName) -> Result<ScheduleView, Problem> {
        let found = self.find_schedule(name).await?.filter(|schedule| self.sees_schedule(schedule));
        found.ok_or_else(|| Problem::not_found(format!("there is no schedule `{name}`")))
    }

    /// Occurrences of the schedule of this name, the newest first.
    pub(super) async fn schedule_history(
        &self,
        name: ScheduleName,
        since: Option<Timestamp>,
        max: usize,
    ) -> Result<Vec<OccurrenceView>, Problem> {
        self.schedule(&name).await?;
        Ok(self.service.handler.reader().schedule_history(Some(name), since, max).await?)
    }

    /// The call that waits for an answer.
    pub(super) async fn pending_call(&self, call: &str) -> Result<CallId, Problem> {
        let call: CallId =
            call.parse().map_err(|_| Problem::not_found(format!("`{call}` is no id of a call")))?;
        let is_open = self.approvals().await?.iter().any(|approval| approval.call == call);
        is_open.then_some(call).ok_or_else(|| Problem::not_found(format!("call {call} waits for no answer")))
    }

    /// Checks that the token may give an approval of this scope: a rule for always holds for all agents.
    pub(super) fn check_scope(&self, scope: ApprovalScope) -> Result<(), Problem> {
        if scope != ApprovalScope::Always || !self.is_limited() {
            return Ok(());
        }
        let detail = format!(
            "scope: `always` makes a rule for all agents, and the token `{}` is limited to some; use `run` or `once`",
            self.token.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    /// All unfinished runs with their subagents, which have the agent of their parent.
    pub(super) async fn tree(&self) -> Result<Vec<NodeView>, Problem> {
        let mut nodes = self.service.handler.tree(None).await?;
        nodes.retain(|node| self.sees(&node.run.agent));
        Ok(nodes)
    }

    /// Checks that the token may make this submission. One that names no agent gets that of its session, else `default`.
    pub(super) async fn admit(&self, mut submission: Submission) -> Result<AdmittedSubmission, Problem> {
        let session = match &submission.session {
            Some(name) => self.service.handler.reader().session_of_id_or_key(name).await?,
            None => None,
        };
        if let (Some(row), Some(name)) = (&session, &submission.session)
            && !self.sees(&row.agent)
        {
            return Err(Problem::not_found(format!("there is no session `{name}`")));
        }
        let agent = submission
            .agent
            .get_or_insert_with(|| session.map_or_else(AgentName::default, |row| row.agent).to_string());
        if !self.token.may_use_agent(agent) {
            let detail = format!("the token `{}` may not use the agent `{agent}`", self.token.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(AdmittedSubmission(submission))
    }
}
