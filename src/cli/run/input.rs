//! The task and the spec of a new run, from arguments, configuration and conversation.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use hermod_actors::model::{Message, RunSpec, ThinkingLevel, ThinkingLevels, ThinkingStyle};

use super::{args::RunArgs, model, target::ConversationTarget};
use crate::{
    cli::{budget_arg, exit::CliError},
    config::Config,
    discovery::Variables,
    host::Endpoints,
    tool::SKILL_VIEW,
};

/// The task of a new run.
pub(super) struct RunInput {
    pub(super) text: Arc<str>,
    pub(super) images: Vec<Bytes>,
    pub(super) history: Vec<Message>,
    /// The isolation key of the run's tools; `None` generates one.
    pub(super) isolation_key: Option<Arc<str>>,
}

/// Lines about settings that a model of the chain ignores, with the reason.
pub(super) fn ignored_settings(spec: &RunSpec, task: &RunInput) -> Vec<String> {
    let thinking = spec.models_without_thinking_control().map(|(model, level)| {
        let traits = spec.profile_of(model);
        let why = match (traits.thinking_style, traits.levels) {
            (None, _) => format!("how {model} is told is not known; set thinking in [models.\"{model}\"]"),
            (Some(ThinkingStyle::None), _) => format!("{model} cannot be told how much to think"),
            (Some(_), levels) => {
                let levels = levels.into_iter().flat_map(ThinkingLevels::iter).map(ThinkingLevel::name);
                format!("{model} takes only {}", levels.collect::<Vec<_>>().join(", "))
            }
        };
        format!("thinking  {} is left out: {why}", level.name())
    });
    let blind =
        spec.chain.iter().filter(|model| !task.images.is_empty() && !spec.profile_of(model).accepts_images());
    let images =
        blind.map(|model| format!("images    {model} does not see pictures; it is told that they are there"));
    thinking.chain(images).collect()
}

/// The endpoints for this run and for the unfinished runs of its conversation.
pub(super) async fn endpoints(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    target: &ConversationTarget,
    state: &Path,
) -> Endpoints {
    let known: Vec<&RunSpec> = target.open.iter().map(|(_, spec)| spec).chain(&target.last_spec).collect();
    let found = model::providers((config, variables), args, &known).await;
    Endpoints::new(found, state.to_owned(), config.provider_defaults)
}

/// The spec of a new run.
pub(super) fn new_spec(
    (config, args): (&Config, &RunArgs),
    target: &ConversationTarget,
    endpoints: &Endpoints,
    (place, state): (&Path, &Path),
) -> Result<RunSpec, CliError> {
    let choice =
        model::choose((config, args), target.last_spec.as_ref(), endpoints.discovered_providers(), state)?;
    let mut spec = crate::run_defaults::spec(config, choice.chain, choice.script, place);
    match &target.last_spec {
        None => crate::run_defaults::add_skill_tool(&mut spec, &crate::run_defaults::skills(config, state)),
        // The prompt of the session is fixed: it lists the skills only if the earlier run had the tool.
        Some(before) if before.tools.iter().any(|tool| tool == SKILL_VIEW) => {
            crate::run_defaults::add_tool(&mut spec, SKILL_VIEW);
        }
        Some(_) => {}
    }
    let budget = args.task.budget.unwrap_or_default();
    if budget.amounts.usd.is_some() {
        may_be_limited_in_dollars(&spec)?;
    }
    budget.apply(&mut spec.limits);
    // A user at a terminal can end the run by hand, so the default time limit does not apply; a configured one does.
    let configured = spec.limits.timeout_ms.filter(|_| config.is_set("agents.defaults.timeout"));
    spec.limits.timeout_ms = args.task.timeout.map(budget_arg::millis).or(configured);
    let session = target.last_spec.as_ref().and_then(|before| before.thinking);
    spec.thinking = args.asking.thinking.or(session).or(spec.thinking);
    spec.system = args.task.system.as_deref().map(Into::into);
    Ok(spec)
}

fn may_be_limited_in_dollars(spec: &RunSpec) -> Result<(), CliError> {
    match spec.first_unpriced() {
        None => Ok(()),
        Some(model) => Err(CliError::usage(format!(
            "--budget usd: the price of {model} is not known, so no limit in dollars can be kept; set \
             [models.\"{model}\"] price.input and price.output, or limit tokens instead"
        ))),
    }
}
