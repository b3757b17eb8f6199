//! Lanes and `before_run` hooks, with the real binary: how many runs are under way, over kills and a reload, and what a
//! hook makes of a run.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    world::World,
};

#[track_caller]
fn begin(served: &Served, body: &Value) -> String {
    let run = served.post("/v1/runs", body).json()["run"].clone();
    run.as_str().expect("a run").to_owned()
}

fn state(served: &Served, run: &str) -> String {
    served.get(&format!("/v1/runs/{run}")).json()["state"].as_str().unwrap_or_default().to_owned()
}

/// The runs in each state, in the order of these runs.
fn states(served: &Served, runs: &[String]) -> Vec<String> {
    runs.iter().map(|run| state(served, run)).collect()
}

#[test]
fn runs_wait_for_a_place_over_a_kill_and_begin_when_a_reload_gives_one() {
    let world = World::new();
    world.configure("[lanes]\nmain = 1\n");
    let scripts = json!([{ "steps": [{ "say": "slow", "chunk": 1, "chunk_delay": "10s" }] }]);
    let mut served = Served::start_in(world, &scripts);
    let runs: Vec<String> =
        (0..3).map(|n| begin(&served, &json!({ "input": format!("task {n}") }))).collect();
    until("one is under way", || states(&served, &runs) == ["running", "queued", "queued"]);
    let shown = served.world.ok(&["runs", "show", &runs[1], "--json"]);
    let waits = serde_json::from_str::<Value>(&shown).expect("JSON")["waits"].clone();
    assert_eq!(
        (waits[0]["what"].as_str(), waits[0]["lane"].as_str()),
        (Some("lane"), Some("main")),
        "{waits}"
    );
    let free = begin(&served, &json!({ "input": "of another lane", "lane": "cron" }));
    until("a run of another lane begins", || state(&served, &free) == "running");
    let metrics = served.get("/metrics").text();
    assert!(metrics.contains(r#"hermod_lane_runs{lane="main",state="waiting"} 2"#), "{metrics}");
    served.kill();
    served.start_again();
    until("one is under way again", || states(&served, &runs) == ["running", "queued", "queued"]);
    served.world.configure("");
    served.world.ok(&["config", "reload"]);
    until("all are under way", || states(&served, &runs) == ["running"; 3]);
    let other = served.post("/v1/runs", &json!({ "input": "x", "lane": "subagent" }));
    let (status, text) = (other.status, other.text());
    assert!(status >= 400 && text.contains("lane"), "{status} {text}");
}

#[test]
fn a_hook_decides_about_each_run_once_and_is_asked_by_no_revival() {
    let world = World::new();
    let ledger = world.work().join("asked");
    let hook = world.work().join("hook.py");
    let script = format!(
        "import json, sys\nevent = json.load(sys.stdin)\nopen({ledger:?}, 'a').write(event['run'] + '\\n')\n\
         if 'secret' in event['input']:\n    print(json.dumps({{'verdict': 'refuse', 'reason': 'not for us'}}))\n\
         elif 'change' in event['input']:\n    print(json.dumps({{'verdict': 'replace', 'input': 'another task', \
         'context': 'it is Friday'}}))\nelse:\n    print(json.dumps({{'verdict': 'allow'}}))\n"
    );
    std::fs::write(&hook, script).expect("a hook");
    world.configure(&format!(
        "[hooks.gate]\non = [\"before_agent_start\"]\ncommand = \"python3 {}\"\n",
        hook.display()
    ));
    let mut served = Served::start_in(world, &scripts());
    let refused = begin(&served, &json!({ "input": "a secret" }));
    let end = served.get(&format!("/v1/runs/{refused}/wait?timeout=60s")).json();
    assert_eq!((end["outcome"].as_str(), end["iterations"].as_u64()), (Some("refused"), Some(0)), "{end}");
    let reason = end["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the hook `gate` refuses this: not for us"), "{reason}");
    let changed = begin(&served, &json!({ "input": "change this" }));
    let end = served.get(&format!("/v1/runs/{changed}/wait?timeout=60s")).json();
    assert_eq!(end["answer"], "[rehearsal] You said: another task\n\nit is Friday", "{end}");
    // A run under way is revived, and its hook is not asked again.
    let waits = begin(&served, &json!({ "input": "wait" }));
    until("the command runs", || served.world.work().join("ran").exists());
    served.kill();
    served.start_again();
    until("it goes on", || state(&served, &waits) == "running");
    let asked = std::fs::read_to_string(&ledger).expect("a ledger");
    let asked: Vec<&str> = asked.lines().collect();
    assert_eq!(asked, [&refused, &changed, &waits]);
}
