use serde::{Deserialize, Serialize};

use super::{Attempt, CallId, Failure, ModelRef, Outcome, RunId, Timestamp};

/// Something that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWait {
    /// What it is.
    #[serde(flatten)]
    pub kind: WaitKind,
    /// Since when.
    pub since: Timestamp,
    /// When it is over or given up at the latest. Absent if it has no end of its own: see [`WaitKind::then`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What a write to a full disk waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFull {
    /// The file that is to be written.
    pub path: String,
    /// So many bytes.
    #[serde(rename = "wants")]
    pub needed_bytes: u64,
}

/// See [`RunWait`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WaitKind {
    /// A process: nobody runs the run. Its calls were interrupted, and their limits do not hold any more.
    #[serde(rename = "process")]
    NoProcess,
    /// The end of the runs of its session that were accepted before it.
    Queue {
        /// The one that is under way.
        behind: RunId,
    },
    /// The answer of a model.
    Model {
        /// The model.
        model: ModelRef,
        /// The attempt.
        attempt: Attempt,
    },
    /// The end of a pause: the model call has failed, and is tried again.
    Retry {
        /// The attempt that follows.
        attempt: Attempt,
        /// How the one before it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// A time that a provider has named. It does not count for the run's limits of time.
    Reset {
        /// The attempt that follows.
        attempt: Attempt,
        /// Why nobody is asked before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// Leave to ask a model: others are asking, it is paced, or it is found out whether it is back.
    Lease {
        /// The attempt that follows.
        attempt: Attempt,
    },
    /// Leave to run a tool: as many calls are under way as may be.
    Permit {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
    },
    /// An earlier call of the same answer, with which it conflicts.
    #[serde(rename = "order")]
    Conflict {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// The earlier one.
        behind: CallId,
    },
    /// The end of a tool call.
    Tool {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// The attempt.
        attempt: Attempt,
    },
    /// The subagents that a call has begun.
    Children {
        /// The call.
        call: CallId,
        /// How many of them have not ended.
        left: u32,
    },
    /// A person's decision about a call in doubt; then it is taken for a no.
    Person {
        /// The call.
        call: CallId,
    },
    /// The calls of a run that is being stopped.
    Stop,
    /// The disk: something was to be written, and is not yet. Named when it takes long, or when the disk is full.
    Disk {
        /// What there is no room for; absent if it is only slow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        full: Option<DiskFull>,
    },
    /// Nothing, but its time runs out.
    Limit {
        /// The active time that it has, in milliseconds.
        limit_ms: u64,
        /// How it ends then.
        outcome: Outcome,
    },
}

impl WaitKind {
    /// The name, as in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoProcess => "process",
            Self::Queue { .. } => "queue",
            Self::Model { .. } => "model",
            Self::Retry { .. } => "retry",
            Self::Reset { .. } => "reset",
            Self::Lease { .. } => "lease",
            Self::Permit { .. } => "permit",
            Self::Conflict { .. } => "order",
            Self::Tool { .. } => "tool",
            Self::Children { .. } => "children",
            Self::Person { .. } => "person",
            Self::Stop => "stop",
            Self::Disk { .. } => "disk",
            Self::Limit { .. } => "limit",
        }
    }

    /// What follows when the time is over; of a wait without one, why it has an end all the same.
    pub const fn describe_end(&self) -> &'static str {
        match self {
            Self::NoProcess => "it goes on when a process takes it up",
            Self::Queue { .. } => "that run has limits of its own",
            Self::Model { .. } => "the attempt has failed: the call is tried again, or the run fails",
            Self::Retry { .. } => "the model is asked again",
            Self::Reset { .. } => "the models are asked again",
            Self::Lease { .. } => "the calls that have it have deadlines",
            Self::Permit { .. } | Self::Conflict { .. } => "the calls before it have limits",
            Self::Tool { .. } => "the call is dropped, and the model reads that it timed out",
            Self::Children { .. } => "they have limits of their own",
            Self::Person { .. } => "it is taken for a no",
            Self::Stop => "what has not ended by itself is dropped, and the run ends",
            Self::Disk { full: None } => "a write is answered, or the process ends",
            Self::Disk { full: Some(_) } => "make room there, and it goes on",
            Self::Limit { .. } => "the run ends",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_is_one_flat_object() {
        let check = |what: WaitKind, until, expect: serde_json::Value| {
            assert_eq!(expect["what"], what.name());
            let wait = RunWait { kind: what, since: Timestamp(1), until };
            let written = serde_json::to_value(&wait).unwrap();
            assert_eq!(written, expect);
            assert_eq!(serde_json::from_value::<RunWait>(written).unwrap(), wait);
        };
        check(WaitKind::NoProcess, None, json!({ "what": "process", "since": 1 }));
        let model = WaitKind::Model { model: "p/m".parse().unwrap(), attempt: 2 };
        let until = Some(Timestamp(9));
        check(model, until, json!({ "what": "model", "model": "p/m", "attempt": 2, "since": 1, "until": 9 }));
        let limit = WaitKind::Limit { limit_ms: 8, outcome: Outcome::TimedOut };
        let expect =
            json!({ "what": "limit", "limit_ms": 8, "outcome": "timed_out", "since": 1, "until": 9 });
        check(limit, until, expect);
        let call = CallId { run: RunId::from_bits(1), iteration: 2, n: 3 };
        let expect = json!({ "what": "children", "call": call, "left": 4, "since": 1 });
        check(WaitKind::Children { call, left: 4 }, None, expect);
        check(WaitKind::Disk { full: None }, None, json!({ "what": "disk", "since": 1 }));
        let full = Some(DiskFull { path: "/s/hermod.redb".into(), needed_bytes: 4096 });
        let expect =
            json!({ "what": "disk", "full": { "path": "/s/hermod.redb", "wants": 4096 }, "since": 1 });
        check(WaitKind::Disk { full }, None, expect);
    }
}
