//! `hermod policy`: tells what happens to a command, and lists the rules in their order.

use std::{io::stdin, sync::Arc};

use clap::{Args, Subcommand};

use super::{
    CliError, Exit, agents, examples,
    output::StderrNotes,
    print_as,
    table::{self, or_dash},
};
use crate::{
    config::{Config, SettingOrigin},
    discovery::Variables,
    files,
    host::{AgentPolicies, Identifier, state_dir},
    policy::{Judgement, JudgementAction, Policy, PolicyMode, Rule, command},
    view::{PolicyRuleView, PolicyVerdictView},
};

/// Size limit of a command that is read from the input.
const MAX_BYTES: u64 = 64 << 20;
const BUILT_IN: &str = "built in";

/// What tool calls may do
#[derive(Debug, Args)]
#[command(after_help = examples::POLICY)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Tell what happens to a shell command of a model, without running it; the exit code is 0 whatever the verdict
    Check {
        /// The command, or `-` to read it from the input
        #[arg(value_name = "COMMAND", allow_hyphen_values = true)]
        script: String,
        /// The agent whose rules count
        #[arg(long, value_name = "NAME")]
        agent: Option<Identifier>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List all rules in the order in which they are applied
    List {
        /// The agent whose rules are listed
        #[arg(long, value_name = "NAME")]
        agent: Option<Identifier>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Checks a command, or lists the rules.
pub(crate) fn execute(args: &PolicyArgs, variables: &Variables) -> Result<(), CliError> {
    let config = Config::read(variables)?;
    let state = state_dir(variables)?;
    match &args.command {
        PolicyCommand::Check { script, agent, json } => {
            let agent = &agents::config_of(&config, agent.as_ref())?.agent_name;
            let policies = AgentPolicies::new(&config, &state, Some(Arc::new(StderrNotes)));
            let policy = policies.of_agent(agent);
            let script = if script == "-" { read_script()? } else { script.clone() };
            if script.trim().is_empty() {
                return Err(CliError::usage(
                    "the command is empty; give one, or `-` to read it from the input",
                ));
            }
            print_as(*json, &verdict(policy.judge_command(&script)), format_verdict)
        }
        PolicyCommand::List { agent, json } => {
            let of_agent = agents::config_of(&config, agent.as_ref())?;
            let policies = AgentPolicies::new(&config, &state, None);
            let policy = policies.of_agent(&of_agent.agent_name);
            let approved = policies.approved().list();
            let approved =
                approved.map_err(|error| CliError { exit: Exit::Store, text: error.to_string() })?;
            let rules = rules((&config, of_agent), policy, &approved);
            let head = ["ACTION", "RULE", "FROM", "ABOUT"];
            let row = |rule: &PolicyRuleView| {
                [rule.action.to_owned(), rule.rule.clone(), rule.origin.clone(), or_dash(rule.why)]
            };
            print_as(*json, &rules, |rules| table::render(head, &rules.iter().map(row).collect::<Vec<_>>()))
        }
    }
}

fn read_script() -> Result<String, CliError> {
    let text = files::read_limited(stdin().lock(), MAX_BYTES).and_then(files::text);
    text.map_err(|error| CliError::usage(format!("the command cannot be read from the input: {error}")))
}

fn verdict(judgement: Judgement) -> PolicyVerdictView {
    let Judgement { action, rule, reduced_to, why, .. } = judgement;
    let why = Some(why).filter(|why| !why.is_empty());
    PolicyVerdictView { verdict: action_name(action), rule, reduced_to, why }
}

fn format_verdict(view: &PolicyVerdictView) -> String {
    let PolicyVerdictView { verdict, rule, reduced_to, why } = view;
    match (rule, reduced_to, why) {
        (Some(rule), Some(text), Some(why)) => format!("{verdict}: {why}\nrule: {rule}\nmatched: {text}"),
        _ => (*verdict).to_owned(),
    }
}

/// All rules in the order in which they are applied; the last one is the mode. `all` has the rules for all agents, which
/// come before those of the agent.
fn rules((all, config): (&Config, &Config), policy: &Policy, approved: &[Rule]) -> Vec<PolicyRuleView> {
    let settings = policy.settings();
    let built_in = |action, name: &str, why| PolicyRuleView {
        action,
        rule: name.to_owned(),
        origin: BUILT_IN.to_owned(),
        why: Some(why),
    };
    let origin = |config: &Config, key: &str| {
        config.origin_of(key).map_or_else(|| BUILT_IN.to_owned(), SettingOrigin::to_string)
    };
    let view = |action: &'static str, rule: &Rule, origin: String| PolicyRuleView {
        action,
        rule: rule.to_string(),
        origin,
        why: None,
    };
    let listed = |action: &'static str, rules: &[Rule], key: &str| {
        let for_all = all.settings.get(key);
        let count = for_all.and_then(|setting| setting.value.as_array()).map_or(0, Vec::len);
        let own = origin(config, key);
        let shared = for_all.map_or_else(|| own.clone(), |setting| setting.origin.to_string());
        let origins = std::iter::repeat_n(shared, count).chain(std::iter::repeat(own));
        rules.iter().zip(origins).map(|(rule, origin)| view(action, rule, origin)).collect::<Vec<_>>()
    };
    let (allow, ask, deny) = (JudgementAction::Allow, JudgementAction::Ask, JudgementAction::Deny);
    let (allow, ask, deny) = (action_name(allow), action_name(ask), action_name(deny));
    let mut rules: Vec<PolicyRuleView> =
        command::hard_rules().iter().map(|rule| built_in(deny, rule.name, rule.why)).collect();
    rules.extend(listed(deny, &settings.deny, "policy.deny"));
    rules.extend(listed(allow, &settings.allow, "policy.allow"));
    rules.extend(approved.iter().map(|rule| view(allow, rule, "approved-rules.json".to_owned())));
    rules.extend(listed(ask, &settings.ask, "policy.ask"));
    rules.extend(command::dangers().map(|danger| built_in(ask, danger.name, danger.why)));
    let mode = match settings.mode {
        PolicyMode::Allow => allow,
        PolicyMode::Ask => ask,
        PolicyMode::Deny => deny,
    };
    let why = Some("everything else, unless the tool only reads");
    rules.push(PolicyRuleView {
        action: mode,
        rule: "policy.mode".into(),
        origin: origin(config, "policy.mode"),
        why,
    });
    rules
}

const fn action_name(action: JudgementAction) -> &'static str {
    match action {
        JudgementAction::Allow => "allow",
        JudgementAction::Ask => "ask",
        JudgementAction::Deny => "deny",
    }
}
