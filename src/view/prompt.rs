//! Views of a system prompt and its layers, with their sizes.

use std::sync::Arc;

use hermod_actors::port::{PromptLayer, SystemPrompt, estimate_tokens};
use serde::Serialize;

/// A system prompt: `{layers, bytes, tokens, text}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptView {
    /// Its layers, in order.
    pub layers: Vec<PromptLayerView>,
    /// Length of the text in bytes.
    pub bytes: usize,
    /// Estimated tokens of the text.
    pub tokens: u64,
    /// The text that a model reads.
    pub text: String,
}

/// A layer of a system prompt: `{name, bytes, tokens, of, text}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptLayerView {
    /// Name of the layer.
    pub name: Arc<str>,
    /// Length of the text in bytes.
    pub bytes: usize,
    /// Estimated tokens of the text.
    pub tokens: u64,
    /// Length in bytes before the layer was cut; `None` if it is not cut.
    #[serde(rename = "of")]
    pub original_bytes: Option<u64>,
    /// The text of the layer.
    pub text: String,
}

impl From<SystemPrompt> for PromptView {
    fn from(prompt: SystemPrompt) -> Self {
        let text = prompt.text();
        let (bytes, tokens) = (text.len(), estimate_tokens(text.len() as u64));
        Self { layers: prompt.layers.into_iter().map(PromptLayerView::from).collect(), bytes, tokens, text }
    }
}

impl From<PromptLayer> for PromptLayerView {
    fn from(PromptLayer { name, text, original_bytes }: PromptLayer) -> Self {
        let (bytes, tokens) = (text.len(), estimate_tokens(text.len() as u64));
        Self { name, bytes, tokens, original_bytes, text }
    }
}
