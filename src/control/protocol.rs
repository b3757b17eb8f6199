//! Messages of the control socket, one JSON object per line: the greeting, requests and responses. Pure: `handler.rs`
//! answers, `client.rs` asks.

use std::path::PathBuf;

use hermod_actors::{
    CompressorStatus, ProviderStatus, RunResult, StalledHandler, SteerReceipt,
    model::{
        AgentName, ApprovalDecision, ApprovalScope, DeliveryState, LimitIncrease, ModelRow, QueueOverrides,
        RecordJson, RunId, ScheduleName, Seq, StopReason, StoreLimits, Timestamp,
    },
    port::FeedCursor,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    error::RequestError,
    followed_event::{FedRecord, FollowedEvent},
    maintenance::{Footprint, GcReport, GcRequest},
    messages::{MessageStatus, MessageSubmission},
    run_filter::RunOutcomeFilter,
    schedules::ScheduleChange,
    submission::{OwnerKind, RunSubmission, SubmittedRun},
};
use crate::view::{
    AgentView, ApprovalView, BudgetView, ConversationListView, DaysView, DecisionView, DeliveryView,
    DrainView, EventView, HookView, NodeView, OccurrenceView, PeriodUsageView, ReloadView, ReportView,
    RunDetailView, RunSummaryView, RunView, ScheduleView, ServiceStatusView, SessionDetailView, SessionView,
};

/// Days of an answer to `usage.days`, at most.
pub const MAX_DAYS: u32 = 366;
/// Rows of a list whose request has no `max`.
const DEFAULT_MAX_ROWS: usize = 100;

/// The first line of a connection.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Greeting {
    /// The content of `control.token`.
    pub(super) token: String,
}

/// A query or a command. A run is named by its id, the end of its id, or `last`: the newest run that is no subagent's.
/// A session is named by its id, the end of its id, its key, a lineage, or one of its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", deny_unknown_fields)]
pub enum ControlRequest {
    /// Asks for the owner's process id, version and health.
    #[serde(rename = "ping")]
    Ping {},
    /// Lists the newest runs.
    #[serde(rename = "runs.list")]
    RunsList {
        /// Limit of rows.
        #[serde(default = "rows")]
        max: usize,
        /// The agent of the runs; absent means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
        /// Only runs that were accepted at this time or later, in milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// Only runs that were accepted before this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Only runs of this schedule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schedule: Option<ScheduleName>,
        /// Only runs with one of these outcomes; empty means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outcomes: Vec<RunOutcomeFilter>,
    },
    /// Shows one run.
    #[serde(rename = "runs.show")]
    RunsShow {
        /// Id of the run, or `last`.
        run: String,
    },
    /// Reads the records of a run: one line per record, then [`ControlResponse::End`].
    #[serde(rename = "runs.records")]
    RunsRecords {
        /// Id of the run, or `last`.
        run: String,
        /// The number of the first record of its session to read; absent means the first one of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Seq>,
    },
    /// Lists the newest sessions.
    #[serde(rename = "sessions.list")]
    SessionsList {
        /// Limit of rows.
        #[serde(default = "rows")]
        max: usize,
    },
    /// Lists the conversations with the latest runs, without those of subagents.
    #[serde(rename = "conversations.list")]
    ConversationsList {
        /// Limit of rows.
        #[serde(default = "rows")]
        max: usize,
        /// Reads each journal as a whole, to find out whether this version can read it.
        #[serde(default)]
        check: bool,
    },
    /// Shows one session and its newest runs.
    #[serde(rename = "sessions.show")]
    SessionsShow {
        /// Id or key of the session.
        session: String,
        /// Limit of runs.
        #[serde(default = "rows")]
        max: usize,
    },
    /// Sets how the messages of a session queue, as a whole.
    #[serde(rename = "sessions.queue")]
    SessionsQueue {
        /// Id or key of the session.
        session: String,
        /// The setting; what is absent is as configured.
        queue: QueueOverrides,
    },
    /// Reads the records of a session: one line per record, then [`ControlResponse::End`].
    #[serde(rename = "journal")]
    Journal {
        /// Id or key of the session.
        session: String,
        /// The number of the first record to read.
        #[serde(default = "first")]
        from: Seq,
    },
    /// Shows a run and its subagents.
    #[serde(rename = "tree")]
    Tree {
        /// Id of the run, or `last`; absent means all unfinished runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
    },
    /// Stops a run and its subagents.
    #[serde(rename = "stop")]
    Stop {
        /// Id of the run, or `last`.
        run: String,
        /// Stops the whole tree of the run, from its root.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tree: bool,
        /// The source of the stop; `parent` is refused.
        #[serde(default = "by_command", skip_serializing_if = "is_by_command")]
        reason: StopReason,
    },
    /// Lists the agents of the owner.
    #[serde(rename = "agents.list")]
    AgentsList {},
    /// Submits a task to the owner's runtime.
    #[serde(rename = "runs.submit")]
    RunsSubmit(Box<RunSubmission>),
    /// Submits a task that is too long for a line: the client has written it to a file.
    #[serde(rename = "runs.submit_file")]
    RunsSubmitFile {
        /// The file's name in the folder `submissions` of the state directory.
        name: String,
    },
    /// Lets an unfinished run go on in the owner's runtime.
    #[serde(rename = "runs.resume")]
    RunsResume {
        /// Names the run or its conversation.
        id: String,
    },
    /// Follows a run until it ends or waits for a person.
    #[serde(rename = "runs.follow")]
    RunsFollow {
        /// Id of the run, or `last`.
        run: String,
        /// The number of the first record of its session to send; absent means the first one of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Seq>,
        /// Whether an unfinished run goes on, if it does not yet.
        #[serde(default = "yes")]
        revive: bool,
    },
    /// Follows a session. Nothing goes on by it.
    #[serde(rename = "sessions.follow")]
    SessionsFollow {
        /// Id or key of the session.
        session: String,
        /// The number of the first record to send.
        #[serde(default = "first")]
        from: Seq,
    },
    /// Follows the records of all sessions, in the order in which they became durable.
    #[serde(rename = "feed.follow")]
    FeedFollow {
        /// The place after which records are sent; absent means the present end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<FeedCursor>,
    },
    /// Stops every unfinished run.
    #[serde(rename = "stop.all")]
    StopAll {},
    /// Sends a steering message to an unfinished run.
    #[serde(rename = "steer")]
    Steer {
        /// Id of the run, or `last`.
        run: String,
        /// The text of the message.
        text: String,
    },
    /// Sends a message to a session.
    #[serde(rename = "messages.send")]
    MessagesSend(Box<MessageSubmission>),
    /// Sends a message that is too long for a line: the client has written it to a file.
    #[serde(rename = "messages.send_file")]
    MessagesSendFile {
        /// The file's name in the folder `submissions` of the state directory.
        name: String,
    },
    /// Shows what became of a message.
    #[serde(rename = "messages.show")]
    MessagesShow {
        /// Id of the message.
        message: String,
    },
    /// Shows the limits of a run and what it has used.
    #[serde(rename = "budget.show")]
    BudgetShow {
        /// Id of the run, or `last`.
        run: String,
    },
    /// Raises limits of a run. A run that has used up its budget is reopened. It continues at once if the owner runs
    /// its session, else when it is resumed.
    #[serde(rename = "budget.add")]
    BudgetAdd {
        /// Id of the run, or `last`.
        run: String,
        /// The amounts to add.
        by: LimitIncrease,
    },
    /// Shows what all runs together may use in the present periods, and have used.
    #[serde(rename = "limits.show")]
    LimitsShow {
        /// The limits to show if no runtime is there that has its own.
        #[serde(default)]
        limits: StoreLimits,
    },
    /// Shows what ran and what it cost, by day.
    #[serde(rename = "usage.days")]
    UsageDays {
        /// Number of days, today included; at most [`MAX_DAYS`].
        days: u32,
    },
    /// Reports what happened in a time, which is in milliseconds since 1970.
    #[serde(rename = "report")]
    Report {
        /// The beginning of the time.
        since: Timestamp,
        /// The end of the time.
        until: Timestamp,
        /// The limits to show if no runtime is there that has its own.
        #[serde(default)]
        limits: StoreLimits,
    },
    /// Lists the pending approvals.
    #[serde(rename = "approvals.list")]
    ApprovalsList {},
    /// Answers a pending approval.
    #[serde(rename = "approvals.decide")]
    ApprovalsDecide {
        /// Id of the call. A run's id or `last` means the only pending call of that run and its subagents.
        call: String,
        /// Whether the call may be made.
        verdict: ApprovalDecision,
        /// How far an approval goes.
        #[serde(default)]
        scope: ApprovalScope,
    },
    /// Answers a question of a model with text.
    #[serde(rename = "approvals.answer")]
    ApprovalsAnswer {
        /// Id of the call, as for `approvals.decide`.
        call: String,
        /// The answer, not blank.
        text: String,
    },
    /// Lists messages to targets.
    #[serde(rename = "deliveries.list")]
    DeliveriesList {
        /// Those in this state; absent means those that are dead or pending.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<DeliveryState>,
        /// Those for this target.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        /// Limit of rows of each state: of pending ones the oldest, of others the newest.
        #[serde(default = "rows")]
        max: usize,
    },
    /// Shows one message to a target.
    #[serde(rename = "deliveries.show")]
    DeliveriesShow {
        /// Id of the message.
        id: String,
    },
    /// Sends dead letters again, behind all other messages of their targets.
    #[serde(rename = "deliveries.retry")]
    DeliveriesRetry {
        /// Id of the message; absent means all dead letters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Only those for this target.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// Lists the schedules.
    #[serde(rename = "schedules.list")]
    SchedulesList {},
    /// Shows one schedule.
    #[serde(rename = "schedules.show")]
    SchedulesShow {
        /// Its name.
        name: ScheduleName,
    },
    /// Shows what became of occurrences, the newest first.
    #[serde(rename = "schedules.history")]
    SchedulesHistory {
        /// The schedule; absent means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<ScheduleName>,
        /// Only those at this time or later, in milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// Limit of rows.
        #[serde(default = "rows")]
        max: usize,
    },
    /// Makes, changes, pauses or removes a schedule.
    #[serde(rename = "schedules.change")]
    SchedulesChange {
        /// Its name.
        name: ScheduleName,
        /// What is changed.
        change: ScheduleChange,
    },
    /// Runs a schedule now, beside its times.
    #[serde(rename = "schedules.run")]
    SchedulesRun {
        /// Its name.
        name: ScheduleName,
    },
    /// Makes a backup: a progress line each second, then its manifest.
    #[serde(rename = "backup.create")]
    BackupCreate {
        /// The backup's folder, an absolute path that does not exist yet.
        dir: PathBuf,
    },
    /// Lists what runs have observed about models.
    #[serde(rename = "models.list")]
    ModelsList {},
    /// Shows which models are available, and which are not for a while.
    #[serde(rename = "providers.status")]
    ProvidersStatus {},
    /// Forgets every failure of a provider.
    #[serde(rename = "providers.reset")]
    ProvidersReset {
        /// Name of the provider.
        name: String,
    },
    /// Shows the summary calls of the owner, and the statistics of its summarisers.
    #[serde(rename = "summaries.status")]
    SummariesStatus {},
    /// Removes what is no longer needed.
    #[serde(rename = "gc")]
    Gc(GcRequest),
    /// Shows the disk usage of the state directory.
    #[serde(rename = "store.footprint")]
    StoreFootprint {},
    /// Shows the status of the service.
    #[serde(rename = "service.status")]
    ServiceStatus {},
    /// Lets the service take no more work, and end with its runs.
    #[serde(rename = "service.drain")]
    ServiceDrain {
        /// Time after which the runs that are left are suspended, in milliseconds.
        timeout_ms: u64,
    },
    /// Lets the service read its configuration again.
    #[serde(rename = "config.reload")]
    ConfigReload {},
    /// Lets the service call a hook again that has failed too often.
    #[serde(rename = "hooks.enable")]
    HooksEnable {
        /// Name of the hook.
        name: String,
    },
}

const fn rows() -> usize {
    DEFAULT_MAX_ROWS
}

const fn first() -> Seq {
    1
}

const fn yes() -> bool {
    true
}

const fn by_command() -> StopReason {
    StopReason::Command
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_by_command(reason: &StopReason) -> bool {
    *reason == StopReason::Command
}

/// A line of an answer. Most answers have one line; those to `journal`, `runs.follow` and `backup.create` have many.
/// Heartbeats precede a late answer to a long request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// Answer to `ping`.
    Pong {
        /// Process id of the owner.
        pid: u32,
        /// Version of the owner.
        version: String,
        /// When the write in progress started, if there is one. A time that stays the same means that the disk hangs.
        #[serde(default)]
        writing_since: Option<Timestamp>,
        /// Message handlers that do not return.
        #[serde(default)]
        stalled: Vec<StalledHandler>,
        /// Whether the owner takes submissions of other processes, and how long; absent if it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        submissions: Option<OwnerKind>,
    },
    /// Answer to `runs.list`, in order of acceptance.
    Runs(Vec<RunSummaryView>),
    /// Answer to `runs.show`.
    Run(Box<RunDetailView>),
    /// Answer to `sessions.list`, in order of opening.
    Sessions(Vec<SessionView>),
    /// Answer to `conversations.list`, the one with the latest run first.
    Conversations(ConversationListView),
    /// Answer to `sessions.show`.
    Session(SessionDetailView),
    /// Answer to `sessions.queue`: the setting is durable.
    SessionQueue(QueueOverrides),
    /// Answer to `journal`: one record. More lines follow.
    Record(EventView),
    /// Answer to `runs.records`: one record as it is stored. More lines follow.
    RunRecord {
        /// Its number in its session.
        seq: Seq,
        /// The record.
        record: RecordJson,
    },
    /// Answer to `agents.list`: `default` first, then the others by name.
    Agents(Vec<AgentView>),
    /// Answer to `runs.submit`, `runs.submit_file` and `runs.resume`.
    Submitted(Box<SubmittedRun>),
    /// Answer to `runs.follow` and `sessions.follow`: one event. More lines follow.
    Followed(FollowedEvent),
    /// Answer to `feed.follow`: one record. More lines follow.
    Fed(FedRecord),
    /// Answer to `runs.follow`: a line for the user. More lines follow.
    Note {
        /// The line.
        text: String,
    },
    /// Answer to `runs.follow`: the run has its outcome.
    RunEnded(Box<RunResult>),
    /// Answer to `runs.follow`: nothing goes on until a person decides.
    RunParked {
        /// The parked run: the followed one, or the one it is queued behind.
        run: RunId,
    },
    /// Answer to `journal` and `runs.records` after the last record.
    End {},
    /// Answer to `tree`.
    Tree(Vec<NodeView>),
    /// Answer to `stop` and `stop.all`: the runs afterwards.
    Stopped(Vec<RunView>),
    /// Answer to `steer`: the message is durable.
    Steered(SteerReceipt),
    /// Answer to `messages.send`, `messages.send_file` and `messages.show`: the message is durable.
    Message(MessageStatus),
    /// Answer to `budget.show`.
    Budget(Box<BudgetView>),
    /// Answer to `budget.add`: the increase is durable.
    Raised(Box<RunView>),
    /// Answer to `limits.show`, the shortest period first.
    Limits(Vec<PeriodUsageView>),
    /// Answer to `usage.days`, the newest day first.
    Days(DaysView),
    /// Answer to `report`.
    Report(Box<ReportView>),
    /// Answer to `approvals.list`.
    Approvals(Vec<ApprovalView>),
    /// Answer to `models.list`, in order of names.
    Models(Vec<ModelRow>),
    /// Answer to `approvals.decide` and `approvals.answer`: the decision is durable.
    Decided(Box<DecisionView>),
    /// Answer to `deliveries.list`, the dead ones first; and to `deliveries.retry`: the messages are pending again.
    Deliveries(Vec<DeliveryView>),
    /// Answer to `deliveries.show`.
    Delivery(Box<DeliveryView>),
    /// Answer to `schedules.list`, by name.
    Schedules(Vec<ScheduleView>),
    /// Answer to `schedules.show` and `schedules.change`: the change is durable.
    Schedule(Box<ScheduleView>),
    /// Answer to `schedules.history`.
    Occurrences(Vec<OccurrenceView>),
    /// Answer to `schedules.run`: the run is durable.
    ScheduleRun {
        /// The run.
        run: RunId,
    },
    /// Progress of `backup.create`. More lines follow.
    BackingUp {
        /// Bytes done so far.
        bytes: u64,
    },
    /// Answer to `backup.create`: the manifest of the complete backup.
    BackedUp(Value),
    /// Answer to `providers.status`: the providers that the owner can call, in order of names.
    Providers(Vec<ProviderStatus>),
    /// Answer to `providers.reset`.
    Reset {
        /// Name of the provider.
        name: String,
    },
    /// Answer to `summaries.status`.
    Summaries(CompressorStatus),
    /// Sent every few seconds during a long request. More lines follow.
    #[serde(rename = "underway")]
    Heartbeat {},
    /// Answer to `gc`.
    #[serde(rename = "swept")]
    Gc(GcReport),
    /// Answer to `store.footprint`.
    Footprint(Footprint),
    /// Answer to `service.status`.
    ServiceStatus(Box<ServiceStatusView>),
    /// Answer to `service.drain`: the process ends now.
    Drained(DrainView),
    /// Answer to `config.reload`.
    Reloaded(ReloadView),
    /// Answer to `hooks.enable`.
    Hook(Box<HookView>),
    /// Answer to any request that was not carried out, with the reason.
    Refused(RequestError),
}

impl ControlRequest {
    /// Lists the newest runs with one of these outcomes; without outcomes, all.
    pub const fn newest_runs(max: usize, outcomes: Vec<RunOutcomeFilter>) -> Self {
        Self::RunsList { max, agent: None, since: None, until: None, schedule: None, outcomes }
    }

    /// Parses one line; the error is of kind [`super::RequestErrorKind::Usage`].
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        serde_json::from_slice(line).map_err(|error| {
            let text = String::from_utf8_lossy(line);
            let shown: String = text.chars().take(80).collect();
            RequestError::usage(format!("`{shown}` is no request: {error}; see docs/control.md"))
        })
    }

    /// True if the providers or the summarisers of a runtime answer this.
    pub(super) const fn asks_providers(&self) -> bool {
        matches!(self, Self::ProvidersStatus {} | Self::ProvidersReset { .. } | Self::SummariesStatus {})
    }
}

impl ControlRequest {
    /// True if the answer goes on until something ends, or the client goes.
    pub(super) const fn follows(&self) -> bool {
        matches!(self, Self::RunsFollow { .. } | Self::SessionsFollow { .. } | Self::FeedFollow { .. })
    }
}

impl ControlResponse {
    /// True if no line follows this one.
    pub const fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::Record(_)
                | Self::RunRecord { .. }
                | Self::Followed(_)
                | Self::Fed(_)
                | Self::Note { .. }
                | Self::BackingUp { .. }
                | Self::Heartbeat {}
        )
    }
}

/// Encodes `value` as one line of JSON with its newline.
pub(super) fn encode_line(value: &impl Serialize) -> Result<Vec<u8>, RequestError> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| RequestError::internal(format!("an answer is no JSON: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::error::RequestErrorKind, *};

    #[track_caller]
    fn check(line: &str, expect: Result<ControlRequest, &str>) {
        match (ControlRequest::parse(line.as_bytes()), expect) {
            (Ok(request), Ok(expect)) => assert_eq!(request, expect),
            (Err(error), Err(part)) => {
                assert!(error.text.contains(part), "{error}");
                assert_eq!(error.kind, RequestErrorKind::Usage);
            }
            (got, expect) => panic!("{line}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn a_request_is_read_strictly() {
        check(r#"{"verb":"ping"}"#, Ok(ControlRequest::Ping {}));
        let list = |outcomes| ControlRequest::newest_runs(100, outcomes);
        check(r#"{"verb":"runs.list"}"#, Ok(list(Vec::new())));
        check(
            r#"{"verb":"runs.list","outcomes":["unfinished"]}"#,
            Ok(list(vec![RunOutcomeFilter::Unfinished])),
        );
        check(
            r#"{"verb":"runs.list","outcomes":["no"]}"#,
            Err("unknown variant `no`, expected one of `completed`, `failed`"),
        );
        let journal = ControlRequest::Journal { session: "k".into(), from: 7 };
        check(r#"{"verb":"journal","session":"k","from":7}"#, Ok(journal));
        check(r#"{"verb":"providers.status"}"#, Ok(ControlRequest::ProvidersStatus {}));
        check(
            r#"{"verb":"providers.reset","name":"a"}"#,
            Ok(ControlRequest::ProvidersReset { name: "a".into() }),
        );
        check(r#"{"verb":"summaries.status"}"#, Ok(ControlRequest::SummariesStatus {}));
        check(r#"{"verb":"tree"}"#, Ok(ControlRequest::Tree { run: None }));
        check(r#"{"verb":"ping","pong":1}"#, Err("unknown field `pong`"));
        check(
            r#"{"verb":"stop","run":"last","now":true}"#,
            Err("unknown field `now`, expected one of `run`, `tree`, `reason`"),
        );
        check(
            r#"{"verb":"stop","run":"last"}"#,
            Ok(ControlRequest::Stop { run: "last".into(), tree: false, reason: StopReason::Command }),
        );
        let tree = ControlRequest::Stop { run: "last".into(), tree: true, reason: StopReason::Command };
        check(r#"{"verb":"stop","run":"last","tree":true}"#, Ok(tree));
        check(r#"{"verb":"stop"}"#, Err("missing field `run`"));
        check(r#"{"verb":"dance"}"#, Err("unknown variant `dance`, expected one of `ping`, `runs.list`"));
        check(r#"{"run":"last"}"#, Err("missing field `verb`"));
        check("[1", Err("see docs/control.md"));
        check("\u{1F600}".repeat(100).as_str(), Err("is no request"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let steer = ControlRequest::Steer { run: "last".into(), text: "two\nlines".into() };
        let written = encode_line(&steer).unwrap();
        assert_eq!(written.split(|byte| *byte == b'\n').count(), 2, "one line and its end");
        assert_eq!(ControlRequest::parse(&written), Ok(steer));
        let refused = ControlResponse::Refused(RequestError::usage("no"));
        let written = serde_json::to_value(&refused).unwrap();
        assert_eq!(written, json!({ "refused": { "kind": "usage", "text": "no" } }));
        assert_eq!(serde_json::from_value::<ControlResponse>(written).unwrap(), refused);
    }
}
