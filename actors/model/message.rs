use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Artifact;

/// How a text begins that the runtime itself says to a model in the user's place.
pub const RUNTIME_TEXT_PREFIX: &str = "[From the runtime, not from the user: ";

/// One message of the model's view, as every wire format understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What the operator and the runtime tell the model about itself.
    System(Arc<str>),
    /// What a person (or a parent, or a schedule) says.
    User(MessageContent),
    /// What the model answered.
    Assistant(Arc<AssistantMessage>),
    /// What one of the calls of the directly preceding assistant message returned.
    Tool {
        /// The vendor's id of the call.
        call: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
        /// Text, or JSON as text, and pictures.
        content: MessageContent,
    },
}

/// What a user says or a tool returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageContent {
    /// The text.
    pub text: Arc<str>,
    /// The pictures that belong to it.
    pub images: Arc<[Image]>,
    /// What the runtime says behind it (a message that came in the meantime, say). A wire format that can keeps it apart.
    pub note: Option<Arc<str>>,
}

impl MessageContent {
    /// A text with pictures.
    pub fn new(text: impl Into<Arc<str>>, images: impl Into<Arc<[Image]>>) -> Self {
        Self { text: text.into(), images: images.into(), note: None }
    }

    /// The text with the note behind it.
    pub fn text_with_note(&self) -> Arc<str> {
        self.note
            .as_ref()
            .map_or_else(|| Arc::clone(&self.text), |note| format!("{}{note}", self.text).into())
    }
}

impl<T: Into<Arc<str>>> From<T> for MessageContent {
    fn from(text: T) -> Self {
        Self::new(text, [])
    }
}

/// A picture that a user sent or a tool returned: where it is kept, never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its format.
    pub format: ImageFormat,
    /// Its bytes, kept as they came.
    #[serde(flatten)]
    pub artifact: Artifact,
}

pub(super) fn no_images(images: &Arc<[Image]>) -> bool {
    images.is_empty()
}

/// The formats of pictures that models read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl ImageFormat {
    /// The format that these bytes begin as; `None` if it is none of ours.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

/// The model's answer: text, what it thought, and the calls it asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// What is said; empty if it only calls tools.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was thought on the way, if the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// What only its maker can read, and wants to see again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Arc<OpaqueState>>,
}

/// State of a provider that comes with an answer (signed or encrypted thinking) and is sent back with it, unchanged, to
/// where it came from and nowhere else. Its nesting is bounded so that a record that carries it can be read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpaqueState {
    origin: Arc<AnswerOrigin>,
    parts: Vec<Value>,
}

/// Arrays and objects within each other that one part of opaque state may have. The JSON parser reads 127, and a record
/// needs 7 of them around a part.
pub const MAX_OPAQUE_DEPTH: usize = 64;

/// Opaque state that no record can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state that came with the answer nests more than {MAX_OPAQUE_DEPTH} arrays or objects within each other"
)]
pub struct OpaqueDepthError;

impl OpaqueState {
    /// `parts` are in the shape of `origin`'s wire format. Refuses a part that nests deeper than [`MAX_OPAQUE_DEPTH`].
    pub fn new(origin: Arc<AnswerOrigin>, parts: Vec<Value>) -> Result<Self, OpaqueDepthError> {
        if parts.iter().all(|part| nests_at_most(part, MAX_OPAQUE_DEPTH)) {
            Ok(Self { origin, parts })
        } else {
            Err(OpaqueDepthError)
        }
    }

    /// Who made it.
    pub const fn origin(&self) -> &Arc<AnswerOrigin> {
        &self.origin
    }

    /// The state, in the shape of the wire format.
    pub fn parts(&self) -> &[Value] {
        &self.parts
    }
}

/// Whether at most `depth` arrays and objects of `value` are within each other. Recurses `depth` deep at most.
fn nests_at_most(value: &Value, depth: usize) -> bool {
    let Some(below) = depth.checked_sub(1) else {
        return !(value.is_array() || value.is_object());
    };
    match value {
        Value::Array(items) => items.iter().all(|item| nests_at_most(item, below)),
        Value::Object(fields) => fields.values().all(|field| nests_at_most(field, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Who made an answer: opaque state is sent back only to the same three.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AnswerOrigin {
    /// The provider's configured name.
    pub provider: Arc<str>,
    /// The wire format's name.
    pub wire: Arc<str>,
    /// The model, as the provider names it.
    pub model: Arc<str>,
}

impl AssistantMessage {
    /// The bytes of all that was written: text, reasoning, calls, and the opaque parts as JSON.
    pub(crate) fn written_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len());
        let opaque = self.opaque.iter().flat_map(|opaque| opaque.parts()).map(|part| part.to_string().len());
        self.text.len() + self.reasoning.len() + calls.chain(opaque).sum::<usize>()
    }

    /// The opaque parts that `origin` made; none of anybody else.
    pub fn parts_of(&self, origin: &AnswerOrigin) -> &[Value] {
        self.opaque.as_ref().filter(|opaque| *opaque.origin == *origin).map_or(&[], |opaque| &opaque.parts)
    }
}

/// A call that the model asks for, as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The vendor's id.
    pub id: String,
    /// The name as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, perhaps malformed.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It had said all.
    Stop,
    /// It waits for the results of its calls.
    ToolCalls,
    /// It ran into the limit of its output.
    Length,
    /// The vendor or the model refused.
    Refused,
}

/// What is wrong with an answer as a whole. How often it happens in a row is counted, and after too often there is none:
/// the answer is taken as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// Each call names a tool that does not exist.
    UnknownTools,
    /// The arguments of a call are no JSON: the answer is discarded, and the model is asked again.
    Malformed,
    /// It ran into the limit of its output within a call: discarded likewise.
    Truncated,
    /// It ran into the limit of its output within its text: a part, which the next answer continues.
    Partial,
    /// It says nothing about the result of a tool: discarded, and the model is told to go on.
    EmptyAfterTool,
    /// It has nothing but reasoning: discarded, and the model is asked to go on from there.
    #[serde(rename = "only_thought")]
    ReasoningOnly,
    /// It says nothing: discarded, and asked for again.
    Empty,
    /// It is a refusal: discarded, and another model is asked.
    Refused,
}

impl Flaw {
    /// Whether the answer is not part of the conversation.
    pub const fn discards(self) -> bool {
        match self {
            Self::UnknownTools | Self::Partial => false,
            Self::Malformed
            | Self::Truncated
            | Self::EmptyAfterTool
            | Self::ReasoningOnly
            | Self::Empty
            | Self::Refused => true,
        }
    }

    /// Whether the model is asked again, by the next iteration, with nothing new in the conversation.
    pub const fn asks_again(self) -> bool {
        self.discards() || matches!(self, Self::Partial)
    }
}

/// Tokens of one call. `input` counts everything read, cached or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written, reasoning included, but for those of `apart_tokens`.
    pub output_tokens: u64,
    /// Tokens of reasoning that the vendor bills and leaves out of `output_tokens`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[serde(rename = "apart_tokens")]
    pub unlisted_reasoning_tokens: u64,
    /// Of the tokens read, those from the vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Tokens written to the vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Whether a reported count was negative, fractional or no number: it is 0 here, and none of the counts is believed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_invalid: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// All tokens read; more than `input_tokens` if the vendor counts beside them what is cached.
    pub const fn input_total(&self) -> u64 {
        let cached = self.cached_tokens.saturating_add(self.cache_write_tokens);
        if cached > self.input_tokens { cached } else { self.input_tokens }
    }

    /// Tokens read and written together.
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_total())
    }

    /// All tokens written.
    pub const fn output_total(&self) -> u64 {
        self.output_tokens.saturating_add(self.unlisted_reasoning_tokens)
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.unlisted_reasoning_tokens =
            self.unlisted_reasoning_tokens.saturating_add(other.unlisted_reasoning_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.is_invalid |= other.is_invalid;
    }
}

/// A whole answer: what the provider adapter returns when the stream ended as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAnswer {
    /// What was said.
    pub message: AssistantMessage,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it cost, if the provider said.
    pub usage: Option<Usage>,
}
