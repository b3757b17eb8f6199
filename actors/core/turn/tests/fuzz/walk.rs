//! A sequence: random steps that one seed decides, and then a world without disturbances until all runs have ended.

use std::sync::Arc;

use super::{
    chance::Chance,
    nature,
    tally::Tally,
    view,
    world::{Mood, World},
};
use crate::{
    model::{
        Amounts, ApprovalScope, DropPolicy, LimitIncrease, PersonAnswer, QueueMode, QueueOverrides, Queueing,
        RunId, StopReason,
    },
    turn::{DueAction, Input},
};

/// Most moves in which a world without disturbances ends all runs.
const KIND_MOVES: u32 = 400;

/// A sequence. Each step is a seed of its own and applies to the state that it meets, so any steps can be left out.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) seed: u64,
    pub(super) steps: Vec<u64>,
}

impl Sequence {
    pub(super) fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let length = match chance.one_in(32) {
            _ if repeats(seed) => 60 + chance.below(200),
            true => chance.below(200),
            false => 4 + chance.below(32),
        };
        Self { seed, steps: (0..length).map(|_| chance.next()).collect() }
    }

    /// Runs the sequence. Its effects are in `world`, also if a rule was broken.
    pub(super) fn walk(&self, world: &mut World) -> Result<(), String> {
        world.tally.sequences += 1;
        for step in &self.steps {
            world.step(&mut Chance::new(*step))?;
        }
        world.come_to_rest()
    }

    /// The world in which the sequence begins.
    pub(super) fn world(&self) -> World {
        let mut chance = Chance::new(!self.seed);
        World::new(Mood {
            room: chance.below(9),
            disk: 2 + chance.below(7),
            disturbances: match repeats(self.seed) {
                true => chance.next() & chance.next() & chance.next(),
                false => chance.next() | chance.next(),
            },
            habit: repeats(self.seed).then(|| chance.next()),
            tokens_per_hour: chance.one_in(4).then(|| 1_500 + chance.below(20_000)),
            begin: nature::begin_rules(&mut chance),
            is_thorough: self.seed.is_multiple_of(16),
        })
    }

    /// Checks that the sequence keeps all rules, and returns what happened in it.
    pub(super) fn check(&self) -> Result<Tally, String> {
        let mut world = self.world();
        let kept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.walk(&mut world)));
        kept.unwrap_or_else(|_| Err("it panics".into())).map(|()| world.tally)
    }

    /// All that happens in the sequence, as text.
    pub(super) fn tell(&self) -> Vec<String> {
        let mut world = self.world();
        world.log = Some(Vec::new());
        let kept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.walk(&mut world)));
        let mut log = world.log.take().unwrap_or_default();
        log.push(match kept {
            Ok(Ok(())) => "kept".into(),
            Ok(Err(why)) => format!("broken: {why}"),
            Err(_) => "it panics".into(),
        });
        log
    }
}

/// Whether the model of this sequence repeats itself.
const fn repeats(seed: u64) -> bool {
    seed % 16 == 5
}

impl World {
    fn step(&mut self, chance: &mut Chance) -> Result<(), String> {
        self.tally.steps += 1;
        if chance.below(8) < self.mood.disk {
            self.written(chance)?;
        }
        self.pass(chance.below(20));
        let what = chance.below(32);
        let is_on = self.watch.runs() == 0 || (self.mood.disturbances >> what) & 1 == 1;
        match what {
            _ if self.watch.runs() == 0 && !self.is_writing() => self.submit(chance),
            0 | 1 if is_on => self.submit(chance),
            2 if is_on => {
                let run = if chance.one_in(2) { None } else { Some(self.some_run(chance)) };
                let reason = chance.pick(&[StopReason::Command, StopReason::Signal]);
                self.hear(Input::Stop { run, reason }, chance)
            }
            3 | 4 if is_on => self.dies(chance),
            5 if is_on => {
                self.tell(|| "to rest".into());
                self.rests = true;
                self.end_if_at_rest(chance)
            }
            6 if is_on => self.steer(chance),
            7 if is_on => self.message(chance),
            8 | 9 | 14..=19 => match self.turn.open_approvals().pop() {
                Some(approval) => {
                    let call = approval.request.call;
                    let answers = [
                        PersonAnswer::Allow(ApprovalScope::Once),
                        PersonAnswer::Allow(ApprovalScope::Run),
                        PersonAnswer::Text("this one".into()),
                        PersonAnswer::Deny,
                    ];
                    let answer = answers[usize::try_from(chance.below(4)).unwrap_or(0)].clone();
                    self.hear(Input::Approval { call, answer }, chance)
                }
                None => self.goes_on(chance),
            },
            10 if is_on => {
                self.pass(chance.pick(&[100, 1_000, 10_000, 1_000_000]));
                self.hear(Input::TimerFired, chance)
            }
            11 if is_on => {
                let hours = chance.pick(&[-3_600_000, -10_000, 10_000, 3_600_000]);
                self.now.at.0 += hours;
                self.hear(Input::TimerFired, chance)
            }
            12 | 13 => match self.busy(false).pop() {
                Some(at) => self.ends(at, chance),
                None => self.goes_on(chance),
            },
            20 | 21 if is_on => self.hear_again(chance),
            22 | 23 if is_on => self.raise(chance),
            27 if is_on => self.set_queue(chance),
            24 => self.others_go_on(chance),
            25 | 26 => self.hand_in(chance),
            _ => self.goes_on(chance),
        }
    }

    /// A task under way ends in some way.
    fn goes_on(&mut self, chance: &mut Chance) -> Result<(), String> {
        if self.rests {
            return self.end_if_at_rest(chance);
        }
        let busy = self.busy(true);
        let calls: Vec<usize> =
            busy.iter().copied().filter(|at| !self.tasks[*at].effect.is_timer()).collect();
        let of = if calls.is_empty() || chance.one_in(16) { &busy } else { &calls };
        match chance.place(of.len()) {
            Some(at) => {
                let at = of[at];
                if let DueAction::WakeAt(time) = self.tasks[at].effect {
                    self.pass(time.ms_since(self.now.at).min(60_000));
                }
                self.ends(at, chance)
            }
            None => self.decide(chance),
        }
    }

    /// Sends a message to the session, in any mode.
    fn message(&mut self, chance: &mut Chance) -> Result<(), String> {
        let n = chance.next();
        let queueing = Queueing {
            mode: chance.pick(&QueueMode::ALL),
            cap: chance.pick(&[1, 2, 3, 20]),
            drop: chance.pick(&[DropPolicy::Summarize, DropPolicy::Old, DropPolicy::New]),
            collect_ms: chance.pick(&[1, 500, 5_000]),
        };
        let spec = Arc::new(nature::spec(chance));
        let accepted = crate::model::RunAccepted::new(view::next(n), view::text(n), spec);
        let accepted = Box::new(crate::model::RunAccepted {
            queueing: Some(queueing),
            images: nature::images(accepted.run),
            ..accepted
        });
        let sent = Input::Submitted { accepted, key: None };
        self.hear(sent.clone(), chance)?;
        if chance.one_in(4) { self.hear(sent, chance) } else { Ok(()) }
    }

    fn set_queue(&mut self, chance: &mut Chance) -> Result<(), String> {
        let cap = chance.pick(&[None, Some(1), Some(2)]);
        self.hear(Input::SetQueue(QueueOverrides { cap, ..QueueOverrides::default() }), chance)
    }

    fn submit(&mut self, chance: &mut Chance) -> Result<(), String> {
        let n = self.watch.runs() as u64;
        let (run, is_repeated) = match n > 0 && chance.one_in(8) {
            true => (self.some_run(chance), true),
            false => (RunId::from_bits(u128::from(chance.next())), false),
        };
        let input = if is_repeated { "again".to_owned() } else { format!("task {n}") };
        let history = Arc::new(if n == 0 || chance.one_in(8) {
            nature::past(chance)
        } else {
            crate::model::ImportedHistory::default()
        });
        let accepted = crate::model::RunAccepted::new(run, input, Arc::new(nature::spec(chance)));
        let accepted =
            Box::new(crate::model::RunAccepted { history, images: nature::images(run), ..accepted });
        let submitted = Input::Submitted { accepted, key: None };
        self.hear(submitted, chance)
    }

    /// A run of this session, or an unknown one.
    fn some_run(&self, chance: &mut Chance) -> RunId {
        let known = self.watch.ids();
        chance.place(known.len() + 1).and_then(|at| known.get(at).copied()).unwrap_or(RunId::from_bits(1))
    }

    fn steer(&mut self, chance: &mut Chance) -> Result<(), String> {
        let current = self.turn.current().map(|(run, _)| run);
        let run = current.filter(|_| !chance.one_in(4)).unwrap_or_else(|| self.some_run(chance));
        let n = chance.next();
        let (text, followup_run) = (view::text(n).into(), view::next(n));
        let steer =
            Input::Steer(crate::model::MessageSteered { run, text, followup_run, request_hash: None });
        self.hear(steer.clone(), chance)?;
        if chance.one_in(4) { self.hear(steer, chance) } else { Ok(()) }
    }

    /// Raises the limits of a run, most often of the last one, which may have used up its budget.
    fn raise(&mut self, chance: &mut Chance) -> Result<(), String> {
        let last = self.watch.ids().pop().filter(|_| !chance.one_in(4));
        let run = last.unwrap_or_else(|| self.some_run(chance));
        let budget = Amounts {
            iterations: chance.one_in(2).then(|| chance.below(3)),
            tokens: chance.one_in(2).then(|| chance.below(3_000)),
            tool_calls: chance.one_in(2).then(|| chance.below(3)),
            children: chance.one_in(4).then(|| chance.below(3)),
            ..Amounts::default()
        };
        let wall_ms = chance.one_in(2).then(|| chance.below(5_000));
        self.hear(Input::Raise { run, by: LimitIncrease { budget, wall_ms } }, chance)
    }

    fn dies(&mut self, chance: &mut Chance) -> Result<(), String> {
        self.die(chance)?;
        if chance.one_in(4) {
            let stop = Input::Stop { run: None, reason: StopReason::Command };
            return self.hear(stop, chance);
        }
        self.decide(chance)
    }

    /// A session that starts nothing more ends when none of its tasks is under way.
    fn end_if_at_rest(&mut self, chance: &mut Chance) -> Result<(), String> {
        let ending = self.busy(true).into_iter().find(|at| self.tasks[*at].effect.is_end());
        match ending {
            Some(at) => self.ends(at, chance),
            None if self.is_writing() => self.written(chance),
            None if self.is_waiting() => self.decide(chance),
            None => self.dies(chance),
        }
    }

    /// Lets every due action succeed, until nothing is due.
    fn come_to_rest(&mut self) -> Result<(), String> {
        let chance = &mut Chance::new(0);
        self.mood.room = 8;
        for moves in 0..KIND_MOVES {
            self.pass(1);
            let busy = self.busy(true);
            let call = busy.iter().find(|at| !self.tasks[**at].effect.is_timer());
            if self.is_writing() {
                self.written(chance)?;
            } else if self.is_waiting() {
                self.decide(chance)?;
            } else if self.rests {
                self.end_if_at_rest(chance)?;
            } else if let Some(at) = call {
                self.succeeds(*at, chance)?;
            } else if let Some(at) = self.busy(false).pop() {
                self.succeeds(at, chance)?;
            } else if !busy.is_empty() {
                // Only timers are due: the first one fires.
                self.pass(self.next_wake().unwrap_or(0));
                self.hear(Input::TimerFired, chance)?;
            } else {
                self.tally.moves = self.tally.moves.max(moves);
                return self.watch.over(&self.turn);
            }
        }
        Err(format!("still busy with {:?}", self.turn.due(self.now)))
    }

    /// Milliseconds until the first timer.
    fn next_wake(&self) -> Option<u64> {
        let until = |effect: &DueAction| match *effect {
            DueAction::WakeAt(time) => Some(time.ms_since(self.now.at)),
            DueAction::WakeAtActive(ms) => Some(ms.saturating_sub(self.now.active_ms)),
            DueAction::CallModel { .. }
            | DueAction::RunTool { .. }
            | DueAction::EndTool { .. }
            | DueAction::Acquire { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::SaveMemory(_)
            | DueAction::Verify(_) => None,
        };
        self.turn.due(self.now).iter().filter_map(until).min()
    }
}
