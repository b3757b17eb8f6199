//! Windows that a server's list of models tells: the real binary against servers of all shapes.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    server::{response, serve},
    world::{World, object, stderr},
};

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const JSON: &str = "application/json";

/// A server whose lists are answered so, by the request's first words; says how often they were asked.
fn server(list: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = serve(move |request| {
        if request.starts_with("POST /v1/chat/completions ") {
            return response("200 OK", "text/event-stream", HELLO);
        }
        count.fetch_add(1, Ordering::Relaxed);
        list(request).unwrap_or_else(|| response("404 Not Found", "text/plain", "no such page"))
    });
    (address + "/v1", asked)
}

/// A world whose only provider is there.
fn world(base_url: &str, models: &str) -> World {
    let world = World::new();
    let config = format!("[providers.acme]\nbase_url = \"{base_url}\"\nmodel = \"m\"\n{models}");
    fs::write(world.work().with_file_name("hermod.toml"), config).unwrap();
    world
}

#[track_caller]
fn hermod(world: &World, args: &[&str]) -> String {
    let mut command = world.hermod(args);
    let output = command.env("HERMOD_CONFIG", world.work().with_file_name("hermod.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a task; says what was known of its model when it was accepted.
#[track_caller]
fn run(world: &World) -> Value {
    object(&hermod(world, &["run", "--json", "hi"]));
    let accepted = world.journal("last").into_iter().rfind(|record| record["kind"] == "run.accepted");
    accepted.unwrap().pointer("/spec/traits/0").cloned().unwrap_or_default()
}

/// What `models list` says of the server's model.
#[track_caller]
fn listed(world: &World) -> Value {
    let all: Vec<Value> = serde_json::from_str(&hermod(world, &["models", "list", "--json"])).unwrap();
    let own = all.into_iter().find(|entry| entry["model"] == "acme/m").unwrap_or_default();
    json!([own["window"], own["max_output"], own["from"]])
}

/// A server that tells this at this place has its model's limits in the store, and is not asked again.
#[track_caller]
fn check(place: &'static str, body: &Value, (window, max_output): (u64, Option<u64>)) {
    let body = body.to_string();
    let (base_url, asked) =
        server(move |request| request.starts_with(place).then(|| response("200 OK", JSON, &body)));
    let world = world(&base_url, "");
    let traits = run(&world);
    assert_eq!((&traits["window"], &traits["max_output"]), (&json!(window), &json!(max_output)), "{place}");
    let times = asked.load(Ordering::Relaxed);
    assert_eq!(listed(&world), json!([window, max_output, "list"]));
    assert_eq!(run(&world)["window"], window);
    assert_eq!(asked.load(Ordering::Relaxed), times, "{place} was asked again");
    let table = hermod(&world, &["models", "list"]);
    assert!(table.lines().any(|line| line.starts_with("acme/m ") && line.ends_with("list")), "{table}");
}

#[test]
fn a_window_that_is_not_known_is_asked_of_the_list_and_kept() {
    let top = json!({ "context_length": 50_000, "max_completion_tokens": 10_000, "is_moderated": false });
    let openrouter =
        json!({ "data": [{ "id": "m", "name": "M", "context_length": 60_000, "top_provider": top }] });
    check("GET /v1/models ", &openrouter, (50_000, Some(10_000)));
    let vllm =
        json!({ "object": "list", "data": [{ "id": "m", "owned_by": "vllm", "max_model_len": 40_000 }] });
    check("GET /v1/models ", &vllm, (40_000, None));
    let studio =
        json!({ "data": [{ "id": "m", "max_context_length": 90_000, "loaded_context_length": 30_000 }] });
    check("GET /api/v0/models ", &studio, (30_000, None));
    let info = json!({ "general.architecture": "llama", "llama.context_length": 70_000 });
    let ollama = json!({ "parameters": "num_ctx 20000\nstop \"x\"", "model_info": info });
    check("POST /api/show ", &ollama, (20_000, None));
}

#[test]
fn what_is_known_already_is_not_asked_for() {
    let (base_url, asked) = server(|_| None);
    let world = world(&base_url, "[models.m]\nwindow = 12345");
    assert_eq!(run(&world)["window"], 12_345);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// A run completes as if nothing were known, whatever the lists answer.
#[track_caller]
fn check_odd(list: impl Fn() -> String + Send + Sync + 'static) {
    let (base_url, asked) = server(move |_| Some(list()));
    let world = world(&base_url, "");
    assert_eq!(run(&world)["window"], Value::Null);
    assert_eq!(listed(&world), json!([null, null, null]));
    assert!(asked.load(Ordering::Relaxed) > 0);
}

#[test]
fn odd_lists_are_harmless() {
    check_odd(|| response("200 OK", "text/html", "<html><body>m: 4096</body></html>"));
    check_odd(|| response("500 X", JSON, "{\"data\":[{\"id\":\"m\",\"context_length\":50000}]}"));
    check_odd(|| "HTTP/1.1 302 X\r\nlocation: /v1/chat/completions\r\ncontent-length: 0\r\n\r\n".to_owned());
    check_odd(|| "no HTTP\r\n".to_owned());
    check_odd(String::new);
    check_odd(|| response("200 OK", JSON, &"[".repeat(200_000)));
    let entry = r#"{"id":"m","context_length":50000}"#;
    check_odd(move || response("200 OK", JSON, &format!("{}[{entry}]", " ".repeat(5 << 20))));
    check_odd(|| {
        response("200 OK", JSON, r#"{"data":[{"id":"m","context_length":"many","max_model_len":-1}]}"#)
    });
}

#[test]
fn a_list_that_does_not_come_holds_no_run() {
    check_odd(|| {
        thread::sleep(Duration::from_mins(10));
        String::new()
    });
}
