//! The hooks of a configuration. Those that decide are asked by priority; with the same priority, by name.

use std::{cmp::Reverse, path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    HookTally,
    model::{HookAnswer, HookPoint},
    port::{DecisionHooks, HookQuestion},
};

use super::{caller::HookCaller, event::question_json, hook::Hook};
use crate::{
    config::{Config, HookSection},
    discovery::Variables,
    redaction,
};

/// How long a hook may take that sets nothing else.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// The hooks, by priority.
#[derive(Debug, Default)]
pub struct ConfiguredHooks {
    hooks: Vec<Arc<Hook>>,
}

impl ConfiguredHooks {
    /// The hooks of this configuration; commands run in the state directory. A hook whose token is missing cannot be
    /// called: one that decides refuses then, with the reason. Tokens become known to this process's redaction.
    pub fn new(config: &Config, variables: &Variables, state: &Path) -> Self {
        let hook = |(name, section): (&String, &HookSection)| {
            Arc::new(Hook {
                name: name.as_str().into(),
                on: section.on.0.clone(),
                priority: section.priority.0,
                deadline: section.deadline.map_or(DEFAULT_DEADLINE, |deadline| deadline.0),
                tools: section.tools.clone(),
                caller: caller(name, section, variables, state),
                health: std::sync::Mutex::default(),
                enabling: tokio::sync::Notify::new(),
            })
        };
        let mut hooks: Vec<Arc<Hook>> = config.hooks.iter().map(hook).collect();
        // The map has them in the order of their names, and this keeps it.
        hooks.sort_by_key(|hook| Reverse(hook.priority));
        Self { hooks }
    }

    /// The hooks, by priority.
    pub fn hooks(&self) -> &[Arc<Hook>] {
        &self.hooks
    }

    /// The hook with this name. The error names those that there are.
    pub fn find(&self, name: &str) -> Result<&Arc<Hook>, String> {
        self.hooks.iter().find(|hook| *hook.name == *name).ok_or_else(|| {
            let names: Vec<&str> = self.hooks.iter().map(|hook| &*hook.name).collect();
            match names.as_slice() {
                [] => format!("there is no hook `{name}`; the configuration has none"),
                names => format!("there is no hook `{name}`; the configuration has: {}", names.join(", ")),
            }
        })
    }
}

fn caller(
    name: &str,
    section: &HookSection,
    variables: &Variables,
    state: &Path,
) -> Result<HookCaller, String> {
    if let Some(command) = &section.command {
        return Ok(HookCaller::Command { script: command.0.clone(), folder: state.to_owned() });
    }
    // The configuration has checked that there is one of both.
    let url = section.url.as_ref().ok_or("it has no command and no url")?;
    let key = format!("hooks.{name}.bearer");
    let bearer = match &section.bearer {
        Some(reference) => {
            Some(reference.0.resolve(variables).map_err(|missing| format!("{key}: {missing}"))?)
        }
        None => None,
    };
    bearer.iter().for_each(|bearer| redaction::learn_variable(&key, bearer.reveal()));
    HookCaller::endpoint(&url.0, bearer.as_ref())
}

impl DecisionHooks for ConfiguredHooks {
    fn is_asked(&self, point: HookPoint, tool: Option<&str>) -> bool {
        self.hooks.iter().any(|hook| hook.is_asked(point, tool))
    }

    fn ask(&self, question: HookQuestion) -> BoxFuture<'static, HookAnswer> {
        let tool = question.subject.tool().map(|tool| &**tool);
        let asked = self.hooks.iter().filter(|hook| hook.is_asked(question.point, tool));
        let asked: Vec<Arc<Hook>> = asked.cloned().collect();
        Box::pin(async move {
            let mut tally = HookTally::new(question.point);
            for hook in asked {
                if tally.is_final() {
                    break;
                }
                let event = question_json(&question, &hook.name, tally.replacement());
                let verdict = hook.decide(question.point, &event).await;
                tally.take(&hook.name, verdict);
            }
            tally.into_answer()
        })
    }
}
