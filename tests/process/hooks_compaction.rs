//! The hook `before_compaction`: what it adds to a summary, how often it is asked, and that it never keeps a view from
//! being compacted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    hooks::{hook, ledger_lines, noting},
    world::{World, object, stderr},
};

/// A run whose view is compacted several times, in this world with this configuration; its records.
#[track_caller]
fn records_of_long_run(world: &World, hooks: &str) -> Vec<Value> {
    world.configure(&format!("[models.t]\nwindow = 32000\n{hooks}"));
    let call = json!([{ "tool": "current_time" }]);
    let step = |n: usize| json!({ "say": format!("{n} {}", "x".repeat(6_000)), "call": call });
    let mut steps: Vec<Value> = (1..=24).map(step).collect();
    steps.push(json!({ "say": "done" }));
    let scripts = json!([
        { "when": "/^# The (conversation|notes)/", "steps": [{ "say": "Notes: so far so good." }] },
        { "steps": steps },
    ]);
    let path = world.work().with_file_name("long.json");
    std::fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).unwrap();
    let output = world.run(&["run", "--json", &format!("--rehearse={}", path.display()), "go"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(result["outcome"], "completed", "{result}");
    world.journal(result["run"].as_str().unwrap())
}

fn of<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn each_compaction_asks_once_and_a_hook_that_fails_changes_nothing() {
    let world = World::new();
    let ledger = world.work().join("ledger");
    let annotate = json!({ "verdict": "annotate", "text": "Keep the ticket 4711." });
    let on = ["before_compaction"];
    let hooks = hook("keeper", &on, &noting(&ledger, &annotate), "priority = 9")
        + &hook("hangs", &on, "sleep 60", "deadline = \"200ms\"")
        + &hook("refuser", &on, "echo '{\"verdict\":\"refuse\"}'", "priority = -1")
        + &hook("dies", &on, "kill -9 $$", "priority = -2")
        + &hook("floods", &on, "yes", "priority = -3")
        + &hook("babbles", &on, "echo yes", "priority = -4")
        + &hook("last", &on, &noting(&ledger, &json!({ "verdict": "allow" })), "priority = -9");
    let records = records_of_long_run(&world, &hooks);
    let started = of(&records, "summary.started");
    let compacted = of(&records, "context.compacted");
    assert!(compacted.len() > 1, "{compacted:?}");
    assert!(compacted.iter().all(|one| one["by"] == "summarised" && one["summary"].is_string()));
    for started in &started {
        let decisions = started["hooks"]["decisions"].as_array().unwrap_or_else(|| panic!("{started}"));
        let decisions: Vec<_> = decisions.iter().map(|one| (&one["hook"], &one["ruling"])).collect();
        let failing = ["hangs", "refuser", "dies", "floods", "babbles"].map(|hook| (hook, "failed"));
        let expected = [&[("keeper", "annotated")], &failing[..], &[("last", "allowed")]].concat();
        let expected: Vec<_> = expected.iter().map(|(hook, ruling)| (json!(hook), json!(ruling))).collect();
        assert_eq!(decisions, expected.iter().map(|(hook, ruling)| (hook, ruling)).collect::<Vec<_>>());
        assert_eq!(started["hooks"]["annotation"], "Keep the ticket 4711.");
    }
    let asked = ledger_lines(&ledger);
    let ids: BTreeSet<&str> = asked.iter().map(|event| event["id"].as_str().unwrap()).collect();
    let expected: BTreeSet<String> = started
        .iter()
        .map(|started| format!("{}/0/before_compaction", started["call"].as_str().unwrap()))
        .collect();
    // One that was to be made ahead may not have begun when the run ended.
    assert!(expected.iter().all(|id| ids.contains(&**id)) && ids.len() <= expected.len() + 1, "{ids:?}");
    for id in &expected {
        let times = asked.iter().filter(|event| event["id"] == **id).count();
        assert_eq!(times, 2, "each of two hooks is asked once about {id}");
    }
    for event in &asked {
        let annotation = if event["hook"] == "last" { json!("Keep the ticket 4711.") } else { Value::Null };
        assert_eq!(event["annotation"], annotation, "{event}");
        assert!(event["bytes"].as_u64() > Some(1_000), "{event}");
    }
}
