//! Parses the conversation file of `hermod wire encode`: model, limits and tools. `message.rs` parses its messages.
//! Also the collection of their images.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hermod_actors::model::{
    Hash, Image, ImageFormat, Message, ThinkingLevel, ThinkingRequest, ThinkingStyle, ToolSpec,
};
use serde::Deserialize;
use serde_json::Value;

use super::message::{self, FieldError};

/// A request, independent of any wire format.
#[derive(Debug)]
pub(super) struct ParsedConversation {
    pub(super) model: Arc<str>,
    pub(super) max_tokens: u64,
    pub(super) thinking: Option<ThinkingRequest>,
    /// Whether the model accepts images.
    pub(super) accepts_images: bool,
    pub(super) system: String,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) messages: Vec<Message>,
    pub(super) images: ImagesByHash,
}

/// Images by the hash of their bytes.
#[derive(Debug, Default)]
pub(super) struct ImagesByHash(pub(super) BTreeMap<String, Bytes>);

impl ImagesByHash {
    /// Stores an image; `None` if its format is unknown.
    pub(super) fn insert(&mut self, bytes: Vec<u8>) -> Option<Image> {
        let format = ImageFormat::of_bytes(&bytes)?;
        let handle = Hash::of(&bytes).to_string();
        let artifact = hermod_actors::model::Artifact {
            handle: handle.clone(),
            bytes: bytes.len() as u64,
            sha256: None,
        };
        self.0.insert(handle, bytes.into());
        Some(Image { format, artifact })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: String,
    max_tokens: u64,
    #[serde(default)]
    thinking: Option<Level>,
    #[serde(default = "default_images")]
    images: bool,
    #[serde(default)]
    system: String,
    #[serde(default)]
    tools: Vec<Tool>,
    messages: Vec<message::Fields>,
}

const fn default_images() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: ThinkingLevel,
    style: ThinkingStyle,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    r#type: Function,
    function: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Function {
    Function,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default = "default_parameters")]
    parameters: Value,
}

fn default_parameters() -> Value {
    serde_json::json!({ "type": "object", "properties": {} })
}

impl ParsedConversation {
    /// Parses a file's text; the error names the field.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_slice(json);
        let file: File = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string())?;
        json.end().map_err(|error| error.to_string())?;
        Self::of(file).map_err(|FieldError { field, reason }| format!("{field}: {reason}"))
    }

    fn of(file: File) -> Result<Self, FieldError> {
        if file.max_tokens == 0 {
            return Err(FieldError::at("max_tokens", "0 leaves no room for an answer; give 1 or more"));
        }
        let mut names = std::collections::BTreeSet::new();
        for (n, tool) in file.tools.iter().enumerate() {
            let (field, name) = (format!("tools[{n}].function.name"), &tool.function.name);
            if name.is_empty() || !names.insert(name.as_str()) {
                return Err(FieldError::at(field, format!("\"{name}\": each tool needs a name of its own")));
            }
        }
        let mut images = ImagesByHash::default();
        let (system, messages) = message::read(file.system, file.messages, &mut images)?;
        let spec = |Tool { function: Spec { name, description, parameters }, r#type: Function::Function }| {
            ToolSpec { name, description, parameters }
        };
        Ok(Self {
            model: file.model.into(),
            max_tokens: file.max_tokens,
            thinking: file.thinking.map(|Level { level, style }| ThinkingRequest { level, style }),
            accepts_images: file.images,
            system,
            tools: file.tools.into_iter().map(spec).collect(),
            messages,
            images,
        })
    }
}
