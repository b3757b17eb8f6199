//! The limits of all runs together, with the real binary: many runs at once over kills, a reload, and removed sessions.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    world::World,
};

/// A service whose store may use this number of tokens in a month.
#[track_caller]
fn start(tokens: u64, scripts: &Value) -> Served {
    let world = World::new();
    configure(&world, tokens);
    Served::start_in(world, scripts)
}

fn configure(world: &World, tokens: u64) {
    world.configure(&format!(
        "[limits]\ntokens_per_month = {tokens}\n[retry]\nwait_for_reset_max = \"5s\"\nfirst_pause = \"10ms\"\n"
    ));
}

#[track_caller]
fn begin(served: &Served, input: &str) -> String {
    let run = served.post("/v1/runs", &json!({ "input": input })).json()["run"].clone();
    run.as_str().expect("a run").to_owned()
}

#[track_caller]
fn ended(served: &Served, run: &str) -> (String, String) {
    let end = served.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
    let text = |field: &str| end[field].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("reason"))
}

/// The tokens of this month: `limit`, `spent`, `reserved` and `left`.
#[track_caller]
fn month(served: &Served) -> [u64; 4] {
    let usage = served.get("/v1/usage").json();
    let [month] = usage["limits"].as_array().expect("a list").as_slice() else { panic!("{usage}") };
    assert_eq!(month["period"], "month");
    ["limit", "spent", "reserved", "left"].map(|field| month["dimensions"]["tokens"][field].as_u64().unwrap())
}

#[track_caller]
fn within(served: &Served) -> [u64; 4] {
    let month = month(served);
    let [limit, spent, reserved, left] = month;
    assert!(spent + reserved + left == limit, "{month:?}");
    month
}

#[test]
fn many_runs_at_once_stay_within_a_limit_over_kills() {
    const LIMIT: u64 = 150_000;
    let slow =
        |chunk_delay: &str| json!({ "say": "this takes a while", "chunk": 1, "chunk_delay": chunk_delay });
    let scripts = json!([{ "when": "slow", "steps": [slow("300ms")] }, { "steps": [slow("40ms")] }]);
    let mut served = start(LIMIT, &scripts);
    let mut runs: Vec<String> = (0..4).map(|n| begin(&served, &format!("slow {n}"))).collect();
    // What a kill interrupts costs its reservation.
    for _ in 0..2 {
        until("calls are under way", || within(&served)[2] > 0);
        served.kill();
        served.start_again();
    }
    runs.extend((4..32).map(|n| begin(&served, &format!("task {n}"))));
    until("all have ended", || {
        within(&served);
        served.get("/v1/tree").json().as_array().is_some_and(Vec::is_empty)
    });
    let ends: Vec<_> = runs.iter().map(|run| ended(&served, run)).collect();
    let count = |outcome: &str| ends.iter().filter(|(ended, _)| ended == outcome).count();
    assert!(count("completed") > 0 && count("budget_exhausted") > 0, "{ends:?}");
    assert_eq!(count("completed") + count("budget_exhausted"), runs.len(), "{ends:?}");
    for (_, reason) in ends.iter().filter(|(outcome, _)| outcome == "budget_exhausted") {
        assert!(reason.contains(&format!("tokens_per_month limit of {LIMIT} reached: ")), "{reason}");
        assert!(reason.contains("; the month ends at "), "{reason}");
    }
    let [_, spent, reserved, _] = within(&served);
    assert_eq!(reserved, 0);
    let models = served.get("/v1/usage").json()["models"].clone();
    let known = |field: &str| models[0][field].as_u64().unwrap();
    assert!(spent >= known("input_tokens") + known("output_tokens"), "{spent}: {models}");
}

#[test]
fn a_limit_can_be_reloaded_and_removed_sessions_give_nothing_back() {
    let mut served = start(1, &scripts());
    let first = begin(&served, "one");
    let (outcome, reason) = ended(&served, &first);
    assert_eq!(outcome, "budget_exhausted");
    assert!(reason.contains("tokens_per_month limit of 1 reached: 0 spent, 0 reserved, "), "{reason}");
    assert_eq!(month(&served), [1, 0, 0, 1]);

    configure(&served.world, 1_000_000);
    served.world.ok(&["config", "reload"]);
    let second = begin(&served, "two");
    assert_eq!(ended(&served, &second).0, "completed");
    let [limit, spent, reserved, left] = month(&served);
    assert_eq!((limit, reserved, left), (1_000_000, 0, limit - spent));
    assert!(spent > 0);
    let session = served.get(&format!("/v1/runs/{second}")).json()["session"].as_str().unwrap().to_owned();
    assert_eq!(served.send(("DELETE", &format!("/v1/sessions/{session}")), &[], "").status, 204);
    assert_eq!(month(&served)[1], spent);

    let shown = |served: &Served| -> Value {
        serde_json::from_str(&served.world.ok(&["usage", "--json"])).expect("an object")
    };
    assert_eq!(shown(&served)["limits"], served.get("/v1/usage").json()["limits"]);
    served.token = {
        let told = ["tokens", "create", "--name", "few", "--scopes", "read", "--agents", "default"];
        served.world.ok(&told).split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(served.get("/v1/usage").json()["limits"], json!([]));
    served.stop();
    assert_eq!(shown(&served)["limits"][0]["dimensions"]["tokens"]["spent"], spent);
    assert!(served.world.ok(&["usage"]).contains("1000000"));
    served.world.ok(&["store", "check"]);
    served.world.configure("");
    assert_eq!(shown(&served)["limits"], json!([]));
    assert!(served.world.ok(&["usage"]).contains("\nno limits for all runs together"));
}
