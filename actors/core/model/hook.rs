//! Decisions of hooks as data: where hooks decide, what one has decided, and what follows for a tool call. Records keep
//! them, so that a revival does not ask again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

/// A point of a run at which hooks decide what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HookPoint {
    /// Before an accepted run begins.
    BeforeRun,
    /// Before the policy judges a tool call that its tool has accepted.
    PreToolCall,
    /// When a tool call has ended, before its result is recorded.
    PostToolCall,
    /// After `PostToolCall`, as the last change before the record.
    ToolResultPersist,
    /// Before an attempt of a model call is sent.
    BeforeModelCall,
    /// Before a call of the tool `message`, after `PreToolCall`.
    MessageSending,
}

impl HookPoint {
    /// The name, as in records and in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The kind of a hook's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HookRuling {
    /// Nothing is changed.
    Allowed,
    /// The hook has replaced the arguments or the result.
    Replaced,
    /// The hook has refused, or has given no verdict.
    Refused,
}

impl HookRuling {
    /// The name, as in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a hook has decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookDecision {
    /// The hook.
    pub hook: Arc<str>,
    /// Where it was asked.
    pub point: HookPoint,
    /// Its decision.
    pub ruling: HookRuling,
    /// Why, if it refused or says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

impl HookDecision {
    /// The sentence that names the hook and its reason, of a refusal.
    pub fn refusal_text(&self) -> String {
        let Self { hook, reason, .. } = self;
        match reason {
            Some(reason) => format!("the hook `{hook}` refuses this: {reason}"),
            None => format!("the hook `{hook}` refuses this"),
        }
    }
}

/// The decisions of the hooks that were asked about a tool call, and what they have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HookedCall {
    /// The decisions, in the order in which the hooks were asked.
    pub decisions: Arc<[HookDecision]>,
    /// The arguments that replace those of the model, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arc<str>>,
}

/// The verdict of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// It may happen as it is.
    Allow,
    /// It may happen with this in place of the arguments or the result.
    Replace(Value),
    /// It may not happen; the model reads why.
    Refuse(String),
}

/// The joint answer of all hooks at one point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookAnswer {
    /// What each hook has decided, in the order in which they were asked. Those after a refusal were not asked.
    pub decisions: Vec<HookDecision>,
    /// What replaces the arguments or the result. Of no account after a refusal.
    pub replacement: Option<Value>,
}

impl HookAnswer {
    /// The decision that refuses, if one does.
    pub fn refusal(&self) -> Option<&HookDecision> {
        self.decisions.iter().find(|decision| decision.ruling == HookRuling::Refused)
    }

    /// The sentence that names the refusing hook and its reason.
    pub fn refusal_text(&self) -> Option<String> {
        self.refusal().map(HookDecision::refusal_text)
    }
}
