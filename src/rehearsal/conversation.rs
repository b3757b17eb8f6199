use std::borrow::Cow;

use hermod_actors::model::{Hash, Hasher};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::scripted_answer::step_of;

/// What a request asks, whatever its wire format. Borrows from the request's bytes.
#[derive(Debug)]
pub struct Conversation<'a> {
    /// The messages, oldest first.
    pub messages: Vec<RequestMessage<'a>>,
    /// Whether tools may be called in the answer.
    pub offers_tools: bool,
    /// Whether the answer may tell what was thought.
    pub thinking: ThinkingMode,
    /// The bytes of what the model reads: a cache is counted by the same ones.
    pub bytes: usize,
}

/// Whether the model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Never.
    Off,
    /// Where the script says what.
    Scripted,
    /// In every answer.
    Always,
}

/// One message.
#[derive(Debug)]
pub enum RequestMessage<'a> {
    /// Instructions.
    System(RawContent<'a>),
    /// What the user says.
    User(RawContent<'a>),
    /// What the model answered: its text and the ids of its calls.
    Assistant(RawContent<'a>, Vec<BorrowedText<'a>>),
    /// The result of a call.
    Tool(BorrowedText<'a>, RawContent<'a>),
}

/// A text that is read when somebody asks for it: pieces that are each a string or a list of parts, of which those
/// with a `text` count.
#[derive(Debug, Clone, Default)]
pub struct RawContent<'a>(Vec<&'a RawValue>);

/// A short text such as a call's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
pub struct BorrowedText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Why a strict provider would refuse a conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("messages[{index}]: {problem}")]
pub struct ConversationError {
    /// The message, counted from 0.
    pub index: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// The part of a conversation that the script plays in: what a user's text began.
#[derive(Debug, Clone, Copy)]
pub struct ScriptTurn<'c, 'a> {
    /// The text that began it.
    pub user: &'c RawContent<'a>,
    /// What came after.
    pub after: &'c [RequestMessage<'a>],
}

impl<'a> RawContent<'a> {
    /// `null`, a string or a list; `None` if it is none of the three.
    pub fn of(raw: Option<&'a RawValue>) -> Option<Self> {
        match raw.filter(|raw| raw.get() != "null") {
            None => Some(Self::default()),
            Some(raw) if raw.get().starts_with(['"', '[']) => Some(Self(vec![raw])),
            Some(_) => None,
        }
    }

    /// Adds a piece: a string or a list of parts.
    pub fn push(&mut self, piece: &'a RawValue) {
        self.0.push(piece);
    }

    /// The text: parts joined, pieces with a blank line between. What cannot be decoded is returned as it was written.
    pub fn text(&self) -> Cow<'a, str> {
        match self.0[..] {
            [] => "".into(),
            [piece] => text_of(piece.get()),
            _ => {
                let texts: Vec<_> = self.0.iter().map(|piece| text_of(piece.get())).collect();
                let texts: Vec<_> = texts.iter().map(AsRef::as_ref).filter(|text| !text.is_empty()).collect();
                texts.join("\n\n").into()
            }
        }
    }

    /// Whether pictures are among its parts.
    pub fn has_images(&self) -> bool {
        #[derive(Deserialize)]
        struct Part<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<BorrowedText<'a>>,
        }
        self.0.iter().filter(|piece| piece.get().starts_with('[')).any(|piece| {
            let parts = serde_json::from_str::<Vec<Part<'_>>>(piece.get()).unwrap_or_default();
            parts.iter().any(|part| part.kind.as_ref().is_some_and(|kind| kind.0 == "image_url"))
        })
    }

    /// Whether there is no content at all; an empty text is one.
    pub fn is_null(&self) -> bool {
        self.0.is_empty()
    }
}

fn text_of(piece: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Option<BorrowedText<'a>>,
    }
    if piece.starts_with('"') {
        return serde_json::from_str(piece).map_or(piece.into(), |BorrowedText(text)| text);
    }
    match serde_json::from_str::<Vec<Part<'_>>>(piece) {
        Ok(parts) => {
            let texts = parts.into_iter().filter_map(|part| part.text);
            texts.map(|BorrowedText(text)| text.into_owned()).collect::<String>().into()
        }
        Err(_) => piece.into(),
    }
}

impl<'a> Conversation<'a> {
    /// Whether the roles follow each other as the strictest copies of `chat_completions` want it: system messages, then user and assistant in
    /// turn, each assistant message with calls followed at once by one result for each, and then by an assistant, or by pictures.
    pub fn check(&self) -> Result<(), ConversationError> {
        let mut previous = None;
        let mut open = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            check_order(previous, message, &mut open)
                .map_err(|problem| ConversationError { index, problem })?;
            previous = Some(message);
        }
        let index = self.messages.len();
        if let Some(BorrowedText(id)) = open.first() {
            return Err(ConversationError { index, problem: format!("the call `{id}` has no tool message") });
        }
        if matches!(previous, None | Some(RequestMessage::System(_))) {
            return Err(ConversationError { index, problem: "a user message is missing".into() });
        }
        Ok(())
    }

    /// What the last user's text began that is no nudge; if all are, the last. `None` without a user message.
    pub fn current_turn(&self, is_nudge: impl Fn(&RawContent<'a>) -> bool) -> Option<ScriptTurn<'_, 'a>> {
        let mut last = None;
        for (index, message) in self.messages.iter().enumerate().rev() {
            let RequestMessage::User(user) = message else { continue };
            // Pictures that a tool has returned, which have no other place than behind the results.
            let is_shown = index
                .checked_sub(1)
                .is_some_and(|before| matches!(self.messages[before], RequestMessage::Tool(..)));
            if is_shown {
                continue;
            }
            let run = ScriptTurn { user, after: &self.messages[index + 1..] };
            if !is_nudge(user) {
                return Some(run);
            }
            last.get_or_insert(run);
        }
        last
    }

    /// The same for every attempt of one request, whatever else the request says and in which format.
    pub fn key(&self) -> Hash {
        let mut hasher = Hasher::default();
        for message in &self.messages {
            match message {
                RequestMessage::System(content) => hash_message(&mut hasher, b"system", content, &[]),
                RequestMessage::User(content) => hash_message(&mut hasher, b"user", content, &[]),
                RequestMessage::Assistant(content, calls) => {
                    hash_message(&mut hasher, b"assistant", content, calls);
                }
                RequestMessage::Tool(id, content) => {
                    hash_message(&mut hasher, b"tool", content, std::slice::from_ref(id));
                }
            }
        }
        hasher.finish()
    }
}

/// Whether `message` may follow `previous`; `open` holds the calls that have no result yet.
fn check_order<'c, 'a>(
    previous: Option<&RequestMessage<'a>>,
    message: &'c RequestMessage<'a>,
    open: &mut Vec<&'c BorrowedText<'a>>,
) -> Result<(), String> {
    if let RequestMessage::Tool(id, _) = message {
        let at = open.iter().position(|open| *open == id);
        let at =
            at.ok_or_else(|| format!("`{}` is no unanswered call of the assistant message before it", id.0))?;
        open.remove(at);
        return Ok(());
    }
    if let Some(BorrowedText(id)) = open.first() {
        return Err(format!("the call `{id}` before it has no tool message"));
    }
    let at_start = matches!(previous, None | Some(RequestMessage::System(_)));
    let problem = match (message, previous) {
        (RequestMessage::System(_), _) if !at_start => "a system message must stand at the start",
        (RequestMessage::Assistant(..), _) if at_start => {
            "the first message after the system's must be the user's"
        }
        (RequestMessage::Assistant(..), Some(RequestMessage::Assistant(..))) => {
            "two assistant messages in a row"
        }
        (RequestMessage::User(_), Some(RequestMessage::User(_))) => "two user messages in a row",
        (RequestMessage::User(content), Some(RequestMessage::Tool(..))) if !content.has_images() => {
            "a user message directly after a tool message"
        }
        (RequestMessage::Assistant(content, calls), _) if calls.is_empty() && content.is_null() => {
            "an assistant message with neither content nor tool_calls"
        }
        (RequestMessage::System(_) | RequestMessage::User(_) | RequestMessage::Tool(..), _) => return Ok(()),
        (RequestMessage::Assistant(_, calls), _) => {
            for (n, id) in calls.iter().enumerate() {
                if calls[..n].contains(id) {
                    return Err(format!("the call id `{}` twice in one message", id.0));
                }
            }
            open.extend(calls);
            return Ok(());
        }
    };
    Err(problem.into())
}

fn hash_message(hasher: &mut Hasher, role: &[u8], content: &RawContent<'_>, ids: &[BorrowedText<'_>]) {
    hasher.part(role);
    hasher.part(content.text().as_bytes());
    for BorrowedText(id) in ids {
        hasher.part(id.as_bytes());
    }
}

impl ScriptTurn<'_, '_> {
    /// The number of the step that is asked for, from 1.
    ///
    /// An assistant message is the step that its call ids name, or else the one after the message before it: so
    /// without ids the messages are counted, and a history that was cut is still at the step its ids say.
    pub fn step(&self) -> u64 {
        let mut done = 0_u64;
        for message in self.after {
            let RequestMessage::Assistant(_, calls) = message else { continue };
            let named = calls.iter().filter_map(|BorrowedText(id)| step_of(id)).max();
            done = named.map_or(done.saturating_add(1), |step| step.max(done));
        }
        done.saturating_add(1)
    }

    /// The newest result with this call id.
    pub fn result(&self, call: &str) -> Option<&RawContent<'_>> {
        self.after.iter().rev().find_map(|message| match message {
            RequestMessage::Tool(id, content) if id.0 == call => Some(content),
            RequestMessage::Tool(..)
            | RequestMessage::System(_)
            | RequestMessage::User(_)
            | RequestMessage::Assistant(..) => None,
        })
    }

    /// The newest result.
    pub fn last_result(&self) -> Option<&RawContent<'_>> {
        self.after.iter().rev().find_map(|message| match message {
            RequestMessage::Tool(_, content) => Some(content),
            RequestMessage::System(_) | RequestMessage::User(_) | RequestMessage::Assistant(..) => None,
        })
    }
}
