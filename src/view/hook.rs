//! Views of hooks: how each is configured, and how its calls have gone.

use serde::{Deserialize, Serialize};

/// A hook: `{name, on, kind, priority, tools, state, calls, failures, refusals, skipped, last_error, retry_in_s}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookView {
    /// Its name.
    pub name: String,
    /// The points and events that it is called for.
    pub on: Vec<String>,
    /// `command` or `url`.
    pub kind: String,
    /// The hook with the highest priority is asked first.
    pub priority: i32,
    /// The tools about whose calls it is asked; `None` (`null`) for all.
    pub tools: Option<Vec<String>>,
    /// Its state; `None` (`null`) if no service runs that calls it.
    pub state: Option<HookStateView>,
    /// Calls in the process that answers.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Verdicts that refuse.
    #[serde(default)]
    pub refusals: u64,
    /// Events that were given up after several failures, and of which the hook was not told later.
    pub skipped: u64,
    /// The last error since the last success.
    pub last_error: Option<String>,
    /// Seconds until a hook that fails is called again; `None` (`null`) if it is called at once.
    #[serde(default)]
    pub retry_in_s: Option<u64>,
}

/// The state of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HookStateView {
    /// Its last call succeeded, or there was none.
    Ready,
    /// Its last calls have failed.
    Failing,
    /// It has failed too often: an observer is told of nothing and tried every half an hour, and a hook that decides refuses
    /// and is asked once a minute.
    Disabled,
}

/// What came of a trial of a hook: `{name, verdict, reason, replacement, error}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookTrialView {
    /// The point or event.
    pub name: String,
    /// `allow`, `replace`, `annotate` or `refuse`; `told` of an event; `None` (`null`) if the hook has failed.
    pub verdict: Option<&'static str>,
    /// Why it refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it puts in place of the arguments or the result, or what it adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<serde_json::Value>,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
