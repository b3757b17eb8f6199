//! View of what happened in a time: what ran, what failed, what waits, and what it cost.

use std::collections::BTreeMap;

use hermod_actors::model::{
    AgentName, CallId, ModelRef, OutcomeDetail, RunId, ScheduleName, SessionId, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{
    account::PeriodUsageView, delivery::DeliveryView, encoding, operations::ServiceStatusView,
    schedule::OccurrenceView,
};

/// What happened in a time: `{since, until, runs, failed, waiting, dead_letters, schedules, cost, limits, service}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportView {
    /// The beginning of the time.
    #[serde(with = "encoding::time")]
    pub since: Timestamp,
    /// The end of the time.
    #[serde(with = "encoding::time")]
    pub until: Timestamp,
    /// The runs that were under way in it.
    pub runs: ReportRunsView,
    /// Those that ended in it without success and can only be tried again, the newest first; none of subagents. Runs that
    /// failed alike are one item.
    pub failed: ReportList<ReportRunView>,
    /// What waits for a person now.
    pub waiting: ReportList<ReportWaitView>,
    /// Messages that could not be delivered, and are not tried again by themselves.
    pub dead_letters: ReportList<DeliveryView>,
    /// What became of schedules.
    #[serde(default)]
    pub schedules: ReportSchedulesView,
    /// What it cost.
    pub cost: ReportCostView,
    /// What all runs together may use in the present periods, the shortest first; empty without limits.
    pub limits: Vec<PeriodUsageView>,
    /// The service that holds the store; `None` without one.
    pub service: Option<Box<ServiceStatusView>>,
}

/// The occurrences of schedules in a time, and the schedules that are paused: `{ran, missed, skipped, left_out, paused}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReportSchedulesView {
    /// Occurrences that became runs.
    pub ran: u64,
    /// Those that should have run, and could not.
    pub missed: u64,
    /// Those that a rule or a person left out.
    pub skipped: u64,
    /// What was missed, the newest first.
    pub left_out: ReportList<OccurrenceView>,
    /// The schedules that are paused now.
    pub paused: ReportList<ReportPauseView>,
}

/// A paused schedule: `{schedule, since, reason}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportPauseView {
    /// Its name.
    pub schedule: ScheduleName,
    /// Since when.
    #[serde(with = "encoding::time")]
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

impl<T> Default for ReportList<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: 0 }
    }
}

/// A list that is cut: `{items, more}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportList<T> {
    /// The first items.
    pub items: Vec<T>,
    /// Number of further ones.
    pub more: u64,
}

/// The runs of a time: `{total, subagents, resumed, outcomes, agents}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReportRunsView {
    /// Number of runs that were under way.
    pub total: u64,
    /// Those of them that are subagents'.
    pub subagents: u64,
    /// Those of them that went on after their process or their actor had ended.
    pub resumed: u64,
    /// Number of runs by outcome; `unfinished` for those that had none at the end of the time.
    pub outcomes: BTreeMap<String, u64>,
    /// By agent, in the order of names.
    pub agents: Vec<ReportAgentView>,
}

/// The runs of one agent: `{agent, runs, completed, spent_usd}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAgentView {
    /// The agent.
    pub agent: AgentName,
    /// Number of its runs, those of subagents too.
    pub runs: u64,
    /// Those of them that completed.
    pub completed: u64,
    /// What they spent in the time, without their subagents.
    #[serde(with = "encoding::dollars_known")]
    pub spent_usd: u64,
}

/// A run that ended without success, and the number of older ones that failed alike: the same task, outcome and cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRunView {
    /// Its id.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// The beginning of its task.
    pub input: String,
    /// Its outcome and the cause.
    #[serde(flatten, with = "encoding::outcome")]
    pub ended: Option<OutcomeDetail>,
    /// When it ended.
    #[serde(with = "encoding::time")]
    pub ended_at: Timestamp,
    /// How many runs of the time ended so, this one included.
    #[serde(default = "one")]
    pub times: u64,
    /// The last failure of a model call or a tool call before its end.
    pub last_error: Option<String>,
    /// The command with which it goes on.
    pub next: String,
}

/// Something that waits for a person: `{what, run, call, text, since, until, next}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportWaitView {
    /// What it is.
    pub what: ReportWaitKind,
    /// The run.
    pub run: RunId,
    /// The call, of an approval or a question.
    pub call: Option<CallId>,
    /// The question, or the beginning of the task.
    pub text: String,
    /// Since when it waits.
    #[serde(with = "encoding::time")]
    pub since: Timestamp,
    /// When a missing answer counts as a denial.
    #[serde(with = "encoding::optional_time")]
    pub until: Option<Timestamp>,
    /// The command that answers it.
    pub next: String,
}

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReportWaitKind {
    /// A person's approval of a call.
    Approval,
    /// A person's answer to a question of the model.
    Question,
    /// A larger budget; the run ended for the lack of it in the time of the report.
    Budget,
    /// A process that runs it.
    Process,
}

/// What was spent in a time: `{spent_usd, unattributed_usd, requests, failed_requests, unpriced_requests, models}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReportCostView {
    /// Money that was booked, by the accounts; a failed attempt that may have been worked on counts as its reservation.
    #[serde(with = "encoding::dollars_known")]
    pub spent_usd: u64,
    /// The part of it that belongs to no model: reservations of runs that were ended without their sessions.
    #[serde(with = "encoding::dollars_known")]
    pub unattributed_usd: u64,
    /// Requests that reached a provider and are over.
    pub requests: u64,
    /// Those of them that failed.
    pub failed_requests: u64,
    /// Those whose price is not known; they are not in `spent_usd`.
    pub unpriced_requests: u64,
    /// By model, in the order of names.
    pub models: Vec<ReportModelView>,
}

/// What was used of one model: `{model, requests, failed_requests, input_tokens, output_tokens, spent_usd}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportModelView {
    /// The model.
    pub model: ModelRef,
    /// Requests that reached its provider and are over.
    pub requests: u64,
    /// Those of them that failed.
    pub failed_requests: u64,
    /// Tokens read, as far as reported.
    pub input_tokens: u64,
    /// Tokens written, as far as reported.
    pub output_tokens: u64,
    /// Money that was booked.
    #[serde(with = "encoding::dollars_known")]
    pub spent_usd: u64,
}

const fn one() -> u64 {
    1
}

impl ReportView {
    /// Number of runs that failed.
    pub fn failed_runs(&self) -> u64 {
        self.failed.items.iter().fold(self.failed.more, |sum, run| sum.saturating_add(run.times))
    }
}

impl<T> ReportList<T> {
    /// The first `max` items, and the number of the others.
    pub fn new(mut items: Vec<T>, max: usize) -> Self {
        let more = items.len().saturating_sub(max) as u64;
        items.truncate(max);
        Self { items, more }
    }

    /// Number of all items.
    pub fn count(&self) -> u64 {
        self.more.saturating_add(self.items.len() as u64)
    }
}
