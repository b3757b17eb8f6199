//! Messages and results that leave the process: each arrives under one id and in its order, whatever the receiver does and
//! however often the process is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    receiver::{Answer, Receiver, SECRET},
    running::until,
    served::Served,
    world::{World, object},
};

/// Messages of one run.
const MESSAGES: usize = 8;
/// Runs of the conversation.
const RUNS: usize = 4;
/// How often the process is killed meanwhile.
const KILLS: usize = 5;

/// A run of `send` calls the tool for each of its messages in one answer.
fn scripts() -> Value {
    let message = |n| json!({ "tool": "message", "arguments": { "target": "ops", "text": format!("{{{{user}}}} {n}") } });
    let calls: Vec<Value> = (1..=MESSAGES).map(message).collect();
    let bad = json!({ "tool": "message", "arguments": { "target": "nowhere", "text": "x" } });
    json!([
        { "when": "send", "steps": [{ "call": calls }, { "say": "sent" }] },
        { "when": "misdirect", "steps": [{ "call": [bad] }, { "say": "{{result:last}}" }] },
        { "when": "tell", "steps": [{ "call": [
            { "tool": "message", "arguments": { "target": "ops", "text": "{{user}}" } },
        ] }, { "say": "told" }] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ])
}

fn config(url: &str) -> String {
    format!(
        r#"
[targets.ops]
kind = "webhook"
description = "the people on call"
url = "{url}"
secret = "env:HOOK"

[targets.box]
kind = "folder"
path = "BOX"

[delivery]
attempts = 1000
timeout = "300ms"
first_pause = "5ms"
longest_pause = "40ms"
"#
    )
}

/// A service with a webhook at the receiver, and a folder `box` beside the state.
fn start(receiver: &Receiver) -> Served {
    let world = World::new();
    let folder = world.work().join("box");
    world.configure(&config(&receiver.url).replace("BOX", &folder.display().to_string()));
    Served::start_with((world, &scripts()), |_| vec![("HOOK", SECRET.into())])
}

impl Served {
    #[track_caller]
    fn deliveries(&self, query: &str) -> Vec<Value> {
        let listed = self.get(&format!("/v1/deliveries{query}")).json();
        listed["items"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
    }

    /// Submits a run to the conversation `c`.
    #[track_caller]
    fn submit_in_order(&self, body: &Value) -> String {
        self.post("/v1/runs", body).json()["run"].as_str().expect("it is accepted").to_owned()
    }
}

#[test]
fn each_message_arrives_once_and_in_order_over_kills() {
    let late = Answer::Late(Duration::from_millis(500));
    let receiver = Receiver::start(move |n, _| match n % 9 {
        1 => Answer::Status(503),
        3 => Answer::Hang,
        5 => late,
        6 => Answer::Break,
        7 => Answer::Status(429),
        _ => Answer::Status(200),
    });
    let mut served = start(&receiver);
    for n in 1..=RUNS {
        served.submit_in_order(&json!({ "input": format!("send {n}"), "session": "c" }));
    }
    for kill in 1..=KILLS {
        let enough = kill * RUNS * MESSAGES / (KILLS + 1);
        until("some messages have come", || receiver.taken().len() >= enough);
        served.kill();
        served.start_again();
    }
    until("all messages have come", || receiver.taken().len() == RUNS * MESSAGES);
    until("none waits", || served.deliveries("").is_empty());

    let expect: Vec<String> =
        (1..=RUNS).flat_map(|run| (1..=MESSAGES).map(move |n| format!("send {run} {n}"))).collect();
    let taken = receiver.taken();
    assert_eq!(taken.iter().map(|request| request.text.clone()).collect::<Vec<_>>(), expect);
    // Each id stands for one text, and each text for one id, over all attempts.
    let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
    for request in receiver.received() {
        texts.entry(request.text).or_default().insert(request.id);
    }
    assert!(texts.values().all(|ids| ids.len() == 1), "{texts:?}");
    assert_eq!(texts.len(), expect.len());
    assert!(receiver.received().len() > expect.len(), "no attempt was repeated: nothing was tested");
    // What was delivered is known, and says who has sent it.
    let delivered = served.deliveries("?state=delivered&max=1000");
    assert_eq!(delivered.len(), expect.len());
    let body = &taken[0].body;
    assert_eq!((&body["type"], &body["data"]["id"]), (&json!("message"), &json!(taken[0].id)));
    assert_eq!(body["data"]["run"], delivered[0]["run"]);
}

#[test]
fn a_dead_letter_lets_others_pass_and_is_sent_again() {
    let receiver = Receiver::start(|_, text| match text {
        "tell bad" => Answer::Status(400),
        _ => Answer::Status(204),
    });
    let mut served = start(&receiver);
    for input in ["tell bad", "tell good"] {
        served.submit_in_order(&json!({ "input": input, "session": "c" }));
    }
    until("the other one has come", || receiver.taken().len() == 1);
    let dead = served.deliveries("?state=dead");
    assert_eq!((dead.len(), &dead[0]["error"]), (1, &json!("status 400")));
    let id = dead[0]["id"].as_str().unwrap();
    let shown = object(&served.world.ok(&["deliveries", "show", id, "--json"]));
    assert_eq!((&shown["text"], &shown["attempts"]), (&json!("tell bad"), &json!(1)));
    // It outlives the process, and a retry without one.
    served.kill();
    receiver.behave(|_, _| Answer::Status(200));
    let retried = object(&served.world.ok(&["deliveries", "retry", "--all", "--json"]));
    assert_eq!((&retried[0]["id"], &retried[0]["state"]), (&json!(id), &json!("pending")));
    served.start_again();
    until("it has come", || receiver.taken().len() == 2);
    until("it is delivered", || served.deliveries("?state=delivered").len() == 2);
    assert_eq!(receiver.received().iter().filter(|request| request.id == id).count(), 2);
    // A second retry has nothing to do.
    assert_eq!(served.post(&format!("/v1/deliveries/{id}/retry"), &json!({})).status, 409);
    assert_eq!(served.get("/v1/deliveries/none").status, 404);
    assert_eq!(served.get("/v1/deliveries?max=0").status, 422);
    served.world.fails(&["deliveries", "retry", id], 2, "is delivered; only dead ones are sent again");
    let reader = served.new_token("reader", "read");
    let retry = format!("/v1/deliveries/{id}/retry");
    assert_eq!(served.send_as(&reader, ("POST", &retry), &json!({})).status, 403);
    let limited = served.limited_token("limited", "other");
    let list = served.send_as(&limited, ("GET", "/v1/deliveries?state=delivered"), &Value::Null).json();
    assert_eq!(list["items"], json!([]));
    let show = format!("/v1/deliveries/{id}");
    assert_eq!(served.send_as(&limited, ("GET", &show), &Value::Null).status, 404);
}

#[test]
fn a_dead_letter_is_sent_again_over_http() {
    let receiver = Receiver::start(|n, _| Answer::Status(if n == 0 { 404 } else { 200 }));
    let served = start(&receiver);
    served.submit_in_order(&json!({ "input": "tell it" }));
    until("it is dead", || !served.deliveries("?state=dead").is_empty());
    let id = served.deliveries("")[0]["id"].as_str().unwrap().to_owned();
    let retried = served.post(&format!("/v1/deliveries/{id}/retry"), &json!({}));
    assert_eq!(retried.status, 200);
    until("it has come", || receiver.taken().len() == 1);
}

#[test]
fn the_result_of_a_run_goes_to_its_targets() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let served = start(&receiver);
    let body = json!({ "input": "hello", "deliver_to": ["ops", "box"] });
    let run = served.submit_in_order(&body);
    until("it has come", || receiver.taken().len() == 1);
    let body = &receiver.taken()[0].body;
    let data = &body["data"];
    assert_eq!((&body["type"], &data["run"]), (&json!("run.ended"), &json!(run)));
    assert_eq!((&data["outcome"], &data["target"]), (&json!("completed"), &json!("ops")));
    assert_eq!(data["text"], "[rehearsal] You said: hello");
    let path = served.world.work().join(format!("box/res_{run}-1-box.json"));
    until("the file is there", || path.exists());
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&file["data"]["text"], &file["data"]["target"]), (&data["text"], &json!("box")));
    // Unknown targets are refused at submission; the model is told of them.
    let refused = served.post("/v1/runs", &json!({ "input": "hello", "deliver_to": ["nowhere"] }));
    assert_eq!(refused.status, 422);
    let problem = refused.json();
    assert!(problem["detail"].as_str().unwrap().contains("there is no target `nowhere`"), "{problem}");
    let run = served.submit_in_order(&json!({ "input": "misdirect" }));
    let ended = served.get(&format!("/v1/runs/{run}/wait")).json();
    assert!(ended.to_string().contains("there is no target"), "{ended}");
}

#[test]
fn a_command_delivers_what_its_run_sends() {
    let receiver = Receiver::start(|n, _| Answer::Status(if n == 0 { 503 } else { 200 }));
    let world = World::new();
    let folder = world.work().join("box");
    let text = config(&receiver.url).replace("BOX", &folder.display().to_string());
    world.configure(&text.replace("5ms", "1h").replace("40ms", "1h"));
    let run = |task: &str, more: &[&str]| {
        let args = [&["run", "--rehearse", task], more].concat();
        let output = world.hermod(&args).env("HOOK", SECRET).output().expect("hermod starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, _) = run("hello", &["--deliver-to", "box"]);
    assert_eq!((code, fs::read_dir(&folder).unwrap().count()), (Some(0), 1));
    // What its target does not take at once waits, and that is said.
    let (code, notes) = run("hello", &["--deliver-to", "ops"]);
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("for ops: status 503"), "{notes}");
    let listed = object(&world.ok(&["deliveries", "list", "--json"]));
    assert_eq!((&listed[0]["state"], &listed[0]["attempts"]), (&json!("pending"), &json!(1)));
    assert_eq!(run("hello", &["--deliver-to", "nowhere"]).0, Some(2));
    // A secret that is missing keeps no run from starting.
    let output = world.run(&["run", "--rehearse", "hello"]);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{notes}");
    assert!(notes.contains("ops is not used, its messages wait: secret: env:HOOK"), "{notes}");
}

#[test]
fn a_reload_changes_the_targets() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let mut served = start(&receiver);
    let other = Receiver::start(|_, _| Answer::Status(200));
    served.world.configure(&config(&other.url).replace("path = \"BOX\"", "path = \"/nowhere\"\ncolour = 1"));
    served.world.fails(&["config", "reload"], 78, "targets.box.colour");
    served.submit_in_order(&json!({ "input": "tell one", "session": "c" }));
    until("it has come", || receiver.taken().len() == 1);
    served.world.configure(&config(&other.url).replace("BOX", "/nowhere"));
    served.world.ok(&["config", "reload"]);
    served.submit_in_order(&json!({ "input": "tell two", "session": "c" }));
    until("it has come to the other one", || other.taken().len() == 1);
    // Without targets there is no tool.
    served.world.configure("");
    served.world.ok(&["config", "reload"]);
    let run = served.submit_in_order(&json!({ "input": "tell three", "session": "c" }));
    served.get(&format!("/v1/runs/{run}/wait"));
    assert_eq!((receiver.taken().len(), other.taken().len()), (1, 1));
    served.stop();
}

#[test]
fn the_head_of_an_answer_decides() {
    let receiver = Receiver::start(|_, text| match text {
        "tell bad" => Answer::HeadOnly(404),
        _ => Answer::HeadOnly(200),
    });
    let served = start(&receiver);
    for input in ["tell good", "tell bad"] {
        served.submit_in_order(&json!({ "input": input, "session": "c" }));
    }
    until("both have ended", || served.deliveries("").iter().any(|delivery| delivery["state"] == "dead"));
    assert_eq!(served.deliveries("?state=delivered")[0]["attempts"], 1);
    assert_eq!(
        (served.deliveries("?state=dead")[0]["attempts"].clone(), receiver.received().len()),
        (json!(1), 2)
    );
}

#[test]
fn an_output_that_nobody_reads_stops_nothing_else() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let world = World::new();
    let outputs = "[targets.out]\nkind = \"stdout\"\n[targets.out2]\nkind = \"stdout\"\n[targets.out3]\nkind = \"stdout\"\n";
    world.configure(&format!("{}{outputs}", config(&receiver.url).replace("BOX", "/nowhere")));
    let scripts = json!([
        { "when": "flood", "steps": [{ "say": "x".repeat(60_000) }] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ]);
    // The standard output of the service is a pipe, from which nobody reads.
    let mut served = Served::start_with((world, &scripts), |_| vec![("HOOK", SECRET.into())]);
    for _ in 0..3 {
        served.submit_in_order(&json!({ "input": "flood", "deliver_to": ["out", "out2", "out3"] }));
    }
    until("the pipe is full", || {
        served
            .deliveries("?state=pending")
            .iter()
            .any(|delivery| delivery["error"].as_str().is_some_and(|error| error.contains("not done within")))
    });
    served.submit_in_order(&json!({ "input": "hello", "deliver_to": ["ops"] }));
    until("another target gets its message", || receiver.taken().len() == 1);
    served.stop();
}

#[test]
fn messages_of_a_target_that_is_gone_are_told_of_and_then_dead() {
    let receiver = Receiver::start(|_, _| Answer::Status(503));
    let mut served = start(&receiver);
    served.submit_in_order(&json!({ "input": "tell", "session": "c" }));
    until("it is tried", || !receiver.received().is_empty());
    served.world.configure("");
    served.world.ok(&["config", "reload"]);
    until("the status tells it", || {
        let output = served.world.run(&["status", "--json"]);
        object(&String::from_utf8_lossy(&output.stdout))["gone_targets"] == json!(["ops"])
    });
    let shown = served.world.run(&["status"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("target       ops is gone"), "{shown:?}");
    served.world.configure("[delivery]\nmax_age = \"1ms\"\n");
    served.world.ok(&["config", "reload"]);
    until("it is dead", || served.deliveries("?state=dead").len() == 1);
    let error = served.deliveries("?state=dead")[0]["error"].to_string();
    assert!(error.contains("there is no target `ops` any more"), "{error}");
    until("nothing is gone any more", || {
        let output = served.world.run(&["status", "--json"]);
        object(&String::from_utf8_lossy(&output.stdout))["gone_targets"] == json!([])
    });
    served.stop();
}
