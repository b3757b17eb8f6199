//! What is said on the control socket: one JSON object a line. Pure.

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

/// How many rows a list has if the question does not say.
const DEFAULT_MAX_ROWS: usize = 100;

/// The first line of a connection.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Greeting {
    /// The content of `control.token`.
    pub(super) token: String,
}

/// A question or an order. Names of runs and sessions are those of the command line: a run's id, a session's id or key,
/// or `last`, the last run that is no subagent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", deny_unknown_fields)]
pub enum ControlRequest {
    /// Who holds the store?
    #[serde(rename = "ping")]
    Ping {},
    /// The youngest runs.
    #[serde(rename = "runs.list")]
    RunsList {
        /// At most so many.
        #[serde(default = "rows")]
        max: usize,
    },
    /// One run.
    #[serde(rename = "runs.show")]
    RunsShow {
        /// Which one.
        run: String,
    },
    /// The youngest sessions.
    #[serde(rename = "sessions.list")]
    SessionsList {
        /// At most so many.
        #[serde(default = "rows")]
        max: usize,
    },
    /// One session and its youngest runs.
    #[serde(rename = "sessions.show")]
    SessionsShow {
        /// Which one.
        session: String,
        /// At most so many runs.
        #[serde(default = "rows")]
        max: usize,
    },
    /// The records of a session: a line each, then the end.
    #[serde(rename = "journal")]
    Journal {
        /// Which one.
        session: String,
        /// From this sequence on.
        #[serde(default = "first")]
        from: Seq,
    },
    /// A run and its subagents; without one, all that has not ended.
    #[serde(rename = "tree")]
    Tree {
        /// Which one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
    },
    /// Ends a run as stopped, with all below it.
    #[serde(rename = "stop")]
    Stop {
        /// Which one.
        run: String,
        /// Whether all of the tree to which it belongs ends: the run at its root is stopped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tree: bool,
    },
    /// Ends every unfinished run as stopped.
    #[serde(rename = "stop.all")]
    StopAll {},
    /// Says something to a run that is under way.
    #[serde(rename = "steer")]
    Steer {
        /// Which one.
        run: String,
        /// What is said.
        text: String,
    },
    /// What a run may use up, and has.
    #[serde(rename = "budget.show")]
    BudgetShow {
        /// Which one.
        run: String,
    },
    /// Raises limits of a run; one that has used them up goes on.
    #[serde(rename = "budget.add")]
    BudgetAdd {
        /// Which one.
        run: String,
        /// By how much.
        by: LimitIncrease,
    },
    /// What runs wait for a person to decide.
    #[serde(rename = "approvals.list")]
    ApprovalsList {},
    /// Decides about a call.
    #[serde(rename = "approvals.decide")]
    ApprovalsDecide {
        /// Which one; a run's id or `last` means the only one of that run and its subagents.
        call: String,
        /// Whether it may be made.
        verdict: ApprovalDecision,
    },
    /// Makes a backup: how far it is, a line each second, then its manifest.
    #[serde(rename = "backup.create")]
    BackupCreate {
        /// Its folder, an absolute path to what is not there.
        dir: PathBuf,
    },
    /// What runs have found out about models.
    #[serde(rename = "models.list")]
    ModelsList {},
    /// Which models are asked, and which are not for a while.
    #[serde(rename = "providers.status")]
    ProvidersStatus {},
    /// Forgets every failure of a provider.
    #[serde(rename = "providers.reset")]
    ProvidersReset {
        /// Which one.
        name: String,
    },
    /// Removes what is not needed any more.
    #[serde(rename = "gc")]
    Gc(GcRequest),
    /// What takes up how much room.
    #[serde(rename = "store.footprint")]
    StoreFootprint {},
}

const fn rows() -> usize {
    DEFAULT_MAX_ROWS
}

const fn first() -> Seq {
    1
}

/// A handler of an actor that does not come back: it holds up its actor, and a thread of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerStall {
    /// The kind of the actor.
    pub actor: String,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// When the handler began.
    pub since: Timestamp,
}

/// A line back. Every question has one, but `journal` and `backup.create`, which have many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// To `ping`.
    Pong {
        /// The holder's process.
        pid: u32,
        /// Its version.
        version: String,
        /// Since when something is being written; a time that stays is a disk that does not answer.
        #[serde(default)]
        writing_since: Option<Timestamp>,
        /// Handlers of actors that do not come back.
        #[serde(default)]
        stalled: Vec<HandlerStall>,
    },
    /// To `runs.list`, in the order in which they were accepted.
    Runs(Vec<RunSummary>),
    /// To `runs.show`.
    Run(Box<RunDetail>),
    /// To `sessions.list`, in the order in which they were opened.
    Sessions(Vec<SessionInfo>),
    /// To `sessions.show`.
    Session(SessionDetail),
    /// To `journal`: one record, as [`shown`] shows it. More lines follow.
    Record(Value),
    /// To `journal`: that was the last record there is.
    End {},
    /// To `tree`.
    Tree(Vec<RunNode>),
    /// To `stop` and `stop.all`: what became of the runs.
    Stopped(Vec<RunRow>),
    /// To `steer`: it is on disk.
    Steered {
        /// The run.
        run: RunId,
        /// Its session.
        session: SessionId,
        /// The run that the message becomes if this one ends before it is read.
        next: RunId,
    },
    /// To `budget.show`.
    Budget(Box<BudgetDetail>),
    /// To `budget.add`: it is on disk.
    Raised(Box<RunRow>),
    /// To `approvals.list`.
    Approvals(Vec<PendingApproval>),
    /// To `models.list`, in the order of their names.
    Models(Vec<ModelRow>),
    /// To `approvals.decide`: it is on disk.
    Decided {
        /// The call.
        call: CallId,
        /// Its run.
        run: Box<RunRowStatus>,
    },
    /// To `backup.create`: it is being made. More lines follow.
    BackingUp {
        /// So many bytes are done.
        bytes: u64,
    },
    /// To `backup.create`: it is made, and this is its manifest.
    BackedUp(Value),
    /// To `providers.status`: those that this process can ask, by name.
    Providers(Vec<ProviderStatus>),
    /// To `providers.reset`: it is done.
    Reset {
        /// The provider.
        name: String,
    },
    /// To what takes long, every few seconds: it goes on. More lines follow.
    #[serde(rename = "underway")]
    Heartbeat {},
    /// To `gc`.
    #[serde(rename = "swept")]
    Gc(GcReport),
    /// To `store.footprint`.
    Footprint(Footprint),
    /// To anything: it was not done, and why.
    Refused(RequestError),
}

/// A run, all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDetail {
    /// Its row.
    pub row: RunRowStatus,
    /// What it is to do.
    pub input: String,
    /// What the model said last.
    #[serde(rename = "said")]
    pub last_text: Option<String>,
    /// With what it was accepted; `None` if its session cannot be read.
    pub spec: Option<RunSpec>,
    /// What its model calls have cost, in nano-dollars; `None` if that is not known of all of them.
    #[serde(default)]
    pub cost: Option<u64>,
    /// The models whose part of the cost is not known.
    #[serde(default)]
    pub unpriced: Vec<ModelRef>,
    /// What it waits for; nothing if it has ended.
    #[serde(default)]
    pub waits: Vec<RunWait>,
    /// Why its session cannot be read: then only the row is known. `None` if it can.
    #[serde(default)]
    pub unreadable: Option<String>,
}

impl RunDetail {
    /// What is known of a run whose session cannot be read, and why it cannot.
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

/// A call about which a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The call, which names the question.
    pub call: CallId,
    /// Its session.
    pub session: SessionId,
    /// What is known, and what is asked.
    pub question: String,
    /// Since when.
    pub since: Timestamp,
    /// When the answer is taken for a no.
    pub expires_at: Timestamp,
}

/// A session, and whether it can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its row.
    pub row: SessionRow,
    /// Why this program cannot read its journal; `None` if it can.
    pub quarantined: Option<String>,
}

/// A session and its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDetail {
    /// The session.
    pub session: SessionInfo,
    /// Its youngest runs.
    pub runs: Vec<RunRowStatus>,
    /// What its model means to do, an item a line; `None` if that is nothing, or cannot be read.
    #[serde(default)]
    pub todo: Option<String>,
}

/// A run and its subagents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNode {
    /// The run.
    pub run: RunRowStatus,
    /// The beginning of its input, at most 200 characters; empty if its journal cannot be read.
    #[serde(default)]
    pub input: String,
    /// What it may spend and has spent; `None` if it has no account.
    #[serde(default)]
    pub account: Option<BudgetAccount>,
    /// What it waits for; nothing if it has ended.
    #[serde(default)]
    pub waits: Vec<RunWait>,
    /// Its subagents, ended ones too, in the order in which they were begun.
    pub children: Vec<RunNode>,
}

impl ControlRequest {
    /// Reads a line.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        serde_json::from_slice(line).map_err(|error| {
            let text = String::from_utf8_lossy(line);
            let shown: String = text.chars().take(80).collect();
            RequestError::usage(format!("`{shown}` is no request: {error}; see docs/control.md"))
        })
    }
}

impl ControlResponse {
    /// Whether nothing follows it.
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

/// `value` as a line.
pub(super) fn encode_line(value: &impl Serialize) -> Result<Vec<u8>, RequestError> {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        RequestError::new(RequestErrorKind::Internal, format!("an answer is no JSON: {error}"))
    })?;
    line.push(b'\n');
    Ok(line)
}

/// A record for people and programs: `{seq, at, active_ms, kind, …fields of the body}`.
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
