//! The interface of a wire format: the traits [`WireFormat`] and [`Decoder`]. Also here: the encoding steps that all
//! formats share, such as the list of tools and the joining of a body. Pure: no socket, no clock. `http/endpoint.rs`
//! uses it.

use std::{fmt::Debug, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hermod_actors::{
    model::{AnswerOrigin, Failure, Image, ModelAnswer, ToolSpec},
    port::{DeltaSink, EncodedHead, Encoder, ModelRequest},
};
use serde::Serialize;

use super::names::changed_names;

/// The API of one family of providers. Pure: no socket, no clock.
pub trait WireFormat: Debug + Send + Sync + 'static {
    /// The encoder of the parts of a request that do not change.
    fn encoder(&self, target: EncodeTarget) -> Arc<dyn Encoder>;

    /// The body of a request, as pieces to concatenate. The images of `request` are already in Base64.
    fn body(&self, request: ModelRequest) -> Vec<Bytes>;

    /// A decoder of one response with a success status. Opaque parts of the answer are stored with `origin`.
    fn decoder(&self, origin: Arc<AnswerOrigin>) -> Box<dyn Decoder>;
}

/// The model that an encoder writes for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeTarget {
    /// The called model. Opaque state of this origin is sent back to it.
    pub origin: Arc<AnswerOrigin>,
    /// True if the model accepts images.
    pub has_vision: bool,
}

/// The text in place of an image, for a model that does not accept images.
pub(super) fn image_placeholder(image: &Image) -> String {
    let format = image.format.media_type();
    format!("[A picture is here ({format}, {} bytes); you cannot see it.]", image.artifact.bytes)
}

/// Appends a value as JSON.
pub(super) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Infallible: strings, lists and objects with string keys, written to memory.
    serde_json::to_writer(out, value).expect("plain values are always JSON");
}

/// Appends `"tools":[…],`, sorted by name and in the form that `to_wire` gives them; nothing without tools.
///
/// Each request is encoded anew, so `to_wire` borrows the schemas.
pub(super) fn write_tools<'a, T: Serialize>(
    out: &mut Vec<u8>,
    tools: &'a [ToolSpec],
    to_wire: fn(&'a ToolSpec) -> T,
) {
    if tools.is_empty() {
        return;
    }
    let mut sorted: Vec<&ToolSpec> = tools.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    out.extend_from_slice(br#""tools":"#);
    write_json(out, &sorted.into_iter().map(to_wire).collect::<Vec<_>>());
    out.push(b',');
}

/// The encoded head of a request that offers `tools`.
pub(super) fn encoded_head(bytes: Vec<u8>, tools: &[ToolSpec]) -> EncodedHead {
    let renamed_tools = Arc::new(changed_names(tools));
    EncodedHead { bytes: bytes.into(), renamed_tools, has_tools: !tools.is_empty() }
}

/// The whole body, in pieces: `begin`, the head, the messages with the `markers` at their places, and the end.
pub(super) fn join_body(begin: Vec<u8>, request: ModelRequest, markers: &[(usize, Bytes)]) -> Vec<Bytes> {
    let is_first = request.head.bytes.ends_with(b"[");
    let mut messages = request.messages.assemble(markers, &request.images);
    // Most formats start every message with a comma, which the first one of the list must not have.
    if let Some(first) = messages.first_mut().filter(|first| is_first && first.starts_with(b",")) {
        *first = first.slice(1..);
    }
    let mut pieces = vec![begin.into(), request.head.bytes];
    pieces.append(&mut messages);
    pieces.push(Bytes::from_static(b"]}"));
    pieces
}

/// Encodes the images of a request in Base64.
pub fn encode_images(request: &mut ModelRequest) {
    for image in request.images.values_mut() {
        *image = STANDARD.encode(&*image).into();
    }
}

/// A decoder of one response. The answer does not depend on how the bytes are chunked.
pub trait Decoder: Debug + Send {
    /// Decodes the next bytes; the visible parts of the answer go to `deltas`. After an error nothing more may be
    /// pushed.
    fn push(&mut self, bytes: &[u8], deltas: &dyn DeltaSink) -> Result<DecodeProgress, Failure>;

    /// True if the answer is complete, though the stream may continue.
    fn is_whole(&self) -> bool;

    /// An independent copy in the current state.
    fn fork(&self) -> Box<dyn Decoder>;

    /// Ends the stream: the answer, or why there is none.
    fn finish(self: Box<Self>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure>;
}

/// The effect of some bytes of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeProgress {
    /// No content of the answer: a comment, a role, half an event.
    Quiet,
    /// Content of the answer.
    Content,
    /// The end mark; nothing follows.
    Done,
}

/// Shows nothing.
#[derive(Debug)]
pub(crate) struct DiscardDeltas;

impl DeltaSink for DiscardDeltas {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}
