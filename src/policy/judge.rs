//! Judges a call by the rules, in their order.

use std::{collections::BTreeSet, sync::Arc};

use hermod_actors::{
    MESSAGE,
    model::{AgentName, ApprovalNeed},
    port::{BadArguments, CallPolicy, CallVerdict, ProposedCall},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Policy, PolicyMode, Rule, SHELL_TOOL,
    argument::main_argument,
    command::{CommandPart, ScriptAnalysis, TOO_COMPLEX, analyse, file_danger},
};
use crate::excerpt::first_chars;

/// Tools that write the file in their argument `path`.
const FILE_WRITERS: &[&str] = &["write_file", "edit_file"];
/// Limit of a command in a question or a reason, in characters.
const MAX_SHOWN_CHARS: usize = 400;
/// Limit of the commands that one question names.
const MAX_COMMANDS: usize = 10;
/// The name of the mode where a rule is named.
const MODE_RULE: &str = "policy.mode";

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgementAction {
    /// It runs.
    Allow,
    /// It runs after an approval.
    Ask,
    /// It does not run.
    Deny,
}

/// The judgement of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What happens.
    pub action: JudgementAction,
    /// The rule that decided: the name of a hard rule or a danger, or the text of a rule.
    pub rule: Option<Arc<str>>,
    /// The part of the call that the rule matched.
    pub reduced_to: Option<String>,
    /// Why, as a sentence; empty if the call runs.
    pub why: String,
    /// All rules that ask, sorted and without duplicates.
    pub rules: Vec<Arc<str>>,
    /// The rules that would allow the call from now on; empty if there are none.
    pub allow_rules: Vec<Arc<str>>,
    /// True if only a missing person turned the request for an approval into a denial.
    pub lacks_approver: bool,
}

/// A part of a call and why it needs an approval.
#[derive(Debug)]
struct Doubt {
    rule: Arc<str>,
    text: String,
    why: String,
    is_exact: bool,
}

impl Policy {
    /// Judges a call as it is with the person that the settings name: without one, what needs an approval is denied.
    pub fn judge_call(&self, call: &ProposedCall<'_>) -> Judgement {
        let judgement = match (call.tool, call.arguments.get("command").and_then(Value::as_str)) {
            (SHELL_TOOL, Some(script)) => self.judge_script(script),
            (MESSAGE, _) => self.judge_message(call),
            _ => self.judge_other(call),
        };
        if judgement.action != JudgementAction::Ask || self.settings().has_approver {
            return judgement;
        }
        let why = format!("{}; this needs a person's approval, and no person answers here", judgement.why);
        Judgement { action: JudgementAction::Deny, why, lacks_approver: true, ..judgement }
    }

    /// Judges a shell command.
    pub fn judge_command(&self, script: &str) -> Judgement {
        let arguments = serde_json::json!({ "command": script });
        let agent = &AgentName::default();
        self.judge_call(&ProposedCall { agent, tool: SHELL_TOOL, arguments: &arguments, workspace: "" })
    }

    fn judge_script(&self, script: &str) -> Judgement {
        let analysis = analyse(script);
        if let Some(rule) = analysis.denial {
            return Judgement::deny(rule.name.into(), script, format!("it {}", rule.why));
        }
        let shell = |rules: &[Rule]| -> Vec<Rule> {
            rules.iter().filter(|rule| rule.is_about(SHELL_TOOL)).cloned().collect()
        };
        let deny = shell(&self.settings().deny);
        let whole = script.trim();
        let texts = || analysis.commands.iter().map(|command| command.text.as_str()).chain([whole]);
        let denied = texts().find_map(|text| Some((first_match(&deny, text)?, text)));
        if let Some((rule, text)) = denied {
            return Judgement::deny(Arc::clone(rule.text()), text, "the operator's policy forbids it".into());
        }
        let approved = self.approved_rules();
        let allow = [shell(&self.settings().allow), shell(&approved)].concat();
        let doubts = self.doubts(&analysis, &allow, &shell(&self.settings().ask));
        match doubts {
            Ok(doubts) => Judgement::ask(SHELL_TOOL, doubts),
            Err(text) => Judgement::deny_by_mode(&text),
        }
    }

    /// The parts of a script that need an approval; `Err` with one that the mode denies.
    fn doubts(&self, analysis: &ScriptAnalysis, allow: &[Rule], ask: &[Rule]) -> Result<Vec<Doubt>, String> {
        let mut doubts = Vec::new();
        for command in &analysis.commands {
            if first_match(allow, &command.text).is_some() {
                continue;
            }
            let doubt = |rule: Arc<str>, why: String| {
                let text = command.text.clone();
                Doubt { rule, why, text, is_exact: command.is_exact() }
            };
            if let Some(rule) = first_match(ask, &command.text) {
                doubts.push(doubt(Arc::clone(rule.text()), "the operator's policy asks for it".into()));
            } else if let Some(danger) = command.danger {
                doubts.push(doubt(danger.name.into(), format!("it {}", danger.why)));
            } else if matches!(command.part, CommandPart::Command | CommandPart::Output) {
                match self.settings().mode {
                    PolicyMode::Allow => {}
                    PolicyMode::Ask => doubts.push(doubt(MODE_RULE.into(), "no rule allows it".into())),
                    PolicyMode::Deny => return Err(command.text.clone()),
                }
            }
        }
        Ok(doubts)
    }

    /// Judges a message, and each file that goes with it as `read_file` would be: the strictest judgement holds.
    fn judge_message(&self, call: &ProposedCall<'_>) -> Judgement {
        let mut strictest = self.judge_other(call);
        let files = call.arguments.get("attachments").and_then(Value::as_array).into_iter().flatten();
        for path in files.filter_map(Value::as_str) {
            let arguments = serde_json::json!({ "path": path });
            let judged =
                self.judge_other(&ProposedCall { tool: "read_file", arguments: &arguments, ..*call });
            if judged.action > strictest.action {
                strictest = judged;
            }
        }
        strictest
    }

    fn judge_other(&self, call: &ProposedCall<'_>) -> Judgement {
        let argument = main_argument(call);
        let find = |rules: &[Rule], texts: &[String]| {
            let is_match = |rule: &&Rule| {
                rule.is_about(call.tool) && texts.iter().any(|text| rule.matches_argument(text))
            };
            rules.iter().find(is_match).cloned()
        };
        let shown = format!("{} {}", call.tool, argument.shown);
        if let Some(rule) = find(&self.settings().deny, &argument.all) {
            return Judgement::deny(
                Arc::clone(rule.text()),
                &shown,
                "the operator's policy forbids it".into(),
            );
        }
        let approved = self.approved_rules();
        let is_allowed =
            find(&self.settings().allow, &argument.resolved).or_else(|| find(&approved, &argument.resolved));
        if is_allowed.is_some() {
            return Judgement::allow();
        }
        let exact = argument.resolved.first().cloned().unwrap_or_default();
        let doubt = |rule: Arc<str>, why: String| {
            let doubt = Doubt { rule, text: exact.clone(), why, is_exact: true };
            Judgement { reduced_to: Some(shortened(&shown)), ..Judgement::ask(call.tool, vec![doubt]) }
        };
        if let Some(rule) = find(&self.settings().ask, &argument.all) {
            return doubt(Arc::clone(rule.text()), "the operator's policy asks for it".into());
        }
        let written = FILE_WRITERS.contains(&call.tool) && argument.field == Some("path");
        if let Some(danger) = Some(&exact).filter(|_| written).and_then(|path| file_danger(path)) {
            return doubt(danger.name.into(), format!("it {}", danger.why));
        }
        let is_read_only = self.settings().read_only_tools.iter().any(|tool| tool == call.tool);
        match self.settings().mode {
            _ if is_read_only => Judgement::allow(),
            PolicyMode::Allow => Judgement::allow(),
            PolicyMode::Ask => doubt(MODE_RULE.into(), "no rule allows it".into()),
            PolicyMode::Deny => Judgement::deny_by_mode(&shown),
        }
    }
}

impl Judgement {
    fn allow() -> Self {
        Self {
            action: JudgementAction::Allow,
            rule: None,
            reduced_to: None,
            why: String::new(),
            rules: Vec::new(),
            allow_rules: Vec::new(),
            lacks_approver: false,
        }
    }

    fn deny(rule: Arc<str>, text: &str, why: String) -> Self {
        let reduced_to = Some(shortened(text));
        Self { action: JudgementAction::Deny, rule: Some(rule), reduced_to, why, ..Self::allow() }
    }

    fn deny_by_mode(text: &str) -> Self {
        let why = "no rule allows it, and `policy.mode` is \"deny\"";
        Self::deny(MODE_RULE.into(), text, why.into())
    }

    /// Allows the call if there are no doubts.
    fn ask(tool: &str, doubts: Vec<Doubt>) -> Self {
        let Some(first) = doubts.first() else { return Self::allow() };
        let exact = |doubt: &Doubt| {
            doubt
                .is_exact
                .then(|| Rule::exact(tool, &doubt.text))
                .flatten()
                .map(|rule| Arc::clone(rule.text()))
        };
        let allow_rules: Option<BTreeSet<Arc<str>>> = doubts.iter().map(exact).collect();
        let rules: BTreeSet<Arc<str>> = doubts.iter().map(|doubt| Arc::clone(&doubt.rule)).collect();
        let mut lines: Vec<String> = doubts
            .iter()
            .take(MAX_COMMANDS)
            .map(|doubt| format!("`{}`: {} ({})", shortened(&doubt.text), doubt.why, doubt.rule))
            .collect();
        let others = doubts.len().saturating_sub(MAX_COMMANDS);
        lines.extend((others > 0).then(|| format!("and {others} more")));
        Self {
            action: JudgementAction::Ask,
            rule: Some(Arc::clone(&first.rule)),
            reduced_to: Some(shortened(&first.text)),
            why: lines.join("; "),
            rules: rules.into_iter().collect(),
            allow_rules: allow_rules.unwrap_or_default().into_iter().collect(),
            lacks_approver: false,
        }
    }
}

impl CallPolicy for Policy {
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict {
        let judgement = self.judge_call(call);
        match judgement.action {
            JudgementAction::Allow => CallVerdict::Allow,
            JudgementAction::Ask => {
                let shown = shortened(&main_argument(call).shown);
                let question = format!("{} wants to run: {shown}\n{}", call.tool, judgement.why);
                let Judgement { rules, allow_rules, .. } = judgement;
                CallVerdict::Ask(Arc::new(ApprovalNeed { rules, allow_rules, question }))
            }
            JudgementAction::Deny => CallVerdict::Deny(refusal(call, &judgement)),
        }
    }
}

/// What the model reads of a denial.
fn refusal(call: &ProposedCall<'_>, judgement: &Judgement) -> BadArguments {
    let rule = judgement.rule.as_deref().unwrap_or_default();
    let hint = match rule {
        _ if rule == TOO_COMPLEX.name => {
            "make it shorter and plainer, or put the script into a file with `write_file` and run that"
        }
        _ if judgement.lacks_approver => {
            "reach the goal in another way, or leave this step out and tell the user which command to run"
        }
        _ => "name exactly what is to change, inside the workspace, or ask the operator to do it",
    };
    let reduced_to = judgement.reduced_to.as_deref().unwrap_or_default();
    let error = format!("the policy denies `{reduced_to}` ({rule}): {}", judgement.why);
    BadArguments::new(main_argument(call).field, error, hint)
}

fn first_match<'a>(rules: &'a [Rule], text: &str) -> Option<&'a Rule> {
    rules.iter().find(|rule| rule.is_for_all_arguments() || rule.matches_argument(text))
}

fn shortened(text: &str) -> String {
    first_chars(text, MAX_SHOWN_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::AgentName;
    use serde_json::json;

    use super::*;
    use crate::policy::PolicySettings;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    }

    fn policy(settings: PolicySettings) -> (tempfile::TempDir, Policy) {
        let state = tempfile::tempdir().expect("a folder");
        let policy = Policy::new(settings, state.path());
        (state, policy)
    }

    fn settings(deny: &[&str], allow: &[&str], ask: &[&str], mode: PolicyMode) -> PolicySettings {
        let read_only_tools = vec!["read_file".to_owned()];
        let (deny, allow, ask) = (rules(deny), rules(allow), rules(ask));
        PolicySettings {
            mode,
            deny,
            allow,
            ask,
            has_approver: true,
            read_only_tools,
            ignores_approved: false,
        }
    }

    #[test]
    fn rules_decide_about_each_command_of_a_script() {
        use JudgementAction::{Allow, Ask, Deny};
        let deny = ["shell(*secret*)", "shell(sudo *)"];
        let allow = ["shell(git push *)", "shell(> /etc/motd)", "shell(reboot)"];
        let settings = settings(&deny, &allow, &["shell(make deploy)"], PolicyMode::Allow);
        let (_state, policy) = policy(settings);
        let check = |script: &str, action: JudgementAction, rule: Option<&str>, allow_rules: &[&str]| {
            let found = policy.judge_command(script);
            assert_eq!((found.action, found.rule.as_deref()), (action, rule), "{script}: {found:?}");
            let texts: Vec<&str> = found.allow_rules.iter().map(|rule| &**rule).collect();
            assert_eq!(texts, allow_rules, "{script}");
        };
        check("ls", Allow, None, &[]);
        check("reboot", Deny, Some("hard-power"), &[]);
        check("cat secret.txt", Deny, Some("shell(*secret*)"), &[]);
        check("ls; nice sudo id", Deny, Some("shell(sudo *)"), &[]);
        check("git push -f", Allow, None, &[]);
        check("git push -f; rm -f /a", Ask, Some("forced-delete"), &["shell(rm -f /a)"]);
        check("git push -f > /etc/motd", Allow, None, &[]);
        check("git push -f > /etc/passwd", Ask, Some("system-file"), &["shell(> /etc/passwd)"]);
        check("bash -c 'git push -f'", Allow, None, &[]);
        check("make deploy", Ask, Some("shell(make deploy)"), &["shell(make deploy)"]);
        check("rm -rf *.o b*", Ask, Some("recursive-delete"), &[r"shell(rm -rf \*.o b\*)"]);
        check("rm -rf $X", Ask, Some("recursive-delete"), &[]);
        check("rm -rf $(x); rm -f a", Ask, Some("recursive-delete"), &[]);
        check("echo 'x", Ask, Some("unknown-script"), &[]);
    }

    #[test]
    fn rules_decide_about_calls_of_other_tools() {
        use JudgementAction::{Allow, Ask, Deny};
        let deny = ["write_file(/etc/*)", "mcp_pay_*"];
        let settings =
            settings(&deny, &["write_file(src/*)", "write_file(.env)"], &["fetch(http:*)"], PolicyMode::Ask);
        let (_state, policy) = policy(settings);
        let check = |tool: &str, arguments: Value, action: JudgementAction, rule: Option<&str>| {
            let call = ProposedCall {
                agent: &AgentName::default(),
                tool,
                arguments: &arguments,
                workspace: "/workspace",
            };
            let found = policy.judge_call(&call);
            assert_eq!((found.action, found.rule.as_deref()), (action, rule), "{tool} {arguments}");
        };
        check("write_file", json!({"path": "../etc/x"}), Deny, Some("write_file(/etc/*)"));
        check("mcp_pay_now", json!({"x": 1}), Deny, Some("mcp_pay_*"));
        check("write_file", json!({"path": "src/a"}), Allow, None);
        check("write_file", json!({"path": "/workspace/src/a"}), Allow, None);
        check("write_file", json!({"path": "src/../b"}), Ask, Some("policy.mode"));
        check("write_file", json!({"path": ".env"}), Allow, None);
        check("write_file", json!({"path": ".env.local"}), Ask, Some("credential-file"));
        check("fetch", json!({"url": "http://x"}), Ask, Some("fetch(http:*)"));
        check("read_file", json!({"path": "a"}), Allow, None);
        check("other", json!([1]), Ask, Some("policy.mode"));
        check("shell", json!({"command": 1}), Ask, Some("policy.mode"));
    }

    #[test]
    fn the_mode_decides_about_what_no_rule_names() {
        let check = |mode: PolicyMode, script: &str, expected: JudgementAction| {
            let (_state, policy) = policy(settings(&[], &["shell(cargo *)"], &[], mode));
            assert_eq!(policy.judge_command(script).action, expected, "{mode:?} {script}");
        };
        check(PolicyMode::Allow, "ls", JudgementAction::Allow);
        check(PolicyMode::Ask, "ls", JudgementAction::Ask);
        check(PolicyMode::Deny, "ls", JudgementAction::Deny);
        check(PolicyMode::Deny, "X=1 timeout 5 cargo test 2>&1", JudgementAction::Allow);
        check(PolicyMode::Deny, "cargo test > out", JudgementAction::Deny);
        check(PolicyMode::Deny, "cargo test; ls", JudgementAction::Deny);
        check(PolicyMode::Deny, "sh x.sh", JudgementAction::Deny);
        check(PolicyMode::Deny, "sh -c 'cargo test'", JudgementAction::Allow);
    }

    #[test]
    fn a_call_that_asks_has_a_question_and_is_denied_without_a_person() {
        let arguments = json!({"command": "sudo make install; rm -f /a"});
        let call = ProposedCall {
            agent: &AgentName::default(),
            tool: SHELL_TOOL,
            arguments: &arguments,
            workspace: "/workspace",
        };
        let (_state, with_person) = policy(settings(&[], &[], &[], PolicyMode::Allow));
        let CallVerdict::Ask(need) = with_person.judge(&call) else { panic!("it asks") };
        let names: Vec<&str> = need.rules.iter().map(|rule| &**rule).collect();
        assert_eq!(names, ["forced-delete", "privilege"]);
        let allow: Vec<Rule> = need.allow_rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        assert!(need.question.contains("sudo make install; rm -f /a"), "{}", need.question);
        assert!(need.question.contains("the rights of another user"), "{}", need.question);
        with_person.approved().add(&allow).expect("written");
        assert_eq!(with_person.judge(&call), CallVerdict::Allow);
        let (_state, without) = policy(PolicySettings::default());
        let CallVerdict::Deny(refusal) = without.judge(&call) else { panic!("it is denied") };
        assert_eq!(refusal.field.as_deref(), Some("command"));
        assert!(refusal.error.contains("no person answers here"), "{}", refusal.error);
        assert!(refusal.hint.contains("tell the user"), "{}", refusal.hint);
    }

    #[test]
    fn hostile_arguments_of_any_tool_are_judged() {
        let (_state, policy) = policy(settings(&["x(*a*a*a*a*b)"], &["y(*)"], &[], PolicyMode::Allow));
        let long = "a".repeat(5 << 20);
        let nested = (0..100).fold(json!(1), |inside, _| json!([inside]));
        for (tool, arguments) in [
            ("x", json!({"path": long})),
            ("x", json!({"name": long})),
            ("x", json!({"other": long})),
            ("y", nested),
            ("write_file", json!({"path": "../".repeat(1 << 20)})),
            (SHELL_TOOL, json!({"command": long})),
            (SHELL_TOOL, json!({})),
            ("", Value::Null),
        ] {
            let call = ProposedCall {
                agent: &AgentName::default(),
                tool,
                arguments: &arguments,
                workspace: "/workspace",
            };
            policy.judge(&call);
        }
    }
}
