//! What a request to a model consists of: the system prompt, the view, and the transient prompt behind it. Also the
//! hash and the size of the last two, and why the request's prefix differs from the last one's. No encoding: that is
//! the wire format's.

use std::sync::Arc;

use crate::{
    model::{AssistantMessage, Hash, Hasher, ModelRef, PrefixChange, RunSpec},
    turn::{Turn, active_run::ActiveRun, answer_recovery::TransientPrompt},
};

/// What determines the prefix of a request: the beginning that a provider can cache.
#[derive(Debug, Clone)]
pub(super) struct RequestPrefix {
    pub(super) model: ModelRef,
    pub(super) spec: Arc<RunSpec>,
    pub(super) offers_tools: bool,
}

impl Turn {
    /// The system prompt of the run under way, with the run's own system message as its last layer.
    pub fn system_prompt(&self) -> String {
        let system = self.current().and_then(|(_, spec)| spec.system.as_deref());
        match system {
            Some(system) => format!("{}\n\n{system}", self.prompt),
            None => self.prompt.to_string(),
        }
    }

    /// The bytes of the system prompt of a run.
    pub(super) fn system_bytes(&self, run: &ActiveRun) -> usize {
        self.prompt.len() + run.spec.system.as_deref().map_or(0, str::len)
    }

    /// Why a request to `model` would begin with another prefix than the last one; `None` if with the same.
    pub(crate) fn prefix_change(&self, model: &ModelRef) -> Option<PrefixChange> {
        let Some(last) = &self.prefix else { return Some(PrefixChange::First) };
        let (_, spec) = self.current()?;
        if last.model != *model {
            Some(PrefixChange::Model)
        } else if last.offers_tools != self.offers_tools() {
            Some(PrefixChange::Tools)
        } else if Arc::ptr_eq(&last.spec, spec) {
            None
        } else if last.spec.system != spec.system {
            Some(PrefixChange::System)
        } else if last.spec.tools != spec.tools {
            Some(PrefixChange::Tools)
        } else {
            (last.spec.thinking_request_of(model) != spec.thinking_request_of(model))
                .then_some(PrefixChange::Thinking)
        }
    }

    /// The text that the request of the present model call carries behind the view, if any.
    pub fn transient_prompt(&self) -> Option<TransientPrompt> {
        let run = self.run()?;
        run.transient_prompt(run.model_call_state()?, self.current_pressure())
    }

    /// The hash of the view and of the transient prompt.
    pub(super) fn request_hash(&self) -> Hash {
        let view = self.history.hash();
        let Some(TransientPrompt { partial, prompt }) = self.transient_prompt() else { return view };
        let mut hasher = Hasher::default();
        hasher.part(view.as_bytes());
        if let Some(AssistantMessage { text, reasoning, .. }) = partial.as_deref() {
            hasher.part(text.as_bytes());
            hasher.part(reasoning.as_bytes());
        }
        hasher.part(prompt.as_bytes());
        hasher.finish()
    }

    /// The bytes of the view and of the transient prompt, without the overhead of the wire format.
    pub(super) fn request_bytes(&self) -> usize {
        let partial = |message: &AssistantMessage| message.text.len() + message.reasoning.len();
        let transient_bytes = self
            .transient_prompt()
            .map_or(0, |transient| transient.prompt.len() + transient.partial.as_deref().map_or(0, partial));
        self.history.bytes + transient_bytes
    }
}
