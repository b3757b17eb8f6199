//! Shortens a conversation: finds the part that may be removed, measures it, removes it, or leaves out long results. A
//! call and its result are one step, so they are removed together.

use std::sync::Arc;

use super::{
    CallResult, History,
    rounds::{IMAGE_BYTES, Round, Step, new_hasher, skip_seen},
};
use crate::model::{AssistantMessage, CallEnd, HistoryPosition};

/// Most bytes of an old call's result that stay when long results are left out.
const MAX_KEPT_RESULT_BYTES: usize = 600;

/// Most messages and bytes of the tail that a cut leaves. The present request and the last step stay in any case.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct KeepTail {
    pub(in crate::turn) messages: u32,
    pub(in crate::turn) bytes: usize,
}

impl KeepTail {
    /// Keeps only what stays in any case.
    pub(in crate::turn) const MINIMUM: Self = Self { messages: 0, bytes: 0 };
}

impl History {
    /// The position up to which the conversation may be removed, so that the rest fits `keep`; `None` if nothing needs
    /// to be removed.
    pub(in crate::turn) fn cut_position(&self, keep: KeepTail) -> Option<HistoryPosition> {
        let (mut messages, mut bytes) = (0u32, 0usize);
        let mut fits = |more: (u32, usize)| {
            messages = messages.saturating_add(more.0);
            bytes = bytes.saturating_add(more.1);
            messages <= keep.messages && bytes <= keep.bytes
        };
        let last = self.rounds.len().checked_sub(1)?;
        let round = &self.rounds[last];
        let position =
            |round: usize, step: usize| HistoryPosition { round: to_u32(round), step: to_u32(step) };
        for (n, step) in round.steps.iter().enumerate().rev() {
            let is_last = n + 1 == round.steps.len();
            if !fits(step.size()) && !is_last {
                return Some(self.absolute(position(last, n + 1)));
            }
        }
        for (n, round) in self.rounds.iter().enumerate().take(last).rev() {
            if !fits(round.size()) {
                return Some(self.absolute(position(n + 1, 0)));
            }
        }
        None
    }

    /// Converts a position among the rounds left into one counted from the beginning.
    fn absolute(&self, HistoryPosition { round, step }: HistoryPosition) -> HistoryPosition {
        let before = if round == 0 { self.start.step } else { 0 };
        HistoryPosition { round: self.start.round + round, step: before + step }
    }

    /// Converts a position into the number of whole rounds before it, and of steps before it in its own round. `None`
    /// if the position is not in the rounds left.
    fn relative(&self, to: HistoryPosition) -> Option<(usize, usize)> {
        let round = to.round.checked_sub(self.start.round)?;
        let step = if round == 0 { to.step.checked_sub(self.start.step)? } else { to.step };
        let (round, step) = (round as usize, step as usize);
        (step <= self.rounds.get(round)?.steps.len()).then_some((round, step))
    }

    /// Removes everything before a position and puts `before` in its place.
    pub(in crate::turn) fn drop_before(&mut self, to: HistoryPosition, before: Arc<str>) {
        let Some((rounds, steps)) = self.relative(to) else { return };
        if rounds > 0 && self.first.is_none() {
            self.first = self.rounds.front().map(|round| Arc::clone(&round.user.text));
        }
        self.rounds = self.rounds.skip(rounds);
        if let Some(round) = self.rounds.front_mut() {
            round.steps = round.steps.skip(steps);
            round.before = Some(before);
        }
        self.start = to;
        self.recount();
    }

    /// Leaves out the results of calls before a position that are long or have images.
    pub(in crate::turn) fn elide(&mut self, to: HistoryPosition) {
        let Some((rounds, steps)) = self.relative(to) else { return };
        for (n, round) in self.rounds.iter_mut().enumerate().take(rounds + 1) {
            let steps = if n < rounds { round.steps.len() } else { steps };
            for step in round.steps.iter_mut().take(steps).filter(|step| step.elidable() > 0) {
                Arc::make_mut(step).elide();
            }
        }
        self.recount();
    }

    /// Bytes that `elide` would save.
    pub(in crate::turn) fn elidable(&self, to: HistoryPosition) -> usize {
        let Some((rounds, steps)) = self.relative(to) else { return 0 };
        let of = |round: &Round, steps: usize| -> usize {
            round.steps.iter().take(steps).map(|step| step.elidable()).sum()
        };
        let rounds = self.rounds.iter().enumerate().take(rounds + 1).map(|(n, round)| {
            let steps = if n < rounds { round.steps.len() } else { steps };
            of(round, steps)
        });
        rounds.sum()
    }

    /// Bytes that a removal of everything before a position would save.
    pub(in crate::turn) fn bytes_before(&self, to: HistoryPosition) -> usize {
        let Some((rounds, steps)) = self.relative(to) else { return 0 };
        let whole: usize = self.rounds.iter().take(rounds).map(|round| round.size().1).sum();
        let part = self.rounds.get(rounds).map_or(0, |round| {
            let before = round.before.as_deref().map_or(0, str::len);
            before + round.steps.iter().take(steps).map(|step| step.size().1).sum::<usize>()
        });
        whole + part
    }

    /// The first user message of the conversation, if its round is removed, or is before `to`.
    pub(in crate::turn) fn first_request(&self, to: HistoryPosition) -> Option<&str> {
        match &self.first {
            Some(first) => Some(first),
            None if to.round > 0 => self.rounds.front().map(|round| &*round.user.text),
            None => None,
        }
    }

    /// Two sizes in bytes that cannot be reduced. The first is the present user message with the text behind it. The
    /// second is the last step with the content of earlier rounds from `unshown` on.
    pub(in crate::turn) fn minimum_size(&self, unshown: Option<HistoryPosition>) -> (usize, usize) {
        let Some(round) = self.rounds.last() else { return (0, 0) };
        let earlier = unshown.map_or(0, |from| {
            let rounds = self.rounds.iter().take(self.rounds.len() - 1);
            rounds.map(|round| round.size().1).sum::<usize>().saturating_sub(self.bytes_before(from))
        });
        (round.request_bytes(), earlier + round.steps.last().map_or(0, |step| step.size().1))
    }

    /// The position of the last step, or of the last round if it has none.
    pub(in crate::turn) fn last_step_position(&self) -> Option<HistoryPosition> {
        let last = self.rounds.len().checked_sub(1)?;
        let step = self.rounds[last].steps.len().saturating_sub(1);
        Some(self.absolute(HistoryPosition { round: to_u32(last), step: to_u32(step) }))
    }

    /// The parts after a position, each with the position after it. The user message of a round is left out if a step
    /// of the round lies before `from`.
    pub(super) fn parts_from(
        &self,
        from: HistoryPosition,
    ) -> impl Iterator<Item = (HistoryPosition, HistoryPart<'_>)> {
        let (rounds, steps) = self.relative(from).unwrap_or((self.rounds.len(), 0));
        skip_seen(&self.rounds, rounds)
            .into_iter()
            .zip(rounds..)
            .flat_map(move |(round, n)| {
                let seen = if n == rounds { steps } else { 0 };
                let at = move |step: usize| HistoryPosition { round: to_u32(n), step: to_u32(step) };
                let user = (seen == 0).then_some((at(0), HistoryPart::User(round)));
                let steps = round.steps.iter().enumerate().skip(seen);
                let steps = steps.map(move |(n, step)| (at(n + 1), HistoryPart::Step(step)));
                let next = HistoryPosition { round: to_u32(n + 1), step: 0 };
                let end = round.end.as_ref().map(|end| (next, HistoryPart::End(end)));
                user.into_iter().chain(steps).chain(end)
            })
            .map(|(position, part)| (self.absolute(position), part))
    }

    fn recount(&mut self) {
        (self.bytes, self.images, self.hasher) = (0, 0, new_hasher());
        self.generation += 1;
        let rounds = self.rounds.clone();
        for round in &rounds {
            self.count_user(round);
            self.count_notes(&[round.before.as_deref(), round.note.0.as_deref()]);
            for step in &round.steps {
                self.count_step(step);
                self.count_notes(&[step.note.0.as_deref()]);
            }
            if let Some(message) = &round.end {
                self.count_answer(message);
            }
        }
    }

    fn count_notes(&mut self, notes: &[Option<&str>]) {
        for note in notes.iter().flatten() {
            self.count(&[b"note", note.as_bytes()]);
        }
    }
}

/// A part of a conversation.
pub(super) enum HistoryPart<'a> {
    User(&'a Round),
    Step(&'a Arc<Step>),
    End(&'a AssistantMessage),
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Round {
    /// Bytes of the user's message with what is rendered behind it.
    fn request_bytes(&self) -> usize {
        let notes = [self.before.as_deref(), self.note.0.as_deref()];
        self.user.text.len()
            + self.user.images.len() * IMAGE_BYTES
            + notes.iter().flatten().map(|note| note.len()).sum::<usize>()
    }

    /// Number of messages, and their bytes.
    fn size(&self) -> (u32, usize) {
        let end = self.end.as_ref().map_or(0, |message| message.text.len() + message.reasoning.len());
        let steps = self.steps.iter().map(|step| step.size());
        steps.fold((2, self.request_bytes() + end), |(n, bytes), (more, size)| (n + more, bytes + size))
    }
}

impl Step {
    /// Number of messages, and their bytes.
    fn size(&self) -> (u32, usize) {
        let calls = self.answer.calls.iter().map(|call| call.name.len() + call.arguments.len());
        let opaque = self.answer.opaque.iter().flat_map(|opaque| opaque.parts());
        let results = self
            .results
            .iter()
            .map(|result| result.end.content.len() + result.end.images.len() * IMAGE_BYTES);
        let bytes = self.answer.text.len()
            + self.answer.reasoning.len()
            + calls.sum::<usize>()
            + opaque.map(|part| part.to_string().len()).sum::<usize>()
            + results.sum::<usize>()
            + self.note.0.as_deref().map_or(0, str::len);
        (to_u32(1 + self.results.len()), bytes)
    }

    fn elidable(&self) -> usize {
        let long = self.results.iter().filter_map(|result| elided(&result.end).map(|end| (result, end)));
        let saved = |(result, end): (&CallResult, CallEnd)| {
            let images = result.end.images.len() * IMAGE_BYTES;
            (result.end.content.len() + images).saturating_sub(end.content.len())
        };
        long.map(saved).sum()
    }

    fn elide(&mut self) {
        for result in &mut self.results {
            if let Some(end) = elided(&result.end) {
                result.end = Arc::new(end);
            }
        }
    }
}

/// The replacement of a long result or one with images; `None` for any other.
fn elided(end: &CallEnd) -> Option<CallEnd> {
    if end.content.len() <= MAX_KEPT_RESULT_BYTES && end.images.is_empty() {
        return None;
    }
    let handle = end.artifact.as_ref().map(|artifact| format!("; all of it: artifact {}", artifact.handle));
    let content = format!(
        "[{} bytes of an old result were left out to save room{}]",
        end.content.len(),
        handle.unwrap_or_default()
    );
    Some(CallEnd { content: content.into(), images: Arc::default(), ..end.clone() })
}
