//! `hermod policy`: tells what happens to a command, and lists the rules in their order.

use std::{io::stdin, sync::Arc};

use clap::{Args, Subcommand};

use super::{
    CliError, Exit, examples,
    output::StderrNotes,
    print_as,
    table::{self, or_dash},
};
use crate::{
    config::Config,
    discovery::Variables,
    files,
    host::{policy_of, state_dir},
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List all rules in the order in which they are applied
    List {
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
        PolicyCommand::Check { script, json } => {
            let policy = policy_of(&config, &state, Some(Arc::new(StderrNotes)));
            let script = if script == "-" { read_script()? } else { script.clone() };
            if script.trim().is_empty() {
                return Err(CliError::usage(
                    "the command is empty; give one, or `-` to read it from the input",
                ));
            }
            print_as(*json, &verdict(policy.judge_command(&script)), format_verdict)
        }
        PolicyCommand::List { json } => {
            let policy = policy_of(&config, &state, None);
            let approved = policy.approved().list();
            let approved =
                approved.map_err(|error| CliError { exit: Exit::Store, text: error.to_string() })?;
            let rules = rules(&config, &policy, &approved);
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

/// All rules in the order in which they are applied; the last one is the mode.
fn rules(config: &Config, policy: &Policy, approved: &[Rule]) -> Vec<PolicyRuleView> {
    let settings = policy.settings();
    let built_in = |action, name: &str, why| PolicyRuleView {
        action,
        rule: name.to_owned(),
        origin: BUILT_IN.to_owned(),
        why: Some(why),
    };
    let origin = |key: &str| {
        let setting = config.settings.get(key);
        setting.map_or_else(|| BUILT_IN.to_owned(), |setting| setting.origin.to_string())
    };
    let listed = |action: &'static str, rules: &[Rule], origin: String| {
        let view = |rule: &Rule| PolicyRuleView {
            action,
            rule: rule.to_string(),
            origin: origin.clone(),
            why: None,
        };
        rules.iter().map(view).collect::<Vec<_>>()
    };
    let (allow, ask, deny) = (JudgementAction::Allow, JudgementAction::Ask, JudgementAction::Deny);
    let (allow, ask, deny) = (action_name(allow), action_name(ask), action_name(deny));
    let mut rules: Vec<PolicyRuleView> =
        command::hard_rules().iter().map(|rule| built_in(deny, rule.name, rule.why)).collect();
    rules.extend(listed(deny, &settings.deny, origin("policy.deny")));
    rules.extend(listed(allow, &settings.allow, origin("policy.allow")));
    rules.extend(listed(allow, approved, "approved-rules.json".to_owned()));
    rules.extend(listed(ask, &settings.ask, origin("policy.ask")));
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
        origin: origin("policy.mode"),
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
