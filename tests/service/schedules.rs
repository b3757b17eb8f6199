//! Schedules with the real binary: each occurrence has one row, whatever happens to the process, and a run has its row.

use std::collections::{BTreeMap, BTreeSet};

use hermod::clock;
use hermod_actors::model::Timestamp;
use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    world::{World, object},
};

/// How often the process is killed.
const KILLS: usize = 6;

impl World {
    #[track_caller]
    fn schedules(&self, args: &[&str]) -> Value {
        object(&self.ok(&[&["schedules"], args, &["--json"]].concat()))
    }

    /// The rows of a history, the newest first.
    #[track_caller]
    fn history(&self, name: &str) -> Vec<Value> {
        self.schedules(&["history", name, "--limit", "10000"]).as_array().expect("a list").clone()
    }

    /// Number of rows in this state.
    #[track_caller]
    fn rows(&self, name: &str, state: &str) -> usize {
        self.history(name).iter().filter(|row| row["state"] == state).count()
    }
}

/// A time of RFC 3339 in milliseconds.
#[track_caller]
fn ms(time: &Value) -> i64 {
    let time = humantime::parse_rfc3339(time.as_str().expect("a time")).expect("RFC 3339");
    let since = time.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("a time of today")
}

#[test]
fn each_occurrence_has_one_row_and_each_run_its_row_over_kills() {
    let mut served = Served::start(&scripts());
    served.world.schedules(&["add", "tick", "--every", "1s", "--misfire", "run_all", "--text", "tick"]);
    for _ in 0..KILLS {
        let rows = served.world.history("tick").len();
        until("an occurrence is recorded", || served.world.history("tick").len() > rows);
        served.kill();
        served.start_again();
    }
    let rows = served.world.rows("tick", "ran");
    until("occurrences run again", || served.world.rows("tick", "ran") > rows + 1);
    served.world.schedules(&["pause", "tick"]);
    let history = served.world.history("tick");
    let mut recorded = BTreeMap::new();
    for row in &history {
        assert!(row["run"].is_string() == (row["state"] == "ran"), "{row}");
        assert!(row["reason"].is_string() == (row["state"] != "ran"), "{row}");
        assert_eq!(
            recorded.insert(ms(&row["at"]), row["run"].clone()),
            None,
            "two rows of one time: {history:?}"
        );
    }
    let (first, last) = (*recorded.keys().next().unwrap(), *recorded.keys().last().unwrap());
    let due: Vec<i64> = (first..=last).step_by(1_000).collect();
    assert_eq!(recorded.keys().copied().collect::<Vec<_>>(), due, "each due time has a row");
    let listed = served.world.ok(&["runs", "list", "--schedule", "tick", "--limit", "10000", "--json"]);
    let listed = object(&listed);
    let runs: BTreeSet<&str> =
        listed.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    let of_rows: BTreeSet<&str> = recorded.values().filter_map(Value::as_str).collect();
    assert_eq!(runs, of_rows, "each run has one row");
    served.stop();
}

#[test]
fn what_was_due_while_no_service_ran_is_told_by_the_rule() {
    let mut served = Served::start(&scripts());
    served.stop();
    let at = Timestamp(clock::now().0 + 1_000);
    let time = clock::rfc3339(at);
    let add = |name: &str, rule: &str| {
        let args = ["add", name, "--at", &time, "--grace", "0s", "--misfire", rule, "--text", "hi"];
        served.world.schedules(&args);
    };
    add("skipped", "skip");
    add("caught-up", "run_once");
    assert_eq!(served.world.schedules(&["show", "skipped"])["next"], json!(time));
    until("both are late", || clock::now().0 > at.0 + 2_500);
    served.start_again();
    until("both have a row", || {
        ["skipped", "caught-up"].iter().all(|name| !served.world.history(name).is_empty())
    });
    let missed = &served.world.history("skipped")[0];
    assert_eq!((&missed["state"], &missed["at"]), (&json!("missed"), &json!(time)), "{missed}");
    assert!(!missed["reason"].as_str().unwrap().is_empty(), "{missed}");
    let ran = &served.world.history("caught-up")[0];
    assert_eq!((&ran["state"], &ran["at"]), (&json!("ran"), &json!(time)), "{ran}");
    let report = object(&served.world.ok(&["report", "--since", "1h", "--json"]));
    assert_eq!(
        (&report["schedules"]["ran"], &report["schedules"]["missed"]),
        (&json!(1), &json!(1)),
        "{report}"
    );
    served.stop();
}

#[test]
fn the_configuration_is_reconciled_with_the_store() {
    let world = World::new();
    let config = "[schedules.night]\ncron = \"0 6 * * *\"\ntz = \"Europe/Berlin\"\ntext = \"Look\"\n";
    world.configure(config);
    let mut served = Served::start_in(world, &scripts());
    let shown = served.world.schedules(&["show", "night"]);
    assert_eq!(
        (&shown["source"], &shown["definition"]["text"]),
        (&json!("config"), &json!("Look")),
        "{shown}"
    );
    served.world.fails(&["schedules", "remove", "night"], 2, "[schedules.night]");
    let replaced = ["schedules", "add", "night", "--every", "1h", "--text", "x", "--replace"];
    served.world.fails(&replaced, 2, "[schedules.night]");
    let paused = served.world.schedules(&["pause", "night", "--reason", "holidays"]);
    assert_eq!(paused["paused"]["reason"], "holidays");
    let run = served.world.schedules(&["run-now", "night", "--wait"]);
    assert_eq!(run["outcome"], "completed");
    served.world.configure(&config.replace("Look", "Look again"));
    served.world.ok(&["config", "reload"]);
    let shown = served.world.schedules(&["show", "night"]);
    assert_eq!(shown["definition"]["text"], "Look again");
    assert_eq!(shown["paused"]["reason"], "holidays", "a pause outlives a change");
    served.world.schedules(&["add", "own", "--every", "1h", "--text", "x"]);
    served.world.configure("");
    served.world.ok(&["config", "reload"]);
    let listed = served.world.schedules(&["list"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["own"]);
    assert_eq!(served.world.rows("night", "ran"), 1, "the history stays");
    served.stop();
}

#[test]
fn schedules_are_managed_over_http() {
    let served = Served::start(&scripts());
    let definition = json!({ "every": "1h", "text": "hi", "pause_after": 3 });
    let body = json!({ "name": "hourly", "definition": definition });
    for _ in 0..2 {
        let made = served.post("/v1/schedules", &body);
        let (status, made) = (made.status, made.json());
        assert_eq!(
            (status, &made["name"], &made["definition"]["every"]),
            (201, &json!("hourly"), &json!("1h")),
            "{made}"
        );
    }
    let check = |body: &Value, expect: u16, part: &str| {
        let refused = served.post("/v1/schedules", body);
        let (status, text) = (refused.status, refused.text());
        assert!(status == expect && text.contains(part), "{status} {text}");
    };
    check(&json!({ "name": "hourly", "definition": { "every": "2h", "text": "hi" } }), 409, "PUT changes it");
    check(&json!({ "name": "A b", "definition": definition }), 422, "name: `A b`");
    check(&json!({ "name": "n", "definition": { "text": "hi" } }), 422, "definition.every: is missing");
    check(
        &json!({ "name": "n", "definition": { "cron": "0 0 30 2 *", "text": "hi" } }),
        422,
        "definition.cron",
    );
    check(
        &json!({ "name": "n", "definition": { "every": "1h", "text": "hi", "agent": "x" } }),
        422,
        "definition.agent",
    );
    let json = [("content-type", "application/json")];
    let changed = json!({ "every": "2h", "text": "hi" }).to_string();
    let changed = served.send(("PUT", "/v1/schedules/hourly"), &json, &changed).json();
    assert_eq!(changed["definition"]["every"], "2h", "{changed}");
    let paused = served.post("/v1/schedules/hourly/pause", &json!({ "reason": "holidays" })).json();
    assert_eq!(paused["paused"]["reason"], "holidays", "{paused}");
    let run =
        served.post("/v1/schedules/hourly/run", &json!({})).json()["run"].as_str().expect("a run").to_owned();
    let end = served.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
    assert_eq!(end["outcome"], "completed", "{end}");
    let resumed = served.post("/v1/schedules/hourly/resume", &json!({})).json();
    assert_eq!(resumed["paused"], Value::Null, "{resumed}");
    let history = served.get("/v1/schedules/hourly/history").json();
    assert_eq!(
        (&history["items"][0]["run"], &history["items"][0]["outcome"]),
        (&json!(run), &json!("completed"))
    );
    let runs = served.get("/v1/runs?schedule=hourly").json();
    assert_eq!(runs["items"].as_array().expect("a list").len(), 1, "{runs}");
    assert_eq!(served.get("/v1/runs?schedule=other").json()["items"], json!([]));
    let listed = served.get("/v1/schedules").json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    let metrics = served.get("/metrics").text();
    assert!(metrics.contains("hermod_schedule_occurrences_total{state=\"ran\"} 1"), "{metrics}");
    let reader = served.new_token("reader", "read");
    let refused = served.send_as(&reader, ("DELETE", "/v1/schedules/hourly"), &Value::Null);
    assert_eq!(refused.status, 403);
    assert_eq!(served.send(("DELETE", "/v1/schedules/hourly"), &[], "").status, 204);
    assert_eq!(served.get("/v1/schedules/hourly").status, 404);
    assert_eq!(served.post("/v1/schedules/hourly/run", &json!({})).status, 404);
}

#[test]
fn a_heartbeat_goes_on_in_one_session_and_need_not_answer() {
    let scripts =
        json!([{ "when": "NO_REPLY", "steps": [{ "say": "NO_REPLY" }] }, { "steps": [{ "say": "x" }] }]);
    let served = Served::start(&scripts);
    served.world.schedules(&["add", "watch", "--every", "1d", "--heartbeat", "--text", "Look at the queue"]);
    let run = || {
        let ran = served.world.schedules(&["run-now", "watch", "--wait"]);
        assert_eq!(ran["outcome"], "completed", "{ran}");
        let shown = served.get(&format!("/v1/runs/{}", ran["run"].as_str().unwrap())).json();
        shown["session"].as_str().expect("a session").to_owned()
    };
    let first = run();
    until("the clock has gone on", || served.world.rows("watch", "ran") == 1);
    assert_eq!(run(), first);
    let session = object(&served.world.ok(&["sessions", "show", "schedule:watch", "--json"]));
    assert_eq!(session["runs"].as_array().map(Vec::len), Some(2), "{session}");
}
