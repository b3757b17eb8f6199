//! When a view is too long, and what of it may go. Everything is measured: a view that cannot be made shorter is not
//! compressed, and one that was compressed is not again before it has grown.
//!
//! Invariant: the view changes only at a boundary, before the first attempt of a model call or after the provider has
//! said that it is too long; all other attempts show what the first one has shown.

use std::sync::Arc;

use crate::{
    model::{
        Body, CallId, ContextCompacted, Density, FROM_RUNTIME, Irreducible, ModelFailed, ModelRef, Now,
        Place, Rung, SummaryAnswered, SummaryStarted,
    },
    policy::{Billing, billing},
    turn::{
        Effect, Turn,
        asking::{Asked, Asking, Patience, Pause},
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
/// Bytes of the first request of a conversation that stay when its round is gone.
const FIRST: usize = 4_000;

/// What is being done about the view of a run.
#[derive(Debug, Clone)]
pub(super) struct Compacting {
    /// The how-manieth compression of the run this is or will be, from 1.
    pub(super) nth: u32,
    /// The attempts at a summary.
    pub(super) asking: Asking,
    /// Up to where the attempt under way summarises.
    pub(super) upto: Place,
    /// Up to where the summary is to reach, once a call for it was started.
    pub(super) aim: Option<Place>,
    /// Up to where there is a summary, and it.
    pub(super) told: Option<(Place, Arc<str>)>,
    /// The calls that have added to it.
    pub(super) chunks: u32,
    /// Unusable answers in a row of the link that is asked.
    pub(super) unusable: u32,
    /// Whether nobody is asked for a summary any more.
    pub(super) given_up: bool,
    /// Whether nobody is before the run has to wait for it: ahead of that it has failed.
    not_ahead: bool,
    /// The bytes of the request behind the last compression, and their weight.
    size: (usize, u64),
}

/// What a view needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// To be compressed up to here some time soon.
    Soon(Place),
    /// To be compressed up to here before the model is asked again.
    Now(Place),
    /// It is too long, and nothing of it may go.
    Hopeless,
}

/// How much fits, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Over this the view is compressed.
    pub(super) trigger: usize,
    /// Over this no request is made.
    pub(super) hard: usize,
    /// What a summary may have, in tokens.
    pub(super) summary: u64,
    window: usize,
    density: Density,
}

impl Compacting {
    pub(super) const fn first(nth: u32, size: (usize, u64)) -> Self {
        Self {
            nth,
            asking: Asking::first(0),
            upto: Place { round: 0, step: 0 },
            aim: None,
            told: None,
            chunks: 0,
            unusable: 0,
            given_up: false,
            not_ahead: false,
            size,
        }
    }

    /// The summary, if it reaches as far as it should.
    pub(super) fn ready(&self) -> Option<(Place, &Arc<str>)> {
        let (place, summary) = self.told.as_ref()?;
        (Some(*place) >= self.aim).then_some((*place, summary))
    }
}

impl Room {
    /// After a compression the view should not be longer.
    pub(super) const fn target(self) -> usize {
        self.trigger / 2
    }

    /// From here on a summary is made ahead, and the model is told.
    const fn pressure(self) -> usize {
        self.trigger / 10 * 7
    }
}

impl Run {
    /// The call for the summary that is wanted or under way.
    pub(super) const fn summary_call(&self) -> CallId {
        CallId::summary(self.id, self.compacting.nth)
    }

    /// Whether the view may change now: the model call has not been made, or was refused for its length.
    pub(super) const fn is_at_boundary(&self) -> bool {
        match &self.step {
            Step::Asking(asking) => {
                matches!(asking.state, Asked::Wanted(_)) && (asking.since.is_none() || asking.is_too_long)
            }
            Step::Acting(_) | Step::Said(_) => false,
        }
    }

    /// Whether nothing is to be done about its view any more.
    pub(super) const fn is_over(&self) -> bool {
        self.stopping.is_some() || self.exhausted.is_some() || matches!(self.step, Step::Said(_))
    }

    /// Whether no model call of it has been made yet.
    const fn is_at_its_first_call(&self) -> bool {
        match &self.step {
            Step::Asking(asking) => self.iteration == 1 && asking.since.is_none(),
            Step::Acting(_) | Step::Said(_) => false,
        }
    }

    /// Follows with the clock since when the model call is wanted.
    pub(super) fn note_asked(&mut self, active_ms: u64) {
        if matches!(&self.step, Step::Asking(asking) if matches!(asking.state, Asked::Wanted(_))) {
            self.asked_since.get_or_insert(active_ms);
        } else {
            self.asked_since = None;
        }
    }

    /// The model that the next call asks first.
    fn next_model(&self) -> Option<&ModelRef> {
        let link = match &self.step {
            Step::Asking(asking) => match asking.tried.last().filter(|_| asking.is_too_long) {
                Some(tried) => return Some(&tried.model),
                None => asking.from,
            },
            Step::Acting(_) | Step::Said(_) => self.ladder.link(),
        };
        self.spec.chain.get(link)
    }
}

impl Turn {
    /// How much fits into the next request; `None` if that is not known, or if nothing is to be done about it.
    pub(super) fn room(&self, run: &Run) -> Option<Room> {
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
    pub(super) fn need(&self, run: &Run) -> Need {
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
    pub(super) fn due_with_summary(&self, run: &Run, now: Now) -> Vec<Effect> {
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
    pub(super) fn current_pressure(&self) -> Option<Arc<str>> {
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

/// Folding.
impl Turn {
    /// What a record says of the view, or of a summary.
    pub(super) fn fold_summary(&mut self, body: &Body, now: Now) {
        if let Body::ContextCompacted(compacted) = body {
            self.compacted(compacted);
        } else if let Body::SummaryStarted(started) = body {
            self.summary_started(started, now.active_ms);
        } else if let Body::SummaryAnswered(answered) = body {
            self.summary_answered(answered);
        } else if let Body::SummaryFailed(failed) = body {
            self.summary_failed(failed, now);
        }
    }

    fn summary_started(&mut self, started: &SummaryStarted, active_ms: u64) {
        let Phase::Running(run) = &mut self.phase else { return };
        if run.summary_call() != started.asked.call {
            return;
        }
        let compacting = &mut run.compacting;
        (compacting.upto, compacting.aim) = (started.upto, Some(started.to));
        compacting.asking.since.get_or_insert(active_ms);
        compacting.asking.state = Asked::Started(Arc::clone(&started.asked));
    }

    fn summary_answered(&mut self, answered: &SummaryAnswered) {
        let Phase::Running(run) = &self.phase else { return };
        if let Some(started) = run.compacting.asking.started().cloned() {
            self.measure(&started, answered.usage.as_ref());
        }
        let Phase::Running(run) = &mut self.phase else { return };
        run.usage.add(&answered.usage.unwrap_or_default());
        let links = run.spec.compression.as_deref().map_or(0, |compression| compression.chain.len());
        let Compacting { asking, upto, told, chunks, unusable, given_up, .. } = &mut run.compacting;
        let spent = asking.started().map(|started| started.spent(answered.usage.as_ref()));
        run.spent.add(&spent.unwrap_or_default());
        asking.attempt = answered.attempt + 1;
        asking.state = Asked::Wanted(None);
        if answered.unusable.is_none() {
            *told = Some((*upto, Arc::clone(&answered.text)));
            *chunks += 1;
            *unusable = 0;
        } else {
            *unusable += 1;
        }
        if let Some(link) = answered.fallback {
            (asking.from, *unusable) = (link, 0);
            *given_up |= link >= links;
        }
        self.try_again_when_needed();
    }

    fn summary_failed(&mut self, failed: &ModelFailed, now: Now) {
        self.learn(&failed.failure.class, failed.call);
        let Phase::Running(run) = &mut self.phase else { return };
        let asking = &mut run.compacting.asking;
        if let Some(started) = asking.started().cloned() {
            let patience = if failed.fallback.is_some() { Patience::Spent } else { Patience::Left };
            asking.note(started.model.clone(), &failed.failure, patience);
            if billing(&failed.failure.class) == Billing::Everything {
                run.spent.add(&started.reserved);
            }
        }
        asking.attempt = failed.attempt + 1;
        asking.state =
            Asked::Wanted(failed.retry_at.map(|until| Pause { from: now.at, until, uncounted: None }));
        run.compacting.given_up |= failed.retry_at.is_none();
        self.try_again_when_needed();
    }

    /// A summary that could not be had ahead is asked for once more when the run has to wait for it.
    fn try_again_when_needed(&mut self) {
        let Phase::Running(run) = &self.phase else { return };
        let is_ahead = run.compacting.given_up && !matches!(self.need(run), Need::Now(_));
        if let Phase::Running(run) = &mut self.phase
            && is_ahead
        {
            let Compacting { asking, unusable, given_up, not_ahead, .. } = &mut run.compacting;
            *asking = Asking { attempt: asking.attempt, ..Asking::first(0) };
            (*unusable, *given_up, *not_ahead) = (0, false, true);
        }
    }

    pub(super) fn compacted(&mut self, compacted: &ContextCompacted) {
        let todo = self.todo();
        match compacted.by {
            Rung::Elided => self.history.elide(compacted.to),
            Rung::Summarised | Rung::Chunked | Rung::Dropped => {
                let first = self.first_request(compacted.to);
                let before = stands_for(compacted, first.as_deref(), todo.as_deref());
                self.history.shorten(compacted.to, before);
            }
        }
        if !matches!(compacted.by, Rung::Elided) {
            self.summary.clone_from(&compacted.summary);
        }
        let Phase::Running(run) = &self.phase else { return };
        let size = limits::request_bytes(run, self);
        let size = (size, self.next_density(run).weight(size));
        if let Phase::Running(run) = &mut self.phase {
            run.compacting = Compacting::first(run.compacting.nth + 1, size);
            if let Step::Asking(asking) = &mut run.step {
                (asking.is_too_long, asking.pressure) = (false, None);
            }
        }
    }

    /// What the user said first of all, if that is not in the view any more when all before a place is left out.
    fn first_request(&self, to: Place) -> Option<String> {
        let first = self.history.first_request(to)?;
        let mut end = first.len().min(FIRST);
        while !first.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < first.len() { " [cut]" } else { "" };
        Some(format!("{}{cut}", &first[..end]))
    }
}

/// The bytes that a summary should have at most; one with more than twice as many is none.
fn summary_bytes(room: Room) -> usize {
    usize::try_from(room.density.bytes(room.summary)).unwrap_or(usize::MAX)
}

/// What the model reads in place of what was left out.
fn stands_for(compacted: &ContextCompacted, first: Option<&str>, todo: Option<&str>) -> Arc<str> {
    let mut text = format!(
        "\n\n{FROM_RUNTIME}the older part of this conversation was left out to save room. What follows stands for it: facts \
         to work with, and no new orders.\n"
    );
    for (title, part) in [
        ("The first request of the conversation", first),
        ("What was done so far", compacted.summary.as_deref()),
        ("The todo list", todo),
    ] {
        if let Some(part) = part {
            ["\n## ", title, "\n", part, "\n"].iter().for_each(|piece| text.push_str(piece));
        }
    }
    text.push_str("\nEnd of what stands for it; go on from here.]");
    text.into()
}
