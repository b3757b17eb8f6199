//! A model call: its attempts, its pauses, and what became of the models of its chain.

use std::sync::Arc;

use crate::{
    model::{Attempt, Failure, FailureClass, ModelRef, ModelStarted, NotAnswered, Now, Timestamp, WhyNot},
    policy::{Candidate, Visit},
};

/// A model call: all its attempts.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    /// The attempt that is wanted or under way, from 1.
    pub(super) attempt: Attempt,
    /// Whether an earlier call has shown this very view: its answer was discarded.
    pub(super) is_repeated: bool,
    /// Whether a provider has said that its request is too long, and nothing was done about that yet.
    pub(super) is_too_long: bool,
    /// Whether a model may have read one of its requests that have failed: not all were turned away.
    pub(super) has_shown: bool,
    /// What its requests say of a budget that is nearly used up.
    pub(super) warning: Option<Arc<str>>,
    /// What they say of a view that is nearly full, once the first of them was made: all say the same.
    pub(super) pressure: Option<Arc<str>>,
    /// When the first attempt started, on the session's active clock, moved on by what was waited for known resets.
    pub(super) since: Option<u64>,
    /// What was waited for known resets, in milliseconds.
    pub(super) waited_ms: u64,
    /// The first link of the chain that may be asked: the answers of those before it were not taken.
    pub(super) from: usize,
    /// The models that have failed in this call, the last one last.
    pub(super) tried: Vec<Tried>,
    pub(super) state: Asked,
}

/// The state of a model call's attempt.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// It needs a lease; after the pause, if there is one.
    Wanted(Option<Pause>),
    /// It is started, by the record.
    Started(Arc<ModelStarted>),
}

/// What became of a model in this call.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) model: ModelRef,
    /// How many attempts have failed in which way.
    failures: Vec<(&'static str, u32)>,
    last: Failure,
    patience: Patience,
}

/// Whether a call may come back to a model that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It may, after a pause.
    Left,
    /// Another is asked instead; it may, when others are let through to it too.
    Resting,
    /// It may not.
    Spent,
}

impl Asking {
    /// A call that nobody has made yet, and the link that it begins with.
    pub(super) const fn first(from: usize) -> Self {
        Self {
            attempt: 1,
            is_repeated: false,
            is_too_long: false,
            has_shown: false,
            warning: None,
            pressure: None,
            since: None,
            waited_ms: 0,
            from,
            tried: Vec::new(),
            state: Asked::Wanted(None),
        }
    }

    /// The started attempt.
    pub(super) const fn started(&self) -> Option<&Arc<ModelStarted>> {
        match &self.state {
            Asked::Started(started) => Some(started),
            Asked::Wanted(_) => None,
        }
    }

    /// The pause before the next attempt.
    pub(super) const fn pause(&self) -> Option<Pause> {
        match &self.state {
            Asked::Wanted(pause) => *pause,
            Asked::Started(_) => None,
        }
    }

    /// Ends the pause: says how much of it does not count.
    pub(super) fn end_pause(&mut self, now: Now) -> u64 {
        let waited_ms = self.pause().map_or(0, |pause| pause.uncounted_ms(now));
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
        self.since = self.since.map(|since| since.saturating_add(waited_ms));
        waited_ms
    }

    /// How many attempts at this model have failed in this way.
    pub(super) fn failed_as(&self, model: &ModelRef, class: &FailureClass) -> u32 {
        let failures = self.of(model).map_or(&[][..], |tried| &tried.failures);
        failures.iter().find(|(name, _)| *name == class.name()).map_or(0, |(_, times)| *times)
    }

    /// Counts one more failed attempt at this model.
    pub(super) fn note(&mut self, model: ModelRef, failure: &Failure, patience: Patience) {
        let known = self.tried.iter().position(|tried| tried.model == model);
        let mut failures = known.map_or_else(Vec::new, |at| self.tried.remove(at).failures);
        let name = failure.class.name();
        match failures.iter_mut().find(|(other, _)| *other == name) {
            Some((_, times)) => *times += 1,
            None => failures.push((name, 1)),
        }
        self.tried.push(Tried { model, failures, last: failure.clone(), patience });
    }

    fn of(&self, model: &ModelRef) -> Option<&Tried> {
        self.tried.iter().find(|tried| tried.model == *model)
    }

    /// The links of the chain that this call may still ask, by number.
    pub(super) fn may_ask<'a>(
        &'a self,
        chain: &'a [ModelRef],
    ) -> impl Iterator<Item = (usize, &'a ModelRef)> {
        let left = |model: &ModelRef| self.of(model).is_none_or(|tried| tried.patience != Patience::Spent);
        chain.iter().enumerate().skip(self.from).filter(move |(_, model)| left(model))
    }

    /// The links of the chain that this call may still ask: those that it has left for another behind the others. `tokens`
    /// is what an attempt at a model would reserve.
    pub(super) fn candidates(&self, chain: &[ModelRef], tokens: impl Fn(&ModelRef) -> u64) -> Vec<Candidate> {
        let patience = |model: &ModelRef| self.of(model).map(|tried| tried.patience);
        let mut links: Vec<&ModelRef> = self.may_ask(chain).map(|(_, model)| model).collect();
        links.sort_by_key(|model| patience(model) == Some(Patience::Resting));
        let candidate = |model: &ModelRef| Candidate {
            model: model.clone(),
            visit: match patience(model) {
                Some(Patience::Left) => Visit::Again,
                Some(Patience::Resting | Patience::Spent) | None => Visit::First,
            },
            tokens: tokens(model),
        };
        links.into_iter().map(candidate).collect()
    }

    /// Whether this call has asked the model.
    pub(super) fn has_tried(&self, model: &ModelRef) -> bool {
        self.of(model).is_some()
    }

    /// The last failure.
    pub(super) fn last_failure(&self) -> Option<&Failure> {
        self.tried.last().map(|tried| &tried.last)
    }

    /// What became of each link of the chain: those that are not skipped were tried.
    pub(super) fn ends(&self, chain: &[ModelRef], skipped: &[NotAnswered]) -> Vec<NotAnswered> {
        let end = |model: &ModelRef| {
            let skipped = skipped.iter().find(|link| link.model == *model).cloned();
            self.of(model).map(Tried::end).or(skipped)
        };
        chain.iter().filter_map(end).collect()
    }
}

impl Tried {
    fn end(&self) -> NotAnswered {
        let attempts = self.failures.iter().map(|(_, times)| times).sum();
        NotAnswered { model: self.model.clone(), why: WhyNot::Tried { attempts, failure: self.last.clone() } }
    }
}

/// A pause between attempts, on the wall clock, so that a crash does not begin it anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// When it began on the session's active clock, if the provider said when it ends: it does not count for the
    /// limits of time.
    pub(super) uncounted: Option<u64>,
}

impl Pause {
    /// Whether it is over. A clock that was set back does not stretch it.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        now >= self.until || now < self.from
    }

    /// How much of the active time it has not counted for, up to now.
    pub(super) fn uncounted_ms(self, now: Now) -> u64 {
        let length = self.until.ms_since(self.from);
        self.uncounted.map_or(0, |since| now.active_ms.saturating_sub(since).min(length))
    }
}
