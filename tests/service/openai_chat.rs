//! `POST /v1/chat/completions` and `GET /v1/models`.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    world::World,
};

const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "default", "messages": messages })
}

#[track_caller]
fn chat(served: &Served, messages: &[Value]) -> (String, String) {
    let answer = served.post(CHAT, &body(messages));
    let status = answer.status;
    let answer = answer.json();
    assert_eq!(status, 200, "{answer}");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    (text(&answer["id"]), text(&answer["choices"][0]["message"]["content"]))
}

#[test]
fn a_run_answers_as_a_completion() {
    let served = Served::start(&scripts());
    let answer = served.post(CHAT, &body(&[user("hi")])).json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(
        (&answer["model"], &answer["choices"][0]["finish_reason"]),
        (&json!("default"), &json!("stop"))
    );
    assert_eq!(answer["choices"][0]["message"]["content"], "[rehearsal] You said: hi");
    let run = answer["id"].as_str().unwrap().strip_prefix("chatcmpl-").unwrap();
    let usage = &served.get(&format!("/v1/runs/{run}")).json()["usage"];
    assert_eq!(answer["usage"]["prompt_tokens"], usage["input_tokens"]);
    assert_eq!(answer["usage"]["completion_tokens"], usage["output_tokens"]);
    assert!(usage["output_tokens"].as_u64().unwrap() > 0);

    let answer = served.post(CHAT, &body(&[user("refuse")])).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "content_filter");
    assert_eq!(answer["choices"][0]["message"]["content"], "[rehearsal] I will not");
}

#[test]
fn a_client_that_brings_its_history_continues_its_session() {
    let mut served = Served::start(&scripts());
    let (first, one) = chat(&served, &[user("one")]);
    let second = [user("one"), assistant(&one), user("two")];
    let (joined, two) = chat(&served, &second);
    assert_eq!(served.session_of(&joined), served.session_of(&first));

    // The same beginning again is another conversation, with what the client brings.
    let (branch, _) = chat(&served, &second);
    assert_ne!(served.session_of(&branch), served.session_of(&first));
    let said = ["one", one.as_str(), "two", two.as_str()];
    assert_eq!(served.messages_of(&branch), said);

    // After another run of the session its end is not where the client left it.
    let session = served.session_of(&joined);
    let run = served.post("/v1/runs", &json!({ "input": "between", "session": session })).json();
    served.get(&format!("/v1/runs/{}/wait", run["run"].as_str().unwrap())).json();
    let third = [user("one"), assistant(&one), user("two"), assistant(&two), user("three")];
    let (apart, _) = chat(&served, &third);
    // The conversation of the branch has the same words; it is the one that goes on.
    assert_eq!(served.session_of(&apart), served.session_of(&branch));

    // What is remembered is not durable; the client's history is enough.
    let (_, three) = chat(&served, &[user("new")]);
    served.stop();
    served.start_again();
    let (after, _) = chat(&served, &[user("new"), assistant(&three), user("more")]);
    assert_eq!(served.messages_of(&after)[..3], ["new", three.as_str(), "more"]);
}

#[test]
fn a_session_that_another_client_used_is_not_joined() {
    let served = Served::start(&scripts());
    let (first, one) = chat(&served, &[user("one")]);
    let session = served.session_of(&first);
    let run = served.post("/v1/runs", &json!({ "input": "between", "session": session })).json();
    served.get(&format!("/v1/runs/{}/wait", run["run"].as_str().unwrap())).json();
    let (apart, _) = chat(&served, &[user("one"), assistant(&one), user("two")]);
    assert_ne!(served.session_of(&apart), session);
}

#[test]
fn a_stream_holds_the_text_until_the_run_has_ended() {
    let served = Served::start(&scripts());
    let mut request = body(&[user("wait")]);
    request["stream"] = json!(true);
    let mut answer = served.post(CHAT, &request);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    // The first chunk is there while the command of the run waits.
    let first = answer.chunk().unwrap();
    assert!(first.contains(r#""role":"assistant""#), "{first}");
    until("the command runs", || served.world.work().join("ran").exists());
    served.world.release();
    let rest = answer.events();
    assert!(rest[0].contains("[rehearsal] waited"), "{rest:?}");
    assert_eq!(rest.last().unwrap(), "[DONE]");

    request = body(&[user("long")]);
    (request["stream"], request["stream_options"]) = (json!(true), json!({ "include_usage": true }));
    let events = served.post(CHAT, &request).events();
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, format!("[rehearsal] {}", "ä".repeat(500)));
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn a_failed_run_is_an_error_that_is_not_repeated() {
    let served = Served::start(&scripts());
    let answer = served.post(CHAT, &body(&[user("fail")]));
    assert_eq!((answer.status, answer.header("x-should-retry")), (422, Some("false")));
    let error = answer.json();
    assert_eq!((&error["error"]["code"], &error["error"]["type"]), (&json!("failed"), &json!("run_error")));
    let mut request = body(&[user("fail")]);
    request["stream"] = json!(true);
    let events = served.post(CHAT, &request).events();
    assert!(events.last().unwrap().contains(r#""code":"failed""#), "{events:?}");
    assert!(!events.iter().any(|event| event == "[DONE]"));
}

#[test]
fn a_key_stands_for_one_request() {
    let served = Served::start(&scripts());
    let send = |key: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        served.send(("POST", CHAT), &headers, &body.to_string())
    };
    let first = send("a", &body(&[user("one")])).json();
    let text = first["choices"][0]["message"]["content"].as_str().unwrap();
    let second = body(&[user("one"), assistant(text), user("two")]);
    let joined = send("b", &second).json();
    assert_eq!(send("b", &second).json(), joined);
    assert_eq!(send("a", &body(&[user("one")])).json(), first);
    assert_eq!(served.runs(), 2);
    let other = send("a", &body(&[user("other")]));
    assert_eq!(other.status, 422);
    assert!(other.text().contains("Idempotency-Key stands for run"));
}

#[test]
fn a_client_that_goes_ends_no_run() {
    let served = Served::start(&scripts());
    let mut request = body(&[user("wait")]);
    request["stream"] = json!(true);
    drop(served.post(CHAT, &request));
    until("the command runs", || served.world.work().join("ran").exists());
    served.world.release();
    let run = served.get("/v1/runs").json()["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(served.get(&format!("/v1/runs/{run}/wait")).json()["outcome"], "completed");
}

#[test]
fn errors_have_the_form_of_openai() {
    let served = Served::start(&scripts());
    let json_type = [("content-type", "application/json")];
    let bearer = [("authorization", &*format!("Bearer {}", served.token)), json_type[0]];
    let check = |operation: (&str, &str),
                 headers: &[(&str, &str)],
                 body: &str,
                 status: u16,
                 param: Value,
                 code: Value| {
        let answer = served.send_plain(operation, headers, body);
        let found = answer.status;
        let answer = answer.json();
        let error = &answer["error"];
        assert_eq!(
            (found, &error["param"], &error["code"]),
            (status, &param, &code),
            "{operation:?} {body}: {answer}"
        );
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
        assert!(error["type"].is_string());
    };
    let null = Value::Null;
    let hello = body(&[user("hi")]).to_string();
    check(("POST", CHAT), &json_type, &hello, 401, null.clone(), json!("invalid_api_key"));
    check(
        ("GET", "/v1/models"),
        &[("authorization", "Bearer x")],
        "",
        401,
        null.clone(),
        json!("invalid_api_key"),
    );
    let foreign = [bearer[0], ("origin", "https://evil.example")];
    check(("GET", "/v1/models"), &foreign, "", 403, null.clone(), null.clone());
    check(("POST", CHAT), &bearer[..1], &hello, 415, null.clone(), null.clone());
    check(("POST", CHAT), &bearer, "{", 400, null.clone(), null.clone());
    check(("POST", CHAT), &bearer, "[]", 400, null.clone(), null.clone());
    check(("POST", CHAT), &bearer, r#"{"messages": 3}"#, 400, json!("messages"), null.clone());
    check(("POST", CHAT), &bearer, r#"{"messages": []}"#, 400, json!("messages"), null.clone());
    check(("GET", CHAT), &bearer, "", 405, null.clone(), null.clone());
    check(("GET", "/v1/models/a/b"), &bearer, "", 404, json!("model"), json!("model_not_found"));
    let unknown = hello.replace("default", "openai/gpt");
    check(("POST", CHAT), &bearer, &unknown, 404, json!("model"), json!("model_not_found"));
    let tools = json!({ "messages": [user("hi")], "tools": [{ "type": "function" }] }).to_string();
    check(("POST", CHAT), &bearer, &tools, 400, json!("tools"), null);
    assert_eq!(served.runs(), 0);
    // Other paths keep their problem documents.
    let answer = served.send_plain(("GET", "/v1/runs"), &[], "");
    assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
}

#[test]
fn a_script_that_cannot_be_played_is_refused_at_the_start() {
    let world = World::new();
    world.fails(&["serve", "--rehearse=none.json", "--listen", "127.0.0.1:0"], 2, "--rehearse=none.json: ");
}

#[test]
fn the_models_are_the_agents() {
    let served = Served::start(&scripts());
    let models = served.get("/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("default")));
    assert_eq!(served.get("/v1/models/default").json(), models["data"][0]);
}
