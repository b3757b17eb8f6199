//! The names of hooks: where one can be asked, or what it can be told of. A new name is one line of [`NAMES`].

use hermod_actors::model::HookPoint;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookRole {
    /// The hook decides, before it happens.
    Decides(HookPoint),
    /// The hook shapes the system prompt of a new session.
    Shapes(PromptPoint),
    /// The hook is told of it, after it is durable.
    Observes(ObservedEvent),
}

/// A point at which hooks shape a system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptPoint {
    /// Layers may be added and removed.
    SessionBootstrap,
    /// The whole may be replaced.
    BeforePromptBuild,
}

/// What observers are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedEvent {
    /// A conversation begins: a session was opened, or its view was compacted.
    SessionStart,
    /// A conversation ends, because its view was compacted into another one.
    SessionEnd,
    /// A run has its outcome.
    RunEnd,
    /// A model has answered.
    AfterModelCall,
    /// The view of a session was compacted.
    AfterCompaction,
    /// A message of a user is durable: a task, or one to a run under way.
    MessageReceived,
    /// A message to a user is durable: an answer, or one of the tool `message`.
    MessageSent,
    /// A subagent begins.
    SubagentStart,
    /// A subagent has ended.
    SubagentEnd,
    /// A person is asked about a call.
    ApprovalRequested,
    /// A person has decided about a call, or the question has expired.
    ApprovalAnswered,
    /// A service serves.
    ServiceStart,
    /// A service ends.
    ServiceStop,
}

/// A name that a hook can be configured for.
#[derive(Debug, PartialEq, Eq)]
pub struct HookName {
    /// The name.
    pub name: &'static str,
    /// The names of other agents for the same.
    aliases: &'static [&'static str],
    /// What it stands for.
    pub role: HookRole,
}

/// All names; those that decide first.
pub const NAMES: &[HookName] = {
    use HookRole::{Decides, Observes, Shapes};
    use ObservedEvent as Event;
    const fn of(name: &'static str, aliases: &'static [&'static str], role: HookRole) -> HookName {
        HookName { name, aliases, role }
    }
    &[
        of("before_run", &["before_agent_start"], Decides(HookPoint::BeforeRun)),
        of("pre_tool_call", &["before_tool_call"], Decides(HookPoint::PreToolCall)),
        of("post_tool_call", &["after_tool_call"], Decides(HookPoint::PostToolCall)),
        of("tool_result_persist", &[], Decides(HookPoint::ToolResultPersist)),
        of("before_model_call", &[], Decides(HookPoint::BeforeModelCall)),
        of("message_sending", &[], Decides(HookPoint::MessageSending)),
        of("session_bootstrap", &["agent:bootstrap"], Shapes(PromptPoint::SessionBootstrap)),
        of("before_prompt_build", &[], Shapes(PromptPoint::BeforePromptBuild)),
        of("session_start", &[], Observes(Event::SessionStart)),
        of("session_end", &[], Observes(Event::SessionEnd)),
        of("run_end", &["agent_end"], Observes(Event::RunEnd)),
        of("after_model_call", &[], Observes(Event::AfterModelCall)),
        of("after_compaction", &[], Observes(Event::AfterCompaction)),
        of("message_received", &[], Observes(Event::MessageReceived)),
        of("message_sent", &[], Observes(Event::MessageSent)),
        of("subagent_start", &[], Observes(Event::SubagentStart)),
        of("subagent_end", &[], Observes(Event::SubagentEnd)),
        of("approval_requested", &[], Observes(Event::ApprovalRequested)),
        of("approval_answered", &[], Observes(Event::ApprovalAnswered)),
        of("service_start", &["gateway_start"], Observes(Event::ServiceStart)),
        of("service_stop", &["gateway_stop"], Observes(Event::ServiceStop)),
    ]
};

impl HookName {
    /// The name with this text, or with this alias.
    pub fn find(text: &str) -> Option<&'static Self> {
        NAMES.iter().find(|name| name.name == text || name.aliases.contains(&text))
    }

    /// Whether the hook is only told.
    pub const fn observes(&self) -> bool {
        matches!(self.role, HookRole::Observes(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_and_alias_is_found_and_none_twice() {
        let mut known = BTreeSet::new();
        for name in NAMES {
            for text in name.aliases.iter().chain([&name.name]) {
                assert!(known.insert(*text), "{text} stands there twice");
                assert_eq!(HookName::find(text), Some(name), "{text}");
            }
            if let HookRole::Decides(point) = name.role {
                assert_eq!(point.name(), name.name);
            }
        }
        assert_eq!(HookName::find("before_lunch"), None);
    }
}
