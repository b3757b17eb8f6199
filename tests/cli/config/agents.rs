//! The sections of agents: what they change, and what is wrong with them.

use hermod::{
    config::{Config, EMBEDDED, WorkspaceScope},
    host::run_defaults,
    process::sandbox::NetworkAccess,
};
use hermod_actors::model::AgentName;

use super::{check_wrong, load};

#[track_caller]
fn agent<'c>(config: &'c Config, name: &str) -> &'c Config {
    let name: AgentName = name.parse().unwrap();
    config.for_agent(&name).unwrap_or_else(|| panic!("there is no agent {name}"))
}

fn tools(config: &Config) -> Vec<String> {
    run_defaults::spec(config, Vec::new(), None, "/w".as_ref()).tools
}

#[test]
fn a_section_changes_the_configuration_of_its_agent_alone() {
    let text = r#"
        model = "one/large"
        agent.max_turns = 20
        policy.deny = ["shell(rm *)"]
        [agents.defaults]
        timeout = "5m"
        [agents.reviewer]
        model = "two/small"
        thinking = "high"
        timeout = "1m"
        workspace = "/srv/review"
        budget = { tokens = 500000, usd = 2.5, wall = "15m" }
        policy = { mode = "deny", deny = ["shell(git *)"] }
        sandbox = { network = "on", workspace = "session" }
        prompt.identity = "You review."
        tools = { include = ["read_*", "shell"], exclude = ["read_artifact"] }
        memory.enabled = false
        [agents.default]
        max_turns = 30
    "#;
    let config = load(text, &[]).unwrap();
    let names: Vec<_> = config.agents().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["default", "reviewer"]);
    let (default, reviewer) = (agent(&config, "default"), agent(&config, "reviewer"));
    assert_eq!((default.agent.max_turns.0, reviewer.agent.max_turns.0), (30, 20));
    assert_eq!(
        (default.model.0.as_deref(), reviewer.model.0.as_deref()),
        (Some("one/large"), Some("two/small"))
    );
    let rules = |config: &Config| config.policy.deny.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(rules(default), ["shell(rm *)"]);
    assert_eq!(rules(reviewer), ["shell(rm *)", "shell(git *)"]);
    let budget = reviewer.agent.budget;
    assert_eq!(
        (budget.tokens.0, budget.usd.0, budget.tool_calls.0),
        (Some(500_000), Some(2_500_000_000), None)
    );
    assert_eq!(
        (default.sandbox.network.0.clone(), reviewer.sandbox.network.0.clone()),
        (NetworkAccess::Off, NetworkAccess::On)
    );
    assert_eq!(reviewer.sandbox.workspace, WorkspaceScope::Session);
    assert_eq!(reviewer.prompt.identity.0.as_deref(), Some("You review."));
    assert!(tools(default).contains(&"memory".to_owned()));
    assert_eq!(tools(reviewer), ["read_file", "shell"]);
    let spec = run_defaults::spec(reviewer, Vec::new(), None, "/w".as_ref());
    assert_eq!(
        (spec.agent.as_str(), spec.limits.timeout_ms, spec.limits.wall_ms),
        ("reviewer", Some(60_000), Some(900_000))
    );
    let origin = |config: &Config, key: &str| config.origin_of(key).unwrap().to_string();
    assert_eq!(origin(reviewer, "model"), "hermod.toml:8");
    assert_eq!(origin(default, "model"), "hermod.toml:2");
    assert!(reviewer.is_set("agents.defaults.timeout") && !default.is_set("agent.thinking"));
    assert!(config.for_agent(&"nobody".parse().unwrap()).is_none());
}

#[test]
fn an_identity_of_one_kind_replaces_one_of_the_other() {
    let text = "prompt.identity_file = \"/srv/soul.md\"\n[agents.a.prompt]\nidentity = \"You are a.\"\n";
    let config = load(text, &[]).unwrap();
    let prompt = &agent(&config, "a").prompt;
    assert_eq!((prompt.identity.0.as_deref(), &prompt.identity_file.0), (Some("You are a."), &None));
    check_wrong(
        "[agents.a.prompt]\nidentity = \"x\"\nidentity_file = \"/x\"\n",
        &[],
        &[&["hermod.toml:2: agents.a.prompt.identity = \"x\": there is an identity_file too; leave one"]],
    );
}

#[test]
fn variables_set_keys_of_agents() {
    let set = [("HERMOD_AGENTS__CODE_REVIEW__MAX_TURNS", "7"), ("HERMOD_AGENTS__NEW__BUDGET__TOKENS", "9")];
    let config = load("[agents.code-review]\nthinking = \"low\"\n", &set).unwrap();
    assert_eq!(agent(&config, "code-review").agent.max_turns.0, 7);
    assert_eq!(agent(&config, "new").agent.budget.tokens.0, Some(9));
}

#[test]
fn a_mistake_is_told_with_its_line_its_key_and_a_remedy() {
    let check = |line: &str, parts: &[&str]| {
        check_wrong(&format!("[agents.a]\n{line}\n"), &[], &[&[&["hermod.toml:2: "], parts].concat()]);
    };
    check("max_turns = 0", &["agents.a.max_turns = 0: must be a whole number"]);
    check("thinking = \"much\"", &["agents.a.thinking = \"much\": must be one of"]);
    check("model = 7", &["agents.a.model = 7: must be a text"]);
    check("workspace = \"here\"", &["agents.a.workspace = \"here\": must be an absolute path"]);
    check("budget.usd = -1", &["agents.a.budget.usd = -1: must be dollars above 0"]);
    check("budget.tokens = \"many\"", &["agents.a.budget.tokens = \"many\": must be a whole number"]);
    check("policy.deny = [\"shell(\"]", &["agents.a.policy.deny = [\"shell(\"]: `shell(` is no rule"]);
    check("sandbox.mode = \"on\"", &["agents.a.sandbox.mode = \"on\": must be \"off\""]);
    check(
        "tools.include = [\"shel\"]",
        &["agents.a.tools.include", "no tool is called `shel`; there are: current_time"],
    );
    check(
        "tools.exclude = \"shell\"",
        &["agents.a.tools.exclude = \"shell\": must be a list of names of tools"],
    );
    check("max_turn = 3", &["there is no key `agents.a.max_turn`; did you mean `agents.a.max_turns`?"]);
    check("policy = \"deny\"", &["`agents.a.policy` is a section"]);
    check_wrong(
        "agents.Reviewer.model = \"x\"",
        &[],
        &[&["hermod.toml:1: `Reviewer` is no name for an agent"]],
    );
    check_wrong("tools.include = [\"shel\"]", &[], &[&["hermod.toml:1: tools.include", "no tool is called"]]);
    let long = format!("agents.{}.model = \"x\"", "a".repeat(65));
    check_wrong(&long, &[], &[&["is no name for an agent; use at most 64"]]);
    let many: Vec<_> = (0..201).map(|n| format!("[agents.a{n}]\nmax_turns = 1\n")).collect();
    check_wrong(&many.concat(), &[], &[&["there are 201 agents, and at most 200 are read"]]);
    // The error of the rest is told once, not for each agent.
    check_wrong(
        "agent.max_turns = 0\n[agents.a]\nthinking = \"low\"",
        &[],
        &[&["hermod.toml:1: agent.max_turns"]],
    );
}

#[test]
fn the_agent_that_the_embedded_file_describes_is_one() {
    let lines = EMBEDDED.lines().skip_while(|line| *line != "# [agents.NAME]");
    let lines: Vec<_> = lines.map_while(|line| line.strip_prefix("# ")).collect();
    let config = load(&lines.join("\n").replace("NAME", "acme"), &[]).unwrap();
    let acme = agent(&config, "acme");
    assert!(acme.agent.description.0.is_some() && acme.agent.workspace.0.is_some());
    assert_eq!(tools(acme).len(), 4);
    for line in &lines[1..] {
        let (field, _) = line.split_once(" = ").unwrap();
        let wrong = format!("[agents.acme]\n{field} = [0.5]");
        let told = load(&wrong, &[]).expect_err(field).to_string();
        assert!(told.contains("hermod.toml:2: ") && told.contains(field), "{told}");
    }
}
