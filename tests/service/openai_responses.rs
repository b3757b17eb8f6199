//! `/v1/responses`.

use std::thread;

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
};

const RESPONSES: &str = "/v1/responses";

#[track_caller]
fn create(served: &Served, body: &Value) -> Value {
    let answer = served.post(RESPONSES, body);
    let status = answer.status;
    let answer = answer.json();
    assert_eq!(status, 200, "{answer}");
    answer
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

#[test]
fn a_response_is_created_fetched_and_continued() {
    let mut served = Served::start(&scripts());
    let first = create(&served, &json!({ "input": "one", "instructions": "be kind" }));
    assert_eq!((&first["object"], &first["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(first["output"][0]["content"][0]["text"], "[rehearsal] You said: one");
    let fetched = served.get(&format!("{RESPONSES}/{}", id(&first))).json();
    for field in ["id", "status", "output", "usage", "instructions", "created_at"] {
        assert_eq!(fetched[field], first[field], "{field}");
    }
    served.stop();
    served.start_again();
    let second = create(&served, &json!({ "input": "two", "previous_response_id": id(&first) }));
    assert_eq!(served.session_of(id(&second)), served.session_of(id(&first)));
    assert_eq!(second["previous_response_id"], first["id"]);

    // The first one is no longer the end of its session.
    let branch = create(&served, &json!({ "input": "branch", "previous_response_id": id(&first) }));
    assert_ne!(served.session_of(id(&branch)), served.session_of(id(&first)));
    let texts = served.messages_of(id(&branch));
    assert_eq!(texts[..3], ["one", "[rehearsal] You said: one", "branch"]);
    let brought =
        json!([{ "role": "assistant", "content": "aside" }, { "role": "user", "content": "go on" }]);
    let third = create(&served, &json!({ "input": brought, "previous_response_id": id(&second) }));
    let texts = served.messages_of(id(&third));
    assert_eq!(texts[..3], ["one", "[rehearsal] You said: one", "two"]);
    assert_eq!(texts[4], "go on");
}

#[test]
fn only_one_of_many_requests_continues_a_session() {
    let served = Served::start(&scripts());
    let first = create(&served, &json!({ "input": "one" }));
    let next = json!({ "input": "two", "previous_response_id": id(&first) });
    let sessions = thread::scope(|scope| {
        let requests: Vec<_> =
            (0..6).map(|_| scope.spawn(|| served.session_of(id(&create(&served, &next))))).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect::<Vec<_>>()
    });
    let first = served.session_of(id(&first));
    assert_eq!(sessions.iter().filter(|session| **session == first).count(), 1, "{sessions:?}");
}

#[test]
fn a_response_that_is_not_stored_is_not_found() {
    let served = Served::start(&scripts());
    let response = create(&served, &json!({ "input": "one", "store": false }));
    assert_eq!(response["status"], "completed");
    let check = |answer: crate::http::Answer, param: &str| {
        assert_eq!(answer.status, 404);
        let error = answer.json();
        assert_eq!(error["error"]["param"], param);
        assert!(error["error"]["message"].as_str().unwrap().contains("store = false"), "{error}");
    };
    check(served.get(&format!("{RESPONSES}/{}", id(&response))), "response_id");
    let next = json!({ "input": "two", "previous_response_id": id(&response) });
    check(served.post(RESPONSES, &next), "previous_response_id");
    assert_eq!(served.runs(), 1);
}

#[test]
fn a_response_in_the_background_is_cancelled() {
    let served = Served::start(&scripts());
    let response = create(&served, &json!({ "input": "wait", "background": true }));
    assert!(["queued", "in_progress"].contains(&response["status"].as_str().unwrap()), "{response}");
    let path = format!("{RESPONSES}/{}", id(&response));
    until("the command runs", || served.world.work().join("ran").exists());
    assert_eq!(served.get(&path).json()["status"], "in_progress");
    let next = json!({ "input": "two", "previous_response_id": id(&response) });
    let early = served.post(RESPONSES, &next);
    assert_eq!((early.status, early.text().contains("has not ended yet")), (400, true));
    assert_eq!(served.post(&format!("{path}/cancel"), &json!({})).json()["status"], "cancelled");
    assert_eq!(served.get(&path).json()["status"], "cancelled");
    assert_eq!(served.post(&format!("{path}/cancel"), &json!({})).json()["status"], "cancelled");
}

#[test]
fn outcomes_are_statuses() {
    let served = Served::start(&scripts());
    let refused = create(&served, &json!({ "input": "refuse" }));
    assert_eq!(
        (&refused["status"], &refused["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("content_filter"))
    );
    let failed = create(&served, &json!({ "input": "fail" }));
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("server_error")));
}

#[test]
fn a_stream_has_the_events_of_openai() {
    let served = Served::start(&scripts());
    let answer = served.post(RESPONSES, &json!({ "input": "long", "stream": true }));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events: Vec<Value> =
        answer.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(kinds.last(), Some(&"response.completed"));
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, format!("[rehearsal] {}", "ä".repeat(500)));
    let failed = served.post(RESPONSES, &json!({ "input": "fail", "stream": true })).events();
    assert!(failed.last().unwrap().contains("response.failed"), "{failed:?}");
}
