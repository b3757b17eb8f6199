use std::borrow::Cow;

use hermod_actors::model::{Hash, Hasher};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::next::step_of;

/// What a request asks, whatever its wire format. Borrows from the request's bytes.
#[derive(Debug)]
pub struct Conversation<'a> {
    /// The messages, oldest first.
    pub messages: Vec<Message<'a>>,
    /// Whether tools may be called in the answer.
    pub offers_tools: bool,
    /// Whether the answer may tell what was thought.
    pub thinking: Thinking,
    /// The bytes of what the model reads: a cache is counted by the same ones.
    pub bytes: usize,
}

/// Whether the model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// Never.
    Off,
    /// Where the script says what.
    Scripted,
    /// In every answer.
    Always,
}

/// One message.
#[derive(Debug)]
pub enum Message<'a> {
    /// Instructions.
    System(Content<'a>),
    /// What the user says.
    User(Content<'a>),
    /// What the model answered: its text and the ids of its calls.
    Assistant(Content<'a>, Vec<Id<'a>>),
    /// The result of a call.
    Tool(Id<'a>, Content<'a>),
}

/// A text that is read when somebody asks for it: pieces that are each a string or a list of parts, of which those
/// with a `text` count.
#[derive(Debug, Clone, Default)]
pub struct Content<'a>(Vec<&'a RawValue>);

/// A short text such as a call's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
pub struct Id<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Why a strict provider would refuse a conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("messages[{index}]: {problem}")]
pub struct Violation {
    /// The message, counted from 0.
    pub index: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// The part of a conversation that the script plays in: what a user's text began.
#[derive(Debug, Clone, Copy)]
pub struct Run<'c, 'a> {
    /// The text that began it.
    pub user: &'c Content<'a>,
    /// What came after.
    pub after: &'c [Message<'a>],
}

impl<'a> Content<'a> {
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
    pub fn shows_pictures(&self) -> bool {
        #[derive(Deserialize)]
        struct Part<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<Id<'a>>,
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
        text: Option<Id<'a>>,
    }
    if piece.starts_with('"') {
        return serde_json::from_str(piece).map_or(piece.into(), |Id(text)| text);
    }
    match serde_json::from_str::<Vec<Part<'_>>>(piece) {
        Ok(parts) => {
            let texts = parts.into_iter().filter_map(|part| part.text);
            texts.map(|Id(text)| text.into_owned()).collect::<String>().into()
        }
        Err(_) => piece.into(),
    }
}

impl<'a> Conversation<'a> {
    /// Whether the roles follow each other as the strictest copies of `chat_completions` want it: system messages, then user and assistant in
    /// turn, each assistant message with calls followed at once by one result for each, and then by an assistant, or by pictures.
    pub fn check(&self) -> Result<(), Violation> {
        let mut previous = None;
        let mut open = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            follow(previous, message, &mut open).map_err(|problem| Violation { index, problem })?;
            previous = Some(message);
        }
        let index = self.messages.len();
        if let Some(Id(id)) = open.first() {
            return Err(Violation { index, problem: format!("the call `{id}` has no tool message") });
        }
        if matches!(previous, None | Some(Message::System(_))) {
            return Err(Violation { index, problem: "a user message is missing".into() });
        }
        Ok(())
    }

    /// What the last user's text began that is no nudge; if all are, the last. `None` without a user message.
    pub fn run(&self, is_nudge: impl Fn(&Content<'a>) -> bool) -> Option<Run<'_, 'a>> {
        let mut last = None;
        for (index, message) in self.messages.iter().enumerate().rev() {
            let Message::User(user) = message else { continue };
            // Pictures that a tool has returned, which have no other place than behind the results.
            let is_shown =
                index.checked_sub(1).is_some_and(|before| matches!(self.messages[before], Message::Tool(..)));
            if is_shown {
                continue;
            }
            let run = Run { user, after: &self.messages[index + 1..] };
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
                Message::System(content) => part(&mut hasher, b"system", content, &[]),
                Message::User(content) => part(&mut hasher, b"user", content, &[]),
                Message::Assistant(content, calls) => part(&mut hasher, b"assistant", content, calls),
                Message::Tool(id, content) => part(&mut hasher, b"tool", content, std::slice::from_ref(id)),
            }
        }
        hasher.finish()
    }
}

/// Whether `message` may follow `previous`; `open` holds the calls that have no result yet.
fn follow<'c, 'a>(
    previous: Option<&Message<'a>>,
    message: &'c Message<'a>,
    open: &mut Vec<&'c Id<'a>>,
) -> Result<(), String> {
    if let Message::Tool(id, _) = message {
        let at = open.iter().position(|open| *open == id);
        let at =
            at.ok_or_else(|| format!("`{}` is no unanswered call of the assistant message before it", id.0))?;
        open.remove(at);
        return Ok(());
    }
    if let Some(Id(id)) = open.first() {
        return Err(format!("the call `{id}` before it has no tool message"));
    }
    let at_start = matches!(previous, None | Some(Message::System(_)));
    let problem = match (message, previous) {
        (Message::System(_), _) if !at_start => "a system message must stand at the start",
        (Message::Assistant(..), _) if at_start => "the first message after the system's must be the user's",
        (Message::Assistant(..), Some(Message::Assistant(..))) => "two assistant messages in a row",
        (Message::User(_), Some(Message::User(_))) => "two user messages in a row",
        (Message::User(content), Some(Message::Tool(..))) if !content.shows_pictures() => {
            "a user message directly after a tool message"
        }
        (Message::Assistant(content, calls), _) if calls.is_empty() && content.is_null() => {
            "an assistant message with neither content nor tool_calls"
        }
        (Message::System(_) | Message::User(_) | Message::Tool(..), _) => return Ok(()),
        (Message::Assistant(_, calls), _) => {
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

fn part(hasher: &mut Hasher, role: &[u8], content: &Content<'_>, ids: &[Id<'_>]) {
    hasher.part(role);
    hasher.part(content.text().as_bytes());
    for Id(id) in ids {
        hasher.part(id.as_bytes());
    }
}

impl Run<'_, '_> {
    /// The number of the step that is asked for, from 1.
    ///
    /// An assistant message is the step that its call ids name, or else the one after the message before it: so
    /// without ids the messages are counted, and a history that was cut is still at the step its ids say.
    pub fn step(&self) -> u64 {
        let mut done = 0_u64;
        for message in self.after {
            let Message::Assistant(_, calls) = message else { continue };
            let named = calls.iter().filter_map(|Id(id)| step_of(id)).max();
            done = named.map_or(done.saturating_add(1), |step| step.max(done));
        }
        done.saturating_add(1)
    }

    /// The newest result with this call id.
    pub fn result(&self, call: &str) -> Option<&Content<'_>> {
        self.after.iter().rev().find_map(|message| match message {
            Message::Tool(id, content) if id.0 == call => Some(content),
            Message::Tool(..) | Message::System(_) | Message::User(_) | Message::Assistant(..) => None,
        })
    }

    /// The newest result.
    pub fn last_result(&self) -> Option<&Content<'_>> {
        self.after.iter().rev().find_map(|message| match message {
            Message::Tool(_, content) => Some(content),
            Message::System(_) | Message::User(_) | Message::Assistant(..) => None,
        })
    }
}
