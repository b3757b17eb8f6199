//! What the service keeps of sessions: their conversation, what they have used, their files, and their removal.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
};

impl Served {
    /// Carries out a run in a session, and returns its id.
    #[track_caller]
    fn run_in(&self, session: &str, input: &str) -> String {
        let accepted = self.post("/v1/runs", &json!({ "input": input, "session": session })).json();
        let run = accepted["run"].as_str().expect("a run").to_owned();
        let ended = self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
        assert!(ended["outcome"].is_string(), "{ended}");
        run
    }

    #[track_caller]
    fn remove(&self, session: &str) -> (u16, String) {
        let answer = self.send(("DELETE", &format!("/v1/sessions/{session}")), &[], "");
        (answer.status, answer.text())
    }
}

#[test]
fn a_conversation_is_read_in_pages() {
    let served = Served::start(&scripts());
    ["one", "two"].iter().for_each(|input| drop(served.run_in("s", input)));
    let page = |query: &str| {
        let page = served.get(&format!("/v1/sessions/s/messages{query}")).json();
        let items = page["items"].as_array().unwrap().iter();
        let texts: Vec<String> =
            items.map(|message| message["content"].as_str().unwrap().to_owned()).collect();
        (texts, page["next"].clone())
    };
    let all = ["one", "[rehearsal] You said: one", "two", "[rehearsal] You said: two"];
    assert_eq!(page(""), (all.map(str::to_owned).into(), Value::Null));
    let (first, next) = page("?max=3");
    assert_eq!((first.as_slice(), &next), (&all.map(str::to_owned)[..3], &json!("3")));
    assert_eq!(page("?after=3&max=1").0, all[3..]);
    assert_eq!(page("?after=9"), (Vec::new(), Value::Null));
    assert_eq!(served.get("/v1/sessions/none/messages").status, 404);
}

#[test]
fn a_removed_session_is_gone_for_good() {
    let mut served = Served::start(&scripts());
    let (run, other) = (served.run_in("s", "one"), served.run_in("t", "two"));
    let key = [("content-type", "application/json"), ("idempotency-key", "k")];
    let body = r#"{"input":"wait","session":"u"}"#;
    let waiting = served.send(("POST", "/v1/runs"), &key, body).json();
    until("the command runs", || served.world.work().join("ran").exists());
    let (status, text) = served.remove("u");
    assert_eq!(status, 409, "{text}");
    assert!(text.contains("unfinished"), "{text}");
    assert_eq!(served.remove("s"), (204, String::new()));
    assert_eq!(served.remove("s").0, 404);
    assert_eq!(served.get(&format!("/v1/runs/{run}")).status, 404);
    served.kill();
    served.world.release();
    served.start_again();
    assert_eq!(served.get(&format!("/v1/runs/{run}")).status, 404, "also after a crash");
    assert_eq!(served.get(&format!("/v1/runs/{other}")).status, 200);
    let waited = format!("/v1/runs/{}/wait?timeout=60s", waiting["run"].as_str().unwrap());
    assert_eq!(served.get(&waited).json()["outcome"], "completed");
    assert_eq!(served.remove("u").0, 204);
    // Neither the key of the session nor that of the request is taken any more.
    let again = served.send(("POST", "/v1/runs"), &key, body).json();
    assert!(again["run"] != waiting["run"] && again["session"] != waiting["session"], "{again}");
}

#[test]
fn a_session_is_removed_with_those_of_its_subagents() {
    let task = json!({ "tool": "delegate_task", "arguments": { "goal": "child" } });
    let served = Served::start(&json!([
        { "when": "child", "steps": [{ "say": "done" }] },
        { "steps": [{ "call": [task] }, { "say": "delegated" }] },
    ]));
    served.run_in("s", "go");
    assert_eq!(served.runs(), 2);
    assert_eq!(served.remove("s").0, 204);
    assert_eq!(served.runs(), 0);
    assert_eq!(served.get("/v1/sessions").json()["items"], json!([]));
}

#[test]
fn usage_is_added_up_by_model() {
    let served = Served::start(&scripts());
    let runs = ["one", "two", "fail"].map(|input| served.run_in("s", input));
    let usage = served.get("/v1/usage").json();
    let sum = |field: &str| -> u64 {
        let of_run =
            |run: &String| served.get(&format!("/v1/runs/{run}")).json()["usage"][field].as_u64().unwrap();
        runs.iter().map(of_run).sum()
    };
    assert_eq!((&usage["runs"], &usage["next"]), (&json!(3), &Value::Null));
    let [model] = usage["models"].as_array().unwrap().as_slice() else { panic!("{usage}") };
    assert_eq!(model["input_tokens"], sum("input_tokens"));
    assert_eq!(model["output_tokens"], sum("output_tokens"));
    assert!(model["output_tokens"].as_u64().unwrap() > 0);
    assert_eq!(
        (&model["calls"], &model["unpriced_calls"], &model["cost_usd"]),
        (&json!(2), &json!(2), &json!(0.0))
    );
    let none = served.get("/v1/usage?since=2100-01-01T00:00:00%2B01:00").json();
    assert_eq!((&none["runs"], &none["models"]), (&json!(0), &json!([])));
    assert_eq!(served.get("/v1/usage?until=0001-01-01T00:00:00Z").json()["runs"], 0);
    assert_eq!(served.get(&format!("/v1/usage?before={}", runs[1])).json()["runs"], 1);
    assert_eq!(served.get("/v1/usage?since=today").status, 400);
}

#[test]
fn a_long_output_is_read_as_it_was_kept() {
    let print = json!({ "tool": "shell", "arguments": { "command": "seq 1 200000" } });
    let served = Served::start(&json!([{ "steps": [{ "call": [print] }, { "say": "printed" }] }]));
    let run = served.run_in("s", "print");
    let other = served.run_in("t", "print");
    let path = |run: &str, handle: &str| format!("/v1/runs/{run}/artifacts/{handle}");
    let handle = format!("{run}.1.1-1");
    let answer = served.get(&path(&run, &handle));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let length: usize = answer.header("content-length").unwrap().parse().unwrap();
    let text = answer.text();
    let lines: Vec<String> = (1..=200_000).map(|n| n.to_string()).collect();
    let printed = lines.join("\n") + "\n";
    assert_eq!(text.len(), length);
    assert!(text.contains(&printed), "{} bytes of {}", text.len(), printed.len());
    for wrong in [path(&other, &handle), path(&run, "x"), path(&run, &format!("{run}.1.2-1"))] {
        assert_eq!(served.get(&wrong).status, 404, "{wrong}");
    }
    assert_eq!(served.remove("s").0, 204);
    let artifacts = served.world.state().join("artifacts");
    let left = std::fs::read_dir(artifacts).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().len() == 26
    });
    assert_eq!(left.count(), 1, "only the files of the other session are left");
}
