//! The content of a request, independent of its wire format. Also the check of the order of its roles, and
//! [`ScriptTurn`], the part that the script answers.

use std::borrow::Cow;

use hermod_actors::model::{Hash, Hasher};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{scripted_answer::step_of, wire::RequestRefusal};

/// A parsed request, independent of its wire format. Borrows from the request's bytes.
#[derive(Debug)]
pub struct Conversation<'a> {
    /// The messages, oldest first.
    pub messages: Vec<RequestMessage<'a>>,
    /// True if the answer may contain tool calls.
    pub offers_tools: bool,
    /// Whether the answer may contain reasoning.
    pub thinking: ThinkingMode,
    /// The size in bytes of the model's input; the cache counts the same bytes.
    pub bytes: usize,
}

/// Whether the model reasons before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Never.
    Off,
    /// In the answers for which the script has reasoning.
    Scripted,
    /// In every answer.
    Always,
}

/// One message of a conversation.
#[derive(Debug)]
pub enum RequestMessage<'a> {
    /// Instructions.
    System(RawContent<'a>),
    /// The user's message.
    User(RawContent<'a>),
    /// The model's answer: its text and the ids of its calls.
    Assistant(RawContent<'a>, Vec<BorrowedText<'a>>),
    /// The result of a call.
    Tool(BorrowedText<'a>, RawContent<'a>),
}

/// A text that is decoded on demand. Each piece is a string or a list of parts, of which those with a `text` count.
#[derive(Debug, Clone, Default)]
pub struct RawContent<'a>(Vec<&'a RawValue>);

/// A short text, such as a call's id. Borrowed from the request if the JSON has no escapes in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub struct BorrowedText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// The part of a conversation that the script answers: a user's text and the messages after it.
#[derive(Debug, Clone, Copy)]
pub struct ScriptTurn<'c, 'a> {
    /// The first text of the turn.
    pub user: &'c RawContent<'a>,
    /// The messages after that text.
    pub after: &'c [RequestMessage<'a>],
}

impl<'a> RawContent<'a> {
    /// The content of `null`, a string or a list; `None` for any other JSON.
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

    /// The text: parts are concatenated, pieces separated by a blank line. A piece that cannot be decoded stays raw.
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

    /// True if its parts include images.
    pub fn has_images(&self) -> bool {
        self.0.iter().filter(|piece| piece.get().starts_with('[')).any(|piece| {
            let parts = serde_json::from_str::<Vec<Part<'_>>>(piece.get()).unwrap_or_default();
            parts.iter().any(|part| part.kind.as_ref().is_some_and(|kind| kind.0 == "image_url"))
        })
    }

    /// True if there is no content; an empty text is content.
    pub fn is_null(&self) -> bool {
        self.0.is_empty()
    }
}

/// A part of a content.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    text: Option<BorrowedText<'a>>,
}

fn text_of(piece: &str) -> Cow<'_, str> {
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
    /// Checks the order of roles by the rules of the strictest servers of `chat_completions`: system messages, then
    /// user and assistant in turn. An assistant message with calls is directly followed by one result for each call. An
    /// assistant message or images follow the results.
    pub fn check(&self) -> Result<(), RequestRefusal> {
        let refuse = |index: usize, problem: String| {
            let param = format!("messages[{index}]");
            RequestRefusal::bad_request(Some(&param), format!("{param}: {problem}"))
        };
        let mut previous = None;
        let mut unanswered = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            check_order(previous, message, &mut unanswered).map_err(|problem| refuse(index, problem))?;
            previous = Some(message);
        }
        let index = self.messages.len();
        if let Some(BorrowedText(id)) = unanswered.first() {
            return Err(refuse(index, format!("the call `{id}` has no tool message")));
        }
        if matches!(previous, None | Some(RequestMessage::System(_))) {
            return Err(refuse(index, "a user message is missing".into()));
        }
        Ok(())
    }

    /// The turn that begins at the last user's text that is no nudge; if all are nudges, at the last text. `None`
    /// without a user message.
    pub fn current_turn(&self, is_nudge: impl Fn(&RawContent<'a>) -> bool) -> Option<ScriptTurn<'_, 'a>> {
        let mut last = None;
        for (index, message) in self.messages.iter().enumerate().rev() {
            let RequestMessage::User(user) = message else { continue };
            // The images of tool results follow the results as a user message, which starts no turn.
            let has_tool_images = index
                .checked_sub(1)
                .is_some_and(|before| matches!(self.messages[before], RequestMessage::Tool(..)));
            if has_tool_images {
                continue;
            }
            let turn = ScriptTurn { user, after: &self.messages[index + 1..] };
            if !is_nudge(user) {
                return Some(turn);
            }
            last.get_or_insert(turn);
        }
        last
    }

    /// The hash of the messages. Equal for every attempt of one request, in every wire format.
    pub fn key(&self) -> Hash {
        let mut hasher = Hasher::default();
        for message in &self.messages {
            let (role, content, ids) = match message {
                RequestMessage::System(content) => ("system", content, &[][..]),
                RequestMessage::User(content) => ("user", content, &[][..]),
                RequestMessage::Assistant(content, calls) => ("assistant", content, calls.as_slice()),
                RequestMessage::Tool(id, content) => ("tool", content, std::slice::from_ref(id)),
            };
            hasher.part(role.as_bytes());
            hasher.part(content.text().as_bytes());
            ids.iter().for_each(|BorrowedText(id)| hasher.part(id.as_bytes()));
        }
        hasher.finish()
    }
}

/// Checks that `message` may follow `previous`; `unanswered` contains the calls without a result.
fn check_order<'c, 'a>(
    previous: Option<&RequestMessage<'a>>,
    message: &'c RequestMessage<'a>,
    unanswered: &mut Vec<&'c BorrowedText<'a>>,
) -> Result<(), String> {
    if let RequestMessage::Tool(id, _) = message {
        let at = unanswered.iter().position(|call| *call == id);
        let at =
            at.ok_or_else(|| format!("`{}` is no unanswered call of the assistant message before it", id.0))?;
        unanswered.remove(at);
        return Ok(());
    }
    if let Some(BorrowedText(id)) = unanswered.first() {
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
            unanswered.extend(calls);
            return Ok(());
        }
    };
    Err(problem.into())
}

impl ScriptTurn<'_, '_> {
    /// The number of the requested step, counted from 1.
    ///
    /// An assistant message is the step that its call ids name; without ids it is the step after that of the previous
    /// assistant message. Messages without ids are therefore counted, and a truncated history still has the step of its
    /// ids.
    pub fn step(&self) -> u64 {
        let mut done = 0_u64;
        for message in self.after {
            let RequestMessage::Assistant(_, calls) = message else { continue };
            let named_step = calls.iter().filter_map(|BorrowedText(id)| step_of(id)).max();
            done = named_step.map_or(done.saturating_add(1), |step| step.max(done));
        }
        done.saturating_add(1)
    }

    /// The results with the ids of their calls, the newest first.
    fn results(&self) -> impl Iterator<Item = (&str, &RawContent<'_>)> {
        self.after.iter().rev().filter_map(|message| {
            let RequestMessage::Tool(id, content) = message else { return None };
            Some((id.0.as_ref(), content))
        })
    }

    /// The newest result with this call id.
    pub fn result(&self, call: &str) -> Option<&RawContent<'_>> {
        self.results().find(|(id, _)| *id == call).map(|(_, content)| content)
    }

    /// The newest result.
    pub fn last_result(&self) -> Option<&RawContent<'_>> {
        self.results().next().map(|(_, content)| content)
    }
}
