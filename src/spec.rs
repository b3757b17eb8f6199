//! What a run and a session begin with, by the configuration.

use std::{path::Path, time::Duration};

use hermod_actors::{
    DELEGATE_TASK, TODO,
    model::{
        Amounts, BreakerPolicy, Delegation, Doubt, Hash, Limits, ModelRef, ModelTraits, RetryAttempts,
        RetryPolicy, RunSpec, Timestamp,
    },
    port::Clock,
};

use crate::{
    clock::{self, SystemClock},
    config::{self, Config},
    models, tool,
};

const IDENTITY: &str = include_str!("../config/prompts/identity.md");

/// The spec of a run that asks for nothing special.
pub fn spec(config: &Config, chain: Vec<ModelRef>, script: Option<Hash>, workspace: &Path) -> RunSpec {
    let mut traits: Vec<_> = chain.iter().map(|link| models::traits(config, link)).collect();
    if traits.iter().all(|traits| *traits == ModelTraits::default()) {
        traits.clear();
    }
    let delegation = config.delegation.enabled.0.then(|| delegation(&config.delegation));
    let own = delegation.map(|_| DELEGATE_TASK).into_iter().chain([TODO]);
    let is_there = |name: &&str| *name != tool::MEMORY || config.memory.enabled.0;
    let mut tools: Vec<String> =
        tool::TOOLS.iter().map(|(name, _)| *name).filter(is_there).chain(own).map(Into::into).collect();
    tools.sort_unstable();
    let children = delegation.map(|_| config.delegation.max_live.0.into());
    RunSpec {
        chain,
        traits,
        thinking: config.agent.thinking.0,
        workspace: workspace.to_string_lossy().into_owned(),
        task: clock::ulid(&SystemClock::default()),
        tools,
        schema_bytes: 0,
        limits: Limits {
            budget: Amounts {
                iterations: Some(config.agent.max_turns.0.into()),
                children,
                ..Amounts::default()
            },
            wall_ms: None,
            timeout_ms: config.agents.defaults.timeout.0.map(millis),
            max_tokens: config.agent.max_tokens.0.into(),
            retry: retry(&config.retry),
        },
        system: None,
        in_doubt: Doubt { then: config.tools.in_doubt.0, patience_ms: millis(config.approvals.expiry.0) },
        delegation,
        script,
    }
}

fn delegation(delegation: &config::Delegation) -> Delegation {
    Delegation {
        depth: 0,
        max_depth: delegation.max_depth.0,
        max_children: delegation.max_children.0,
        iterations: delegation.max_iterations.0.into(),
        shared: delegation.shared_iterations.0,
        progress_ms: delegation.progress.0.map(millis),
    }
}

fn retry(retry: &config::Retry) -> RetryPolicy {
    RetryPolicy {
        first_ms: millis(retry.first_pause.0),
        longest_ms: millis(retry.longest_pause.0),
        deadline_ms: millis(retry.deadline.0),
        fallback_on_refusal: retry.fallback_on_refusal.0,
        attempts: attempts(&retry.attempts),
        fallback_after: attempts(&retry.fallback_after),
        short_wait_ms: millis(retry.short_wait.0),
        wait_for_reset_max_ms: millis(retry.wait_for_reset_max.0),
    }
}

fn attempts(attempts: &config::Attempts) -> RetryAttempts {
    RetryAttempts {
        rate_limited: attempts.rate_limited.0,
        overloaded: attempts.overloaded.0,
        server: attempts.server.0,
        timeout: attempts.timeout.0,
        network: attempts.network.0,
        cut: attempts.cut.0,
        lost: attempts.lost.0,
    }
}

/// For how long a model that fails is not asked.
pub(crate) fn breakers(breaker: &config::Breaker) -> BreakerPolicy {
    let cooldowns = [breaker.first_cooldown, breaker.second_cooldown, breaker.longest_cooldown];
    BreakerPolicy {
        threshold: breaker.threshold.0,
        cooldowns_ms: cooldowns.map(|cooldown| millis(cooldown.0)),
        quota_ms: millis(breaker.quota_cooldown.0),
        not_found_ms: millis(breaker.not_found_cooldown.0),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The system prompt of a session that is opened now.
pub fn prompt(workspace: &Path) -> String {
    compose(IDENTITY, workspace, SystemClock::default().at())
}

/// The day and not the time, so that the prompt of a session is the same all day.
fn compose(identity: &str, workspace: &Path, now: Timestamp) -> String {
    let time = clock::rfc3339(now);
    let (day, _) = time.split_once('T').unwrap_or((&time, ""));
    format!("{}\n\nWorkspace: {}\nDate: {day}\n", identity.trim_end(), workspace.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{environment::Variables, provider::Deadlines};

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let config = Config::load(&[], &Variables::new()).unwrap();
        assert_eq!(retry(&config.retry), RetryPolicy::default());
        assert_eq!(breakers(&config.breaker), BreakerPolicy::default());
        assert_eq!(config.provider_defaults.deadlines(), Deadlines::default());
        assert_eq!(config.tools.shell.timeout.0, tool::Settings::default().shell_timeout);
        let limits = spec(&config, Vec::new(), None, Path::new("/w")).limits;
        assert_eq!((limits.budget.iterations, limits.timeout_ms), (Some(90), Some(600_000)));
    }

    #[test]
    fn a_spec_has_what_is_known_of_each_of_its_models() {
        let set = Variables::from([("HERMOD_AGENT__THINKING".to_owned(), "low".to_owned())]);
        let config = Config::load(&[], &set).unwrap();
        let link = |model: &str| ModelRef { provider: "p".into(), model: model.into() };
        let spec = |chain: &[ModelRef]| spec(&config, chain.to_vec(), None, Path::new("/w"));
        let (known, unknown) = (link("vendor/claude-sonnet-4.5"), link("nobody's"));
        let both = spec(&[unknown.clone(), known.clone()]);
        assert_eq!(both.traits_of(&unknown), ModelTraits::default());
        assert_eq!(both.traits_of(&known).max_output, Some(64_000));
        assert_eq!(both.thinking.map(hermod_actors::model::Thinking::name), Some("low"));
        assert!(spec(&[unknown]).traits.is_empty());
    }

    #[test]
    fn the_prompt_ends_with_place_and_day() {
        let prompt = compose("Be.\n", Path::new("/w"), Timestamp(1_700_000_000_123));
        assert_eq!(prompt, "Be.\n\nWorkspace: /w\nDate: 2023-11-14\n");
    }
}
