//! Every field that `--json` prints is described in `docs/json.md`.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::world::World;

/// Objects whose keys are data, by the last field of their path, and what the keys are.
const DATA: [(&str, &str); 3] = [("files", "paths"), ("kept", "reasons"), ("outcomes", "names")];

/// The names in code spans and quotes of a document.
fn described(document: &str) -> Vec<&str> {
    let spans = document.split('`').skip(1).step_by(2);
    let words = spans.flat_map(|span| span.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    words.filter(|word| !word.is_empty()).collect()
}

/// Puts every field below `value` into `fields`, with the first place where it stands.
fn collect(value: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            let is_data = DATA.iter().any(|(name, _)| path.ends_with(&format!(".{name}")));
            for (name, value) in object {
                if !is_data {
                    fields.entry(name.clone()).or_insert_with(|| path.to_owned());
                }
                collect(value, &format!("{path}.{name}"), fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, &format!("{path}[]"), fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A run with a list, a subagent, a long output, a steered message and a budget, and one that asks a person.
fn furnish(world: &World) {
    let call = |tool: &str, arguments: Value| json!({ "call": [{ "tool": tool, "arguments": arguments }] });
    let todos = json!({ "todos": [{ "id": "1", "content": "look", "status": "pending" }] });
    let steps = json!([
        call("todo", todos),
        call("delegate_task", json!({ "tasks": [{ "goal": "look around" }] })),
        call("shell", json!({ "command": "seq 1 30000; exit 3" })),
        call("read_file", json!({ "path": "absent" })),
        { "say": "done" },
    ]);
    let child = json!([call("list_files", json!({})), { "say": "seen" }]);
    let script =
        json!({ "name": "t", "scripts": [{ "when": "look around", "steps": child }, { "steps": steps }] });
    let path = world.work().join("../fields.json");
    fs::write(&path, script.to_string()).expect("written");
    let rehearse = format!("--rehearse={}", path.display());
    world.ok(&["run", &rehearse, "--session", "k", "--budget", "tokens=1000000,tool_calls=9", "go"]);
}

#[test]
fn every_field_of_json_is_described() {
    let world = World::new();
    let document = concat!(include_str!("../../docs/json.md"), include_str!("../../docs/configuration.md"));
    let document = document.replace("```json", "`").replace("```", "`");
    let described = described(&document);
    furnish(&world);
    let backup = world.work().join("../backup").display().to_string();
    let commands: &[&[&str]] = &[
        &["run", "--rehearse", "--json", "hi"],
        &["runs", "list", "--json"],
        &["runs", "show", "last", "--json"],
        &["show", "last", "--json"],
        &["report", "--json"],
        &["runs", "resume", "--all", "--wait", "--json"],
        &["budget", "show", "last", "--json"],
        &["tree", "last", "--json"],
        &["sessions", "list", "--json"],
        &["sessions", "show", "k", "--json"],
        &["journal", "k"],
        &["store", "check", "--json"],
        &["store", "footprint", "--json"],
        &["gc", "--dry-run", "--json"],
        &["backup", "create", &backup, "--json"],
        &["backup", "verify", &backup, "--json"],
        &["prompt", "show", "--json"],
        &["providers", "list", "--json"],
        &["providers", "status", "--json"],
        &["providers", "summaries", "--json"],
        &["models", "list", "--json"],
        &["config", "show", "--effective", "--json"],
        &["approvals", "list", "--json"],
        &["tokens", "create", "--name", "n", "--scopes", "read", "--json"],
        &["tokens", "list", "--json"],
    ];
    let mut undescribed = Vec::new();
    for command in commands {
        let (mut fields, mut lines) = (BTreeMap::new(), 0);
        for line in world.ok(command).lines() {
            let value = serde_json::from_str(line).expect("a line is JSON");
            collect(&value, &command[..2].join(" "), &mut fields);
            lines += 1;
        }
        assert!(lines > 0, "{command:?} prints nothing");
        let unknown = fields.into_iter().filter(|(name, _)| !described.contains(&name.as_str()));
        undescribed.extend(unknown.map(|(name, path)| format!("{path}.{name}")));
    }
    assert!(undescribed.is_empty(), "docs/json.md does not describe:\n{}", undescribed.join("\n"));
}
