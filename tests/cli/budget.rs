//! `hermod budget`: the real binary, runs that have used up what they had, and more of it.

use serde_json::{Value, json};

use crate::{
    running::texts,
    world::{World, object, stderr},
};

/// A run that calls a tool twice, and says then what it has found; exhausted by its second call.
fn exhausted(world: &World) -> String {
    let look = json!({ "call": [{ "tool": "current_time", "arguments": {} }] });
    let found = json!({ "say": "found" });
    let script = world.script(&json!([look, look, found, found, found]));
    let out = world.hermod(&["run", &script, "--budget", "iterations=2", "--json", "look"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    object(&texts(&out).0)["run"].as_str().unwrap().to_owned()
}

fn shown(world: &World, verb: &str) -> Value {
    let out = world.hermod(&[verb, "show", "last", "--json"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    object(&texts(&out).0)
}

#[test]
fn an_exhausted_run_gets_more_and_completes() {
    let world = World::new();
    let run = exhausted(&world);
    let before = shown(&world, "budget");
    let iterations = &before["accounts"][0]["dimensions"]["iterations"];
    assert_eq!((&before["leg"], &before["outcome"]), (&json!(1), &json!("budget_exhausted")));
    assert_eq!(*iterations, json!({ "limit": 2, "spent": 2, "reserved": 0, "left": 0 }));

    let added = world.hermod(&["budget", "add", "last", "iterations=3", "usd=0.50"]).output().unwrap();
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stderr(&added).contains(&format!("hermod runs resume {run}")), "{}", stderr(&added));
    let after = shown(&world, "budget");
    assert_eq!((&after["leg"], &after["state"]), (&json!(2), &json!("suspended")));
    assert_eq!(after["accounts"][0]["dimensions"]["iterations"]["limit"], 5);
    assert!(after["accounts"][0]["dimensions"]["usd"]["limit"].is_null(), "no limit is made: {after}");

    let resumed = world.hermod(&["runs", "resume", &run, "--wait"]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    assert!(
        texts(&resumed).0.starts_with("[rehearsal] ") && texts(&resumed).0.ends_with("found\n"),
        "{}",
        texts(&resumed).0
    );
    let ended = shown(&world, "runs");
    assert_eq!((&ended["outcome"], &ended["legs"]), (&json!("completed"), &json!(2)));
    assert!(ended["said"].as_str().unwrap().ends_with("found"), "{ended}");
    let checked = world.hermod(&["store", "check"]).output().unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));

    let late = world.hermod(&["budget", "add", "last", "iterations=1"]).output().unwrap();
    assert_eq!(late.status.code(), Some(2));
    assert!(stderr(&late).contains("it has ended: completed"), "{}", stderr(&late));
}

#[test]
fn it_can_be_waited_for() {
    let world = World::new();
    exhausted(&world);
    let added = world.hermod(&["budget", "add", "last", "iterations=3", "--wait"]).output().unwrap();
    assert_eq!(added.status.code(), Some(0), "{}", stderr(&added));
    assert!(
        texts(&added).0.starts_with("[rehearsal] ") && texts(&added).0.ends_with("found\n"),
        "{}",
        texts(&added).0
    );
    assert_eq!(shown(&world, "runs")["outcome"], "completed");
}

/// The command that the end of an exhausted run names lets it go on.
#[test]
fn a_limit_that_is_too_small_says_what_is_missing() {
    for limit in ["tokens=5", "tokens=1k", "tokens=5k"] {
        let world = World::new();
        let look = json!({ "call": [{ "tool": "current_time", "arguments": {} }] });
        let script = world.script(&json!([look, look, { "say": "found" }, { "say": "found" }]));
        let out = world.hermod(&["run", &script, "--budget", limit, "look"]).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
        let told = stderr(&out);
        assert!(told.contains(" needed for the next call"), "{told}");
        let hint = told.split_once("`hermod budget add ").unwrap().1.split_once(" --wait`").unwrap().0;
        let (run, more) = hint.split_once(' ').unwrap();
        let added = world.hermod(&["budget", "add", run, more, "--wait"]).output().unwrap();
        // Each call reads more than the one before, so it may come to its limit again; but it has worked until then.
        let is_through = added.status.code() == Some(0) && texts(&added).0.ends_with("found\n");
        let again = stderr(&added).matches("`hermod budget add ").count();
        let iterations = shown(&world, "runs")["iterations"].as_u64().unwrap();
        assert!(
            is_through || (added.status.code() == Some(3) && again == 1 && iterations > 1),
            "{more}: {}",
            stderr(&added)
        );
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    exhausted(&world);
    let check = |args: &[&str], part: &str| {
        let out = world.hermod(&[&["budget"], args].concat()).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(part), "{args:?}: {}", stderr(&out));
    };
    check(&["add", "last"], "NAME=AMOUNT");
    check(&["add", "last", "iterations=some"], "iterations=some: must be a whole number");
    check(&["add", "last", "time=5"], "`time` cannot be limited");
    check(
        &["add", "last", "tokens=50k"],
        "it has no limit in what was named; name one that it has: iterations",
    );
    check(&["add", "nobody", "tokens=5"], "there is no run or session `nobody`");
    check(&["show", "nobody"], "there is no run or session `nobody`");
}
