//! `hermod hooks`.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

const CONFIG: &str = r#"
[hooks.allows]
on = ["pre_tool_call", "before_model_call"]
command = "echo '{\"verdict\":\"allow\"}'"

[hooks.refuses]
on = ["after_tool_call"]
command = "grep -q README.md && echo '{\"verdict\":\"refuse\",\"reason\":\"private\"}'"
priority = 5
tools = ["shell"]

[hooks.dies]
on = ["run_end"]
command = "exit 9"
"#;

fn world() -> World {
    let world = World::new();
    world.configure(CONFIG);
    world
}

#[test]
fn hooks_are_listed_by_priority() {
    let hooks: Vec<Value> = serde_json::from_str(&world().ok(&["hooks", "list", "--json"])).unwrap();
    let names: Vec<_> = hooks.iter().map(|hook| &hook["name"]).collect();
    assert_eq!(names, ["refuses", "allows", "dies"]);
    assert_eq!(hooks[0]["on"], json!(["post_tool_call"]), "an alias has its name");
    assert_eq!((&hooks[0]["state"], &hooks[0]["tools"]), (&Value::Null, &json!(["shell"])));
    let table = world().ok(&["hooks", "list"]);
    assert!(table.starts_with("HOOK") && table.contains("pre_tool_call,before_model_call"), "{table}");
}

#[test]
fn a_hook_is_tried_with_examples_or_an_event() {
    let world = world();
    assert_eq!(world.ok(&["hooks", "test", "allows"]), "pre_tool_call  allow\nbefore_model_call  allow\n");
    assert_eq!(world.ok(&["hooks", "test", "refuses"]), "post_tool_call  refuse: private\n");
    let output = world.run(&["hooks", "test", "dies", "--json"]);
    let trials: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&trials[0]["verdict"], &trials[0]["error"]), (&Value::Null, &json!("it exits with 9")));
    assert_eq!(output.status.code(), Some(1));
    let event = world.work().join("event.json");
    fs::write(&event, r#"{"name":"post_tool_call","result":"nothing"}"#).unwrap();
    let event = event.to_str().unwrap();
    let output = world.run(&["hooks", "test", "refuses", "--event", event]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("failed: it exits with 1"), "{text}");
    world.fails(
        &["hooks", "test", "nothing"],
        2,
        "there is no hook `nothing`; the configuration has: refuses",
    );
    fs::write(event, "[]").unwrap();
    world.fails(&["hooks", "test", "refuses", "--event", event], 2, "is no JSON object");
    world.fails(&["hooks", "test", "refuses", "--event", "/nothing/here"], 2, "/nothing/here");
}
