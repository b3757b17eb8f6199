use std::{fmt::Debug, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hermod_actors::{
    model::{AnswerOrigin, Failure, Image, ModelAnswer},
    port::{DeltaSink, Encoder, ModelRequest},
};
use http::{HeaderMap, HeaderName};
use serde::Serialize;

/// How one family of providers talks. Pure: no socket, no clock.
pub trait WireFormat: Debug + Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The segments of the path below the base URL.
    fn path(&self) -> &'static [&'static str];

    /// The header that carries the credential, and what stands in front of it there.
    fn credential(&self) -> (HeaderName, &'static str);

    /// Headers that every request carries besides.
    fn headers(&self) -> &'static [(HeaderName, &'static str)] {
        &[]
    }

    /// How the lasting parts of a request are written.
    fn encoder(&self, writing: EncodeTarget) -> Arc<dyn Encoder>;

    /// A request's body, as the pieces whose concatenation it is. The request's pictures are in Base64 already.
    fn body(&self, request: ModelRequest) -> Vec<Bytes>;

    /// Reads one response that has status 200. What is opaque in it gets `origin` as its maker.
    fn decoder(&self, origin: Arc<AnswerOrigin>) -> Box<dyn Decoder>;

    /// What a response with another status means. `body` may be cut off.
    fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure;
}

/// For whom an encoder writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeTarget {
    /// Who is asked: what it made that is opaque is sent back to it.
    pub origin: Arc<AnswerOrigin>,
    /// Whether it sees pictures.
    pub has_vision: bool,
}

/// What a model reads in place of a picture that it does not see.
pub(super) fn image_placeholder(image: &Image) -> String {
    let format = image.format.media_type();
    format!("[A picture is here ({format}, {} bytes); you cannot see it.]", image.artifact.bytes)
}

/// Writes JSON behind what is there.
pub(super) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Infallible: texts, lists and objects with string keys, written to memory.
    serde_json::to_writer(out, value).expect("plain values are always JSON");
}

/// Puts the pictures of a request into Base64.
pub fn encode_images(request: &mut ModelRequest) {
    for picture in request.images.values_mut() {
        *picture = STANDARD.encode(&*picture).into();
    }
}

/// Reads one response: however its bytes are cut, the answer is the same.
pub trait Decoder: Debug + Send {
    /// Takes the next bytes; what of the answer they show goes to `deltas`. After an error nothing more may be pushed.
    fn push(&mut self, bytes: &[u8], deltas: &dyn DeltaSink) -> Result<DecodeProgress, Failure>;

    /// Whether the answer is whole, though the stream may go on.
    fn is_whole(&self) -> bool;

    /// A copy that goes on by itself from here.
    fn fork(&self) -> Box<dyn Decoder>;

    /// The end of the stream: the answer, or why there is none.
    fn finish(self: Box<Self>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure>;
}

/// What some bytes of a response brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeProgress {
    /// Nothing of the answer: a comment, a role, half an event.
    Quiet,
    /// A piece of the answer.
    Content,
    /// The mark behind which nothing follows.
    Done,
}
