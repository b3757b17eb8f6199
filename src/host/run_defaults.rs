//! What the configuration says for all runs: the default spec of a run with its tools and limits, and the policy of the
//! circuit breakers. `new_run.rs` applies what a request sets.

use std::{path::Path, sync::Arc};

use hermod_actors::{
    CLARIFY, DELEGATE_TASK, MESSAGE, TODO,
    model::{
        Amounts, AuxiliaryChain, BreakerPolicy, CompactionPolicy, Delegation, Hash, InDoubtPolicy, Lane,
        Limits, ModelProfile, ModelRef, RetryAttempts, RetryPolicy, RunSpec,
    },
};

use crate::{
    budget_limits::millis,
    clock::{self, SystemClock},
    config::{self, Config},
    model_catalogue,
    tool::{self, SKILL_VIEW, skills::SkillFolders},
};

/// The spec of a run whose request sets nothing itself.
pub fn spec(config: &Config, chain: Vec<ModelRef>, script: Option<Hash>, workspace: &Path) -> RunSpec {
    let mut profiles: Vec<_> = chain.iter().map(|link| model_catalogue::profile(config, link)).collect();
    if profiles.iter().all(|profile| *profile == ModelProfile::default()) {
        profiles.clear();
    }
    let may_delegate = config.delegation.enabled.0 && offers(config, DELEGATE_TASK);
    let delegation = may_delegate.then(|| delegation(&config.delegation));
    let tools = tool_names(config, delegation.is_some());
    let main = chain.clone();
    let children = delegation.map(|_| config.delegation.max_live.0.into());
    let config::BudgetSection { tokens, usd, tool_calls, wall } = config.agent.budget;
    RunSpec {
        agent: config.agent_name.clone(),
        chain,
        profiles,
        thinking: config.agent.thinking.0,
        workspace: workspace.to_string_lossy().into_owned(),
        isolation_key: clock::ulid(&SystemClock::default()),
        tools,
        schema_bytes: 0,
        limits: Limits {
            budget: Amounts {
                iterations: Some(config.agent.max_turns.0.into()),
                tokens: tokens.0,
                usd: usd.0,
                tool_calls: tool_calls.0,
                children,
            },
            wall_ms: wall.0.map(millis),
            timeout_ms: config.agents.defaults.timeout.0.map(millis),
            max_tokens: config.agent.max_tokens.0.into(),
            retry: retry(&config.retry),
        },
        system: None,
        in_doubt: InDoubtPolicy {
            action: config.tools.in_doubt.0,
            approval_timeout_ms: millis(config.approvals.expiry.0),
        },
        compaction: config.compression.enabled.0.then(|| compaction_policy(config, &main).into()),
        title: named_chain(config, config::TITLE, &main, script),
        vision: named_chain(config, config::VISION, &main, script),
        memory: named_chain(config, config::MEMORY_FLUSH, &main, script).filter(|_| config.memory.enabled.0),
        delegation,
        loop_guard: config.agent.loop_guard.0,
        lane: Lane::Main,
        expects: Vec::new(),
        must_answer: config.replies.required.0,
        script,
        deliver_to: config.agent.deliver_to.0.clone(),
    }
}

/// The names of a run's tools, sorted.
fn tool_names(config: &Config, may_delegate: bool) -> Vec<String> {
    let asks_person = config.approvals.approver.0.then_some(CLARIFY);
    let sends = (!config.targets.is_empty()).then_some(MESSAGE);
    let runtime_tools =
        may_delegate.then_some(DELEGATE_TASK).into_iter().chain(asks_person).chain(sends).chain([TODO]);
    let is_enabled = |name: &&str| match *name {
        tool::MEMORY => config.memory.enabled.0,
        SKILL_VIEW => false,
        _ => true,
    };
    let mut tools: Vec<String> = tool::TOOLS
        .iter()
        .map(|(name, _)| *name)
        .filter(is_enabled)
        .chain(runtime_tools)
        .filter(|name| offers(config, name))
        .map(Into::into)
        .collect();
    tools.sort_unstable();
    tools
}

fn compaction_policy(config: &Config, main: &[ModelRef]) -> CompactionPolicy {
    let chain = config::auxiliary_chain(config, config::COMPRESSION, main);
    let profiles = chain.iter().map(|link| model_catalogue::profile(config, link)).collect();
    let config::CompactionSection { trigger, protect_last_n, ahead, .. } = config.compression;
    CompactionPolicy { chain, profiles, trigger: trigger.0, protect_last: protect_last_n.0, ahead: ahead.0 }
}

/// The models for this job; none unless one is named for it. A rehearsal calls only its script.
fn named_chain(
    config: &Config,
    job: &str,
    main: &[ModelRef],
    script: Option<Hash>,
) -> Option<Arc<AuxiliaryChain>> {
    if !config::is_named(config, job) {
        return None;
    }
    let chain = match script {
        Some(_) => main.to_vec(),
        None => config::auxiliary_chain(config, job, main),
    };
    if chain.is_empty() {
        return None;
    }
    let profiles = chain.iter().map(|link| model_catalogue::profile(config, link)).collect();
    Some(AuxiliaryChain { chain, profiles }.into())
}

fn delegation(delegation: &config::DelegationSection) -> Delegation {
    Delegation {
        depth: 0,
        max_depth: delegation.max_depth.0,
        max_children: delegation.max_children.0,
        iterations: delegation.max_iterations.0.into(),
        shares_iterations: delegation.shared_iterations.0,
        progress_ms: delegation.progress.0.map(millis),
    }
}

fn retry(retry: &config::RetrySection) -> RetryPolicy {
    RetryPolicy {
        initial_pause_ms: millis(retry.first_pause.0),
        max_pause_ms: millis(retry.longest_pause.0),
        deadline_ms: millis(retry.deadline.0),
        fallback_on_refusal: retry.fallback_on_refusal.0,
        attempts: attempts(&retry.attempts),
        fallback_after: attempts(&retry.fallback_after),
        short_wait_ms: millis(retry.short_wait.0),
        wait_for_reset_max_ms: millis(retry.wait_for_reset_max.0),
    }
}

fn attempts(attempts: &config::AttemptsSection) -> RetryAttempts {
    RetryAttempts {
        rate_limited: attempts.rate_limited.0,
        overloaded: attempts.overloaded.0,
        server: attempts.server.0,
        timeout: attempts.timeout.0,
        network: attempts.network.0,
        incomplete_stream: attempts.cut.0,
        lost: attempts.lost.0,
    }
}

/// The configured policy of the circuit breakers.
pub(crate) fn breakers(breaker: &config::BreakerSection) -> BreakerPolicy {
    let cooldowns = [breaker.first_cooldown, breaker.second_cooldown, breaker.longest_cooldown];
    BreakerPolicy {
        threshold: breaker.threshold.0,
        cooldowns_ms: cooldowns.map(|cooldown| millis(cooldown.0)),
        quota_ms: millis(breaker.quota_cooldown.0),
        not_found_ms: millis(breaker.not_found_cooldown.0),
    }
}

/// True if runs with this configuration may have the tool.
fn offers(config: &Config, tool: &str) -> bool {
    config.tools.include.matches(tool) && !config.tools.exclude.matches(tool)
}

/// True if runs with this configuration may read skills.
pub(crate) fn may_read_skills(config: &Config) -> bool {
    config.skills.enabled.0 && offers(config, SKILL_VIEW)
}

/// Adds the tool that reads skills to the spec of a session's first run, if it may have the tool, and its workspace or
/// `folders` have skills.
pub fn add_skill_tool(config: &Config, spec: &mut RunSpec, folders: &SkillFolders) {
    if may_read_skills(config) && !folders.read(&spec.workspace).skills.is_empty() {
        add_tool(spec, SKILL_VIEW);
    }
}

/// Adds a tool to the spec, keeping the names sorted.
pub(crate) fn add_tool(spec: &mut RunSpec, tool: &str) {
    spec.tools.push(tool.to_owned());
    spec.tools.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{discovery::Variables, prompt::skill_folders, provider::Deadlines};

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
        let link = |model: &str| ModelRef::new("p", model).unwrap();
        let spec = |chain: &[ModelRef]| spec(&config, chain.to_vec(), None, Path::new("/w"));
        let (known, unknown) = (link("vendor/claude-sonnet-4.5"), link("nobody's"));
        let both = spec(&[unknown.clone(), known.clone()]);
        assert_eq!(both.profile_of(&unknown), ModelProfile::default());
        assert_eq!(both.profile_of(&known).max_output, Some(64_000));
        assert_eq!(both.thinking.map(hermod_actors::model::ThinkingLevel::name), Some("low"));
        assert!(spec(&[unknown]).profiles.is_empty());
    }

    #[test]
    fn skill_view_is_offered_where_there_are_skills() {
        let (config, dir) = (Config::load(&[], &Variables::new()).unwrap(), tempfile::tempdir().unwrap());
        let folders = skill_folders(&config, &dir.path().join("state"));
        let offered = || {
            let mut spec = spec(&config, Vec::new(), None, dir.path());
            add_skill_tool(&config, &mut spec, &folders);
            assert!(spec.tools.is_sorted());
            spec.tools.iter().any(|tool| tool == SKILL_VIEW)
        };
        assert!(!offered());
        let folder = dir.path().join("state/skills/pdf");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), "---\nname: pdf\ndescription: Reads PDFs.\n---\n").unwrap();
        assert!(offered());
    }
}
