//! Messages of the control socket, one JSON object per line; pure.

use std::path::PathBuf;

use hermod_actors::{
    ProviderStatus,
    model::{
        ApprovalDecision, BudgetAccount, CallId, LimitIncrease, ModelRef, ModelRow, Record, RunId, RunRow,
        RunSpec, RunWait, Seq, SessionId, SessionRow, Timestamp,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    budget::BudgetDetail,
    error::{RequestError, RequestErrorKind},
    maintenance::{Footprint, GcReport, GcRequest},
    status::{RunRowStatus, RunSummary},
};
use crate::clock::rfc3339;

/// Rows of a list whose request has no `max`.
const DEFAULT_MAX_ROWS: usize = 100;

/// The first line of a connection.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Greeting {
    /// The content of `control.token`.
    pub(super) token: String,
}

/// A query or a command. A run is named by its id, a session by its id or key. `last` is the last run that is no
/// subagent's.
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
    },
    /// Shows one run.
    #[serde(rename = "runs.show")]
    RunsShow {
        /// Id of the run, or `last`.
        run: String,
    },
    /// Lists the newest sessions.
    #[serde(rename = "sessions.list")]
    SessionsList {
        /// Limit of rows.
        #[serde(default = "rows")]
        max: usize,
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
    /// Reads the records of a session: one line per record, then [`ControlResponse::End`].
    #[serde(rename = "journal")]
    Journal {
        /// Id or key of the session.
        session: String,
        /// The first sequence to read.
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
    /// Shows the limits of a run and what it has used.
    #[serde(rename = "budget.show")]
    BudgetShow {
        /// Id of the run, or `last`.
        run: String,
    },
    /// Raises limits of a run. A run that was out of budget continues.
    #[serde(rename = "budget.add")]
    BudgetAdd {
        /// Id of the run, or `last`.
        run: String,
        /// The amounts to add.
        by: LimitIncrease,
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
    /// Removes what is no longer needed.
    #[serde(rename = "gc")]
    Gc(GcRequest),
    /// Shows the disk usage of the state directory.
    #[serde(rename = "store.footprint")]
    StoreFootprint {},
}

const fn rows() -> usize {
    DEFAULT_MAX_ROWS
}

const fn first() -> Seq {
    1
}

/// A message handler that does not return. It blocks its actor and a thread of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerStall {
    /// The kind of the actor.
    pub actor: String,
    /// The actor's session, if it has one.
    pub session: Option<SessionId>,
    /// When the handler started.
    pub since: Timestamp,
}

/// A line of an answer. Requests have one, but `journal` and `backup.create` have many. Heartbeats precede a late
/// answer to `gc` and `store.footprint`.
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
        stalled: Vec<HandlerStall>,
    },
    /// Answer to `runs.list`, in order of acceptance.
    Runs(Vec<RunSummary>),
    /// Answer to `runs.show`.
    Run(Box<RunDetail>),
    /// Answer to `sessions.list`, in order of opening.
    Sessions(Vec<SessionInfo>),
    /// Answer to `sessions.show`.
    Session(SessionDetail),
    /// Answer to `journal`: one record in the form of [`record_json`]. More lines follow.
    Record(Value),
    /// Answer to `journal` after the last record.
    End {},
    /// Answer to `tree`.
    Tree(Vec<RunNode>),
    /// Answer to `stop` and `stop.all`: the rows of the runs afterwards.
    Stopped(Vec<RunRow>),
    /// Answer to `steer`: the message is durable.
    Steered {
        /// The steered run.
        run: RunId,
        /// The run's session.
        session: SessionId,
        /// The run that the message starts if `run` ends before it reads the message.
        next: RunId,
    },
    /// Answer to `budget.show`.
    Budget(Box<BudgetDetail>),
    /// Answer to `budget.add`: the increase is durable.
    Raised(Box<RunRow>),
    /// Answer to `approvals.list`.
    Approvals(Vec<PendingApproval>),
    /// Answer to `models.list`, in order of names.
    Models(Vec<ModelRow>),
    /// Answer to `approvals.decide`: the decision is durable.
    Decided {
        /// The call that was decided.
        call: CallId,
        /// The call's run.
        run: Box<RunRowStatus>,
    },
    /// Progress of `backup.create`. More lines follow.
    BackingUp {
        /// Bytes done so far.
        bytes: u64,
    },
    /// Answer to `backup.create`: the manifest of the complete backup.
    BackedUp(Value),
    /// Answer to `providers.status`: the providers that this process can call, by name.
    Providers(Vec<ProviderStatus>),
    /// Answer to `providers.reset`.
    Reset {
        /// Name of the provider.
        name: String,
    },
    /// Sent every few seconds during a long request. More lines follow.
    #[serde(rename = "underway")]
    Heartbeat {},
    /// Answer to `gc`.
    #[serde(rename = "swept")]
    Gc(GcReport),
    /// Answer to `store.footprint`.
    Footprint(Footprint),
    /// Answer to any request that was not carried out, with the reason.
    Refused(RequestError),
}

/// All details of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDetail {
    /// The run's row.
    pub row: RunRowStatus,
    /// The run's task.
    pub input: String,
    /// The model's latest text.
    #[serde(rename = "said")]
    pub last_text: Option<String>,
    /// Specification from the run's acceptance; `None` if the session cannot be read.
    pub spec: Option<RunSpec>,
    /// Cost of the run's model calls, in nano-dollars; `None` if it is not known for all of them.
    #[serde(default)]
    pub cost: Option<u64>,
    /// Models whose part of the cost is unknown.
    #[serde(default)]
    pub unpriced: Vec<ModelRef>,
    /// What the run waits for; empty if it has ended.
    #[serde(default)]
    pub waits: Vec<RunWait>,
    /// Why the session cannot be read, in which case only `row` is known; `None` if it can.
    #[serde(default)]
    pub unreadable: Option<String>,
}

impl RunDetail {
    /// The detail of a run whose session cannot be read, for the reason `why`.
    pub fn unreadable(row: RunRowStatus, why: String) -> Self {
        Self {
            row,
            input: String::new(),
            last_text: None,
            spec: None,
            cost: None,
            unpriced: Vec::new(),
            waits: Vec::new(),
            unreadable: Some(why),
        }
    }
}

/// An approval that a person has to give or deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The call to decide about; it identifies the approval.
    pub call: CallId,
    /// The call's session.
    pub session: SessionId,
    /// The known facts and the question.
    pub question: String,
    /// When the approval was requested.
    pub since: Timestamp,
    /// When a missing answer counts as a denial.
    pub expires_at: Timestamp,
}

/// A session, and whether it can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The session's row.
    pub row: SessionRow,
    /// Why this version cannot read the journal; `None` if it can.
    pub quarantined: Option<String>,
}

/// A session and its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDetail {
    /// The session.
    pub session: SessionInfo,
    /// The session's newest runs.
    pub runs: Vec<RunRowStatus>,
    /// The model's to-do list, one item per line; `None` if it is empty or cannot be read.
    #[serde(default)]
    pub todo: Option<String>,
}

/// A run and its subagents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNode {
    /// The run.
    pub run: RunRowStatus,
    /// The beginning of the input, at most 200 characters; empty if the journal cannot be read.
    #[serde(default)]
    pub input: String,
    /// The run's account with limits and spending; `None` without an account.
    #[serde(default)]
    pub account: Option<BudgetAccount>,
    /// What the run waits for; empty if it has ended.
    #[serde(default)]
    pub waits: Vec<RunWait>,
    /// The subagents, including ended ones, in the order of their start.
    pub children: Vec<RunNode>,
}

impl ControlRequest {
    /// Parses one line; the error is of kind [`RequestErrorKind::Usage`].
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        serde_json::from_slice(line).map_err(|error| {
            let text = String::from_utf8_lossy(line);
            let shown: String = text.chars().take(80).collect();
            RequestError::usage(format!("`{shown}` is no request: {error}; see docs/control.md"))
        })
    }
}

impl ControlResponse {
    /// True if no line follows this one.
    pub const fn is_last(&self) -> bool {
        match self {
            Self::Record(_) | Self::BackingUp { .. } | Self::Heartbeat {} => false,
            Self::Pong { .. }
            | Self::Runs(_)
            | Self::Run(_)
            | Self::Sessions(_)
            | Self::Session(_)
            | Self::End {}
            | Self::Tree(_)
            | Self::Stopped(_)
            | Self::Steered { .. }
            | Self::Budget(_)
            | Self::Raised(_)
            | Self::Approvals(_)
            | Self::Models(_)
            | Self::Decided { .. }
            | Self::BackedUp(_)
            | Self::Providers(_)
            | Self::Reset { .. }
            | Self::Gc(_)
            | Self::Footprint(_)
            | Self::Refused(_) => true,
        }
    }
}

/// Encodes `value` as one line of JSON with its newline.
pub(super) fn encode_line(value: &impl Serialize) -> Result<Vec<u8>, RequestError> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        RequestError::new(RequestErrorKind::Internal, format!("an answer is no JSON: {error}"))
    })?;
    line.push(b'\n');
    Ok(line)
}

/// A record as JSON: `{seq, at, active_ms, kind, …fields of the body}`.
pub fn record_json(seq: Seq, record: &Record) -> Result<Value, RequestError> {
    let mut object = Map::new();
    object.insert("seq".into(), seq.into());
    object.insert("at".into(), rfc3339(record.at).into());
    object.insert("active_ms".into(), record.active_ms.into());
    object.insert("kind".into(), record.body.kind().name().into());
    let body = record.body.to_json().map_err(|error| {
        RequestError::new(
            RequestErrorKind::Internal,
            format!("record {seq} cannot be shown as JSON: {error}"),
        )
    })?;
    if let Value::Object(fields) = body {
        object.extend(fields);
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Body, RunStopping, StopReason, Timestamp};
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(line: &str, expect: Result<ControlRequest, &str>) {
        match (ControlRequest::parse(line.as_bytes()), expect) {
            (Ok(request), Ok(expect)) => assert_eq!(request, expect),
            (Err(fault), Err(part)) => {
                assert!(fault.text.contains(part), "{fault}");
                assert_eq!(fault.kind, RequestErrorKind::Usage);
            }
            (got, expect) => panic!("{line}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn a_request_is_read_strictly() {
        check(r#"{"verb":"ping"}"#, Ok(ControlRequest::Ping {}));
        check(r#"{"verb":"runs.list"}"#, Ok(ControlRequest::RunsList { max: 100 }));
        let journal = ControlRequest::Journal { session: "k".into(), from: 7 };
        check(r#"{"verb":"journal","session":"k","from":7}"#, Ok(journal));
        check(r#"{"verb":"providers.status"}"#, Ok(ControlRequest::ProvidersStatus {}));
        check(
            r#"{"verb":"providers.reset","name":"a"}"#,
            Ok(ControlRequest::ProvidersReset { name: "a".into() }),
        );
        check(r#"{"verb":"tree"}"#, Ok(ControlRequest::Tree { run: None }));
        check(r#"{"verb":"ping","pong":1}"#, Err("unknown field `pong`"));
        check(
            r#"{"verb":"stop","run":"last","now":true}"#,
            Err("unknown field `now`, expected `run` or `tree`"),
        );
        check(
            r#"{"verb":"stop","run":"last"}"#,
            Ok(ControlRequest::Stop { run: "last".into(), tree: false }),
        );
        let tree = ControlRequest::Stop { run: "last".into(), tree: true };
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

    #[test]
    fn a_record_shows_all_that_it_holds() {
        let body = Body::RunStopping(RunStopping::stop(RunId::from_bits(1), StopReason::Signal));
        let shown = record_json(7, &Record { at: Timestamp(0), active_ms: 4, body }).unwrap();
        assert_eq!(
            shown,
            json!({
                "seq": 7, "at": "1970-01-01T00:00:00.000Z", "active_ms": 4, "kind": "run.stopping",
                "run": "00000000000000000000000001", "outcome": "stopped", "cause": "stop", "reason": "signal",
            })
        );
    }
}
