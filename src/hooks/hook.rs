//! One configured hook: what it is called for, and how its calls have gone.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hermod_actors::model::{HookPoint, HookVerdict};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

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

/// Failures in a row after which a hook that decides counts as broken.
const MAX_FAILURES: u32 = 10;
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
    /// Ends the pause of an observer.
    pub(super) enabling: Notify,
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
    /// Events that were given up, and of which the hook was not told later.
    skipped: u64,
    /// Those of them that were given up since the last success: the hook may still be told of them.
    skipped_lately: u64,
    last_error: Option<String>,
    /// Until when a broken hook that decides is not called.
    rests_until: Option<Instant>,
    /// Whether an observer has failed so often that it is told of nothing for a while.
    is_disabled: bool,
    /// Until when an observer that has failed is not called.
    pauses_until: Option<Instant>,
}

impl HookHealth {
    /// Until when the hook is not called; `None` if it may be called now.
    fn not_before(&self) -> Option<Instant> {
        let now = Instant::now();
        [self.rests_until, self.pauses_until].into_iter().flatten().filter(|until| *until > now).min()
    }
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
            retry_in_s: health.not_before().map(|until| (until - Instant::now()).as_secs() + 1),
        }
    }

    /// Calls it again as if it had never failed.
    pub fn enable(&self) {
        let mut health = self.health();
        (health.rests_until, health.pauses_until) = (None, None);
        (health.is_disabled, health.failures_in_row) = (false, 0);
        drop(health);
        if self.is_observer() {
            self.enabling.notify_one();
        }
    }

    /// Resolves when the hook is enabled.
    pub(super) async fn enabled(&self) {
        self.enabling.notified().await;
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

    /// Counts an event that was given up for now.
    pub(super) fn skip_event(&self) {
        let mut health = self.health();
        health.skipped += 1;
        health.skipped_lately += 1;
    }

    /// The hook is told of nothing for a while.
    pub(super) fn disable(&self) {
        self.health().is_disabled = true;
    }

    /// The hook is not called for this time.
    pub(super) fn note_pause(&self, pause: Duration) {
        self.health().pauses_until = Some(Instant::now() + pause);
    }

    /// The hook works again, and was told of what had been given up, but for these events.
    pub(super) fn recover(&self, failed: u64) {
        let mut health = self.health();
        let told = std::mem::take(&mut health.skipped_lately).saturating_sub(failed);
        health.skipped = health.skipped.saturating_sub(told);
        (health.is_disabled, health.pauses_until) = (false, None);
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

#[cfg(test)]
impl Hook {
    /// A hook of a test, for these names.
    pub(super) fn scripted(
        on: &[&str],
        script: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: "h".into(),
            on: on.iter().filter_map(|name| HookName::find(name)).collect(),
            priority: 0,
            deadline: Duration::from_secs(1),
            tools: None,
            caller: Ok(HookCaller::Scripted(super::caller::ScriptedCaller(Box::new(script)))),
            health: Mutex::default(),
            enabling: Notify::new(),
        })
    }
}
