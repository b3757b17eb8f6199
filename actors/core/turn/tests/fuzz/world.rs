//! A shell like `session/` and the world around it, both driven by chance. Inputs wait while an append is on its way to
//! disk. Durable records are applied, and only then are their actions started. What is not durable may be lost.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt::Write as _,
    sync::Arc,
};

use super::{
    chance::Chance,
    hold, nature,
    outside::Outside,
    stubs::Stubs,
    tally::Tally,
    tasks::{Doing, Task},
    watch::Watch,
};
use crate::{
    journal::Append,
    model::{
        AgentName, Amounts, Attempt, AttemptId, BeginRules, Body, CallId, Durable, Incarnation, Record,
        RunRow, SessionId, SessionOpened, SessionRevived, SessionTime, StoreLimits, Timestamp,
    },
    turn::{DecisionBuilder, DelegationMode, DueAction, GrantRequest, Input, Turn, WaitTracker},
};

pub(super) const SESSION: SessionId = SessionId::from_bits(1);

/// The conditions of one sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    /// In how many of eight cases a wanted lease or permit is free.
    pub(super) room: u64,
    /// In how many of eight steps the disk answers.
    pub(super) disk: u64,
    /// The kinds of disturbances that happen, a bit for each.
    pub(super) disturbances: u64,
    /// What decides the answers of a model that repeats itself, and the results of its calls; `None` for other models.
    pub(super) habit: Option<u64>,
    /// The tokens that all sessions of the store may use together in an hour; `None` without a limit.
    pub(super) tokens_per_hour: Option<u64>,
    /// What runs wait for before they begin.
    pub(super) begin: BeginRules,
    /// Whether expensive checks run too.
    pub(super) is_thorough: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) turn: Turn,
    /// The first input of this incarnation, until its record is durable.
    pub(super) first: Option<Input>,
    pub(super) now: SessionTime,
    pub(super) mood: Mood,
    pub(super) journal: Vec<Durable<Arc<Record>>>,
    /// The latest row of the session's run under way.
    pub(super) row: Option<RunRow>,
    /// The ids of all messages to targets.
    pub(super) sent: BTreeSet<String>,
    /// The append on its way to disk, and the inputs that it decides.
    pub(super) flight: Option<(Append, Vec<Input>)>,
    pub(super) waiting: VecDeque<Input>,
    /// Inputs of this incarnation that may arrive again, too late.
    pub(super) stale: Vec<Input>,
    pub(super) granted: Vec<AttemptId>,
    /// Whether the last append was refused.
    pub(super) refused: bool,
    /// Whether the session starts nothing more and ends when no append is on its way to disk.
    pub(super) rests: bool,
    pub(super) tasks: Vec<Task>,
    pub(super) outside: Outside,
    pub(super) stubs: Stubs,
    pub(super) watch: Watch,
    revival: u32,
    pub(super) boot: u64,
    pub(super) tally: Tally,
    /// What has happened, as text, if it is printed.
    pub(super) log: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(mood: Mood) -> Self {
        let mut world = Self {
            turn: Turn::empty(SESSION),
            first: None,
            now: SessionTime { at: Timestamp(1_000_000), active_ms: 0 },
            mood,
            journal: Vec::new(),
            row: None,
            sent: BTreeSet::new(),
            flight: None,
            waiting: VecDeque::new(),
            stale: Vec::new(),
            granted: Vec::new(),
            refused: false,
            rests: false,
            tasks: Vec::new(),
            outside: Outside::default(),
            stubs: Stubs::default(),
            watch: Watch::default(),
            revival: 0,
            boot: 0,
            tally: Tally::default(),
            log: None,
        };
        world.begin_life();
        world
    }

    pub(super) fn begin_life(&mut self) {
        self.revival += 1;
        let incarnation = Incarnation { epoch: 1, revival: self.revival };
        let boot = format!("b{}", self.boot);
        self.first = Some(match self.turn.last_seq() {
            0 => Input::Opened(SessionOpened {
                key: "k".into(),
                agent: AgentName::default(),
                prompt: "p".into(),
                incarnation,
                boot,
            }),
            _ => Input::Revived(SessionRevived { incarnation, boot }),
        });
    }

    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now = SessionTime { at: self.now.at.plus_ms(ms), active_ms: self.now.active_ms + ms };
    }

    pub(super) const fn is_writing(&self) -> bool {
        self.flight.is_some()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || (self.first.is_some() && self.turn.last_seq() > 0)
    }

    /// An input arrives.
    pub(super) fn hear(&mut self, input: Input, chance: &mut Chance) -> Result<(), String> {
        if matches!(input, Input::TimerFired) {
            self.tasks.retain(|task| !task.effect.is_timer());
        }
        match input {
            Input::Leased { .. }
            | Input::SummaryLeased { .. }
            | Input::MayBegin { .. }
            | Input::NoLease { .. }
            | Input::Permitted { .. }
            | Input::ModelFailed { .. }
            | Input::ToolEnded { .. }
            | Input::Lost { .. }
            | Input::NeverStarted { .. }
            | Input::Approval { .. }
            | Input::MemorySaved { .. }
            | Input::FromInbox { .. } => self.stale.push(input.clone()),
            Input::Opened(_)
            | Input::Revived(_)
            | Input::Submitted { .. }
            | Input::Answered { .. }
            | Input::Stop { .. }
            | Input::Steer { .. }
            | Input::Raise { .. }
            | Input::SetQueue(_)
            | Input::ChildEnded(_)
            | Input::EmptyInboxRow
            | Input::TimerFired
            | Input::Verified { .. }
            | Input::BudgetRefused(_) => {}
        }
        let gathers = matches!(input, Input::ToolEnded { .. }) && chance.one_in(4);
        self.waiting.push_back(input);
        if gathers { Ok(()) } else { self.decide(chance) }
    }

    /// An earlier input arrives again.
    pub(super) fn hear_again(&mut self, chance: &mut Chance) -> Result<(), String> {
        match chance.place(self.stale.len()) {
            // The runtime finds the row of a message, and does not send it again.
            Some(at) if self.is_durable_message(&self.stale[at]) => self.decide(chance),
            Some(at) => {
                self.waiting.push_back(self.stale[at].clone());
                self.decide(chance)
            }
            None => self.decide(chance),
        }
    }

    fn is_durable_message(&self, input: &Input) -> bool {
        matches!(input, Input::Submitted { accepted, .. }
            if accepted.queueing.is_some() && self.watch.shown.is_known(accepted.run))
    }

    /// Decides all that waits as one append, unless one is in flight.
    pub(super) fn decide(&mut self, chance: &mut Chance) -> Result<(), String> {
        let is_new = self.turn.last_seq() == 0;
        if self.flight.is_some() || (self.waiting.is_empty() && (self.first.is_none() || is_new)) {
            return Ok(());
        }
        let hour = Amounts { tokens: self.mood.tokens_per_hour, ..Amounts::default() };
        self.turn.set_store_limits(StoreLimits { hour, ..StoreLimits::default() });
        self.turn.set_begin_rules(self.mood.begin);
        let mut draft = self.turn.start_decision(self.now);
        let mut fed: Vec<Input> = self.first.iter().cloned().collect();
        fed.iter().for_each(|first| draft.apply_input(first));
        let inputs = self.feed(&mut draft);
        fed.extend(inputs.iter().cloned());
        if !self.rests {
            self.grant(&mut draft, &mut fed, chance);
        }
        self.cancel_all_but(&draft.due());
        let decision = draft.finish();
        for input in &fed {
            self.tally.input(input);
        }
        if self.mood.is_thorough {
            let mut again = self.turn.start_decision(self.now);
            fed.iter().for_each(|input| again.apply_input(input));
            hold!(
                again.finish().records == decision.records,
                "the same inputs were decided otherwise: {fed:?}"
            );
        }
        let now = self.now;
        self.tell(|| told(now, &fed, &decision));
        hold!(
            !self.refused || decision.ledger.reservations.iter().all(|reserve| reserve.amounts.is_empty()),
            "more is reserved after a refusal: {:?}",
            decision.ledger
        );
        self.refused = false;
        if decision.is_empty() {
            self.watch.is_settled(&inputs)?;
            return self.begin_due();
        }
        self.flight = Some((decision, inputs));
        Ok(())
    }

    fn feed(&mut self, draft: &mut DecisionBuilder) -> Vec<Input> {
        let mut taken = Vec::new();
        for input in self.waiting.drain(..) {
            if let Input::Leased { id: AttemptId { call, attempt }, .. }
            | Input::Permitted(AttemptId { call, attempt }) = input
            {
                self.granted.push(AttemptId { call, attempt });
            }
            if let Input::Leased { id: AttemptId { call, attempt }, .. }
            | Input::NoLease { id: AttemptId { call, attempt }, .. }
            | Input::Permitted(AttemptId { call, attempt }) = input
            {
                self.tasks.retain(|task| task.effect != DueAction::Acquire(AttemptId { call, attempt }));
            }
            if let Input::MayBegin { run, hooks } = &input {
                self.tasks.retain(|task| task.effect != DueAction::Begin(*run));
                self.watch.permitted(*run, hooks.as_deref());
            }
            if !draft.has_history_conflict(&input) {
                draft.apply_input(&input);
                taken.push(input);
            }
        }
        taken
    }

    /// Grants some of the leases and permits that the draft wants.
    fn grant(&mut self, draft: &mut DecisionBuilder, fed: &mut Vec<Input>, chance: &mut Chance) {
        for want in draft.grant_requests() {
            if chance.below(8) >= self.mood.room {
                continue;
            }
            let input = match want {
                GrantRequest::Lease(AttemptId { call, attempt }) => {
                    let links = draft.candidates_of(call).unwrap_or_default();
                    match links.first() {
                        Some(link) if self.mood.room == 8 || !chance.one_in(16) => {
                            Input::Leased { id: AttemptId { call, attempt }, model: link.model.clone() }
                        }
                        Some(_) | None => {
                            let skipped = nature::skipped(chance, &links, self.now.at);
                            Input::NoLease { id: AttemptId { call, attempt }, skipped }
                        }
                    }
                }
                GrantRequest::Place(run, _) => {
                    self.watch.permitted(run, None);
                    Input::MayBegin { run, hooks: None }
                }
                GrantRequest::Permit(AttemptId { call, attempt }, _) => {
                    Input::Permitted(AttemptId { call, attempt })
                }
            };
            draft.apply_input(&input);
            if let Input::Leased { id: AttemptId { call, attempt }, .. }
            | Input::Permitted(AttemptId { call, attempt }) = input
            {
                self.granted.push(AttemptId { call, attempt });
            }
            fed.push(input);
        }
    }

    /// Starts the actions that are due and not started.
    pub(super) fn begin_due(&mut self) -> Result<(), String> {
        if self.first.is_some() {
            return Ok(());
        }
        let due = self.turn.due(self.now);
        self.watch.due(&due)?;
        if self.rests {
            self.tasks.retain(|task| !task.effect.is_end() || due.contains(&task.effect));
        } else {
            self.cancel_all_but(&due);
        }
        for effect in due {
            self.tally.effect(&effect);
            if self.tasks.iter().any(|task| task.is_due && task.effect == effect) {
                continue;
            }
            if self.rests && !effect.is_end() {
                if let DueAction::RunTool(AttemptId { call, attempt }) = effect
                    && self.take_grant(call, attempt)
                {
                    self.waiting.push_back(Input::NeverStarted(AttemptId { call, attempt }));
                }
                continue;
            }
            let doing = self.begin(effect)?;
            self.tasks.push(Task { effect, doing, is_due: true });
        }
        self.granted.clear();
        Ok(())
    }

    fn begin(&mut self, effect: DueAction) -> Result<Doing, String> {
        Ok(match effect {
            DueAction::RunTool(AttemptId { call, .. }) | DueAction::EndTool(AttemptId { call, .. })
                if let Some(ground) = self.turn.delegation_mode(call) =>
            {
                match ground {
                    DelegationMode::Foreground => Doing::Children,
                    DelegationMode::Background(end) => Doing::Told(end),
                }
            }
            DueAction::CallModel(AttemptId { call, attempt }) => {
                match (self.take_grant(call, attempt), self.turn.started_of(call)) {
                    (true, Some(started)) => Doing::Ask(Arc::clone(started)),
                    (_, _) => Doing::Lost,
                }
            }
            DueAction::RunTool(AttemptId { call, attempt }) if self.take_grant(call, attempt) => {
                let leaves = self.watch.leaves(call);
                self.outside.begin(
                    AttemptId { call, attempt },
                    (self.turn.is_detached(call), self.is_once(call)),
                    leaves,
                )?;
                Doing::Run
            }
            DueAction::RunTool(AttemptId { call, .. }) if self.turn.is_of_earlier_incarnation(call) => {
                Doing::Attach(self.turn.is_detached(call))
            }
            DueAction::RunTool { .. } => Doing::Lost,
            DueAction::EndTool(AttemptId { call, .. }) => Doing::Attach(self.turn.is_detached(call)),
            DueAction::Acquire { .. }
            | DueAction::Begin(_)
            | DueAction::AwaitSubagent { .. }
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => Doing::Wait,
        })
    }

    fn is_once(&self, id: CallId) -> bool {
        matches!(&self.turn.current, Some(run) if run.tool_calls().iter().any(|call| call.id == id && call.is_once()))
    }

    fn take_grant(&mut self, call: CallId, attempt: Attempt) -> bool {
        let at = self.granted.iter().position(|granted| *granted == AttemptId { call, attempt });
        at.map(|at| self.granted.remove(at)).is_some()
    }

    /// Cancels the tasks that are started and not due.
    fn cancel_all_but(&mut self, due: &[DueAction]) {
        self.tasks.retain_mut(|task| {
            if task.is_due && !due.contains(&task.effect) {
                match (&task.doing, task.effect.end_action().filter(|end| due.contains(end))) {
                    (Doing::Wait | Doing::Over | Doing::Children, None) => return false,
                    (_, Some(end)) => task.effect = end,
                    (_, None) => task.is_due = false,
                }
            }
            true
        });
    }

    /// Checks what the state shows to models and to people.
    pub(super) fn shown_as_it_is(&self, turn: &Turn) -> Result<(), String> {
        self.watch.shown.check_all(turn)?;
        let mut waits = WaitTracker::new(SESSION);
        self.journal.iter().for_each(|record| waits.take(record));
        if let Some((run, _)) = turn.current() {
            let named = waits.waits_running(run, self.now.at, &NoBounds);
            hold!(!named.is_empty(), "{:?} is due, and no wait is named", turn.due(self.now));
            hold!(!waits.waits_unowned(run, self.now.at).is_empty(), "a run at rest waits for nothing");
        }
        Ok(())
    }

    /// Whether the journal has a record whose body fulfils `is`.
    pub(super) fn has(&self, is: impl Fn(&Body) -> bool) -> bool {
        self.journal.iter().any(|record| is(&record.body))
    }
}

struct NoBounds;

impl crate::turn::TaskDeadlines for NoBounds {
    fn model(&self, _: &crate::model::ModelRef, _: &crate::model::RunSpec) -> u64 {
        1
    }

    fn tool(&self, _: crate::model::AttemptId) -> u64 {
        1
    }

    fn verify(&self, _: &crate::model::RunSpec) -> u64 {
        1
    }

    fn memory(&self) -> u64 {
        0
    }

    fn stop(&self) -> u64 {
        1
    }
}

fn told(now: SessionTime, fed: &[Input], decision: &Append) -> String {
    let mut told = format!("at {} ({} ms alive)", now.at.0, now.active_ms);
    let written = fed.iter().try_for_each(|input| write!(told, "\n  {input:?}"));
    let bodies = decision.records.iter().map(|record| &record.body);
    let written =
        written.and_then(|()| bodies.into_iter().try_for_each(|body| write!(told, "\n    -> {body:?}")));
    written.map_or_else(|error| error.to_string(), |()| told)
}
