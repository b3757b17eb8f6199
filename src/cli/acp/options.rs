//! The options of a session that its user chooses: agent, model, thinking.

use hermod_actors::model::ThinkingLevel;

/// The choices of a session; what is absent is as configured, or as in the conversation so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SessionOptions {
    /// The agent.
    pub(super) agent: Option<String>,
    /// The model.
    pub(super) model: Option<String>,
    /// How much the models think.
    pub(super) thinking: Option<ThinkingLevel>,
}
