//! One configured hook: what it is called for, and how its calls have gone.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hermod_actors::model::{HookPoint, HookVerdict};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{
    caller::HookCaller,
    names::{HookName, HookRole, ObservedEvent, PromptPoint},
    prompt::{PromptVerdict, parse_prompt_verdict},
    verdict::parse_verdict,
};
use crate::{
    config::ToolPatterns,
    redaction,
    view::{HookStateView, HookView},
};

/// Failures in a row after which a hook that decides counts as broken.
const MAX_FAILURES: u32 = 10;
/// How long a broken hook that decides is not called. Meanwhile it refuses.
const REST: Duration = Duration::from_mins(1);

/// The longest time that a hook has to annotate a summary: its run waits, and needs the summary.
const MAX_ANNOTATION_TIME: Duration = Duration::from_secs(10);

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
    /// Verdicts that refuse.
    refusals: u64,
    /// Verdicts that it has failed to give since the last one.
    verdicts_missed: u32,
    /// Events that it has failed to take since the last one, each try counted.
    events_missed: u32,
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
    /// Counts a call, and returns how many of its kind have failed in a row then. Verdicts and events are counted apart: a
    /// hook that cannot take an event may still decide.
    fn row_after(&mut self, error: Option<&String>, row: impl Fn(&Self) -> u32) -> u32 {
        self.calls += 1;
        let before = row(self);
        if let Some(error) = error {
            self.failures += 1;
            self.last_error = Some(error.clone());
            return before.saturating_add(1);
        }
        if self.verdicts_missed.saturating_add(self.events_missed) == before {
            self.last_error = None;
        }
        0
    }

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
            HookHealth { verdicts_missed: 0, events_missed: 0, .. } => HookStateView::Ready,
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
            refusals: health.refusals,
            skipped: health.skipped,
            last_error: health.last_error.clone().or_else(unusable),
            retry_in_s: health.not_before().map(|until| (until - Instant::now()).as_secs() + 1),
        }
    }

    /// Calls it again as if it had never failed.
    pub fn enable(&self) {
        let mut health = self.health();
        (health.rests_until, health.pauses_until) = (None, None);
        (health.is_disabled, health.verdicts_missed, health.events_missed) = (false, 0, 0);
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
        let deadline = match point {
            HookPoint::BeforeCompaction => self.deadline.min(MAX_ANNOTATION_TIME),
            HookPoint::BeforeRun
            | HookPoint::PreToolCall
            | HookPoint::PostToolCall
            | HookPoint::ToolResultPersist
            | HookPoint::BeforeModelCall
            | HookPoint::MessageSending => self.deadline,
        };
        let answer = self.call_within(question, deadline).await;
        let verdict = answer.and_then(|answer| parse_verdict(point, &answer));
        self.note_verdict(verdict.as_ref().err());
        verdict.map(|verdict| match verdict {
            // Before it is cut: a part of a secret would not be known any more.
            HookVerdict::Refuse(reason) => {
                self.health().refusals += 1;
                HookVerdict::Refuse(redaction::of_process().redact(&reason).into_owned())
            }
            verdict @ (HookVerdict::Allow | HookVerdict::Replace(_) | HookVerdict::Annotate(_)) => verdict,
        })
    }

    /// Whether it shapes prompts at this point.
    pub(super) fn shapes(&self, point: PromptPoint) -> bool {
        self.on.iter().any(|name| name.role == HookRole::Shapes(point))
    }

    /// Its verdict on a prompt, within this time. The error says why there is none.
    pub(super) async fn shape(
        &self,
        point: PromptPoint,
        question: &Value,
        limit: Duration,
    ) -> Result<PromptVerdict, String> {
        if let Some(error) = self.resting_error() {
            return Err(error);
        }
        let answer = self.call_within(question, self.deadline.min(limit)).await;
        let verdict = answer.and_then(|answer| parse_prompt_verdict(point, &answer));
        self.note_verdict(verdict.as_ref().err());
        self.health().refusals += u64::from(matches!(verdict, Ok(PromptVerdict::Refuse { .. })));
        verdict
    }

    /// Tells it of an event, once.
    pub(super) async fn tell(&self, event: &Value) -> Result<(), String> {
        let told = self.call(event).await.map(|_| ());
        let mut health = self.health();
        health.events_missed = health.row_after(told.as_ref().err(), |health| health.events_missed);
        drop(health);
        self.log(told.as_ref().err());
        told
    }

    /// Its answer to an event, whatever that is.
    pub async fn call(&self, event: &Value) -> Result<Vec<u8>, String> {
        self.call_within(event, self.deadline).await
    }

    async fn call_within(&self, event: &Value, deadline: Duration) -> Result<Vec<u8>, String> {
        let mut bytes = event.to_string().into_bytes();
        bytes.push(b'\n');
        self.caller.as_ref().map_err(Clone::clone)?.call(bytes, deadline).await
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
        let (times, seconds) = (health.verdicts_missed, (until - now).as_secs() + 1);
        let last = health.last_error.as_deref().unwrap_or_default();
        Some(format!(
            "it has failed {times} times in a row, and is asked again in {seconds} s; its last error: {last}"
        ))
    }

    /// Counts a verdict, or its failure.
    fn note_verdict(&self, error: Option<&String>) {
        let mut health = self.health();
        health.verdicts_missed = health.row_after(error, |health| health.verdicts_missed);
        let is_broken = health.verdicts_missed >= MAX_FAILURES;
        health.rests_until = is_broken.then(|| Instant::now() + REST);
        drop(health);
        self.log(error);
    }

    fn log(&self, error: Option<&String>) {
        if let Some(error) = error {
            tracing::warn!(hook = %self.name, error, "a hook has failed");
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use serde_json::json;

    use super::*;

    const ALLOW: &[u8] = br#"{"verdict":"allow"}"#;

    async fn decide(hook: &Hook) -> bool {
        hook.decide(HookPoint::PreToolCall, &json!({ "name": "pre_tool_call" })).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_hook_rests_and_a_success_ends_that() {
        let is_ok = Arc::new(AtomicBool::new(false));
        let works = Arc::clone(&is_ok);
        let hook = Hook::scripted(&["pre_tool_call"], move |_| {
            works.load(Relaxed).then(|| ALLOW.to_vec()).ok_or_else(|| "x".to_owned())
        });
        for _ in 0..MAX_FAILURES {
            assert!(!decide(&hook).await);
        }
        is_ok.store(true, Relaxed);
        assert!(!decide(&hook).await, "it rests");
        let view = hook.view();
        assert_eq!((view.state, view.calls), (Some(HookStateView::Disabled), u64::from(MAX_FAILURES)));
        assert_eq!(view.retry_in_s, Some(REST.as_secs() + 1));
        tokio::time::advance(REST).await;
        assert!(decide(&hook).await);
        assert_eq!((hook.view().state, hook.view().last_error), (Some(HookStateView::Ready), None));
        // An answer that was under way while others failed.
        is_ok.store(false, Relaxed);
        for _ in 0..MAX_FAILURES {
            assert!(!decide(&hook).await);
        }
        hook.note_verdict(None);
        is_ok.store(true, Relaxed);
        assert!(decide(&hook).await, "it works");
        // A person enables it.
        is_ok.store(false, Relaxed);
        for _ in 0..MAX_FAILURES {
            assert!(!decide(&hook).await);
        }
        is_ok.store(true, Relaxed);
        hook.enable();
        assert!(decide(&hook).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_cannot_take_events_still_decides() {
        let hook = Hook::scripted(&["pre_tool_call", "run_end"], |bytes| {
            let event: Value = serde_json::from_slice(bytes).unwrap();
            if event["name"] == "run_end" { Err("too large".to_owned()) } else { Ok(ALLOW.to_vec()) }
        });
        for _ in 0..2 * MAX_FAILURES {
            assert!(hook.tell(&json!({ "name": "run_end" })).await.is_err());
            assert!(decide(&hook).await);
        }
        let view = hook.view();
        assert_eq!(
            (view.state, view.last_error.as_deref()),
            (Some(HookStateView::Failing), Some("too large"))
        );
    }

    #[tokio::test]
    async fn a_prompt_hook_that_hangs_is_a_failure_of_that_hook() {
        let folder = tempfile::tempdir().unwrap();
        let caller = HookCaller::Command { script: "sleep 60".to_owned(), folder: folder.path().to_owned() };
        let mut hook = Arc::into_inner(Hook::scripted(&["session_bootstrap"], |_| Ok(Vec::new()))).unwrap();
        hook.caller = Ok(caller);
        let limit = Duration::from_millis(20);
        for n in 1..=MAX_FAILURES {
            let shaped = hook.shape(PromptPoint::SessionBootstrap, &json!({}), limit).await;
            assert!(shaped.is_err_and(|error| error.contains("no answer within 20ms")));
            assert_eq!(hook.view().failures, u64::from(n));
        }
        let shaped = hook.shape(PromptPoint::SessionBootstrap, &json!({}), limit).await;
        assert!(shaped.is_err_and(|error| error.contains("it has failed 10 times in a row")));
    }
}
