//! `hermod agents`, and the agents of runs at the command line.

use serde_json::{Value, json};

use crate::world::{World, object, stderr};

const CONFIG: &str = r#"
[agents.writer]
description = "Writes texts"
max_turns = 7
prompt.identity = "You are the writer."
policy.deny = ["shell(ls *)"]

[agents.editor]
model = "one/small"
"#;

fn world() -> World {
    let world = World::new();
    world.configure(CONFIG);
    world
}

#[test]
fn agents_are_listed_and_shown() {
    let world = world();
    let agents: Vec<Value> = serde_json::from_str(&world.ok(&["agents", "list", "--json"])).unwrap();
    let names: Vec<_> = agents.iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["default", "editor", "writer"]);
    assert_eq!(
        (&agents[1]["model"], &agents[2]["description"]),
        (&json!("one/small"), &json!("Writes texts"))
    );
    let table = world.ok(&["agents", "list"]);
    assert!(table.starts_with("AGENT") && table.contains("Writes texts"), "{table}");

    let writer = object(&world.ok(&["agents", "show", "writer", "--json"]));
    let setting = |key: &str| {
        let settings = writer["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("{key}")).clone()
    };
    assert_eq!(setting("max_turns")["value"], 7);
    assert!(setting("max_turns")["origin"].as_str().unwrap().ends_with("hermod.toml:4"));
    assert_eq!(setting("max_tokens"), json!({ "key": "max_tokens", "value": 8192, "origin": "default" }));
    assert!(writer["tools"].as_array().unwrap().contains(&json!("shell")));
    let shown = world.ok(&["agents", "show", "writer"]);
    assert!(shown.starts_with("agent  writer\nabout  Writes texts\n"), "{shown}");
    world.fails(
        &["agents", "show", "nobody"],
        2,
        "there is no agent `nobody`; there are: default, editor, writer",
    );
}

#[test]
fn a_run_has_the_agent_that_is_named() {
    let world = world();
    let run = |args: &[&str]| object(&world.ok(&[&["run", "--rehearse", "--json"], args].concat()));
    let first = run(&["--agent", "writer", "--session", "s", "Say hello"]);
    let show = |run: &Value| object(&world.ok(&["runs", "show", run["run"].as_str().unwrap(), "--json"]));
    let shown = show(&first);
    assert_eq!((&shown["agent"], &shown["spec"]["agent"]), (&json!("writer"), &json!("writer")));
    assert_eq!(shown["spec"]["limits"]["budget"]["iterations"], 7);
    let journal = world.ok(&["journal", "s"]);
    assert!(journal.lines().next().unwrap().contains("You are the writer."), "{journal}");
    assert!(world.ok(&["runs", "show", "last"]).contains("agent       writer"));

    // The session belongs to its agent.
    let second = run(&["--resume", "last", "Go on"]);
    assert_eq!(show(&second)["agent"], "writer");
    let refused = "this session belongs to the agent `writer`; name that one or none";
    world.fails(&["run", "--rehearse", "--resume", "last", "--agent", "editor", "Go on"], 2, refused);
    world.fails(&["run", "--rehearse", "--session", "s", "--agent", "default", "Go on"], 2, refused);
    world.fails(&["run", "--rehearse", "--agent", "nobody", "x"], 2, "there is no agent `nobody`");
    world.fails(&["run", "--resume", "last", "--agent", "writer"], 2, "goes on as it was accepted");

    let plain = run(&["Say hello"]);
    assert_eq!((&show(&plain)["agent"], &show(&plain)["spec"]["agent"]), (&json!("default"), &Value::Null));
    let listed = |agent: &str| {
        let list = world.ok(&["runs", "list", "--agent", agent, "--json"]);
        let list: Vec<Value> = serde_json::from_str(&list).unwrap();
        list.iter().map(|run| run["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed("writer"), [first["run"].clone(), second["run"].clone()]);
    assert_eq!(listed("default"), [plain["run"].clone()]);
    assert_eq!(listed("editor"), [Value::Null; 0]);
    world.fails(&["runs", "list", "--agent", "No"], 2, "--agent No: it is no name of an agent");
    let session = object(&world.ok(&["sessions", "show", "s", "--json"]));
    assert_eq!(session["agent"], "writer");
}

#[test]
fn the_policy_of_an_agent_is_told() {
    let world = world();
    let check = |more: &[&str], verdict: &str| {
        let told = object(&world.ok(&[&["policy", "check", "--json", "ls x"], more].concat()));
        assert_eq!(told["verdict"], verdict, "{more:?}: {told}");
    };
    check(&[], "allow");
    check(&["--agent", "editor"], "allow");
    check(&["--agent", "writer"], "deny");
    let rules = |more: &[&str]| world.ok(&[&["policy", "list"], more].concat());
    assert!(rules(&["--agent", "writer"]).contains("shell(ls *)") && !rules(&[]).contains("shell(ls *)"));
    world.fails(&["policy", "list", "--agent", "nobody"], 2, "there is no agent `nobody`");
}

#[test]
fn an_unknown_agent_of_a_token_is_noted() {
    let world = world();
    let create = |name: &str, agents: &str| {
        let args = ["tokens", "create", "--name", name, "--scopes", "read", "--agents", agents];
        let output = world.run(&args);
        assert_eq!(output.status.code(), Some(0));
        stderr(&output)
    };
    let told = create("a", "writer,nobody");
    assert!(told.contains("there is no agent `nobody` yet; there are: default, editor, writer"), "{told}");
    assert!(!create("b", "writer,default").contains("there is no agent"));
}
