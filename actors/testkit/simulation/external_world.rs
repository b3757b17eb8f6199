//! The world around the process, which goes on when that dies: the time, the effects of tools, commands that run on, and
//! what providers have served.

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
use crate::{
    model::{Attempt, CallId, SessionId, Timestamp, Usage},
    port::{Clock, InboxItem, Journal, WriteOp, WriteOutcome},
    testkit::{MemoryJournal, clock::START_MS},
};

/// No commit takes longer that ends, in milliseconds.
const MAX_COMMIT_MS: u64 = 60_000;

/// The world of one plan. One thread lives in it; the locks are for the compiler.
#[derive(Debug)]
pub(super) struct ExternalWorld(Mutex<ExternalState>);

/// See [`ExternalWorld`].
#[derive(Debug)]
pub(super) struct ExternalState {
    /// What is known of the store and of who was told what.
    pub(super) observations: Observations,
    /// Milliseconds before the present life, and when that began.
    before: u64,
    began: Option<Instant>,
    /// By how much the wall's clock is wrong.
    pub(super) clock_jump_ms: i64,
    dice: SeededRng,
    /// What tools did, in order.
    pub(super) executions: Vec<ToolExecution>,
    pub(super) commands: BTreeMap<(CallId, Attempt), DetachedCommand>,
    /// The attempts of which it was said that they never began: they must not begin any more.
    pub(super) fenced: BTreeSet<(CallId, Attempt)>,
    /// What providers were asked, in order.
    pub(super) model_calls: Vec<ServedModelCall>,
    /// When something was ended by force for the last time: the process, or an actor of it.
    pub(super) forced_end_at: Option<u64>,
    /// Until then something may be written that nobody knows of.
    pub(super) quiet_at: u64,
    /// Who has something on its way to disk of which others are to hear, and is to be struck.
    pub(super) notifying_session: Option<SessionId>,
    /// What a process has written that is gone, with its own handle of the store, and before which commit it arrives.
    pub(super) stray: Option<(MemoryJournal, Vec<WriteOp>, u64)>,
    /// What lay in inboxes when the present life began, of sessions that have no run to go on with, and how many records
    /// each of these had.
    pub(super) leftover_inboxes: Vec<(SessionId, InboxItem, usize)>,
    /// What models of a session were shown last, without the postscript, and how often that was made shorter before.
    pub(super) views: BTreeMap<SessionId, (Vec<Value>, u32)>,
    /// What is done only once was done.
    once: BTreeSet<String>,
    /// How often something was asked for.
    counts: BTreeMap<String, usize>,
}

/// An attempt of a tool call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolExecution {
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) kind: ToolKind,
    pub(super) began: u64,
    /// `None` while it goes on.
    pub(super) ended: Option<(u64, EndKind)>,
    /// The attempt of the same call that was under way when this one began.
    pub(super) overlaps: Option<Attempt>,
}

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    Finished,
    Stopped,
    /// Whoever did it was dropped, by a panic, by force, or with its process.
    Dropped,
}

/// A command that goes on without the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct DetachedCommand {
    /// Which of the deeds it is.
    execution: usize,
    pub(super) behaviour: ToolBehaviour,
    /// When it ends, if nobody ends it.
    until: u64,
}

/// An attempt of a model call.
#[derive(Debug, Clone)]
pub(super) struct ServedModelCall {
    pub(super) call: CallId,
    pub(super) attempt: Attempt,
    pub(super) ended: Option<EndKind>,
    /// What the provider has said that it used, and when the process heard of it.
    pub(super) reported_usage: Option<Usage>,
    pub(super) reported_at: u64,
    /// Which messages to runs it has shown, by number.
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

    /// A process begins to live on a store; within its tokio runtime. A machine that was started anew has no commands.
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

    /// The process ends: within its tokio runtime, whose time nobody knows any more when it is gone.
    pub(super) fn end_process(&self) {
        let mut inner = self.lock();
        inner.before = inner.now();
        inner.began = None;
    }

    /// The process is gone, and it takes so long until the next one.
    pub(super) fn finish_downtime(&self, pause_ms: u64) {
        let mut inner = self.lock();
        // What the process did itself ends with it; only then time goes on.
        let now = inner.before;
        let commands: Vec<usize> = inner.commands.values().map(|command| command.execution).collect();
        for (n, deed) in inner.executions.iter_mut().enumerate() {
            if !commands.contains(&n) {
                deed.ended.get_or_insert((now, EndKind::Dropped));
            }
        }
        for asked in &mut inner.model_calls {
            asked.ended.get_or_insert(EndKind::Dropped);
        }
        inner.before += pause_ms;
    }

    pub(super) fn now(&self) -> u64 {
        self.lock().now()
    }

    /// Something goes wrong as it is planned.
    pub(super) fn record_fault(&self, wrong: &'static str) {
        self.lock().observations.fault_names.insert(wrong);
    }

    /// Whether this is the first time that somebody asks so.
    pub(super) fn is_first(&self, what: String) -> bool {
        self.lock().once.insert(what)
    }

    /// How often this was asked before.
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

    /// The process or an actor of it is ended by force: what was on its way within it may be lost.
    pub(super) fn record_forced_end(&mut self) {
        self.forced_end_at = Some(self.now());
    }

    /// Something was said of which nobody knows whether it will be written.
    pub(super) fn extend_quiet_time(&mut self) {
        self.quiet_at = self.now() + MAX_COMMIT_MS;
    }

    /// What a process that is gone has written reaches the store, if it does before this commit. Nothing comes of it: that
    /// process would go on as if it were alive.
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

    /// An attempt of a tool call begins. Gives its number among the deeds.
    pub(super) fn start_execution(&mut self, (call, attempt): (CallId, Attempt), kind: ToolKind) -> usize {
        self.end_finished_commands();
        if !self.observations.has_started(call, attempt) {
            self.observations.report_violation(
                "an effect follows its record",
                format!("{call} attempt {attempt} began before its start was stored"),
            );
        }
        if self.fenced.contains(&(call, attempt)) {
            self.observations.report_violation(
                "an effect happens once",
                format!("{call} attempt {attempt} began after it was known never to"),
            );
        }
        if self.executions.iter().any(|deed| (deed.call, deed.attempt) == (call, attempt)) {
            self.observations
                .report_violation("an effect happens once", format!("{call} attempt {attempt} began twice"));
        }
        let under_way = self.executions.iter().find(|deed| deed.call == call && deed.ended.is_none());
        let overlaps = under_way.map(|deed| deed.attempt);
        self.executions.push(ToolExecution { call, attempt, kind, began: self.now(), ended: None, overlaps });
        self.executions.len() - 1
    }

    /// It has ended, unless it had already.
    pub(super) fn end_execution(&mut self, deed: usize, how: EndKind) {
        let now = self.now();
        self.executions[deed].ended.get_or_insert((now, how));
    }

    /// A command begins, and ends by itself after so many milliseconds; `None` for never.
    pub(super) fn launch(&mut self, id: (CallId, Attempt), does: ToolBehaviour, ms: Option<u64>) {
        let deed = self.start_execution(id, ToolKind::Build);
        let until = ms.map_or(u64::MAX, |ms| self.now() + ms);
        self.commands.insert(id, DetachedCommand { execution: deed, behaviour: does, until });
    }

    /// What a command has come to; or in how many milliseconds it ends by itself.
    pub(super) fn command(
        &mut self,
        id: (CallId, Attempt),
    ) -> Option<(DetachedCommand, Result<EndKind, u64>)> {
        self.end_finished_commands();
        let command = *self.commands.get(&id)?;
        let left = command.until.saturating_sub(self.now());
        Some((command, self.executions[command.execution].ended.map(|(_, how)| how).ok_or(left)))
    }

    /// Ends a command by force.
    pub(super) fn stop(&mut self, id: (CallId, Attempt)) {
        if let Some(command) = self.commands.get(&id).copied() {
            self.end_execution(command.execution, EndKind::Stopped);
        }
    }

    /// Notes what has ended by itself.
    fn end_finished_commands(&mut self) {
        let now = self.now();
        for command in self.commands.values() {
            if command.until <= now {
                self.executions[command.execution].ended.get_or_insert((command.until, EndKind::Finished));
            }
        }
    }
}

/// The clock of one life: time begins anew with the process, the wall's does not.
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
