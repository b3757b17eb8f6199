//! The task and the spec of a new run, from the request, the configuration and the conversation. Also the endpoints
//! that it needs, the lines about settings that its models ignore, and the run for which an idempotency key already
//! stands.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use hermod_actors::{
    FirstTask, RunError, RunRequest, SessionChoice,
    model::{
        Expectation, Hash, Lane, Message, RunRow, RunSpec, ThinkingLevel, ThinkingLevels, ThinkingStyle,
    },
};

use super::{
    conversation::ConversationTarget,
    endpoints::Endpoints,
    error::HostError,
    model_choice::{self, ModelSelection},
    run_defaults,
};
use crate::{
    artifacts::FileArtifacts,
    budget_limits::{BudgetLimits, millis},
    config::Config,
    control::StoreReader,
    discovery::Variables,
    prompt::skill_folders,
    redaction,
    tool::SKILL_VIEW,
};

/// The task of a new run.
#[derive(Debug, Clone)]
pub struct RunInput {
    /// The text.
    pub text: Arc<str>,
    /// The bytes of the images.
    pub images: Vec<Bytes>,
    /// The conversation before a new one's first run.
    pub history: Vec<Message>,
    /// The isolation key of the run's tools; `None` generates one.
    pub isolation_key: Option<Arc<str>>,
    /// What must hold before the run completes.
    pub expects: Vec<Expectation>,
    /// The hash of the client's whole request, which a repeat by its idempotency key must have too.
    pub request_hash: Option<Hash>,
}

/// What a caller sets of a new run's spec; `None` takes the conversation's or the configured value.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpecRequest<'a> {
    /// The model.
    pub model: ModelSelection<'a>,
    /// Limits of the budget.
    pub budget: BudgetLimits,
    /// Time after which the run ends as timed out.
    pub timeout: Option<Duration>,
    /// Whether the run is timed out by default, because no user at a terminal can end it by hand.
    pub is_unattended: bool,
    /// How much the models are to think.
    pub thinking: Option<ThinkingLevel>,
    /// A system message for this run only.
    pub system: Option<&'a str>,
    /// The targets that get the result; `None` takes those of the agent.
    pub deliver_to: Option<&'a [String]>,
    /// Whether an answer is due; `None` is as the agent is configured.
    pub must_answer: Option<bool>,
    /// The lane in which it needs a place, if that has a limit.
    pub lane: Lane,
}

/// Lines about settings that a model of the chain ignores, with the reason.
pub fn ignored_settings(spec: &RunSpec, task: &RunInput) -> Vec<String> {
    let thinking = spec.models_without_thinking_control().map(|(model, level)| {
        let profile = spec.profile_of(model);
        let reason = match (profile.thinking_style, profile.levels) {
            (None, _) => format!("how {model} is told is not known; set thinking in [models.\"{model}\"]"),
            (Some(ThinkingStyle::None), _) => format!("{model} cannot be told how much to think"),
            (Some(_), levels) => {
                let levels = levels.into_iter().flat_map(ThinkingLevels::iter).map(ThinkingLevel::name);
                format!("{model} takes only {}", levels.collect::<Vec<_>>().join(", "))
            }
        };
        format!("thinking  {} is left out: {reason}", level.name())
    });
    let text_only =
        spec.chain.iter().filter(|model| !task.images.is_empty() && !spec.profile_of(model).accepts_images());
    let images = text_only
        .map(|model| format!("images    {model} does not see pictures; it is told that they are there"));
    thinking.chain(images).collect()
}

/// The endpoints for this run and for the unfinished runs of its conversation.
pub async fn endpoints(
    request: ModelSelection<'_>,
    (config, variables): (&Config, &Variables),
    target: &ConversationTarget,
    state: &Path,
) -> Endpoints {
    let known: Vec<&RunSpec> = target.open.iter().map(|(_, spec)| spec).chain(&target.last_spec).collect();
    let providers = model_choice::providers(config, variables, request, &known).await;
    Endpoints::new(providers, state.to_owned(), config.provider_defaults)
}

/// The spec of a new run; `config` is that of its agent.
pub fn new_spec(
    (config, request): (&Config, &SpecRequest<'_>),
    target: &ConversationTarget,
    endpoints: &Endpoints,
    (workspace, state): (&Path, &Path),
) -> Result<RunSpec, HostError> {
    let (chain, script) = model_choice::choose(
        config,
        request.model,
        target.last_spec.as_ref(),
        endpoints.discovered_providers(),
        state,
    )?;
    let mut spec = run_defaults::spec(config, chain, script, workspace);
    match &target.last_spec {
        None => run_defaults::add_skill_tool(config, &mut spec, &skill_folders(config, state)),
        // The prompt of the session is fixed: it lists the skills only if the earlier run had the tool.
        Some(last_spec)
            if last_spec.tools.iter().any(|tool| tool == SKILL_VIEW)
                && run_defaults::may_read_skills(config) =>
        {
            run_defaults::add_tool(&mut spec, SKILL_VIEW);
        }
        Some(_) => {}
    }
    let budget = request.budget;
    budget.apply(&mut spec.limits);
    let option = match (budget.amounts.usd, spec.limits.budget.usd) {
        (Some(_), _) => Some("--budget usd"),
        (None, Some(_)) => Some("agent.budget.usd"),
        (None, None) => config.limits.money_key(),
    };
    if let Some(option) = option {
        check_priced(&spec, option)?;
    }
    let is_limited = request.is_unattended || config.is_set("agents.defaults.timeout");
    let configured = spec.limits.timeout_ms.filter(|_| is_limited);
    spec.limits.timeout_ms = request.timeout.map(millis).or(configured);
    let session = target.last_spec.as_ref().and_then(|last_spec| last_spec.thinking);
    spec.thinking = request.thinking.or(session).or(spec.thinking);
    spec.system = request.system.map(Into::into);
    if let Some(targets) = request.deliver_to {
        config.check_targets(targets).map_err(|error| HostError::usage(format!("deliver_to: {error}")))?;
        let new = |spec: &RunSpec, target: &String| !spec.deliver_to.contains(target);
        spec.deliver_to.clear();
        for target in targets {
            if new(&spec, target) {
                spec.deliver_to.push(target.clone());
            }
        }
    }
    spec.must_answer = request.must_answer.unwrap_or(spec.must_answer);
    spec.lane = request.lane;
    Ok(spec)
}

fn check_priced(spec: &RunSpec, option: &str) -> Result<(), HostError> {
    match spec.first_unpriced() {
        None => Ok(()),
        Some(model) => Err(HostError::usage(format!(
            "{option}: the price of {model} is not known, so no limit in dollars can be kept; set \
             [models.\"{model}\"] price.input and price.output, or limit tokens instead"
        ))),
    }
}

/// The first run accepted with this key, if there is one; an error if its task differs. `None` also for a message that has
/// joined a run, whose repeats the runtime finds: a run with its id may have the texts of others too.
pub async fn first_of_key(
    reader: &StoreReader,
    key: &str,
    task: &RunInput,
    session: &SessionChoice,
    state: &Path,
) -> Result<Option<RunRow>, HostError> {
    let Some(row) = reader.read(|rows| rows.run_of_key(key)).await? else { return Ok(None) };
    if reader.read(|rows| rows.message(row.id)).await?.is_some() {
        return Ok(None);
    }
    let request = RunRequest {
        images: task.images.clone(),
        history: task.history.clone(),
        session: session.clone(),
        idempotency_key: Some(key.into()),
        request_hash: task.request_hash,
        ..RunRequest::new(task.text.clone())
    };
    // The first run was recorded with its secrets redacted.
    let request = request.redacted(redaction::of_process());
    let (session, accepted) =
        (reader.session(&row.session.to_string()).await?, reader.acceptance(&row).await?);
    let first = FirstTask { row: &row, session: &session, accepted: &accepted };
    let repeats = request.check_repeats(first, &FileArtifacts::at(state)).await;
    repeats.map_err(|conflict| RunError::KeyConflict(Box::new(conflict)))?;
    Ok(Some(row))
}
