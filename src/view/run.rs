//! Views of runs: in a list, in detail, and in a tree with their subagents. Also of their sessions. `control/tree.rs`
//! builds the trees.

use hermod_actors::model::{
    AgentName, Amounts, BudgetAccount, ModelRef, OutcomeDetail, ParentRef, QueueOverrides, RunAccepted,
    RunId, RunRow, RunSpec, RunState, RunWait, SessionId, SessionRow, Timestamp, Usage, WaitKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    encoding,
    schema::{BudgetAmounts, Id, Model, Parent, RunEnd, SessionQueue, Time, TokenUsage, Wait},
};

/// Characters of a run's input in a summary.
const MAX_INPUT_CHARS: usize = 200;

/// The state of a run, as far as it is stored, and whether a process runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStateView {
    /// Accepted; an earlier run of its session runs first.
    Queued,
    /// Under way.
    Running,
    /// Waits for a person's approval.
    Parked,
    /// Has its outcome.
    Ended,
    /// Queued or running by its records, but no process runs it: it was suspended, or its process died.
    Suspended,
}

impl RunStateView {
    /// The name in JSON and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Ended => "ended",
            Self::Suspended => "suspended",
        }
    }
}

impl From<RunState> for RunStateView {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Queued => Self::Queued,
            RunState::Running => Self::Running,
            RunState::Parked => Self::Parked,
            RunState::Ended => Self::Ended,
        }
    }
}

/// A run: `{id, session, agent, state, outcome, cause, …of the cause, accepted_at, started_at, ended_at, legs, iterations,
/// usage}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// The run's id.
    #[schema(value_type = Id)]
    pub id: RunId,
    /// The run's session.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// The run's agent; owners of earlier versions do not tell it.
    #[serde(default)]
    #[schema(value_type = String)]
    pub agent: AgentName,
    /// The run's state.
    pub state: RunStateView,
    /// The outcome and its cause; `None` (`null`) if the run has not ended.
    #[serde(flatten, with = "encoding::outcome")]
    #[schema(value_type = RunEnd)]
    pub ended: Option<OutcomeDetail>,
    /// When the run was accepted.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub accepted_at: Timestamp,
    /// When the run started; `None` if it has not.
    #[serde(with = "encoding::optional_time")]
    #[schema(value_type = Option<Time>, required)]
    pub started_at: Option<Timestamp>,
    /// When the run ended; `None` if it has not.
    #[serde(with = "encoding::optional_time")]
    #[schema(value_type = Option<Time>, required)]
    pub ended_at: Option<Timestamp>,
    /// Number of legs; absent if it is 1.
    #[serde(default = "one_leg", skip_serializing_if = "is_one_leg")]
    pub legs: u32,
    /// Number of iterations.
    pub iterations: u32,
    /// Usage of the run's model calls.
    #[schema(value_type = TokenUsage)]
    pub usage: Usage,
}

const fn one_leg() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
pub(super) const fn is_one_leg(legs: &u32) -> bool {
    *legs == 1
}

/// A run that has ended, or that a process runs.
impl From<RunRow> for RunView {
    fn from(row: RunRow) -> Self {
        Self {
            id: row.id,
            session: row.session,
            agent: row.agent,
            state: row.state.into(),
            ended: row.ended,
            accepted_at: row.accepted_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
            legs: row.leg,
            iterations: row.iterations,
            usage: row.usage,
        }
    }
}

impl RunView {
    /// A run that no process runs. A parked run needs none and is not suspended.
    pub fn without_process(row: RunRow) -> Self {
        let is_suspended = matches!(row.state, RunState::Queued | RunState::Running);
        let view = Self::from(row);
        if is_suspended { Self { state: RunStateView::Suspended, ..view } } else { view }
    }
}

/// A run in a list: `{…of the run, title, input, model, workspace, spent_usd, has_process}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSummaryView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The title of its session; `None` while that has none.
    #[serde(default)]
    #[schema(required)]
    pub title: Option<String>,
    /// The beginning of the input, at most 200 characters; empty if the session cannot be read.
    pub input: String,
    /// The first model of the chain; `None` if the session cannot be read.
    #[schema(value_type = Option<Model>, required)]
    pub model: Option<ModelRef>,
    /// The folder in which the run's tools work; `None` if the session cannot be read.
    #[schema(required)]
    pub workspace: Option<String>,
    /// Money booked on the run's account, including its subagents; `None` if no price was known, or the account
    /// cannot be read.
    #[serde(with = "encoding::dollars")]
    #[schema(value_type = Option<f64>, required)]
    pub spent_usd: Option<u64>,
    /// Whether a process runs the run, or would at once: it may be queued or parked there.
    #[serde(default)]
    pub has_process: bool,
    /// Why the session or the account cannot be read; absent if both can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RunSummaryView {
    /// The beginning of an input, as summaries and trees show it.
    pub fn shorten_input(input: &str) -> String {
        input.chars().take(MAX_INPUT_CHARS).collect()
    }

    /// Summarizes a run from the record of its acceptance; `None` if that cannot be read.
    pub fn new(run: RunView, accepted: Option<&RunAccepted>) -> Self {
        Self {
            run,
            title: None,
            input: accepted.map_or_else(String::new, |accepted| Self::shorten_input(&accepted.input)),
            model: accepted.and_then(|accepted| accepted.spec.chain.first().cloned()),
            workspace: accepted.map(|accepted| accepted.spec.workspace.clone()),
            spent_usd: None,
            has_process: false,
            unreadable: None,
        }
    }
}

/// All details of a run: `{…of the run, title, waits, cost_usd, spent_usd, unpriced, input, said, spec}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunDetailView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The title of its session; `None` while that has none.
    #[serde(default)]
    #[schema(required)]
    pub title: Option<String>,
    /// What the run waits for; empty if it has ended.
    #[schema(value_type = Vec<Wait>)]
    pub waits: Vec<RunWait>,
    /// Cost of the run's model calls; `None` if it is not known for all of them.
    #[serde(rename = "cost_usd", with = "encoding::dollars")]
    #[schema(value_type = Option<f64>, required)]
    pub cost: Option<u64>,
    /// Money booked on the run's account, including its subagents and failed attempts; `None` if no price was known.
    #[serde(default, with = "encoding::dollars")]
    #[schema(value_type = Option<f64>, required)]
    pub spent_usd: Option<u64>,
    /// Models whose part of the cost is unknown.
    #[schema(value_type = Vec<Model>)]
    pub unpriced: Vec<ModelRef>,
    /// The run's task.
    pub input: String,
    /// The model's latest text.
    #[serde(rename = "said")]
    #[schema(required)]
    pub last_text: Option<String>,
    /// Specification from the run's acceptance; `None` if the session cannot be read.
    #[serde(with = "encoding::money")]
    #[schema(value_type = Option<Object>, required)]
    pub spec: Option<RunSpec>,
    /// Why the session cannot be read, in which case only `run` is known; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RunDetailView {
    /// The detail of a run whose session cannot be read, with the reason.
    pub fn unreadable(run: RunView, reason: String) -> Self {
        Self {
            run,
            title: None,
            waits: Vec::new(),
            cost: None,
            spent_usd: None,
            unpriced: Vec::new(),
            input: String::new(),
            last_text: None,
            spec: None,
            unreadable: Some(reason),
        }
    }

    /// True if no process runs the run; the owner of the store may run another one.
    pub fn is_unowned(&self) -> bool {
        self.waits.iter().any(|wait| wait.kind == WaitKind::NoProcess)
    }
}

/// A run and its subagents: `{…of the run, parent, input, limits, spent, reserved, waits, children}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The delegating call; `None` for a run that is no subagent's.
    #[schema(value_type = Option<Parent>, required)]
    pub parent: Option<ParentRef>,
    /// The beginning of the input, at most 200 characters; empty if the journal cannot be read.
    pub input: String,
    /// The limits of the run's account; `None` without an account.
    #[serde(with = "encoding::money")]
    #[schema(value_type = Option<BudgetAmounts>, required)]
    pub limits: Option<Amounts>,
    /// What is spent of them.
    #[serde(with = "encoding::money")]
    #[schema(value_type = Option<BudgetAmounts>, required)]
    pub spent: Option<Amounts>,
    /// What calls in progress have reserved of them.
    #[serde(with = "encoding::money")]
    #[schema(value_type = Option<BudgetAmounts>, required)]
    pub reserved: Option<Amounts>,
    /// What the run waits for; empty if it has ended.
    #[schema(value_type = Vec<Wait>)]
    pub waits: Vec<RunWait>,
    /// The subagents, including ended ones, in the order of their start.
    #[schema(no_recursion)]
    pub children: Vec<NodeView>,
}

impl NodeView {
    /// A node without input, waits and children.
    pub fn new(run: RunView, parent: Option<ParentRef>, account: Option<&BudgetAccount>) -> Self {
        Self {
            run,
            parent,
            input: String::new(),
            limits: account.map(|account| account.limits),
            spent: account.map(|account| account.spent),
            reserved: account.map(|account| account.reserved),
            waits: Vec::new(),
            children: Vec::new(),
        }
    }
}

/// A session: `{id, key, agent, opened_at, title, queue, quarantined}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// The session's id.
    #[schema(value_type = Id)]
    pub id: SessionId,
    /// The caller's session key.
    pub key: String,
    /// The agent of all its runs.
    #[serde(default)]
    #[schema(value_type = String)]
    pub agent: AgentName,
    /// When the session was first opened.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub opened_at: Timestamp,
    /// Its title; `None` while it has none.
    #[serde(default)]
    #[schema(required)]
    pub title: Option<String>,
    /// How its messages queue, as far as that is set for it; absent if nothing is.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(value_type = Option<SessionQueue>)]
    pub queue: QueueOverrides,
    /// Why this version cannot read the journal; `None` if it can.
    #[schema(required)]
    pub quarantined: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl SessionView {
    /// A session from its row.
    pub fn new(row: &SessionRow, quarantined: Option<String>) -> Self {
        let (key, agent) = (row.key.to_string(), row.agent.clone());
        let (title, queue) = (row.title.as_deref().map(str::to_owned), row.queue);
        Self { id: row.id, key, agent, opened_at: row.opened_at, title, queue, quarantined }
    }
}

/// Conversations: `{conversations, is_cut}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationListView {
    /// Those with the latest runs, the latest first.
    pub conversations: Vec<ConversationView>,
    /// There are more.
    pub is_cut: bool,
}

/// A conversation to choose: `{…of the session, task, workspace, last_run_at}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationView {
    /// The session; whether it can be read is known only if that was asked.
    #[serde(flatten)]
    pub session: SessionView,
    /// The beginning of its first task, at most 200 characters; empty if the session cannot be read.
    pub task: String,
    /// The folder of its latest run; `None` if that cannot be read.
    pub workspace: Option<String>,
    /// When its latest run was accepted.
    #[serde(with = "encoding::time")]
    pub last_run_at: Timestamp,
}

impl ConversationView {
    /// The title of the session, else its first task.
    pub fn title(&self) -> &str {
        self.session.title.as_deref().unwrap_or(&self.task)
    }
}

/// A session in a list, whose journal is not read: `{id, key, agent, opened_at, title}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionSummaryView {
    /// The session's id.
    #[schema(value_type = Id)]
    pub id: SessionId,
    /// The caller's session key.
    pub key: String,
    /// The agent of all its runs.
    #[serde(default)]
    #[schema(value_type = String)]
    pub agent: AgentName,
    /// When the session was first opened.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub opened_at: Timestamp,
    /// Its title; `None` while it has none.
    #[serde(default)]
    #[schema(required)]
    pub title: Option<String>,
}

impl From<&SessionRow> for SessionSummaryView {
    fn from(row: &SessionRow) -> Self {
        let (key, agent) = (row.key.to_string(), row.agent.clone());
        let title = row.title.as_deref().map(str::to_owned);
        Self { id: row.id, key, agent, opened_at: row.opened_at, title }
    }
}

/// A session and its runs: `{…of the session, runs, todo}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionDetailView {
    /// The session.
    #[serde(flatten)]
    pub session: SessionView,
    /// The session's newest runs.
    pub runs: Vec<RunView>,
    /// The model's to-do list, one item per line; `None` if it is empty or cannot be read.
    #[schema(required)]
    pub todo: Option<String>,
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{BudgetRefusal, Dimension, Outcome, OutcomeCause};
    use serde_json::json;

    use super::*;

    fn row(ended: Option<OutcomeDetail>) -> RunRow {
        RunRow {
            state: if ended.is_some() { RunState::Ended } else { RunState::Running },
            started_at: Some(Timestamp(1)),
            ended,
            iterations: 3,
            usage: Usage { input_tokens: 5, output_tokens: 6, ..Usage::default() },
            leg: 2,
            last: 9,
            ..RunRow::new(RunId::from_bits(1), SessionId::from_bits(2), Timestamp(0), 1)
        }
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let account = RunId::from_bits(1).into();
        let (dimension, limit) = (Dimension::Usd, 500_000_000);
        let refusal = BudgetRefusal { account, dimension, limit, spent: 1, reserved: 0, needed: Some(2) };
        let limited = OutcomeDetail::with_cause(Outcome::BudgetExhausted, OutcomeCause::Limit { refusal });
        let completed = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        for ended in [None, Some(completed), Some(limited)] {
            let run = RunView::from(row(ended));
            let summary = RunSummaryView { spent_usd: Some(7), ..RunSummaryView::new(run.clone(), None) };
            let detail = RunDetailView::unreadable(run, "why".into());
            let written = json!([summary, detail]);
            assert_eq!(
                serde_json::from_value::<(_, _)>(written.clone()).unwrap(),
                (summary, detail),
                "{written}"
            );
        }
    }

    #[test]
    fn a_run_that_is_under_way_has_no_outcome() {
        assert_eq!(
            json!(RunView::without_process(row(None))).to_string(),
            json!({
                "id": "00000000000000000000000001", "session": "00000000000000000000000002", "agent": "default",
                "state": "suspended",
                "outcome": null, "cause": null, "accepted_at": "1970-01-01T00:00:00.000Z",
                "started_at": "1970-01-01T00:00:00.001Z", "ended_at": null, "legs": 2, "iterations": 3,
                "usage": { "input_tokens": 5, "output_tokens": 6 },
            })
            .to_string()
        );
        let parked = RunView::without_process(RunRow { state: RunState::Parked, ..row(None) });
        assert_eq!(parked.state, RunStateView::Parked);
    }
}
