//! Messages of a view with their content and images, independent of any wire format. Also a model's answer: its tool
//! calls, its opaque state, why the model stopped, its flaws, and its usage.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Artifact, ContentHash};

/// Prefix of a text that the runtime inserts into a message to the model.
pub const RUNTIME_TEXT_PREFIX: &str = "[From the runtime, not from the user: ";

/// One message of a view, independent of the wire format. Its JSON is for other processes of this program only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Instructions of the operator and of the runtime.
    System(Arc<str>),
    /// A message of a user, a parent run, or the runtime.
    User(MessageContent),
    /// An answer of the model.
    Assistant(Arc<AssistantMessage>),
    /// The result of a call of the directly preceding assistant message.
    Tool {
        /// The vendor's id of the call.
        call: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
        /// Text, or JSON as text, with images.
        content: MessageContent,
    },
}

/// Content of a user message or a tool result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageContent {
    /// The text.
    pub text: Arc<str>,
    /// The images that belong to the text.
    pub images: Arc<[Image]>,
    /// Text after the content that is no part of it, such as a steering message or a note of the runtime. Wire formats
    /// that can keep it separate do so.
    pub note: Option<Arc<str>>,
}

impl MessageContent {
    /// Content of a text and images, without a note.
    pub fn new(text: impl Into<Arc<str>>, images: impl Into<Arc<[Image]>>) -> Self {
        Self { text: text.into(), images: images.into(), note: None }
    }

    /// The text, followed by the note.
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

/// An image that a user sent or a tool returned: its format and artifact, never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The image's format.
    pub format: ImageFormat,
    /// The artifact with the bytes that models read.
    #[serde(flatten)]
    pub artifact: Artifact,
    /// The hash of the larger file that it was scaled down from; absent if it is as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Box<ContentHash>>,
}

impl Image {
    /// An image that is as it came.
    pub const fn new(format: ImageFormat, artifact: Artifact) -> Self {
        Self { format, artifact, original: None }
    }
}

/// Image formats that models accept.
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
    /// The format by the first bytes; `None` if it is not supported.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

/// A model's answer: text, reasoning, and tool calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The text; empty if the answer only calls tools.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The reasoning, if the provider returns it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The tool calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// State that only the model of the answer can read, sent back to it unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Arc<OpaqueState>>,
}

/// Provider state of an answer (signed or encrypted reasoning), sent back unchanged, and only to the [`AnswerOrigin`]
/// it came from. Its nesting is bounded so that its record can be decoded again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpaqueState {
    origin: Arc<AnswerOrigin>,
    parts: Vec<Value>,
}

/// Maximum nesting of arrays and objects in one part of opaque state. The JSON parser reads 127 levels; a record needs
/// 7 of them around a part.
pub const MAX_OPAQUE_DEPTH: usize = 64;

/// Opaque state that nests too deeply for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state that came with the answer nests more than {MAX_OPAQUE_DEPTH} arrays or objects within each other"
)]
pub struct OpaqueDepthError;

impl OpaqueState {
    /// Checks the nesting of `parts`, which have the shape of `origin`'s wire format. Refuses a part that nests deeper
    /// than [`MAX_OPAQUE_DEPTH`].
    pub fn new(origin: Arc<AnswerOrigin>, parts: Vec<Value>) -> Result<Self, OpaqueDepthError> {
        if parts.iter().all(|part| nests_at_most(part, MAX_OPAQUE_DEPTH)) {
            Ok(Self { origin, parts })
        } else {
            Err(OpaqueDepthError)
        }
    }

    /// The origin of the answer.
    pub const fn origin(&self) -> &Arc<AnswerOrigin> {
        &self.origin
    }

    /// The parts, in the shape of the wire format.
    pub fn parts(&self) -> &[Value] {
        &self.parts
    }
}

/// True if `value` nests at most `depth` arrays and objects. Recurses at most `depth` deep.
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

/// The origin of an answer. Opaque state is sent back only if all three fields are equal.
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
    /// Bytes of the answer: text, reasoning, calls, and the opaque parts as JSON.
    pub(crate) fn written_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len());
        let opaque = self.opaque.iter().flat_map(|opaque| opaque.parts()).map(|part| part.to_string().len());
        self.text.len() + self.reasoning.len() + calls.chain(opaque).sum::<usize>()
    }

    /// The opaque parts if `origin` made them, otherwise none.
    pub fn parts_of(&self, origin: &AnswerOrigin) -> &[Value] {
        self.opaque.as_ref().filter(|opaque| *opaque.origin == *origin).map_or(&[], |opaque| &opaque.parts)
    }
}

/// A tool call of an answer, as the model wrote it.
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
    /// The answer is complete.
    Stop,
    /// The answer ends with tool calls.
    ToolCalls,
    /// The answer reached the output limit.
    Length,
    /// The vendor or the model refused the content.
    Refused,
}

/// A flaw of a whole answer. Flaws are counted by kind; `turn/answer_recovery.rs` decides what follows, and what
/// happens beyond the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// Every call names a tool that does not exist.
    UnknownTools,
    /// A call's arguments are not JSON: the answer is discarded and the model is called again.
    Malformed,
    /// The output limit cut a tool call: the answer is discarded and the model is called again.
    Truncated,
    /// The output limit cut the text: the answer is kept, and the next answer continues it.
    Partial,
    /// No text and no calls after a tool result: discarded, and the model gets a prompt to continue.
    EmptyAfterTool,
    /// Only reasoning: discarded, and the model gets a prompt to continue from there.
    #[serde(rename = "only_thought")]
    ReasoningOnly,
    /// No content: discarded, and the model is called again.
    Empty,
    /// A refusal: discarded, and another model is called.
    Refused,
    /// `NO_REPLY` where an answer is due: discarded, and the model is called once more, without tools.
    Silent,
}

impl Flaw {
    /// True if the answer is not part of the conversation.
    pub const fn discards(self) -> bool {
        !matches!(self, Self::UnknownTools | Self::Partial)
    }

    /// True if the next iteration calls the model again with nothing new in the conversation. A partial answer waits
    /// for its continuation.
    pub const fn asks_again(self) -> bool {
        self.discards() || matches!(self, Self::Partial)
    }
}

/// Tokens of one call, as reported. Of most vendors `input_tokens` counts everything read, cached or not; see
/// [`Usage::input_total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written, including reasoning except that of `unlisted_reasoning_tokens`.
    pub output_tokens: u64,
    /// Reasoning tokens that the vendor bills but does not include in `output_tokens`.
    #[serde(rename = "apart_tokens", default, skip_serializing_if = "super::is_default")]
    pub unlisted_reasoning_tokens: u64,
    /// Tokens of the input that the vendor's cache served.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub cached_tokens: u64,
    /// Tokens written to the vendor's cache.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub cache_write_tokens: u64,
    /// True if a reported count was negative, fractional or not a number. Such a count is 0 here, and none of the
    /// counts is trusted.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub is_invalid: bool,
}

impl Usage {
    /// All tokens read; more than `input_tokens` if the vendor counts cached tokens separately.
    pub const fn input_total(&self) -> u64 {
        let cached = self.cached_tokens.saturating_add(self.cache_write_tokens);
        if cached > self.input_tokens { cached } else { self.input_tokens }
    }

    /// The reported input tokens and all tokens written.
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_total())
    }

    /// All tokens written, listed or not.
    pub const fn output_total(&self) -> u64 {
        self.output_tokens.saturating_add(self.unlisted_reasoning_tokens)
    }

    /// Adds `other`; sums saturate.
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

/// A complete answer, returned by the provider adapter when the stream ended properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The answer's message.
    pub message: AssistantMessage,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// The tokens used, if the provider reported them.
    pub usage: Option<Usage>,
}
