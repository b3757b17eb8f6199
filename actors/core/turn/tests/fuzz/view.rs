//! Checks what models are shown: the view is always well formed, what was sent does not change, and each message and
//! result is shown once.

use std::sync::Arc;

use super::hold;
use crate::{
    model::{AssistantMessage, Message, MessageDropped, ModelStarted, RunId},
    turn::{RenderCursor, TransientPrompt, Turn},
};

/// The position of a list of messages in the grammar that all providers demand: `(user (calls result+)* answer)*`.
#[derive(Debug, Clone, Default)]
pub(in crate::turn::tests) enum Grammar {
    /// At the beginning, or after an answer.
    #[default]
    Closed,
    /// After a user message or the last result of a step.
    Open,
    /// After this number of results of the answer's calls.
    Acting(Arc<AssistantMessage>, usize),
}

impl Grammar {
    /// Adds a message; an error if it may not follow.
    pub(in crate::turn::tests) fn take(&mut self, message: &Message) -> Result<(), String> {
        *self = match (&*self, message) {
            (Self::Closed, Message::User(_)) => Self::Open,
            (Self::Open, Message::Assistant(said)) if said.calls.is_empty() => Self::Closed,
            (Self::Open, Message::Assistant(said)) => Self::Acting(Arc::clone(said), 0),
            (Self::Acting(said, n), Message::Tool { call, .. }) if *said.calls[*n].id == **call => {
                let is_last = n + 1 == said.calls.len();
                if is_last { Self::Open } else { Self::Acting(Arc::clone(said), n + 1) }
            }
            (at, message) => return Err(format!("{message:?} stands behind {at:?}")),
        };
        Ok(())
    }

    /// Whether a list may end here.
    pub(super) const fn is_whole(&self) -> bool {
        match self {
            Self::Closed | Self::Open => true,
            Self::Acting(..) => false,
        }
    }

    /// Whether a model may be called here.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// A steering message to a run.
#[derive(Debug)]
struct Said {
    run: RunId,
    next: RunId,
    read: Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Not,
    Once,
    /// Its run ended before it started, or it was dropped.
    Never,
    /// It was dropped, and its beginning may be shown in a note.
    Excerpt,
}

/// The reported result of a subagent.
#[derive(Debug)]
struct Told {
    run: RunId,
    number: u64,
    /// The first request that showed it, and whether it was in the result of a call.
    read: Option<(u64, bool)>,
}

/// What models were shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    cursor: RenderCursor,
    grammar: Grammar,
    sent: Vec<Message>,
    postscript: Option<TransientPrompt>,
    said: Vec<Said>,
    told: Vec<Told>,
    requests: u64,
    /// Number of messages at the beginning of the view that were shown before it became shorter.
    reread: usize,
    /// Number of messages at the end of the view that were not shown yet.
    tail: std::cell::Cell<usize>,
}

/// The text of the `n`th steering message.
pub(super) fn text(n: u64) -> String {
    format!("{MARK}{n}]")
}

const MARK: &str = "[message ";

/// The result in the `n`th inbox row.
pub(super) fn result(n: u64) -> String {
    format!(r#"{{"answer":"{RESULT}{n}]"}}"#)
}

const RESULT: &str = "[result ";

/// The numbers of marks in a text.
fn marks(text: &str, mark: &'static str) -> impl Iterator<Item = u64> {
    text.split(mark).skip(1).map(|mark| mark.split(']').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// The id of the `n`th message's follow-up run. No other run has such an id.
pub(super) const fn next(n: u64) -> RunId {
    RunId::from_bits(1 << 64 | n as u128)
}

impl Shown {
    /// Checks that the part of the view after the last request is well formed, and returns its last message.
    pub(super) fn check_tail(&self, turn: &Turn) -> Result<Option<Message>, String> {
        let (tail, _) = turn.render(self.cursor);
        let mut grammar = self.grammar.clone();
        tail.iter().try_for_each(|message| grammar.take(message))?;
        hold!(grammar.is_whole(), "the view ends within a step");
        self.tail.set(tail.len().saturating_sub(self.reread));
        Ok(tail.into_iter().next_back())
    }

    /// The view has become shorter at its beginning. What was not shown yet must still be there.
    pub(super) fn compacted(&mut self, turn: &Turn) {
        let (view, _) = turn.render(RenderCursor::default());
        let texts: Vec<String> = view.iter().map(super::super::content).collect();
        self.reread = view.len().saturating_sub(self.tail.get());
        // A message to a run that ended before a request may be gone with the run.
        let current = turn.current().map(|(run, _)| run);
        for said in self.said.iter_mut().filter(|said| said.read == Read::Not && Some(said.run) != current) {
            let is_unread = turn.waiting_messages().any(|waiting| waiting.message == said.next);
            // It may also be the input of its follow-up run.
            let number = u64::try_from(said.next.bits() & u128::from(u64::MAX)).unwrap_or(0);
            if !is_unread && !texts.iter().any(|shown| shown.contains(&text(number))) {
                said.read = Read::Never;
            }
        }
        (self.cursor, self.grammar, self.sent) = (RenderCursor::default(), Grammar::default(), Vec::new());
    }

    /// Checks that the whole view is well formed and begins with what was sent.
    pub(super) fn check_all(&self, turn: &Turn) -> Result<(), String> {
        let (view, _) = turn.render(RenderCursor::default());
        hold!(view.starts_with(&self.sent), "another view than was sent: {view:?}, sent {:?}", self.sent);
        let mut grammar = Grammar::default();
        view.iter().try_for_each(|message| grammar.take(message))?;
        hold!(grammar.is_whole(), "the view ends within a step");
        Ok(())
    }

    /// Checks a request that must equal the one before.
    pub(super) fn asked_again(&self, turn: &Turn, started: &ModelStarted) -> Result<(), String> {
        let (tail, _) = turn.render(self.cursor);
        hold!(tail.is_empty(), "a repeated request shows more: {tail:?}");
        hold!(
            started.attempt == 1 || self.postscript == turn.transient_prompt(),
            "a retry has another postscript"
        );
        Ok(())
    }

    /// Checks that a request shows everything that is unread. `later` is true for runs whose messages are shown later.
    pub(super) fn asked(&mut self, turn: &Turn, later: impl Fn(RunId) -> bool) -> Result<(), String> {
        let (tail, cursor) = turn.render(self.cursor);
        self.requests += 1;
        for (n, message) in tail.iter().enumerate() {
            self.grammar.take(message)?;
            if n < self.reread {
                continue;
            }
            self.read(message)?;
            self.read_results(message)?;
        }
        hold!(self.grammar.is_open(), "a model is asked behind {:?}", self.grammar);
        (self.cursor, self.reread) = (cursor, 0);
        self.sent.extend(tail);
        let left = self.said.iter().find(|said| said.read == Read::Not && !later(said.run));
        hold!(left.is_none(), "a request does not show {left:?}");
        let current = turn.current().map(|(run, _)| run).filter(|run| !later(*run));
        let left = current.and_then(|run| self.untold(run));
        hold!(left.is_none(), "a request does not show {left:?}");
        Ok(())
    }

    /// A result that no request of a run has shown.
    pub(super) fn untold(&self, run: RunId) -> Option<&impl std::fmt::Debug> {
        self.told.iter().find(|told| told.run == run && told.read.is_none())
    }

    /// A subagent of a run has ended.
    pub(super) fn told(&mut self, run: RunId, text: &str) {
        self.told.extend(marks(text, RESULT).map(|number| Told { run, number, read: None }));
    }

    /// Checks that a result is shown once. Two equal calls share one result.
    fn read_results(&mut self, message: &Message) -> Result<(), String> {
        let (content, is_result) = match message {
            Message::User(content) => (content, false),
            Message::Tool { content, .. } => (content, true),
            Message::System(_) | Message::Assistant(_) => return Ok(()),
        };
        let texts = [(Some(&content.text), is_result), (content.note.as_ref(), false)];
        for (text, is_result) in texts {
            let Some(text) = text else { continue };
            for number in marks(text, RESULT) {
                let told = self.told.iter_mut().find(|told| told.number == number);
                let Some(told) = told else {
                    return Err(format!("result {number} is shown and was not told"));
                };
                let same = Some((self.requests, true));
                let fits = told.read.is_none() || (is_result && told.read == same);
                hold!(fits, "{told:?} is shown again");
                told.read = Some((self.requests, is_result));
            }
        }
        Ok(())
    }

    pub(super) fn note_postscript(&mut self, turn: &Turn) {
        self.postscript = turn.transient_prompt();
    }

    fn read(&mut self, message: &Message) -> Result<(), String> {
        let (Message::User(content) | Message::Tool { content, .. }) = message else { return Ok(()) };
        for text in [Some(&content.text), content.note.as_ref()].into_iter().flatten() {
            for number in marks(text, MARK) {
                let said = self.said.iter_mut().find(|said| said.next == next(number));
                let Some(said) = said.filter(|said| matches!(said.read, Read::Not | Read::Excerpt)) else {
                    return Err(format!("message {number} is shown and was not said, or twice"));
                };
                said.read = if said.read == Read::Not { Read::Once } else { Read::Never };
            }
        }
        Ok(())
    }

    /// Whether a message was recorded.
    pub(super) fn is_known(&self, message: RunId) -> bool {
        self.said.iter().any(|said| said.next == message)
    }

    /// Number of messages that no request has shown.
    pub(super) fn unread(&self) -> usize {
        self.said.iter().filter(|said| said.read == Read::Not).count()
    }

    /// A message was dropped. One that was not queued at all is known from here on.
    pub(super) fn drop_message(&mut self, dropped: &MessageDropped) -> Result<(), String> {
        let read = if dropped.excerpt.is_some() { Read::Excerpt } else { Read::Never };
        let said = self.said.iter_mut().find(|said| said.next == dropped.message);
        match (said, dropped.run) {
            (Some(said), Some(_)) => {
                hold!(said.read == Read::Not, "{dropped:?} of {said:?}");
                said.read = read;
            }
            (None, None) => self.said.push(Said { run: dropped.message, next: dropped.message, read }),
            (said, _) => return Err(format!("{dropped:?} of {said:?}")),
        }
        Ok(())
    }

    /// Message `next` waits in this run.
    pub(super) fn said(&mut self, run: RunId, next: RunId) -> Result<(), String> {
        // The follow-up run of steering messages is not another message.
        if run == next && self.said.iter().any(|said| said.next == next) {
            return Ok(());
        }
        hold!(self.said.iter().all(|said| said.next != next), "{next} is recorded twice");
        self.said.push(Said { run, next, read: Read::Not });
        Ok(())
    }

    /// A run is accepted. If it is the follow-up run of an unread message, all unread messages of ended runs wait in it.
    pub(super) fn follow_up(&mut self, run: RunId, is_queued: &dyn Fn(RunId) -> bool) {
        let is_unread = |said: &Said| said.read == Read::Not && !is_queued(said.run);
        if self.said.iter().any(|said| said.next == run && is_unread(said)) {
            self.said.iter_mut().filter(|said| is_unread(said)).for_each(|said| said.run = run);
        }
    }

    /// Whether a message to this run is unread.
    pub(super) fn waits(&self, run: RunId) -> bool {
        self.said.iter().any(|said| said.run == run && said.read == Read::Not)
    }

    /// A run has ended before it started.
    pub(super) fn forget(&mut self, run: RunId) {
        for said in self.said.iter_mut().filter(|said| said.run == run && said.read == Read::Not) {
            said.read = Read::Never;
        }
    }
}
