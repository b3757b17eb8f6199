//! Parts of a running runtime that a reload of the configuration exchanges: the policy of tool calls, the hooks, and
//! the builder of system prompts.

use std::sync::{Arc, PoisonError, RwLock};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{HookAnswer, HookPoint},
    port::{
        CallPolicy, CallVerdict, DecisionHooks, HookQuestion, PromptRequest, ProposedCall, SystemPrompt,
        SystemPromptBuilder, SystemPromptError,
    },
};

use crate::hooks::{ConfiguredHooks, HookSource};

/// A part that can be exchanged while it is used: who has begun with one ends with it.
#[derive(Debug)]
pub struct Exchangeable<T>(RwLock<Arc<T>>);

impl<T> Exchangeable<T> {
    /// Begins with this one.
    pub fn new(value: T) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(value))))
    }

    /// Uses this one from now on.
    pub fn exchange(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }

    /// The one in use.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: CallPolicy> CallPolicy for Exchangeable<T> {
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict {
        self.get().judge(call)
    }
}

impl<T: SystemPromptBuilder> SystemPromptBuilder for Exchangeable<T> {
    fn build(&self, request: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>> {
        self.get().build(request)
    }
}

impl HookSource for Arc<Exchangeable<ConfiguredHooks>> {
    fn present(&self) -> Arc<ConfiguredHooks> {
        self.get()
    }
}

impl<T: DecisionHooks> DecisionHooks for Exchangeable<T> {
    fn is_asked(&self, point: HookPoint, tool: Option<&str>) -> bool {
        self.get().is_asked(point, tool)
    }

    fn ask(&self, question: HookQuestion) -> BoxFuture<'static, HookAnswer> {
        self.get().ask(question)
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::AgentName;
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Fixed(CallVerdict);

    impl CallPolicy for Fixed {
        fn judge(&self, _: &ProposedCall<'_>) -> CallVerdict {
            self.0.clone()
        }
    }

    #[test]
    fn the_last_policy_judges() {
        let denied = CallVerdict::Deny(hermod_actors::port::BadArguments::new(Some("a"), "no", "never"));
        let policy = Exchangeable::new(Fixed(CallVerdict::Allow));
        let (agent, arguments) = (AgentName::default(), json!({}));
        let call = ProposedCall { tool: "shell", arguments: &arguments, workspace: "/w", agent: &agent };
        assert_eq!(policy.judge(&call), CallVerdict::Allow);
        policy.exchange(Fixed(denied.clone()));
        assert_eq!(policy.judge(&call), denied);
    }
}
