//! `hermod report`, checked against the ledger of the models that were asked.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use hermod::clock::{self, rfc3339};
use rustix::process::Signal;

use crate::{
    running::{WAITING, until},
    server::{response, serve},
    world::{World, object},
};

/// Tokens of each answer, and the prices of a million.
const READ: u64 = 1_000;
const WRITTEN: u64 = 200;
const PRICES: &str = "price = { input = 3.0, output = 15.0 }";
/// Nano-dollars of an answer.
const NANO_USD: u64 = READ * 3_000 + WRITTEN * 15_000;

/// What the model has answered, and what it has refused.
#[derive(Default)]
struct Ledger {
    answers: AtomicU64,
    refusals: AtomicU64,
    /// Requests that were taken and never answered.
    hung: AtomicU64,
}

fn events(delta: &Value, finish: &str) -> String {
    let chunk = json!({ "choices": [{ "delta": delta, "finish_reason": finish }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": READ, "completion_tokens": WRITTEN } });
    response("200 OK", "text/event-stream", &format!("data: {chunk}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
}

/// A model that refuses some tasks, delegates others and asks a person about a third kind.
fn model(ledger: &Arc<Ledger>) -> String {
    let ledger = Arc::clone(ledger);
    serve(move |request| {
        if request.starts_with("GET") {
            return response("404 Not Found", "application/json", "{}");
        }
        if request.contains("break off") {
            ledger.refusals.fetch_add(1, Ordering::SeqCst);
            let error = json!({ "error": { "message": "the mock refuses this" } });
            return response("400 Bad Request", "application/json", &error.to_string());
        }
        if request.contains("hang once") && ledger.hung.fetch_add(1, Ordering::SeqCst) == 0 {
            // The client is killed meanwhile.
            sleep(Duration::from_mins(1));
        }
        ledger.answers.fetch_add(1, Ordering::SeqCst);
        let call = |name: &str, arguments: Value| {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            let call = json!({ "index": 0, "id": "c1", "type": "function", "function": function });
            events(&json!({ "tool_calls": [call] }), "tool_calls")
        };
        let is_second = request.contains("\"role\":\"tool\"");
        if request.contains("hand this on") && !is_second && !request.contains("\"content\":\"sub goal") {
            return call("delegate_task", json!({ "tasks": [{ "goal": "sub goal" }] }));
        }
        if request.contains("wait a while") && !is_second {
            return call("shell", json!({ "command": WAITING }));
        }
        if request.contains("ask me first") && !is_second {
            return call("clarify", json!({ "question": "main or dev?" }));
        }
        events(&json!({ "content": "done" }), "stop")
    })
}

fn configured(ledger: &Arc<Ledger>) -> World {
    let world = World::new();
    world.configure(&format!(
        "model = \"acme/m\"\n[approvals]\napprover = \"person\"\n[limits]\nusd_per_day = 5.0\n\
         [providers.acme]\nbase_url = \"{}/v1\"\n[models.\"acme/m\"]\nwindow = 100000\n{PRICES}\n\
         [agents.reviewer]\n",
        model(ledger)
    ));
    world
}

#[expect(clippy::cast_precision_loss, reason = "the amounts are small")]
fn dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / 1e9
}

#[test]
fn a_report_agrees_with_the_ledger_of_the_model() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    world.ok(&["run", "say it"]);
    world.ok(&["run", "--agent", "reviewer", "review it"]);
    world.ok(&["run", "hand this on"]);
    assert_eq!(world.run(&["run", "break off"]).status.code(), Some(1));
    assert_eq!(world.run(&["run", "--budget", "iterations=1", "hand this on"]).status.code(), Some(3));
    assert_eq!(world.run(&["run", "ask me first"]).status.code(), Some(6), "it waits for a person");
    let report = object(&world.ok(&["report", "--since", "1h", "--json"]));
    let (answers, refusals) = (ledger.answers.load(Ordering::SeqCst), ledger.refusals.load(Ordering::SeqCst));
    let cost = &report["cost"];
    assert_eq!(cost["requests"], answers + refusals, "{report:#}");
    assert_eq!(cost["failed_requests"], refusals, "{report:#}");
    assert_eq!(cost["spent_usd"], dollars(answers * NANO_USD), "{report:#}");
    assert_eq!(cost["models"][0]["spent_usd"], cost["spent_usd"], "{report:#}");
    assert_eq!(cost["unattributed_usd"], 0.0, "{report:#}");
    assert_eq!(cost["models"][0]["input_tokens"], answers * READ, "{report:#}");
    assert_eq!((&report["runs"]["subagents"], &report["runs"]["resumed"]), (&json!(2), &json!(0)));
    let agents = report["runs"]["agents"].as_array().unwrap();
    assert_eq!((&agents[0]["agent"], &agents[1]["agent"]), (&json!("default"), &json!("reviewer")));
    assert_eq!(agents[1]["spent_usd"], dollars(NANO_USD));
    assert_eq!(agents[0]["spent_usd"], dollars((answers - 1) * NANO_USD), "subagents are not counted twice");
    // The limits of the day count the same money.
    let day = &report["limits"][0];
    assert_eq!(day["dimensions"]["usd"]["spent"], cost["spent_usd"], "{report:#}");
    assert_eq!(report["failed"]["items"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["failed"]["items"][0]["input"], "break off");
    let usage = object(&world.ok(&["usage", "--days", "1", "--json"]));
    assert_eq!(usage["days"][0]["spent_usd"], cost["spent_usd"], "{usage:#}");
    let waits: Vec<_> =
        report["waiting"]["items"].as_array().unwrap().iter().map(|wait| &wait["what"]).collect();
    assert_eq!(waits, ["question", "budget"], "{report:#}");
    // A time that is over has nothing.
    let before = object(&world.ok(&["report", "--since", "2h", "--until", "1h", "--json"]));
    assert_eq!((&before["runs"]["total"], &before["cost"]["requests"]), (&json!(0), &json!(0)));
}

#[test]
fn runs_that_fail_alike_are_one_item_of_a_report() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    for task in ["break off", "break off", "break off too", "break off"] {
        assert_eq!(world.run(&["run", task]).status.code(), Some(1));
    }
    let report = object(&world.ok(&["report", "--json"]));
    let items = report["failed"]["items"].as_array().unwrap();
    let alike: Vec<_> = items.iter().map(|item| (&item["input"], &item["times"])).collect();
    let (often, once) = (json!("break off"), json!("break off too"));
    assert_eq!(alike, [(&often, &json!(3)), (&once, &json!(1))], "the newest first: {report:#}");
    let text = world.ok(&["report"]);
    assert_eq!(text.lines().nth(1), Some("4 failed"), "{text}");
    assert!(text.contains("\n  3 times, last "), "{text}");
}

#[test]
fn a_run_over_the_border_counts_with_what_it_booked_in_the_time() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    let running = world.running(&["run", "wait a while"]);
    until("its command runs", || world.work().join("ran").exists());
    let since = rfc3339(clock::now());
    world.release();
    assert!(running.end().status.success());
    let report = object(&world.ok(&["report", "--since", &since, "--json"]));
    assert_eq!((&report["runs"]["total"], &report["cost"]["requests"]), (&json!(1), &json!(1)), "{report:#}");
    assert_eq!(report["cost"]["spent_usd"], dollars(NANO_USD), "{report:#}");
    let whole = object(&world.ok(&["report", "--json"]));
    assert_eq!(whole["cost"]["spent_usd"], dollars(2 * NANO_USD), "{whole:#}");
}

#[test]
fn a_killed_call_counts_as_its_account_has_it() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    let running = world.running(&["run", "hang once"]);
    until("the model is asked", || ledger.hung.load(Ordering::SeqCst) == 1);
    running.signal(Signal::KILL);
    running.end();
    let report = object(&world.ok(&["report", "--json"]));
    let wait = &report["waiting"]["items"][0];
    assert_eq!(wait["what"], "process", "{report:#}");
    let command = wait["next"].as_str().unwrap().strip_prefix("hermod ").unwrap().to_owned();
    world.ok(&[&command.split(' ').collect::<Vec<_>>()[..], &["--wait"]].concat());
    let report = object(&world.ok(&["report", "--json"]));
    let account = object(&world.ok(&["budget", "show", "last", "--json"]))["accounts"][0].clone();
    let cost = &report["cost"];
    assert_eq!(cost["spent_usd"], account["dimensions"]["usd"]["spent"], "{report:#}");
    assert_eq!(cost["models"][0]["spent_usd"], cost["spent_usd"], "{report:#}");
    assert_eq!((&cost["requests"], &cost["failed_requests"]), (&json!(2), &json!(1)), "{report:#}");
    assert_eq!(report["runs"]["resumed"], 1, "{report:#}");
    assert!(cost["spent_usd"].as_f64().unwrap() > dollars(NANO_USD), "the lost call is booked: {report:#}");
}

#[test]
fn a_page_names_what_failed_and_the_command_that_helps() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    assert_eq!(world.run(&["run", "break off"]).status.code(), Some(1));
    assert_eq!(world.run(&["run", "ask me first"]).status.code(), Some(6));
    let page = world.ok(&["report", "--since", "1h"]);
    let parts = [
        "ran: 2\n",
        "failed 1, unfinished 1",
        "failed: 1\n",
        "\"break off\": failed (provider: ",
        "the mock refuses this",
        "hermod run --resume 0",
        "waits for you: 1",
        "asks you since ",
        "main or dev?",
        "hermod approvals answer 0",
        "cost: $0.006 for 2 requests, 1 failed",
        "usd of this day: $0.006 of $5.00, $4.994 left",
    ];
    for part in parts {
        assert!(page.contains(part), "`{part}` is not in:\n{page}");
    }
    let markdown = world.ok(&["report", "--since", "1h", "--format", "markdown"]);
    assert!(markdown.contains("# Report ") && markdown.contains("## failed: 1\n"), "{markdown}");
    // The command of the page answers.
    let command = page.lines().find_map(|line| line.trim().strip_prefix("hermod approvals answer ")).unwrap();
    world.ok(&["approvals", "answer", command.strip_suffix(" TEXT").unwrap(), "main"]);
    world.ok(&["runs", "resume", "--all", "--wait"]);
    let report = object(&world.ok(&["report", "--json"]));
    assert_eq!(report["waiting"], json!({ "items": [], "more": 0 }));
}

#[test]
fn the_exit_code_tells_what_it_is_asked_for() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    let code = |args: &[&str]| world.run(&[&["report"], args].concat()).status.code();
    assert_eq!(code(&["--fail-on", "failed,waiting"]), Some(0), "an empty store has nothing");
    assert_eq!(world.run(&["run", "ask me first"]).status.code(), Some(6));
    assert_eq!(code(&["--fail-on", "failed"]), Some(0));
    assert_eq!(code(&["--fail-on", "waiting"]), Some(6));
    assert_eq!(world.run(&["run", "break off"]).status.code(), Some(1));
    assert_eq!((code(&[]), code(&["--fail-on", "failed,waiting"])), (Some(0), Some(1)));
    world.fails(&["report", "--since", "1h", "--until", "2h"], 2, "--until: it is not after --since");
}

#[test]
fn long_lists_are_cut_and_name_the_rest() {
    let ledger = Arc::new(Ledger::default());
    let world = configured(&ledger);
    for n in 0..12 {
        assert_eq!(world.run(&["run", &format!("break off {n}")]).status.code(), Some(1));
    }
    let page = world.ok(&["report"]);
    assert!(page.contains("failed: 12\n"), "{page}");
    let failed = &object(&world.ok(&["report", "--json"]))["failed"];
    assert_eq!(
        (failed["items"].as_array().unwrap().len(), &failed["more"]),
        (12, &json!(0)),
        "a page shows more"
    );
    let command = page.lines().find_map(|line| line.trim().strip_prefix("and 2 more: hermod ")).expect(&page);
    let listed = world.ok(&[&command.split(' ').collect::<Vec<_>>()[..], &["--json"]].concat());
    assert_eq!(object(&listed).as_array().unwrap().len(), 12);
    assert!(fs::metadata(world.state()).is_ok());
}
