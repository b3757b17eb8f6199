//! Whether a view is too long, and up to where it may go.

use std::sync::Arc;

use super::{Compacting, FIRST, Need, Room};
use crate::{
    model::{Density, FROM_RUNTIME, Irreducible, Now, Place},
    turn::{
        Effect, Turn,
        asking::Asked,
        history::Keep,
        limits,
        run::{Phase, Run, Step},
    },
};

/// Of the window this is left free for what is needed to compress it, in tokens; at most a quarter of it.
const RESERVE: u64 = 20_000;
/// Before the first call of a run a view over this share of the window is compressed, in percent, wherever the trigger is: what
/// an earlier run has left is not for this one to carry up to the edge.
const BACKSTOP: u64 = 85;
/// A summary has a sixteenth of the window, and so many tokens at most.
const SUMMARY: u64 = 8_192;
/// Bytes of what stands around a summary.
const AROUND: usize = 500;

impl Turn {
    /// How much fits into the next request; `None` if that is not known, or if nothing is to be done about it.
    pub(in crate::turn) fn room(&self, run: &Run) -> Option<Room> {
        let compression = run.spec.compression.as_deref()?;
        let model = run.next_model()?;
        let window = self.window(run, model)?;
        let output = limits::wanted_output(run, model).min(window / 4);
        let hard = window.saturating_sub(output + RESERVE.min(window / 4));
        let share = u64::from(compression.trigger);
        let share = if run.is_at_its_first_call() { share.min(BACKSTOP) } else { share };
        let trigger = (window * share / 100).min(hard);
        let density = self.density(run, model);
        let bytes = |tokens: u64| usize::try_from(density.bytes(tokens)).unwrap_or(usize::MAX);
        Some(Room {
            trigger: bytes(trigger),
            hard: bytes(hard),
            summary: (window / 16).min(SUMMARY),
            window: bytes(window),
            density,
        })
    }

    /// How many tokens the requests of the model have that the next call asks first.
    pub(super) fn next_density(&self, run: &Run) -> Density {
        run.next_model().map_or(Density::GUESS, |model| self.density(run, model))
    }

    /// What the view of the run under way needs.
    pub(in crate::turn) fn need(&self, run: &Run) -> Need {
        let Some(room) = self.room(run).filter(|_| !run.is_over()) else { return Need::Nothing };
        let is_refused = matches!(&run.step, Step::Asking(asking) if asking.is_too_long);
        let size = limits::request_bytes(run, self);
        let (bytes, weight) = run.compacting.size;
        // A view that was found to have more tokens has grown without another byte.
        let is_heavier = room.density.weight(size) > weight.saturating_add(weight / 8);
        let has_grown = size > bytes + bytes / 8 || is_heavier;
        if !is_refused && (size <= room.pressure() || !has_grown) {
            return Need::Nothing;
        }
        let (request, last) = self.history.least(run.unshown);
        if limits::head_bytes(run, self) + request + last > room.hard {
            return if is_refused || size > room.hard { Need::Hopeless } else { Need::Nothing };
        }
        let ahead = run.spec.compression.as_deref().is_some_and(|compression| compression.ahead);
        let aim = run.compacting.aim.filter(|aim| *aim > self.history.gone).or_else(|| self.aim(run, room));
        match aim {
            Some(to) if is_refused || size > room.trigger => Need::Now(to),
            Some(to) if ahead => Need::Soon(to),
            None if is_refused || size > room.hard => Need::Hopeless,
            Some(_) | None => Need::Nothing,
        }
    }

    /// Up to where the view may go.
    fn aim(&self, run: &Run, room: Room) -> Option<Place> {
        let messages = run.spec.compression.as_deref().map_or(0, |compression| compression.protect_last);
        let fixed =
            limits::head_bytes(run, self) + self.history.least(None).0 + summary_bytes(room) + FIRST / 2;
        let bytes = room.target().saturating_sub(fixed).min(room.window / 5).max(room.target() / 8);
        let is_worth_it = |to: &Place| {
            let first = self.history.first_request(*to).map_or(0, |first| first.len().min(FIRST));
            self.history.bytes_before(*to) > AROUND + first + 2 * summary_bytes(room)
        };
        let keeps = [Keep { messages, bytes }, Keep::LEAST];
        let cuts = keeps.into_iter().filter_map(|keep| self.history.cut(keep));
        cuts.map(|to| run.unshown.map_or(to, |unshown| to.min(unshown))).find(is_worth_it)
    }

    /// What a request that cannot be made shorter consists of.
    pub(super) fn irreducible(&self, run: &Run) -> Irreducible {
        let density = self.next_density(run);
        let tokens = |bytes: usize| density.tokens(bytes as u64);
        let (request, last) = self.history.least(run.unshown);
        Irreducible {
            limit: self.room(run).map_or(0, |room| tokens(room.hard)),
            system: tokens(self.system_bytes(run)),
            tools: density.tokens(run.spec.schema_bytes),
            request: tokens(request),
            last: tokens(last),
        }
    }

    /// What is in flight, or should be, with what there is about the view.
    pub(in crate::turn) fn due_with_summary(&self, run: &Run, now: Now) -> Vec<Effect> {
        let mut due = run.due(now);
        let need = self.need(run);
        if matches!(need, Need::Now(_)) && run.is_at_boundary() {
            let main = run.model_call();
            due.retain(|effect| !matches!(effect, Effect::Seek { call, .. } if *call == main));
        }
        let Compacting { asking, given_up, not_ahead, .. } = &run.compacting;
        let (call, attempt) = (run.summary_call(), asking.attempt);
        let wanted = match need {
            Need::Now(_) => !given_up,
            Need::Soon(_) => !given_up && !not_ahead,
            Need::Nothing | Need::Hopeless => false,
        };
        let effect = match &asking.state {
            Asked::Started(_) => Some(Effect::Ask { call, attempt }),
            Asked::Wanted(_) if !wanted || run.compacting.ready().is_some() => None,
            Asked::Wanted(Some(pause)) if !pause.is_over(now.at) => Some(Effect::WakeAt(pause.until)),
            Asked::Wanted(_) => Some(Effect::Seek { call, attempt }),
        };
        due.extend(effect.filter(|effect| !due.contains(effect)));
        due
    }

    /// What the requests of the call that is wanted or under way say of a view that is nearly full.
    pub(in crate::turn) fn current_pressure(&self) -> Option<Arc<str>> {
        let Phase::Running(run) = &self.phase else { return None };
        match &run.step {
            Step::Asking(asking) if asking.since.is_some() => asking.pressure.clone(),
            Step::Asking(_) => self.pressure(run).map(Into::into),
            Step::Acting(_) | Step::Said(_) => None,
        }
    }

    fn pressure(&self, run: &Run) -> Option<String> {
        let room = self.room(run)?;
        let size = limits::head_bytes(run, self) + self.history.bytes();
        let percent = size.saturating_mul(100) / room.trigger.max(1);
        let urgent = match percent {
            0..70 => return None,
            70..85 => "",
            _ => " Write down now what you must not lose: state results in your answer.",
        };
        Some(format!(
            "{FROM_RUNTIME}this conversation fills {percent} % of what fits before its older part is replaced by a \
             summary.{urgent}]"
        ))
    }
}

/// The bytes that a summary should have at most; one with more than twice as many is none.
fn summary_bytes(room: Room) -> usize {
    usize::try_from(room.density.bytes(room.summary)).unwrap_or(usize::MAX)
}
