//! Reasons for which a run waits, as shown to people and written as JSON, and the disk space that a write waits for.
//! Read-only; drives no action. `turn/wait_report.rs` finds the waits.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    Attempt, CallId, Failure, Lane, ModelRef, Outcome, RunId, Timestamp, optional_rfc3339_time, rfc3339_time,
};

/// One thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWait {
    /// The reason.
    #[serde(flatten)]
    pub kind: WaitKind,
    /// Start of the wait.
    #[serde(with = "rfc3339_time")]
    pub since: Timestamp,
    /// The latest end of the wait; absent if it has no time limit of its own, see [`WaitKind::describe_end`].
    #[serde(default, with = "optional_rfc3339_time", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The disk space that a write waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFull {
    /// The file to write.
    pub path: String,
    /// The bytes needed.
    #[serde(rename = "wants")]
    pub needed_bytes: u64,
}

/// The reason of a [`RunWait`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "what", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WaitKind {
    /// No process runs the run. Its calls were interrupted, and their time limits do not apply.
    #[serde(rename = "process")]
    #[strum(serialize = "process")]
    NoProcess,
    /// The end of the session's runs that were accepted earlier.
    Queue {
        /// The run under way.
        behind: RunId,
    },
    /// The end of the time in which the run collects messages.
    Collect,
    /// A place in the run's lane, which has as many runs under way as it may.
    Lane {
        /// The lane.
        lane: Lane,
    },
    /// The verdict of the hooks that decide whether the run begins.
    Hooks,
    /// A model's answer.
    Model {
        /// The model.
        model: ModelRef,
        /// The attempt.
        attempt: Attempt,
    },
    /// The pause before the retry of a failed model call.
    Retry {
        /// The next attempt.
        attempt: Attempt,
        /// The failure of the attempt before.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// The reset time that a provider reported. This wait does not count towards the run's time limits.
    Reset {
        /// The next attempt.
        attempt: Attempt,
        /// The failure because of which no model is called earlier.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// A lease for a model call, which concurrent calls, a rate limiter or a circuit breaker delay.
    Lease {
        /// The next attempt.
        attempt: Attempt,
    },
    /// A permit for a tool call, while the maximum of concurrent calls is reached.
    Permit {
        /// The call.
        call: CallId,
        /// The tool's name.
        tool: String,
    },
    /// The end of an earlier call of the same answer, whose access conflicts.
    #[serde(rename = "order")]
    #[strum(serialize = "order")]
    Conflict {
        /// The call.
        call: CallId,
        /// The tool's name.
        tool: String,
        /// The earlier call.
        behind: CallId,
    },
    /// The end of a tool call.
    Tool {
        /// The call.
        call: CallId,
        /// The tool's name.
        tool: String,
        /// The attempt.
        attempt: Attempt,
    },
    /// The end of the subagents that a call started.
    Children {
        /// The call.
        call: CallId,
        /// Number of subagents that have not ended.
        left: u32,
    },
    /// A person's approval of a call in doubt; after the time limit it counts as denied.
    Person {
        /// The call.
        call: CallId,
    },
    /// The check of the run's expectations, after its answer.
    Verify,
    /// The write of what a memory flush has found, before the summary.
    Memory,
    /// The end of the calls of a run that is being stopped.
    Stop,
    /// A write to the disk. Reported if it is slow, or if the disk is full.
    Disk {
        /// The missing disk space; absent if the disk is only slow.
        #[serde(skip_serializing_if = "Option::is_none")]
        full: Option<DiskFull>,
    },
    /// No wait in itself: a time limit of the run, with the time at which it ends the run.
    Limit {
        /// The limit of active time, in milliseconds.
        limit_ms: u64,
        /// The outcome of the run at the limit.
        outcome: Outcome,
    },
}

impl WaitKind {
    /// The name, as in JSON.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The event at the end of the time limit; for a wait without one, why the wait ends nevertheless.
    pub const fn describe_end(&self) -> &'static str {
        match self {
            Self::NoProcess => "it goes on when a process takes it up",
            Self::Queue { .. } => "that run has limits of its own",
            Self::Collect => "the run begins",
            Self::Lane { .. } => "the runs that have it have limits",
            Self::Hooks => "each hook has a deadline, and then refuses",
            Self::Model { .. } => "the attempt has failed: the call is tried again, or the run fails",
            Self::Retry { .. } => "the model is asked again",
            Self::Reset { .. } => "the models are asked again",
            Self::Lease { .. } => "the calls that have it have deadlines",
            Self::Permit { .. } | Self::Conflict { .. } => "the calls before it have limits",
            Self::Tool { .. } => "the call is dropped, and the model reads that it timed out",
            Self::Children { .. } => "they have limits of their own",
            Self::Person { .. } => "it is taken for a no",
            Self::Memory => "what was found is not remembered, and the summary is made",
            Self::Verify => "what was not checked counts as missing",
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

    const SINCE: &str = "1970-01-01T00:00:00.001Z";
    const UNTIL: &str = "1970-01-01T00:00:00.009Z";

    #[test]
    fn a_wait_is_one_flat_object() {
        let check = |what: WaitKind, until, expect: serde_json::Value| {
            assert_eq!(expect["what"], what.name());
            let wait = RunWait { kind: what, since: Timestamp(1), until };
            let written = serde_json::to_value(&wait).unwrap();
            assert_eq!(written, expect);
            assert_eq!(serde_json::from_value::<RunWait>(written).unwrap(), wait);
        };
        check(WaitKind::NoProcess, None, json!({ "what": "process", "since": SINCE }));
        let model = WaitKind::Model { model: "p/m".parse().unwrap(), attempt: 2 };
        let until = Some(Timestamp(9));
        check(
            model,
            until,
            json!({ "what": "model", "model": "p/m", "attempt": 2, "since": SINCE, "until": UNTIL }),
        );
        let limit = WaitKind::Limit { limit_ms: 8, outcome: Outcome::TimedOut };
        let expect =
            json!({ "what": "limit", "limit_ms": 8, "outcome": "timed_out", "since": SINCE, "until": UNTIL });
        check(limit, until, expect);
        let call = CallId { run: RunId::from_bits(1), iteration: 2, n: 3 };
        let expect = json!({ "what": "children", "call": call, "left": 4, "since": SINCE });
        check(WaitKind::Children { call, left: 4 }, None, expect);
        check(WaitKind::Disk { full: None }, None, json!({ "what": "disk", "since": SINCE }));
        let full = Some(DiskFull { path: "/s/hermod.redb".into(), needed_bytes: 4096 });
        let expect =
            json!({ "what": "disk", "full": { "path": "/s/hermod.redb", "wants": 4096 }, "since": SINCE });
        check(WaitKind::Disk { full }, None, expect);
    }
}
