//! The conversation as rounds: how it grows, how it is imported, counted, hashed and rendered. `trim.rs` shortens it;
//! `transcript.rs` renders it for summary calls.

use std::sync::Arc;

use imbl::{Vector, shared_ptr::DefaultSharedPtr, vector::Focus};

use crate::model::{
    AssistantMessage, CallEnd, Hash, Hasher, HistoryPosition, Image, ImportedHistory, ImportedStep, Message,
    MessageContent, OutcomeDetail,
};

/// Bytes that an image counts for: vendors count 1,000 to 2,000 tokens.
pub(in crate::turn) const IMAGE_BYTES: usize = 6_000;

/// A conversation; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(super) rounds: Vector<Round>,
    /// Number of removed rounds, and of removed steps of the first round left.
    pub(in crate::turn) start: HistoryPosition,
    /// The first user message of the conversation, once its round is removed.
    pub(super) first: Option<Arc<str>>,
    /// Bytes that the model reads, without the overhead of the wire format; an image counts as `IMAGE_BYTES`.
    pub(in crate::turn) bytes: usize,
    /// Number of images.
    pub(in crate::turn) images: usize,
    /// One running hash over all counted content: a hash for each message would cost more.
    pub(super) hasher: Hasher,
    /// Counts changes of content that was rendered before: each makes earlier renderings invalid.
    pub(in crate::turn) generation: u32,
}

/// A user message, the steps that followed, and the end, which is absent while a run works on the round.
#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) user: MessageContent,
    /// Replacement for all content that was removed before this round's remaining steps; rendered behind the user
    /// message.
    pub(super) before: Option<Arc<str>>,
    /// Text rendered behind the user message.
    pub(super) note: InlineNote,
    pub(super) steps: Vector<Arc<Step>>,
    pub(super) end: Option<Arc<AssistantMessage>>,
    /// Whether its end is a note about a run that gave no answer.
    is_unanswered: bool,
    /// Whether the images of its last message are described.
    is_described: bool,
}

/// An answer with tool calls, and one result for each call, in the same order.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) answer: Arc<AssistantMessage>,
    pub(super) results: Vec<CallResult>,
    /// Text rendered behind the last result.
    pub(super) note: InlineNote,
}

/// Text that is rendered behind a message's content, inside the same message.
#[derive(Debug, Clone, Default)]
pub(super) struct InlineNote(pub(super) Option<Arc<str>>);

/// The result of one call, under the names that the model sees.
#[derive(Debug, Clone)]
pub(crate) struct CallResult {
    /// The vendor's id of the call.
    pub id: Arc<str>,
    pub tool: Arc<str>,
    pub end: Arc<CallEnd>,
}

/// A position in the rendered list; everything before it was rendered earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenderCursor {
    round: usize,
    /// 0 before the user's message, n + 1 behind n steps.
    part: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            rounds: Vector::new(),
            start: HistoryPosition::default(),
            first: None,
            bytes: 0,
            images: 0,
            hasher: new_hasher(),
            generation: 0,
        }
    }
}

impl History {
    /// Starts a round. The caller ensures that the previous one has ended.
    pub(crate) fn start_round(&mut self, user: impl Into<MessageContent>) {
        debug_assert!(self.rounds.last().is_none_or(|round| round.end.is_some()), "two users in a row");
        let round = Round {
            user: user.into(),
            before: None,
            note: InlineNote::default(),
            steps: Vector::new(),
            end: None,
            is_unanswered: false,
            is_described: false,
        };
        self.count_user(&round);
        self.rounds.push_back(round);
    }

    /// Imports a conversation from outside, all of whose rounds have ended.
    pub(crate) fn import(&mut self, past: &ImportedHistory) {
        for round in &past.rounds {
            self.start_round(Arc::clone(&round.user));
            for ImportedStep { text, reasoning, calls } in &round.steps {
                let results = calls.iter().map(|call| CallResult {
                    id: call.call.id.as_str().into(),
                    tool: call.call.name.as_str().into(),
                    end: Arc::new(CallEnd::ok(&*call.result)),
                });
                let tool_calls = calls.iter().map(|call| call.call.clone()).collect();
                let answer = AssistantMessage {
                    text: text.clone(),
                    reasoning: reasoning.clone(),
                    calls: tool_calls,
                    opaque: None,
                };
                self.add_step(Arc::new(answer), results.collect());
            }
            self.end_with_answer(&round.answer);
        }
    }

    /// Adds an answer with the results of all its calls.
    pub(crate) fn add_step(&mut self, answer: Arc<AssistantMessage>, results: Vec<CallResult>) {
        debug_assert_eq!(answer.calls.len(), results.len(), "a call without its result");
        let step = Step { answer, results, note: InlineNote::default() };
        self.count_step(&step);
        if let Some(round) = self.rounds.back_mut() {
            round.steps.push_back(Arc::new(step));
        }
    }

    /// Adds text inside the last message. The caller ensures that no request has covered that message.
    pub(crate) fn add_note(&mut self, text: &str) {
        self.count(&[b"note", text.as_bytes()]);
        let Some(round) = self.rounds.back_mut() else { return };
        match round.steps.back_mut() {
            Some(step) => Arc::make_mut(step).note.add(text),
            None => round.note.add(text),
        }
    }

    /// Adds a description of the last images inside the last message, which a failed request may have covered.
    pub(crate) fn describe_last(&mut self, note: &str) {
        self.add_note(note);
        self.generation += 1;
        if let Some(round) = self.rounds.back_mut() {
            round.is_described = true;
        }
    }

    /// The images of the last message, and of those before it that no answer of a model follows: such a message is the
    /// last of a round that ended without an answer.
    pub(crate) fn last_images(&self) -> Vec<Image> {
        let mut parts = Vec::new();
        for (n, round) in self.rounds.iter().rev().enumerate() {
            if n > 0 && (!round.is_unanswered || round.is_described) {
                break;
            }
            parts.push(round.last_message_images());
            if !round.steps.is_empty() {
                break;
            }
        }
        parts.into_iter().rev().flatten().collect()
    }

    /// Ends the round with its answer. Tool calls of this answer were never run, so they are removed.
    pub(crate) fn end_with_answer(&mut self, message: &Arc<AssistantMessage>) {
        let message = match message.calls.is_empty() {
            true => Arc::clone(message),
            false => Arc::new(AssistantMessage { calls: Vec::new(), ..AssistantMessage::clone(message) }),
        };
        self.end(message);
    }

    /// Ends the round without an answer, with a note about the outcome for the model.
    pub(crate) fn end_unanswered(&mut self, ended: &OutcomeDetail) {
        let text = format!("[This run ended without an answer: {ended}.]");
        self.end(Arc::new(AssistantMessage { text, ..AssistantMessage::default() }));
        if let Some(round) = self.rounds.back_mut() {
            round.is_unanswered = true;
        }
    }

    /// Ends the round with the last text of the model and a note about the outcome.
    pub(crate) fn end_with_partial(&mut self, text: &str, ended: &OutcomeDetail) {
        if text.trim().is_empty() {
            return self.end_unanswered(ended);
        }
        let text = format!("{text}\n\n[This run ended before its task was done: {ended}.]");
        self.end(Arc::new(AssistantMessage { text, ..AssistantMessage::default() }));
    }

    fn end(&mut self, message: Arc<AssistantMessage>) {
        self.count_answer(&message);
        if let Some(round) = self.rounds.back_mut() {
            round.end = Some(message);
        }
    }

    /// The hash of all content.
    pub(crate) fn hash(&self) -> Hash {
        self.hasher.clone().finish()
    }

    /// Renders everything behind `from` and returns the position of its end.
    pub(crate) fn render(&self, from: RenderCursor) -> (Vec<Message>, RenderCursor) {
        let mut messages = Vec::new();
        let mut at = from;
        for round in skip_seen(&self.rounds, from.round) {
            if at.part == 0 {
                messages.push(Message::User(round.message()));
                at.part = 1;
            }
            for step in skip_seen(&round.steps, at.part - 1) {
                step.render(&mut messages);
                at.part += 1;
            }
            let Some(message) = &round.end else { break };
            messages.push(Message::Assistant(Arc::clone(message)));
            at = RenderCursor { round: at.round + 1, part: 0 };
        }
        (messages, at)
    }

    /// Removes the rounds that have ended, and returns their messages.
    pub(in crate::turn) fn take_ended(&mut self) -> Vec<Message> {
        let Some(first) = self.rounds.front().filter(|round| round.end.is_some()) else { return Vec::new() };
        let mut messages = Vec::with_capacity(first.steps.len() + 2);
        while let Some(round) = self.rounds.pop_front() {
            if round.end.is_none() {
                self.rounds.push_front(round);
                break;
            }
            round.render(&mut messages);
            (self.start.round, self.start.step) = (self.start.round + 1, 0);
        }
        messages
    }

    pub(in crate::turn) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    pub(super) fn count(&mut self, parts: &[&[u8]]) {
        self.hasher.part(&(parts.len() as u64).to_le_bytes());
        for part in parts {
            self.hasher.part(part);
            self.bytes += part.len();
        }
    }

    pub(super) fn count_user(&mut self, round: &Round) {
        self.count(&[b"user", round.user.text.as_bytes()]);
        self.count_images(&round.user.images);
    }

    pub(super) fn count_step(&mut self, step: &Step) {
        self.count_answer(&step.answer);
        for result in &step.results {
            self.count(&[b"tool", result.id.as_bytes(), result.end.content.as_bytes()]);
            self.count_images(&result.end.images);
        }
    }

    pub(super) fn count_images(&mut self, images: &[Image]) {
        for image in images {
            self.count(&[b"image", image.artifact.handle.as_bytes()]);
            self.bytes += IMAGE_BYTES;
            self.images += 1;
        }
    }

    pub(super) fn count_answer(&mut self, message: &AssistantMessage) {
        let mut parts: Vec<&[u8]> = vec![b"assistant", message.text.as_bytes(), message.reasoning.as_bytes()];
        for call in &message.calls {
            parts.extend([call.id.as_bytes(), call.name.as_bytes(), call.arguments.as_bytes()]);
        }
        self.count(&parts);
        if let Some(opaque) = &message.opaque {
            let parts: Vec<String> = opaque.parts().iter().map(ToString::to_string).collect();
            let mut parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
            parts.insert(0, b"opaque");
            self.count(&parts);
        }
    }
}

/// The items behind the first `seen`. A focus finds its position in the tree; an iterator with `skip` would walk the
/// whole history.
pub(super) fn skip_seen<A: Clone>(list: &Vector<A>, seen: usize) -> Focus<'_, A, DefaultSharedPtr> {
    list.focus().narrow(seen.min(list.len())..)
}

pub(super) fn new_hasher() -> Hasher {
    let mut hasher = Hasher::default();
    hasher.part(b"hermod view 2");
    hasher
}

impl Round {
    /// The images of its last results, or of the user's message.
    fn last_message_images(&self) -> Vec<Image> {
        match self.steps.last() {
            Some(step) => step.results.iter().flat_map(|result| result.end.images.iter().cloned()).collect(),
            None => self.user.images.to_vec(),
        }
    }

    fn render(&self, to: &mut Vec<Message>) {
        to.push(Message::User(self.message()));
        self.steps.iter().for_each(|step| step.render(to));
        to.extend(self.end.iter().map(|answer| Message::Assistant(Arc::clone(answer))));
    }

    /// The user's message with what is rendered behind it.
    fn message(&self) -> MessageContent {
        match &self.before {
            Some(before) => {
                let note = self.note.0.as_deref().unwrap_or_default();
                MessageContent { note: Some(format!("{before}{note}").into()), ..self.user.clone() }
            }
            None => self.note.append_to(self.user.clone()),
        }
    }
}

impl Step {
    fn render(&self, to: &mut Vec<Message>) {
        to.push(Message::Assistant(Arc::clone(&self.answer)));
        let last = self.results.len();
        to.extend((1..).zip(&self.results).map(|(n, result)| {
            let content =
                MessageContent::new(Arc::clone(&result.end.content), Arc::clone(&result.end.images));
            Message::Tool {
                call: Arc::clone(&result.id),
                name: Arc::clone(&result.tool),
                content: if n == last { self.note.append_to(content) } else { content },
            }
        }));
    }
}

impl InlineNote {
    fn add(&mut self, text: &str) {
        let before = self.0.as_deref().unwrap_or_default();
        self.0 = Some(format!("{before}{text}").into());
    }

    /// Returns `content` with the note behind it.
    fn append_to(&self, content: MessageContent) -> MessageContent {
        MessageContent { note: self.0.clone(), ..content }
    }
}
