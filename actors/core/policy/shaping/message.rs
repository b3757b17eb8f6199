//! The message under way: its text, held back while it may be silent or sent already, and cut into blocks; and its
//! reasoning. A message has the text of one model call, or of several if the output limit has cut it.

use super::{
    chunker::{BlockChunker, BlockSizes, Cut},
    reply::{BlockBreak, ReasoningMode, ReplyOptions, ReplyPiece, ReplyShape},
    silence::{is_silent_reply, may_become_silent},
    tools::SentTexts,
};
use crate::model::{AttemptId, CallId, ModelAnswered};

/// The message under way.
#[derive(Debug, Clone)]
pub(super) struct ReplyMessage {
    options: ReplyOptions,
    /// The model call with which the message begins.
    first: Option<CallId>,
    pending: PendingMessage,
    stream: Option<StreamedAttempt>,
}

/// What of a message was not sent, and how much was.
#[derive(Debug, Clone)]
struct PendingMessage {
    /// Text that may be silent, or sent already; `None` once it is neither.
    held: Option<String>,
    text: BlockChunker,
    reasoning: BlockChunker,
    /// Bytes of the text that were sent.
    sent_bytes: u64,
}

/// What was streamed of the model call under way.
#[derive(Debug, Clone)]
struct StreamedAttempt {
    id: AttemptId,
    /// Empty if text is not sent before its message is durable.
    text: String,
    reasoning: String,
    /// Whether pieces of it were sent.
    is_shown: bool,
    /// The message before the call.
    before: PendingMessage,
}

impl PendingMessage {
    fn new(options: &ReplyOptions) -> Self {
        let sizes = sizes(options);
        // Reasoning is cut only where it is too long.
        let whole = BlockSizes { min_chars: sizes.max_chars, ..sizes };
        Self {
            held: Some(String::new()),
            text: BlockChunker::new(sizes),
            reasoning: BlockChunker::new(whole),
            sent_bytes: 0,
        }
    }
}

impl ReplyMessage {
    pub(super) fn new(options: ReplyOptions) -> Self {
        Self { pending: PendingMessage::new(&options), options, first: None, stream: None }
    }

    /// Whether text waits for more.
    pub(super) fn is_waiting(&self) -> bool {
        self.sends_early() && !self.pending.text.is_empty()
    }

    /// Whether text is sent before its message is durable.
    const fn sends_early(&self) -> bool {
        match self.options.shape {
            ReplyShape::Deltas => true,
            ReplyShape::Blocks(blocks) => matches!(blocks.break_at, BlockBreak::TextEnd),
        }
    }

    /// Takes a piece of text that was streamed.
    pub(super) fn on_text(&mut self, id: AttemptId, piece: &str, sent: &SentTexts) -> Vec<ReplyPiece> {
        let mut pieces = self.on_attempt(id);
        if self.sends_early() {
            self.stream(id).text.push_str(piece);
            self.push_text(id, piece, sent, &mut pieces);
        }
        self.track_shown(pieces)
    }

    /// Takes a piece of reasoning that was streamed.
    pub(super) fn on_reasoning(&mut self, id: AttemptId, piece: &str) -> Vec<ReplyPiece> {
        let mut pieces = self.on_attempt(id);
        self.end_text(&mut pieces);
        let is_wanted = match self.options.reasoning {
            ReasoningMode::Off => false,
            ReasoningMode::Block => self.sends_early(),
            ReasoningMode::Stream => true,
        };
        if is_wanted {
            self.stream(id).reasoning.push_str(piece);
            self.push_reasoning(id, piece, &mut pieces);
        }
        self.track_shown(pieces)
    }

    /// Takes note that the model calls a tool: its text has ended.
    pub(super) fn on_tool_call(&mut self, id: AttemptId) -> Vec<ReplyPiece> {
        let mut pieces = self.on_attempt(id);
        self.end_text(&mut pieces);
        self.track_shown(pieces)
    }

    /// Takes the durable answer, whose pieces are sent as far as they were not. Its message ends, unless the output limit
    /// has cut it. A text that goes on otherwise than it was streamed is sent anew.
    pub(super) fn on_answer(&mut self, answered: &ModelAnswered, sent: &SentTexts) -> Vec<ReplyPiece> {
        let id = AttemptId { call: answered.call, attempt: answered.attempt };
        let mut pieces = self.on_attempt(id);
        let message = &answered.message;
        let streamed = self.stream(id);
        let text = message.text.strip_prefix(&streamed.text);
        let reasoning = message.reasoning.strip_prefix(&streamed.reasoning).unwrap_or_default();
        let (text, reasoning) = if let Some(text) = text {
            (text, reasoning)
        } else {
            pieces.extend(self.void(id.call));
            self.first.get_or_insert(id.call);
            (message.text.as_str(), message.reasoning.as_str())
        };
        self.push_reasoning(id, reasoning, &mut pieces);
        self.push_text(id, text, sent, &mut pieces);
        self.stream = None;
        if !answered.is_partial() {
            self.end_message(id, sent, &mut pieces);
        }
        pieces
    }

    /// Takes note that all of a model call is void.
    pub(super) fn void(&mut self, call: CallId) -> Vec<ReplyPiece> {
        let Some(streamed) = self.stream.take_if(|streamed| streamed.id.call == call) else {
            return Vec::new();
        };
        self.pending = streamed.before;
        let (message, at) = (self.first.unwrap_or(call), self.pending.sent_bytes);
        if message == call {
            self.first = None;
        }
        if streamed.is_shown { vec![ReplyPiece::Retry { call, message, at }] } else { Vec::new() }
    }

    /// Sends what is durable of a message that is not whole, because its run has ended. What was streamed of a call that
    /// has no answer is void.
    pub(super) fn on_run_end(&mut self, sent: &SentTexts) -> Vec<ReplyPiece> {
        let call = self.stream.as_ref().map(|streamed| streamed.id.call);
        let mut pieces = call.map(|call| self.void(call)).unwrap_or_default();
        if let Some(call) = self.first {
            self.end_message(AttemptId { call, attempt: 1 }, sent, &mut pieces);
        }
        pieces
    }

    /// Sends what has waited, after a pause.
    pub(super) fn on_pause(&mut self) -> Vec<ReplyPiece> {
        let mut pieces = Vec::new();
        self.cut_text(Cut::Idle, &mut pieces);
        self.track_shown(pieces)
    }

    /// Begins a call, or another attempt. What an attempt has left that was not said to be void is.
    fn on_attempt(&mut self, id: AttemptId) -> Vec<ReplyPiece> {
        let other = self.stream.as_ref().map(|streamed| streamed.id).filter(|other| *other != id);
        let pieces = other.map(|other| self.void(other.call)).unwrap_or_default();
        self.first.get_or_insert(id.call);
        self.stream(id);
        pieces
    }

    fn stream(&mut self, id: AttemptId) -> &mut StreamedAttempt {
        self.stream.get_or_insert_with(|| StreamedAttempt {
            id,
            text: String::new(),
            reasoning: String::new(),
            is_shown: false,
            before: self.pending.clone(),
        })
    }

    fn track_shown(&mut self, pieces: Vec<ReplyPiece>) -> Vec<ReplyPiece> {
        let is_shown = pieces.iter().any(|piece| !matches!(piece, ReplyPiece::Retry { .. }));
        if let Some(streamed) = &mut self.stream {
            streamed.is_shown |= is_shown;
        }
        pieces
    }

    fn push_text(&mut self, id: AttemptId, piece: &str, sent: &SentTexts, pieces: &mut Vec<ReplyPiece>) {
        if piece.is_empty() {
            return;
        }
        let Some(held) = &mut self.pending.held else { return self.send_text(id, piece, pieces) };
        held.push_str(piece);
        if !may_become_silent(held) && !sent.may_become_one(held) {
            let text = self.pending.held.take().unwrap_or_default();
            self.send_text(id, &text, pieces);
        }
    }

    fn send_text(&mut self, id: AttemptId, text: &str, pieces: &mut Vec<ReplyPiece>) {
        self.end_reasoning(id, pieces);
        match self.options.shape {
            ReplyShape::Deltas => {
                let AttemptId { call, attempt } = id;
                let message = self.first.unwrap_or(call);
                self.pending.sent_bytes += text.len() as u64;
                pieces.push(ReplyPiece::Delta { message, call, attempt, text: text.to_owned() });
            }
            ReplyShape::Blocks(_) => {
                self.pending.text.push(text);
                if self.sends_early() {
                    self.cut_text(Cut::Full, pieces);
                }
            }
        }
    }

    fn push_reasoning(&mut self, id: AttemptId, piece: &str, pieces: &mut Vec<ReplyPiece>) {
        let AttemptId { call, attempt } = id;
        match self.options.reasoning {
            ReasoningMode::Off => {}
            _ if piece.is_empty() => {}
            ReasoningMode::Stream => {
                pieces.push(ReplyPiece::Reasoning { call, attempt, text: piece.to_owned() });
            }
            ReasoningMode::Block => {
                self.pending.reasoning.push(piece);
                self.cut_reasoning(id, Cut::Full, pieces);
            }
        }
    }

    /// Sends the text so far, unless it is held back.
    fn end_text(&mut self, pieces: &mut Vec<ReplyPiece>) {
        if self.sends_early() && self.pending.held.is_none() {
            self.cut_text(Cut::End, pieces);
        }
    }

    fn end_reasoning(&mut self, id: AttemptId, pieces: &mut Vec<ReplyPiece>) {
        self.cut_reasoning(id, Cut::End, pieces);
    }

    /// Ends the message. A text that is still held is silent, sent already, or a beginning of such a text.
    fn end_message(&mut self, id: AttemptId, sent: &SentTexts, pieces: &mut Vec<ReplyPiece>) {
        let held = self.pending.held.take().unwrap_or_default();
        let is_dropped = is_silent_reply(&held) || sent.has(&held);
        if !held.trim().is_empty() && !is_dropped {
            self.send_text(id, &held, pieces);
        }
        if !is_dropped {
            self.end_reasoning(id, pieces);
        }
        self.cut_text(Cut::End, pieces);
        *self = Self::new(self.options);
    }

    fn cut_text(&mut self, cut: Cut, pieces: &mut Vec<ReplyPiece>) {
        let Some(call) = self.first else { return };
        while let Some(block) = self.pending.text.next_block(cut) {
            self.pending.sent_bytes = block.at + block.body.len() as u64;
            pieces.push(ReplyPiece::Block { call, at: block.at, text: block.text() });
        }
    }

    fn cut_reasoning(
        &mut self,
        AttemptId { call, attempt }: AttemptId,
        cut: Cut,
        pieces: &mut Vec<ReplyPiece>,
    ) {
        while let Some(block) = self.pending.reasoning.next_block(cut) {
            pieces.push(ReplyPiece::Reasoning { call, attempt, text: block.text() });
        }
    }
}

/// The sizes of blocks; of reasoning also for a surface that gets deltas.
const fn sizes(options: &ReplyOptions) -> BlockSizes {
    match options.shape {
        ReplyShape::Blocks(blocks) => blocks.sizes,
        ReplyShape::Deltas => BlockSizes { min_chars: MAX_REASONING_CHARS, max_chars: MAX_REASONING_CHARS },
    }
}

/// Characters of a block of reasoning for a surface that gets deltas.
const MAX_REASONING_CHARS: usize = 8_000;
