//! The tasks of a session, and how they end.

use std::sync::Arc;

use super::{chance::Chance, nature, outside::Found, world::World};
use crate::{
    model::{
        Attempt, AttemptId, CallEnd, CallId, CallStatus, Failure, FailureClass, MemorySave, ModelStarted,
    },
    turn::{DueAction, FailoverOptions, Input},
};

/// A task in flight.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) effect: DueAction,
    pub(super) doing: Doing,
    /// Whether the task is still due. A cancelled task may still report something.
    pub(super) is_due: bool,
}

#[derive(Debug)]
pub(super) enum Doing {
    /// Calls a model.
    Ask(Arc<ModelStarted>),
    /// Makes a tool call.
    Run,
    /// Finds out what became of a tool call; true if its tool can tell.
    Attach(bool),
    /// Waits for a time, a lease or a permit.
    Wait,
    /// Waits for the subagents of the call.
    Children,
    /// Has its end already.
    Told(CallEnd),
    /// Was started without its lease or permit.
    Lost,
    /// Has reported its end.
    Over,
}

impl World {
    /// The indices of the tasks that have not reported their end: of those that are due, or of those that are not.
    pub(super) fn busy(&self, is_due: bool) -> Vec<usize> {
        let is_busy =
            |task: &Task| task.is_due == is_due && !matches!(task.doing, Doing::Over | Doing::Children);
        (0..self.tasks.len()).filter(|at| is_busy(&self.tasks[*at])).collect()
    }

    /// A task ends in any way.
    pub(super) fn ends(&mut self, at: usize, chance: &mut Chance) -> Result<(), String> {
        if let DueAction::AwaitSubagent { call, n, .. } = self.tasks[at].effect {
            return if chance.one_in(2) { self.rings((call, n), chance) } else { self.hand_in(chance) };
        }
        let Task { effect, doing, is_due } = self.take(at);
        let input = match (effect, doing) {
            (DueAction::AwaitSubagent { .. }, _) | (_, Doing::Over | Doing::Children) => return Ok(()),
            (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Told(end),
            ) => Input::ToolEnded { id: AttemptId { call, attempt }, end },
            (DueAction::CallModel(AttemptId { call, attempt }), Doing::Ask(_))
                if !is_due && chance.one_in(2) =>
            {
                let failure = Failure::new(FailureClass::Cancelled, "x");
                Input::ModelFailed {
                    id: AttemptId { call, attempt },
                    failure: Box::new(failure),
                    failover: FailoverOptions::default(),
                }
            }
            (_, Doing::Ask(started)) => {
                let links = self.turn.current().map_or(0, |(_, spec)| spec.chain.len());
                match self.habit(started.call, chance) {
                    Some(mut habit) => nature::repeated(&mut habit, &started),
                    None => nature::said(chance, &started, links, self.now.at),
                }
            }
            (DueAction::Begin(run), _) => Input::MayBegin { run, hooks: nature::hooks(chance) },
            (DueAction::Acquire(AttemptId { call, attempt }), _) => self.found(call, attempt, chance),
            (DueAction::WakeAt(_) | DueAction::WakeAtActive(_), _) => Input::TimerFired,
            (DueAction::SaveMemory(call), _) => self.saved(call, chance.one_in(3)),
            (DueAction::Verify(call), _) => Input::Verified {
                call,
                misses: if chance.one_in(2) { vec![nature::miss()] } else { Vec::new() },
            },
            (DueAction::CallModel(AttemptId { call, attempt }), _)
            | (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Lost | Doing::Wait,
            ) => Input::Lost(AttemptId { call, attempt }),
            (DueAction::EndTool(AttemptId { call, attempt }), Doing::Run) => {
                self.stopped(call, attempt, chance)
            }
            (DueAction::RunTool(AttemptId { call, attempt }), Doing::Run) => self.made(call, attempt, chance),
            (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Attach(is_detached),
            ) => {
                let is_lucky = !chance.one_in(4);
                self.attached(AttemptId { call, attempt }, (is_detached, is_lucky))
            }
        };
        self.hear(input, chance)
    }

    /// A task ends in the best way.
    pub(super) fn succeeds(&mut self, at: usize, chance: &mut Chance) -> Result<(), String> {
        if let DueAction::AwaitSubagent { call, n, .. } = self.tasks[at].effect {
            return self.rings((call, n), chance);
        }
        let Task { effect, doing, .. } = self.take(at);
        let input = match (effect, doing) {
            (DueAction::AwaitSubagent { .. }, _) | (_, Doing::Over | Doing::Children) => return Ok(()),
            (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Told(end),
            ) => Input::ToolEnded { id: AttemptId { call, attempt }, end },
            (_, Doing::Ask(started)) => nature::last_word(&started),
            (DueAction::Begin(run), _) => Input::MayBegin { run, hooks: None },
            (DueAction::Acquire(AttemptId { call, attempt }), _) => match self.turn.candidates_of(call) {
                Some(links) if call.is_model_call() => match links.first() {
                    Some(link) => {
                        Input::Leased { id: AttemptId { call, attempt }, model: link.model.clone() }
                    }
                    None => Input::NoLease { id: AttemptId { call, attempt }, skipped: Arc::new([]) },
                },
                Some(_) | None => Input::Permitted(AttemptId { call, attempt }),
            },
            (DueAction::WakeAt(_) | DueAction::WakeAtActive(_), _) => Input::TimerFired,
            (DueAction::SaveMemory(call), _) => self.saved(call, false),
            (DueAction::Verify(call), _) => Input::Verified { call, misses: Vec::new() },
            (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Run,
            ) => {
                self.outside.end(call, attempt, true);
                Input::ToolEnded {
                    id: AttemptId { call, attempt },
                    end: nature::shown(AttemptId { call, attempt }),
                }
            }
            (
                DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                Doing::Attach(is_detached),
            ) => self.attached(AttemptId { call, attempt }, (is_detached, true)),
            (
                DueAction::CallModel(AttemptId { call, attempt })
                | DueAction::RunTool(AttemptId { call, attempt })
                | DueAction::EndTool(AttemptId { call, attempt }),
                _,
            ) => Input::Lost(AttemptId { call, attempt }),
        };
        self.hear(input, chance)
    }

    /// Returns the task, which reports its end. A due task stays in the list until it is no longer due.
    fn take(&mut self, at: usize) -> Task {
        let Task { effect, is_due, .. } = self.tasks[at];
        if !is_due {
            return self.tasks.remove(at);
        }
        std::mem::replace(&mut self.tasks[at], Task { effect, doing: Doing::Over, is_due })
    }

    /// The end of a write: all entries are added, or refused.
    fn saved(&self, call: CallId, is_refused: bool) -> Input {
        let entries = self.turn.pending_memory(call).map_or(0, |pending| pending.entries.len());
        let added = MemorySave { added: u32::try_from(entries).unwrap_or(0), ..MemorySave::default() };
        let save = if is_refused { MemorySave::all_refused(entries, "no") } else { added };
        Input::MemorySaved { call, save }
    }

    fn found(&self, call: CallId, attempt: Attempt, chance: &mut Chance) -> Input {
        if !call.is_model_call() {
            return Input::Permitted(AttemptId { call, attempt });
        }
        match self.turn.candidates_of(call) {
            None => Input::Lost(AttemptId { call, attempt }),
            Some(links) if links.is_empty() || chance.one_in(8) => Input::NoLease {
                id: AttemptId { call, attempt },
                skipped: nature::skipped(chance, &links, self.now.at),
            },
            Some(links) => {
                Input::Leased { id: AttemptId { call, attempt }, model: chance.pick(&links).model }
            }
        }
    }

    fn made(&mut self, call: CallId, attempt: Attempt, chance: &mut Chance) -> Input {
        let how = match self.habit(call, chance) {
            Some(mut habit) => 1 + habit.below(3),
            None => chance.below(8),
        };
        self.outside.end(call, attempt, how > 0);
        match how {
            0 => Input::Lost(AttemptId { call, attempt }),
            1 => Input::ToolEnded {
                id: AttemptId { call, attempt },
                end: CallEnd::error(CallStatus::Error, "no", None, "other"),
            },
            _ => Input::ToolEnded { id: AttemptId { call, attempt }, end: CallEnd::ok("yes") },
        }
    }

    /// What decides about this call of a model that repeats one, two or three answers. Now and then chance does.
    fn habit(&self, call: CallId, chance: &mut Chance) -> Option<Chance> {
        let habit = self.mood.habit.filter(|_| !chance.one_in(24))?;
        let at = u64::from(call.iteration) % (1 + habit % 3);
        Some(Chance::new(habit ^ (at << 8) ^ u64::from(call.n)))
    }

    fn stopped(&mut self, call: CallId, attempt: Attempt, chance: &mut Chance) -> Input {
        let is_seen = !chance.one_in(3);
        self.outside.end(call, attempt, is_seen);
        match is_seen {
            true => Input::ToolEnded {
                id: AttemptId { call, attempt },
                end: CallEnd::new(CallStatus::Stopped, "stopped"),
            },
            false => Input::Lost(AttemptId { call, attempt }),
        }
    }

    /// The result of attaching to a call: the attach waits for its end, or ends it.
    fn attached(&mut self, id: AttemptId, (is_detached, is_lucky): (bool, bool)) -> Input {
        let AttemptId { call, attempt } = id;
        let found = self.outside.find(call, attempt, is_detached);
        self.outside.end(call, attempt, is_lucky);
        match found {
            Found::NeverStarted => Input::NeverStarted(id),
            Found::Ended if is_lucky => Input::ToolEnded { id, end: CallEnd::ok("yes") },
            Found::Ended | Found::Unknown => Input::Lost(id),
        }
    }
}
