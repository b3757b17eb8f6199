//! Whether a view is too long, and up to where it may go.

use std::sync::Arc;

use super::{Compacting, FIRST, Need, PrefixSummary, Room};
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

/// Of the window this is left free for what is needed to compress it, in tokens; at most a quarter of it. A request that
/// cannot be made shorter may use it up.
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
        let comfortable = window.saturating_sub(output + RESERVE.min(window / 4));
        let share = u64::from(compression.trigger);
        let share = if run.is_at_its_first_call() { share.min(BACKSTOP) } else { share };
        let trigger = (window * share / 100).min(comfortable);
        let density = self.density(run, model);
        let bytes = |tokens: u64| usize::try_from(density.bytes(tokens)).unwrap_or(usize::MAX);
        Some(Room {
            trigger: bytes(trigger),
            most: bytes(window.saturating_sub(limits::shortest_answer(run, model, window))),
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
        let is_refused = run.is_refused_as_too_long();
        let size = limits::request_bytes(run, self);
        if !is_refused && size <= room.pressure() {
            return Need::Nothing;
        }
        let must = is_refused || size > room.most;
        let (request, last) = self.history.least(run.unshown);
        if limits::head_bytes(run, self) + request + last > room.most {
            return if must { Need::Hopeless } else { Need::Nothing };
        }
        let ahead = run.spec.compression.as_deref().is_some_and(|compression| compression.ahead);
        match self.aim(run, room, size) {
            Some(to) if is_refused || size > room.trigger => Need::Now(to),
            Some(to) if ahead && !self.will_elide(run, room, (size, to)) => Need::Soon(to),
            None if must => self.drop_or_fail(run, room, size),
            Some(_) | None => Need::Nothing,
        }
    }

    /// Up to where the view may go. A summary that is there is enough if nothing more has to go behind it.
    fn aim(&self, run: &Run, room: Room, size: usize) -> Option<Place> {
        let Some(summary) = &run.compacting.summary else { return self.cut(run, room, size) };
        if let Some(aim) = run.compacting.aim.filter(|aim| *aim > summary.upto) {
            return Some(aim);
        }
        let left = size.max(room.trigger).saturating_sub(self.history.bytes_before(summary.upto));
        if left + self.stand_in_bytes(summary.upto, summary.text.len()) <= room.pressure() {
            return Some(summary.upto);
        }
        let covered = self.history.bytes_before(summary.upto);
        let is_worth_it =
            |to: &Place| self.history.bytes_before(*to) > covered.saturating_add(2 * summary_bytes(room));
        self.cut(run, room, size).filter(is_worth_it).or(Some(summary.upto))
    }

    /// Up to where the view is to go: what is said until it reaches the trigger stays as it is, too. A view that has not
    /// grown since the last compression is cut again only where that one has left much more than it should.
    fn cut(&self, run: &Run, room: Room, size: usize) -> Option<Place> {
        let until = match room.trigger.checked_sub(size) {
            Some(until) => until + room.trigger / 16,
            None => 0,
        };
        let Keep { messages, bytes } = self.keep_whole(run, room);
        let has_grown = run.is_refused_as_too_long() || run.compacting.has_grown(room, size);
        let summaries = if has_grown { 2 } else { 4 };
        let is_worth_it = |to: &Place| {
            let first = self.history.first_request(*to).map_or(0, |first| first.len().min(FIRST));
            *to > self.history.gone
                && self.history.bytes_before(*to) > AROUND + first + summaries * summary_bytes(room)
        };
        let keep = Keep { messages, bytes: bytes.saturating_sub(until) };
        let keeps = [Some(keep), has_grown.then_some(Keep::LEAST)];
        let cuts = keeps.into_iter().flatten().filter_map(|keep| self.history.cut(keep));
        cuts.map(|to| run.unshown.map_or(to, |unshown| to.min(unshown))).find(is_worth_it)
    }

    /// What stays as it is at the end of a view that is compressed.
    fn keep_whole(&self, run: &Run, room: Room) -> Keep {
        let messages = run.spec.compression.as_deref().map_or(0, |compression| compression.protect_last);
        let fixed =
            limits::head_bytes(run, self) + self.history.least(None).0 + summary_bytes(room) + FIRST / 2;
        let bytes = room.target().saturating_sub(fixed).min(room.window / 5).max(room.target() / 8);
        Keep { messages, bytes }
    }

    /// Whether it will be enough at the trigger to leave out long results, if the view grows as it has grown.
    fn will_elide(&self, run: &Run, room: Room, (size, to): (usize, Place)) -> bool {
        let left = size.saturating_sub(self.history.elidable(to)).saturating_mul(room.trigger);
        run.compacting.may_elide() && left <= room.target().saturating_mul(size)
    }

    /// What is left to do about a view that does not fit, and of which too little can go to be worth a summary.
    fn drop_or_fail(&self, run: &Run, room: Room, size: usize) -> Need {
        let to = self.history.cut(Keep::LEAST);
        let to = to.map(|to| run.unshown.map_or(to, |unshown| to.min(unshown)));
        let fits = |to: &Place| {
            let stand_in = self.stand_in_bytes(*to, self.without_summary(run).len());
            let left = size.saturating_sub(self.history.bytes_before(*to)) + stand_in;
            *to > self.history.gone && left < size && left <= room.most
        };
        match to.filter(fits) {
            Some(to) => Need::Drop(to),
            // It was refused all the same: it is asked again for a shorter answer.
            None if size <= room.most => Need::Nothing,
            None => Need::Hopeless,
        }
    }

    /// The bytes of what stands for all before a place, with notes of so many bytes.
    fn stand_in_bytes(&self, to: Place, notes: usize) -> usize {
        let first = self.history.first_request(to).map_or(0, |first| first.len().min(FIRST));
        AROUND + first + notes + self.todo().map_or(0, |todo| todo.len())
    }

    /// The summary that the view shows from now on, if it is time for it: at the trigger; or before the first call of a run,
    /// when all stays whole that would if the view were compressed now.
    pub(super) fn summary_in_time<'a>(&self, run: &'a Run) -> Option<&'a PrefixSummary> {
        match self.need(run) {
            Need::Now(to) => run.compacting.summary_to(to),
            Need::Soon(to) if run.is_at_its_first_call() => {
                let keep = self.keep_whole(run, self.room(run)?);
                let cut = self.history.cut(keep)?;
                run.compacting.summary_to(to).filter(|summary| summary.upto <= cut)
            }
            Need::Nothing | Need::Soon(_) | Need::Drop(_) | Need::Hopeless => None,
        }
    }

    /// What a request that cannot be made shorter consists of, and what there is room for.
    pub(super) fn irreducible(&self, run: &Run) -> Irreducible {
        let density = self.next_density(run);
        let tokens = |bytes: usize| density.tokens(bytes as u64);
        let (request, last) = self.history.least(run.unshown);
        let model = run.next_model();
        let window = model.and_then(|model| self.window(run, model));
        let output = model.zip(window).map(|(model, window)| limits::shortest_answer(run, model, window));
        Irreducible {
            limit: window.unwrap_or(0).saturating_sub(output.unwrap_or(0)),
            window,
            output,
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
        let is_there = |to: Place| run.compacting.summary_to(to).is_some();
        let wanted = match need {
            Need::Now(to) => !given_up && !is_there(to),
            Need::Soon(to) => !given_up && !not_ahead && !is_there(to),
            Need::Nothing | Need::Drop(_) | Need::Hopeless => false,
        };
        let effect = match &asking.state {
            Asked::Started(_) => Some(Effect::Ask { call, attempt }),
            Asked::Wanted(_) if !wanted => None,
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
