use std::{fmt::Debug, future::ready, sync::Arc};

use futures::future::BoxFuture;

use crate::model::{ModelRef, RunSpec, Timestamp, TokenDensity};

/// Builds the system prompt of a session: once, before its first run is accepted. Then it is recorded, and sent byte for
/// byte with every call.
pub trait SystemPromptBuilder: Debug + Send + Sync + 'static {
    /// The prompt of a new session. On an error, or after 5 s, the run that would begin the session is not accepted.
    fn build(&self, occasion: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>>;
}

/// What a prompt is built for: the first run of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRequest {
    /// The folder in which its tools work.
    pub workspace: String,
    /// The tools it may call, sorted.
    pub tools: Vec<String>,
    /// The first model of its chain.
    pub model: Option<ModelRef>,
    /// The day in UTC, like `2026-01-31`; not the time, so that prompts are the same all day.
    pub day: String,
}

impl PromptRequest {
    /// The one of a first run with this spec, now.
    pub fn for_run(spec: &RunSpec, now: Timestamp) -> Self {
        let now = now.to_string();
        Self {
            workspace: spec.workspace.clone(),
            tools: spec.tools.clone(),
            model: spec.chain.first().cloned(),
            day: now.split_once('T').map_or(now.as_str(), |(day, _)| day).to_owned(),
        }
    }
}

/// Why there is no prompt, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SystemPromptError(pub String);

/// A system prompt, from what changes least to what changes most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemPrompt {
    /// Its parts, in order.
    pub layers: Vec<PromptLayer>,
}

/// A part of a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptLayer {
    /// What it is, for people.
    pub name: Arc<str>,
    /// What the model reads; nothing if it is empty.
    pub text: String,
    /// How many bytes there were, if something was cut.
    pub original_bytes: Option<u64>,
}

impl SystemPrompt {
    /// What the model reads: the layers that are not empty, with a blank line between them.
    pub fn text(&self) -> String {
        let texts = self.layers.iter().map(|layer| layer.text.as_str()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// The tokens that a text of so many bytes is taken to have, as long as nothing is known of its model.
pub fn estimate_tokens(bytes: u64) -> u64 {
    TokenDensity::GUESS.tokens(bytes)
}

/// The same prompt for every session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPrompt(pub Arc<str>);

impl SystemPromptBuilder for FixedPrompt {
    fn build(&self, _: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>> {
        let layer = PromptLayer { name: "prompt".into(), text: self.0.to_string(), original_bytes: None };
        Box::pin(ready(Ok(SystemPrompt { layers: vec![layer] })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_layers_are_left_out() {
        let layer = |text: &str| PromptLayer { name: "l".into(), text: text.into(), original_bytes: None };
        let check = |texts: &[&str], expect: &str| {
            let prompt = SystemPrompt { layers: texts.iter().map(|text| layer(text)).collect() };
            assert_eq!(prompt.text(), expect);
        };
        check(&[], "");
        check(&["a\n"], "a\n");
        check(&["", "a", "", "b", ""], "a\n\nb");
    }
}
