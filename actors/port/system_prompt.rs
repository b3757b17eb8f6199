//! Port of the system prompt: the trait that builds it, its request, and its layers. [`FixedPrompt`] is a builder with
//! the same text for every session.

use std::{fmt::Debug, future::ready, sync::Arc};

use futures::future::BoxFuture;

use crate::model::{AgentName, ModelRef, RunSpec, Timestamp};

/// Builds the system prompt of a session, once, before its first run is accepted. The prompt is recorded. Every request
/// for an answer begins with it unchanged, followed by the run's own system message.
pub trait SystemPromptBuilder: Debug + Send + Sync + 'static {
    /// Builds the prompt of a new session. After an error or after 5 s the session's first run is rejected.
    fn build(&self, request: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>>;
}

/// What a prompt is built from: facts about the first run of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRequest {
    /// The agent of the run.
    pub agent: AgentName,
    /// The working directory of the run's tools.
    pub workspace: String,
    /// The names of the run's tools, sorted.
    pub tools: Vec<String>,
    /// The first model of the run's chain.
    pub model: Option<ModelRef>,
    /// The day in UTC, such as `2026-01-31`; without the time, so that prompts stay equal all day.
    pub day: String,
}

impl PromptRequest {
    /// The request for a first run with `spec` at `now`.
    pub fn for_run(spec: &RunSpec, now: Timestamp) -> Self {
        let now = now.to_string();
        Self {
            agent: spec.agent.clone(),
            workspace: spec.workspace.clone(),
            tools: spec.tools.clone(),
            model: spec.chain.first().cloned(),
            day: now.split_once('T').map_or(now.as_str(), |(day, _)| day).to_owned(),
        }
    }
}

/// Why there is no prompt, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SystemPromptError {
    /// It cannot be built.
    #[error("{0}")]
    Failed(String),
    /// A rule of the operator refuses the new session.
    #[error("{0}")]
    Refused(String),
}

/// A system prompt; the layers that change least come first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemPrompt {
    /// The layers, in order.
    pub layers: Vec<PromptLayer>,
}

/// A layer of a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptLayer {
    /// Name of the layer, for people.
    pub name: Arc<str>,
    /// The text for the model; an empty one is left out.
    pub text: String,
    /// Length in bytes before truncation; `None` if nothing was cut.
    pub original_bytes: Option<u64>,
}

impl SystemPrompt {
    /// The text for the model: the layers that are not empty, separated by a blank line.
    pub fn text(&self) -> String {
        let texts = self.layers.iter().map(|layer| layer.text.as_str()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// A prompt builder that returns the same text for every session.
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
