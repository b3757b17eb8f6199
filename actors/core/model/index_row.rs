//! The index rows of runs and sessions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AccountId, AgentName, Body, Lane, OutcomeDetail, ParentRef, PendingApproval, QueueOverrides, RunId,
    ScheduleName, Seq, SessionId, Timestamp, Usage,
};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Accepted; an earlier run of its session runs first.
    Queued,
    /// Under way.
    Running,
    /// Waits for a person's approval.
    Parked,
    /// Has its outcome.
    Ended,
}

/// The index row of a run, written at each change of its state, and every 128 records of its session while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Its session.
    pub session: SessionId,
    /// The agent of its spec.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub agent: AgentName,
    /// Its account.
    pub account: AccountId,
    /// Its state.
    pub state: RunState,
    /// Time of its acceptance.
    pub accepted_at: Timestamp,
    /// Time of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Its outcome and cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<OutcomeDetail>,
    /// Iterations of an ended run. 0 before the end; then `counts` has the number.
    pub iterations: u32,
    /// Usage of an ended run. Zero before the end; then `counts` has it.
    pub usage: Usage,
    /// The delegating call; absent for a submitted run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// The number of its present leg, from 1; each reopening with a larger budget starts another.
    #[serde(default = "first_leg", skip_serializing_if = "is_first_leg")]
    pub leg: u32,
    /// Sequence number of the record that accepted the run.
    pub first: Seq,
    /// Sequence number of the record that wrote this row; for an ended run, of its terminal record.
    pub last: Seq,
    /// The counts of an unfinished run up to the record `last`; absent in rows of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<RunCounts>,
    /// The approvals that a parked run waits for; absent in rows of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<PendingApproval>>,
    /// The names of the targets that get its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliver_to: Vec<String>,
    /// The last record that settles an aside of the run after its end; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asides_until: Option<Seq>,
    /// The lane in which it needs a place, if that has a limit.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub lane: Lane,
    /// The schedule of whose occurrence it is the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
}

impl RunRow {
    /// The row of a run that was accepted with the record `first` and has not started.
    pub fn new(id: RunId, session: SessionId, accepted_at: Timestamp, first: Seq) -> Self {
        Self {
            id,
            session,
            agent: AgentName::default(),
            account: id.into(),
            state: RunState::Queued,
            accepted_at,
            started_at: None,
            ended_at: None,
            ended: None,
            iterations: 0,
            usage: Usage::default(),
            parent: None,
            leg: 1,
            first,
            last: first,
            counts: None,
            approvals: None,
            deliver_to: Vec::new(),
            asides_until: None,
            lane: Lane::default(),
            schedule: None,
        }
    }
}

/// What the records of an unfinished run add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunCounts {
    /// Iterations that have their answer.
    pub iterations: u32,
    /// Tokens used by the run's model calls.
    pub usage: Usage,
}

impl RunCounts {
    /// Adds a record of the run.
    pub fn take(&mut self, body: &Body) {
        self.iterations += u32::from(matches!(body, Body::ModelAnswered(_)));
        if let Some((_, Some(usage))) = body.settled_usage() {
            self.usage.add(usage);
        }
    }
}

const fn first_leg() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
const fn is_first_leg(leg: &u32) -> bool {
    *leg == 1
}

/// The index row of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// The caller's session key, unique in the store.
    pub key: Arc<str>,
    /// The agent of all its runs.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub agent: AgentName,
    /// Time of its first opening.
    pub opened_at: Timestamp,
    /// Its title, once a model has given it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    /// How its messages queue, where that is set for it.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub queue: QueueOverrides,
}

impl SessionRow {
    /// The row of a session of the default agent.
    pub fn new(id: SessionId, key: impl Into<Arc<str>>, opened_at: Timestamp) -> Self {
        let (agent, queue) = (AgentName::default(), QueueOverrides::default());
        Self { id, key: key.into(), agent, opened_at, title: None, queue }
    }
}
