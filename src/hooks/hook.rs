//! One configured hook: what it is called for, and how its calls have gone.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hermod_actors::model::{HookPoint, HookVerdict};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    caller::HookCaller,
    names::{HookName, HookRole, ObservedEvent, PromptPoint},
    prompt::{PromptVerdict, parse_prompt_verdict},
    verdict::parse_verdict,
};
use crate::{
    config::ToolPatterns,
    view::{HookStateView, HookView},
};

/// Failures in a row after which a hook counts as broken.
pub(super) const MAX_FAILURES: u32 = 10;
/// How long a broken hook that decides is not called. Meanwhile it refuses.
const REST: Duration = Duration::from_mins(1);

/// A configured hook.
pub struct Hook {
    /// Its name.
    pub name: Arc<str>,
    /// What it is called for.
    pub on: Vec<&'static HookName>,
    /// The hook with the highest priority is asked first.
    pub priority: i32,
    /// How long it may take.
    pub(super) deadline: Duration,
    /// The tools about whose calls it is asked; all without this.
    pub(super) tools: Option<ToolPatterns>,
    /// How it is called; the error says why it cannot be.
    pub(super) caller: Result<HookCaller, String>,
    pub(super) health: Mutex<HookHealth>,
}

/// How the calls of a hook have gone in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct HookHealth {
    /// Calls that have ended.
    calls: u64,
    /// Those that failed.
    failures: u64,
    /// The failures since the last success.
    failures_in_row: u32,
    /// Events that were given up.
    skipped: u64,
    last_error: Option<String>,
    /// Until when a broken hook that decides is not called.
    rests_until: Option<Instant>,
    /// Whether an observer is told of nothing any more.
    is_disabled: bool,
}

impl Hook {
    /// `command` or `url`.
    pub fn kind(&self) -> &'static str {
        self.caller.as_ref().map_or("none", HookCaller::kind)
    }

    /// Whether it is asked at this point; with a tool, whether it is asked about calls of that tool.
    pub(super) fn is_asked(&self, point: HookPoint, tool: Option<&str>) -> bool {
        let fits = |tools: &ToolPatterns| tool.is_none_or(|tool| tools.matches(tool));
        self.on.iter().any(|name| name.role == HookRole::Decides(point))
            && self.tools.as_ref().is_none_or(fits)
    }

    /// Whether it is told of these events.
    pub(super) fn observes(&self, event: ObservedEvent) -> bool {
        self.on.iter().any(|name| name.role == HookRole::Observes(event))
    }

    /// Whether it is told of any event of the feed.
    pub(super) fn is_observer(&self) -> bool {
        self.on.iter().any(|name| name.observes())
    }

    /// The hook as it is shown.
    pub fn view(&self) -> HookView {
        let health = self.health();
        let state = match &*health {
            HookHealth { is_disabled: true, .. } | HookHealth { rests_until: Some(_), .. } => {
                HookStateView::Disabled
            }
            HookHealth { failures_in_row: 0, .. } => HookStateView::Ready,
            HookHealth { .. } => HookStateView::Failing,
        };
        let unusable = || self.caller.as_ref().err().cloned();
        HookView {
            name: self.name.to_string(),
            on: self.on.iter().map(|name| name.name.to_owned()).collect(),
            kind: self.kind().to_owned(),
            priority: self.priority,
            tools: self.tools.as_ref().map(|tools| tools.0.iter().map(ToString::to_string).collect()),
            state: Some(state),
            calls: health.calls,
            failures: health.failures,
            skipped: health.skipped,
            last_error: health.last_error.clone().or_else(unusable),
        }
    }

    /// Its verdict. The error says why there is none. A broken hook is called once in a while.
    pub(super) async fn decide(&self, point: HookPoint, question: &Value) -> Result<HookVerdict, String> {
        if let Some(error) = self.resting_error() {
            return Err(error);
        }
        let verdict = self.call(question).await.and_then(|answer| parse_verdict(point, &answer));
        self.note(verdict.as_ref().map(|_| ()).map_err(String::as_str));
        verdict
    }

    /// Whether it shapes prompts at this point.
    pub(super) fn shapes(&self, point: PromptPoint) -> bool {
        self.on.iter().any(|name| name.role == HookRole::Shapes(point))
    }

    /// Its verdict on a prompt. The error says why there is none.
    pub(super) async fn shape(&self, point: PromptPoint, question: &Value) -> Result<PromptVerdict, String> {
        if let Some(error) = self.resting_error() {
            return Err(error);
        }
        let verdict = self.call(question).await.and_then(|answer| parse_prompt_verdict(point, &answer));
        self.note(verdict.as_ref().map(|_| ()).map_err(String::as_str));
        verdict
    }

    /// Tells it of an event, once.
    pub(super) async fn tell(&self, event: &Value) -> Result<(), String> {
        let told = self.call(event).await.map(|_| ());
        self.note(told.as_ref().copied().map_err(String::as_str));
        told
    }

    /// Its answer to an event, whatever that is.
    pub async fn call(&self, event: &Value) -> Result<Vec<u8>, String> {
        let mut bytes = event.to_string().into_bytes();
        bytes.push(b'\n');
        self.caller.as_ref().map_err(Clone::clone)?.call(bytes, self.deadline).await
    }

    /// Counts an event that was given up. True if the hook is told of no more from now on.
    pub(super) fn skip_event(&self, failed_in_row: u32) -> bool {
        let mut health = self.health();
        health.skipped += 1;
        health.is_disabled = failed_in_row >= MAX_FAILURES;
        health.is_disabled
    }

    fn resting_error(&self) -> Option<String> {
        let mut health = self.health();
        let until = health.rests_until?;
        let now = Instant::now();
        if now >= until {
            // The next failure begins the next rest.
            health.rests_until = None;
            return None;
        }
        let (times, seconds) = (health.failures_in_row, (until - now).as_secs() + 1);
        let last = health.last_error.as_deref().unwrap_or_default();
        Some(format!(
            "it has failed {times} times in a row, and is asked again in {seconds} s; its last error: {last}"
        ))
    }

    fn note(&self, result: Result<(), &str>) {
        let mut health = self.health();
        health.calls += 1;
        match result {
            Ok(()) => (health.failures_in_row, health.last_error) = (0, None),
            Err(error) => {
                tracing::warn!(hook = %self.name, error, "a hook has failed");
                health.failures += 1;
                health.failures_in_row = health.failures_in_row.saturating_add(1);
                health.last_error = Some(error.to_owned());
                let decides = self.on.iter().any(|name| !name.observes());
                if decides && health.failures_in_row >= MAX_FAILURES {
                    health.rests_until = Some(Instant::now() + REST);
                }
            }
        }
    }

    fn health(&self) -> MutexGuard<'_, HookHealth> {
        // Each update is an assignment.
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("name", &self.name).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
