//! The world outside the process, which survives the process: the time, the effects of tools, detached commands, and
//! the model calls that providers have served. Also the clock of a process life.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    observations::Observations,
    plan::{ToolBehaviour, ToolKind},
    seeded_rng::SeededRng,
};
use crate::MemoryJournal;
use hermod_actors::doubles::START_MS;
use hermod_actors::{
    model::{Attempt, AttemptId, CallId, MemoryEntry, SessionId, Timestamp, Usage},
    port::{Clock, InboxItem, Journal, WriteOp, WriteOutcome},
};

/// Milliseconds that a commit takes at most, if it ends.
const MAX_COMMIT_MS: u64 = 60_000;

/// The world of one plan. Only one thread uses it; the lock satisfies the compiler.
#[derive(Debug)]
pub(super) struct ExternalWorld(Mutex<ExternalState>);

/// The state of an [`ExternalWorld`]. Times are milliseconds since the first life, without jumps of the wall clock.
#[derive(Debug)]
pub(super) struct ExternalState {
    /// What the store contains and what callers were told.
    pub(super) observations: Observations,
    /// Milliseconds before the present life.
    before: u64,
    began: Option<Instant>,
    /// Milliseconds by which the wall clock is wrong.
    pub(super) clock_jump_ms: i64,
    dice: SeededRng,
    /// The attempts of tool calls that began, in order.
    pub(super) executions: Vec<ToolExecution>,
    pub(super) commands: BTreeMap<AttemptId, DetachedCommand>,
    /// The attempts that were reported as never started: they must not begin any more.
    pub(super) fenced: BTreeSet<AttemptId>,
    /// The attempts of model calls that providers received, in order.
    pub(super) model_calls: Vec<ServedModelCall>,
    /// Time of the last forced end of the process or of one of its actors.
    pub(super) forced_end_at: Option<u64>,
    /// Until this time a write whose outcome was unknown to its caller may become durable.
    pub(super) quiet_at: u64,
    /// The session whose messages to others are being committed, and which is to get a fault.
    pub(super) notifying_session: Option<SessionId>,
    /// A late write of a dead process: its own handle of the store, the batch, and the commit before which it arrives.
    pub(super) stray: Option<(MemoryJournal, Vec<WriteOp>, u64)>,
    /// The inbox messages, when the present life began, of sessions without an open run, and the number of records that
    /// each of these sessions had.
    pub(super) leftover_inboxes: Vec<(SessionId, InboxItem, usize)>,
    /// The last view of each session, without the transient prompt, and the number of compactions before it.
    pub(super) views: BTreeMap<SessionId, (Vec<Value>, u32)>,
    /// The entries of the memory files.
    pub(super) memory: Vec<MemoryEntry>,
    /// The keys that `is_first` was called with.
    once: BTreeSet<String>,
    /// The number of calls of `count`, by key.
    counts: BTreeMap<String, usize>,
}

/// An attempt of a tool call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolExecution {
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) kind: ToolKind,
    pub(super) began: u64,
    /// The time and kind of its end; `None` while it goes on.
    pub(super) ended: Option<(u64, EndKind)>,
    /// The attempt of the same call that was under way when this one began.
    pub(super) overlaps: Option<Attempt>,
}

/// How a tool call, a model call or a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    Finished,
    Stopped,
    /// The task that did it was dropped: by a panic, by force, or with its process.
    Dropped,
}

/// A command that goes on without the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct DetachedCommand {
    /// Its index in `executions`.
    execution: usize,
    pub(super) behaviour: ToolBehaviour,
    /// When it ends by itself; `u64::MAX` for never.
    until: u64,
}

/// An attempt of a model call.
#[derive(Debug, Clone)]
pub(super) struct ServedModelCall {
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) ended: Option<EndKind>,
    /// The usage that the provider reported. The process received it at `reported_at`.
    pub(super) reported_usage: Option<Usage>,
    pub(super) reported_at: u64,
    /// The numbers of the messages to runs in its request.
    pub(super) shown_messages: Vec<usize>,
}

impl ExternalWorld {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ExternalState {
            observations: Observations::default(),
            before: 0,
            began: None,
            clock_jump_ms: 0,
            dice: SeededRng::new(!seed),
            executions: Vec::new(),
            commands: BTreeMap::new(),
            fenced: BTreeSet::new(),
            model_calls: Vec::new(),
            forced_end_at: None,
            quiet_at: 0,
            notifying_session: None,
            stray: None,
            leftover_inboxes: Vec::new(),
            views: BTreeMap::new(),
            memory: Vec::new(),
            once: BTreeSet::new(),
            counts: BTreeMap::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ExternalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a violation.
    pub(super) fn report_violation(&self, invariant: &'static str, what: impl Into<String>) {
        self.lock().observations.report_violation(invariant, what);
    }

    /// Starts a process on a store; must be called within its tokio runtime. A reboot ends all detached commands.
    pub(super) fn start_process(&self, store: &MemoryJournal, reboots: bool) {
        let mut inner = self.lock();
        inner.leftover_inboxes = inner.observations.left_in_inboxes(store.inboxes());
        inner.began = Some(Instant::now());
        inner.end_finished_commands();
        if reboots {
            let (now, commands) = (inner.now(), inner.commands.clone());
            for command in commands.values() {
                inner.executions[command.execution].ended.get_or_insert((now, EndKind::Dropped));
            }
        }
    }

    /// Ends the process. Must be called within its tokio runtime, because the runtime's time is lost with it.
    pub(super) fn end_process(&self) {
        let mut inner = self.lock();
        inner.before = inner.now();
        inner.began = None;
    }

    /// Ends all that the dead process did itself, then adds the milliseconds until the next process starts.
    pub(super) fn finish_downtime(&self, pause_ms: u64) {
        let mut inner = self.lock();
        // Work of the process itself ends at its death, before the downtime passes.
        let now = inner.before;
        let commands: Vec<usize> = inner.commands.values().map(|command| command.execution).collect();
        for (n, execution) in inner.executions.iter_mut().enumerate() {
            if !commands.contains(&n) {
                execution.ended.get_or_insert((now, EndKind::Dropped));
            }
        }
        for call in &mut inner.model_calls {
            call.ended.get_or_insert(EndKind::Dropped);
        }
        inner.before += pause_ms;
    }

    pub(super) fn now(&self) -> u64 {
        self.lock().now()
    }

    /// Notes the name of a planned fault that occurred.
    pub(super) fn record_fault(&self, wrong: &'static str) {
        self.lock().observations.fault_names.insert(wrong);
    }

    /// Whether this is the first call with this key.
    pub(super) fn is_first(&self, what: String) -> bool {
        self.lock().once.insert(what)
    }

    /// The number of earlier calls with this key.
    pub(super) fn count(&self, what: String) -> usize {
        let mut inner = self.lock();
        let count = inner.counts.entry(what).or_default();
        *count += 1;
        *count - 1
    }
}

impl ExternalState {
    pub(super) fn now(&self) -> u64 {
        let elapsed = self.began.map_or(0, |began| began.elapsed().as_millis());
        self.before + u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// Notes a forced end of the process or of one of its actors: messages on their way within it may be lost.
    pub(super) fn record_forced_end(&mut self) {
        self.forced_end_at = Some(self.now());
    }

    /// Notes a write whose outcome is unknown: it may become durable for as long as a commit can take.
    pub(super) fn extend_quiet_time(&mut self) {
        self.quiet_at = self.now() + MAX_COMMIT_MS;
    }

    /// Applies the late write of a dead process, if it arrives before this commit. The store must refuse it: otherwise
    /// that process would go on as if it were alive.
    pub(super) fn apply_stray_write(&mut self, commit: u64) {
        let Some((store, batch, _)) = self.stray.take_if(|(.., before)| *before <= commit) else { return };
        let written = store.commit(batch).now_or_never();
        let written = written.and_then(Result::ok).unwrap_or_default();
        for written in written.iter().filter(|written| !matches!(written, WriteOutcome::Refused(_))) {
            self.observations.report_violation(
                "who is dead writes nothing",
                format!("{written:?} before commit {commit}"),
            );
        }
    }

    /// Starts an attempt of a tool call. Returns its index in `executions`.
    pub(super) fn start_execution(
        &mut self,
        AttemptId { call, attempt }: AttemptId,
        kind: ToolKind,
    ) -> usize {
        self.end_finished_commands();
        if !self.observations.has_started(call, attempt) {
            self.observations.report_violation(
                "an effect follows its record",
                format!("{call} attempt {attempt} began before its start was stored"),
            );
        }
        if self.fenced.contains(&AttemptId { call, attempt }) {
            self.observations.report_violation(
                "an effect happens once",
                format!("{call} attempt {attempt} began after it was known never to"),
            );
        }
        if self.executions.iter().any(|execution| (execution.call, execution.attempt) == (call, attempt)) {
            self.observations
                .report_violation("an effect happens once", format!("{call} attempt {attempt} began twice"));
        }
        let under_way =
            self.executions.iter().find(|execution| execution.call == call && execution.ended.is_none());
        let overlaps = under_way.map(|execution| execution.attempt);
        self.executions.push(ToolExecution { call, attempt, kind, began: self.now(), ended: None, overlaps });
        self.executions.len() - 1
    }

    /// Notes the end of an execution, unless it has ended already.
    pub(super) fn end_execution(&mut self, execution: usize, how: EndKind) {
        let now = self.now();
        self.executions[execution].ended.get_or_insert((now, how));
    }

    /// Starts a command that ends by itself after `ms` milliseconds; `None` for never.
    pub(super) fn launch(&mut self, id: AttemptId, does: ToolBehaviour, ms: Option<u64>) {
        let execution = self.start_execution(id, ToolKind::Build);
        let until = ms.map_or(u64::MAX, |ms| self.now() + ms);
        self.commands.insert(id, DetachedCommand { execution, behaviour: does, until });
    }

    /// The command and its end, or `Err` with the milliseconds until it ends by itself; `None` if it was never started.
    pub(super) fn command(&mut self, id: AttemptId) -> Option<(DetachedCommand, Result<EndKind, u64>)> {
        self.end_finished_commands();
        let command = *self.commands.get(&id)?;
        let left = command.until.saturating_sub(self.now());
        Some((command, self.executions[command.execution].ended.map(|(_, how)| how).ok_or(left)))
    }

    /// Ends a command by force.
    pub(super) fn stop(&mut self, id: AttemptId) {
        if let Some(command) = self.commands.get(&id).copied() {
            self.end_execution(command.execution, EndKind::Stopped);
        }
    }

    /// Notes the ends of commands that have ended by themselves.
    fn end_finished_commands(&mut self) {
        let now = self.now();
        for command in self.commands.values() {
            if command.until <= now {
                self.executions[command.execution].ended.get_or_insert((command.until, EndKind::Finished));
            }
        }
    }
}

/// The clock of one life: its monotonic time restarts with the process, its wall clock does not.
#[derive(Debug)]
pub(super) struct LifeClock {
    outside: Arc<ExternalWorld>,
    began: Instant,
}

impl LifeClock {
    pub(super) fn new(outside: Arc<ExternalWorld>) -> Self {
        Self { outside, began: Instant::now() }
    }
}

impl Clock for LifeClock {
    fn at(&self) -> Timestamp {
        let inner = self.outside.lock();
        let since = i64::try_from(inner.now()).unwrap_or(i64::MAX);
        Timestamp(START_MS + since + inner.clock_jump_ms)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u128 {
        let mut inner = self.outside.lock();
        u128::from(inner.dice.next()) << 64 | u128::from(inner.dice.next())
    }
}
