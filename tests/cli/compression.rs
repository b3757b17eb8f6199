//! Conversations that become too long: what the real binary makes of them.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    running::{Running, until},
    world::{World, object, stderr},
};

/// A world in which a task is longer than what its model can read.
struct Long {
    world: World,
    script: String,
}

impl Long {
    fn new() -> Self {
        Self::with_end(&json!({ "say": "done" }))
    }

    /// The task's last step is `end`.
    fn with_end(end: &Value) -> Self {
        let world = World::new();
        let config = "[models.t]\nwindow = 32000\n";
        fs::write(world.work().with_file_name("hermod.toml"), config).unwrap();
        let call = json!([{ "tool": "current_time" }]);
        let mut steps: Vec<Value> =
            (1..=24).map(|n| json!({ "say": format!("{n} {}", "x".repeat(6_000)), "call": call })).collect();
        steps.push(end.clone());
        let scripts = json!([
            { "when": "/^# The (conversation|notes)/", "steps": [{ "say": "Notes: so far so good." }] },
            { "when": "again", "steps": [{ "say": "here" }] },
            { "steps": steps },
        ]);
        let path = world.work().with_file_name("long.json");
        fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).unwrap();
        Self { script: format!("--rehearse={}", path.display()), world }
    }

    fn hermod(&self, args: &[&str]) -> Command {
        let mut command = self.world.hermod(args);
        command.env("HERMOD_CONFIG", self.world.work().with_file_name("hermod.toml"));
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Value {
        let output = self.hermod(&[&["run", "--json"], args].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        object(&String::from_utf8_lossy(&output.stdout))
    }
}

/// The records of one kind.
fn of<'a>(journal: &'a [Value], kind: &str) -> Vec<&'a Value> {
    journal.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_lineage_stands_for_its_session() {
    let long = Long::new();
    let session = long.run(&[&long.script, "do it"])["session"].clone();
    let journal = long.world.journal("last");
    let lineages: Vec<&str> = of(&journal, "context.compacted")
        .into_iter()
        .map(|compacted| compacted["lineage"].as_str().unwrap())
        .collect();
    assert!(lineages.len() > 1, "{lineages:?}");
    // Another conversation, so that it is not the last one that is found.
    let other = long.run(&[&long.script, "again"])["session"].clone();
    assert_ne!(other, session);
    for id in [lineages[0], lineages[lineages.len() - 1], session.as_str().unwrap()] {
        assert_eq!(long.run(&["--resume", id, "again"])["session"], session, "{id}");
    }
    assert!(long.world.journal(lineages[0]).len() > journal.len());
    // Of the same millisecond, and nobody's.
    let nobody = format!("{}{}", &lineages[0][..10], "0".repeat(16));
    long.world.fails(
        &["run", "--resume", &nobody, "hi"],
        2,
        &format!("--resume: there is no run or session `{nobody}`"),
    );
}

#[test]
fn a_model_that_cannot_be_asked_for_summaries_is_told() {
    let long = Long::new();
    let mut command = long.hermod(&["run", &long.script, "again"]);
    let output = command.env("HERMOD_AUXILIARY__COMPRESSION__CHAIN", "nope/x").output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("beside    nope/x is not asked for summaries: there is no provider `nope`"),
        "{told}"
    );
}

#[test]
fn summaries_are_shown_with_what_was_learned_of_their_model() {
    let long = Long::with_end(&json!({ "say": "late", "delay": "5m" }));
    let show = |args: &[&str]| {
        let output = long.hermod(&[&["providers", "summaries"], args].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let none = json!({ "foreground": 0, "background": 0, "running": 0, "summarizers": [] });
    assert_eq!(object(&show(&["--json"]).0), none);
    assert!(show(&[]).1.contains("no Hermod is running"));
    let mut command = long.hermod(&["run", &long.script, "do it"]);
    let _run = Running::new(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("all steps are done", || {
        let waits = long.hermod(&["runs", "show", "last", "--json"]).output().unwrap();
        serde_json::from_slice::<Value>(&waits.stdout).is_ok_and(|run| run["iterations"] == 24)
    });
    let status = object(&show(&["--json"]).0);
    let summarizer = &status["summarizers"][0];
    assert!(summarizer["attempts"].as_u64().is_some_and(|attempts| attempts > 0), "{status}");
    assert_eq!((&summarizer["failed"], &summarizer["is_poor"]), (&json!(0), &json!(false)), "{status}");
    assert!(summarizer["usual_ms"].is_u64() && summarizer["kept_percent"] == 0, "{status}");
    let (table, _) = show(&[]);
    assert!(table.contains(" in progress; ") && table.contains("called in order"), "{table}");
    long.world.ok(&["stop", "--all"]);
}
