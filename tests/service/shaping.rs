//! Replies: what a chat surface gets of a run over server-sent events. Each rule of a reply is a test against the service.

use serde_json::{Value, json};

use crate::{
    running::{WAITING, until},
    served::Served,
    world::World,
};

const PREFIX: &str = "[rehearsal] ";

/// A text with a fence that is longer than a block, and what comes before and after it.
fn long_text() -> String {
    let code = (0..20).map(|n| format!("let number_{n} = {n};\n")).collect::<Vec<_>>().concat();
    format!(
        "Here is the program that was asked for.\n\n```rust\n{code}```\n\nIt has twenty lines. Each of them is alike.\n\nEnd."
    )
}

/// A service with small blocks that plays these scripts.
fn start(scripts: &Value) -> Served {
    Served::start_with((World::new(), scripts), |_| {
        vec![
            ("HERMOD_REPLIES__BLOCK_MIN_CHARS", "40".into()),
            ("HERMOD_REPLIES__BLOCK_MAX_CHARS", "120".into()),
            ("HERMOD_RETRY__FIRST_PAUSE", "10ms".into()),
        ]
    })
}

/// A step that ends when the test lets it.
pub(crate) fn wait_step() -> Value {
    json!({ "call": [{ "tool": "shell", "arguments": { "command": WAITING } }] })
}

/// An event: its name, its id, and its data.
#[derive(Debug)]
pub(crate) struct Event {
    name: String,
    id: Option<String>,
    data: Value,
}

impl Event {
    fn text(&self) -> &str {
        self.data["text"].as_str().unwrap_or_default()
    }
}

impl Served {
    #[track_caller]
    pub(crate) fn begin_reply(&self, body: &Value) -> String {
        let accepted = self.post("/v1/runs", body);
        assert_eq!(accepted.status, 202);
        accepted.json()["run"].as_str().unwrap().to_owned()
    }

    /// The whole reply of a run that waits; what it does next happens while the client reads.
    #[track_caller]
    pub(crate) fn live(&self, body: &Value, query: &str) -> (String, Vec<Event>) {
        let run = self.begin_reply(body);
        until("the command runs", || self.world.work().join("ran").exists());
        let answer = self.get(&format!("/v1/runs/{run}/reply?{query}"));
        assert_eq!(answer.status, 200);
        self.world.release();
        (run, events(&answer.text()))
    }

    /// The reply of a run from its records, behind the event with this id.
    #[track_caller]
    pub(crate) fn reply(&self, run: &str, query: &str, seen: Option<&str>) -> Vec<Event> {
        let header = seen.map(|seen| ("last-event-id", seen));
        let answer = self.send(("GET", &format!("/v1/runs/{run}/reply?{query}")), header.as_slice(), "");
        assert_eq!(answer.status, 200);
        events(&answer.text())
    }

    /// The result of a run, and its reply in this shape.
    #[track_caller]
    pub(crate) fn ended(&self, body: &Value, query: &str) -> (Value, Vec<Event>) {
        let run = self.begin_reply(body);
        self.get(&format!("/v1/runs/{run}/wait?timeout=60s"));
        (self.get(&format!("/v1/runs/{run}/result")).json(), self.reply(&run, query, None))
    }
}

fn events(text: &str) -> Vec<Event> {
    let field =
        |event: &str, name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let events = text.split("\n\n").filter(|event| event.contains("data: "));
    let events = events.map(|event| Event {
        name: field(event, "event: ").unwrap(),
        id: field(event, "id: "),
        data: serde_json::from_str(&field(event, "data: ").unwrap()).unwrap(),
    });
    events.collect()
}

pub(crate) fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// The texts of the events with this name.
pub(crate) fn texts(events: &[Event], name: &str) -> Vec<String> {
    events.iter().filter(|event| event.name == name).map(|event| event.text().to_owned()).collect()
}

/// Checks that there is one final piece, at the end, and returns its data.
#[track_caller]
pub(crate) fn last(events: &[Event]) -> &Value {
    let finals = events.iter().filter(|event| event.name == "final").count();
    let last = events.last().unwrap();
    assert_eq!((finals, last.name.as_str()), (1, "final"), "{events:?}");
    assert!(last.id.is_some());
    &last.data
}

#[test]
fn deltas_come_as_they_are_streamed_and_one_final_reply() {
    let text = long_text();
    let served =
        start(&json!([{ "steps": [wait_step(), { "say": text, "chunk": 9, "chunk_delay": "2ms" }] }]));
    let (run, live) = served.live(&json!({ "input": "go" }), "");
    let whole = format!("{PREFIX}{text}");
    assert!(texts(&live, "delta").len() > 3, "{live:?}");
    assert_eq!(texts(&live, "delta").concat(), whole);
    let end = last(&live);
    assert_eq!(
        (&end["outcome"], &end["text"], &end["source"]),
        (&json!("completed"), &json!(whole), &json!("answer"))
    );
    // A client that comes later gets the same text, and one that has seen the end nothing.
    let later = served.reply(&run, "shape=deltas", None);
    assert_eq!(
        (texts(&later, "delta"), last(&later)["text"].as_str()),
        (vec![whole.clone()], Some(whole.as_str()))
    );
    let seen = later.last().unwrap().id.clone().unwrap();
    let again = served.send(("GET", &format!("/v1/runs/{run}/reply")), &[("last-event-id", &seen)], "");
    assert_eq!(again.status, 204);
    // Behind the last delta there is only the end.
    let delta = later[0].id.as_deref().unwrap();
    assert_eq!(names(&served.reply(&run, "", Some(delta))), ["final"]);
}

#[test]
fn blocks_are_never_cut_inside_of_a_fence() {
    let text = long_text();
    let served =
        start(&json!([{ "steps": [wait_step(), { "say": text, "chunk": 9, "chunk_delay": "1ms" }] }]));
    let (run, live) = served.live(&json!({ "input": "go" }), "shape=blocks");
    let whole = format!("{PREFIX}{text}");
    let check = |events: &[Event]| {
        let blocks = texts(events, "block");
        assert!(blocks.len() > 3, "{blocks:?}");
        for block in &blocks {
            assert_eq!(block.matches("```").count() % 2, 0, "{block}");
            assert!(block.chars().count() <= 120 + "```rust\n\n```".len(), "{block}");
        }
        let lines = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with("```") && !line.trim().is_empty());
            lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&blocks.join("\n")).concat().replace(' ', ""),
            lines(&whole).concat().replace(' ', "")
        );
        // The final reply repeats no block.
        assert_eq!((&last(events)["text"], &last(events)["source"]), (&Value::Null, &json!("answer")));
    };
    check(&live);
    let early = live.iter().filter(|event| event.name == "block" && event.id.is_none()).count();
    assert!(early > 0, "blocks come before the message is durable: {live:?}");
    // At the end of the message all of them are durable.
    let whole_message = served.reply(&run, "shape=blocks&block_break=message_end", None);
    check(&whole_message);
    let places = whole_message.iter().filter_map(|event| event.data["at"].as_u64()).collect::<Vec<_>>();
    assert!(places.is_sorted() && places[0] == 0, "{places:?}");
}

#[test]
fn a_pause_sends_what_is_there() {
    let served = start(&json!([{ "steps": [wait_step(),
        { "say": "One moment. And more", "chunk": 24, "fault": { "stall": "30s", "stall_after": 3 } }] }]));
    let run = served.begin_reply(&json!({ "input": "go" }));
    until("the command runs", || served.world.work().join("ran").exists());
    let mut answer = served.get(&format!("/v1/runs/{run}/reply?shape=blocks"));
    served.world.release();
    let mut read = String::new();
    while !read.contains("event: block") {
        read += &answer.chunk().expect("the stream goes on");
    }
    assert_eq!(texts(&events(&read), "block"), ["[rehearsal] One moment. "]);
}

#[test]
fn reasoning_is_off_streamed_or_before_the_answer() {
    let served = start(&json!([{ "steps": [{ "say": "done", "think": "I should say so." }] }]));
    let (result, events) = served.ended(&json!({ "input": "go" }), "");
    assert_eq!(names(&events), ["delta", "final"]);
    let run = result["run"].as_str().unwrap();
    for (query, shape) in [("reasoning=stream", "delta"), ("reasoning=block&shape=blocks", "block")] {
        let events = served.reply(run, query, None);
        assert_eq!(names(&events), ["reasoning", shape, "final"], "{query}");
        assert_eq!(events[0].text(), "I should say so.");
    }
}

#[test]
fn tool_calls_are_summarised_as_verbose_says() {
    let call = json!({ "tool": "shell", "arguments": { "command": "echo found" } });
    let served = start(&json!([{ "steps": [{ "say": "I look.", "call": [call] }, { "say": "done" }] }]));
    let (result, events) = served.ended(&json!({ "input": "go" }), "shape=blocks");
    assert_eq!(names(&events), ["block", "block", "final"]);
    let run = result["run"].as_str().unwrap();
    let summary = |query: &str| {
        let events = served.reply(run, query, None);
        assert_eq!(names(&events), ["block", "tool", "block", "final"]);
        assert_eq!((&events[1].data["tool"], &events[1].data["status"]), (&json!("shell"), &json!("ok")));
        events[1].text().to_owned()
    };
    assert_eq!(summary("shape=blocks&verbose=on"), r#"shell {"command":"echo found"}: ok"#);
    assert!(summary("shape=blocks&verbose=full").contains("found\\n"));
}

#[test]
fn no_reply_is_silent_to_its_first_letters() {
    let say = json!({ "say": " no_Reply\n", "chunk": 1, "chunk_delay": "2ms" });
    let served = start(&json!([{ "steps": [wait_step(), say] }]));
    let (run, live) = served.live(&json!({ "input": "go", "reply": "optional" }), "");
    assert_eq!(names(&live), ["final"]);
    let end = last(&live);
    assert_eq!(
        (&end["outcome"], &end["silent"], &end["text"]),
        (&json!("completed"), &json!(true), &Value::Null)
    );
    let waited = served.get(&format!("/v1/runs/{run}/wait")).json();
    assert_eq!(
        (&waited["outcome"], &waited["silent"], &waited["answer"]),
        (&json!("completed"), &json!(true), &Value::Null)
    );
    let result = served.get(&format!("/v1/runs/{run}/result")).json();
    assert_eq!(
        (&result["silent"], &result["answer"], &result["answer_source"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    for shape in ["blocks", "blocks&block_break=message_end"] {
        assert_eq!(names(&served.reply(&run, &format!("shape={shape}"), None)), ["final"]);
    }
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "agent.wait", "params": { "runId": run } });
    let result = &served.post("/rpc", &call).json()["result"];
    assert_eq!(
        (&result["status"], &result["silent"], &result["answer"]),
        (&json!("ok"), &json!(true), &Value::Null)
    );
}

#[test]
fn no_reply_is_silent_over_a_cut_and_a_text_that_begins_alike_is_not() {
    let cut = json!({ "cut_after": 4, "cut": "reset", "times": 1 });
    let say = json!({ "say": "NO_REPLY", "chunk": 2, "chunk_delay": "2ms", "fault": cut });
    let served = start(&json!([
        { "when": "cut", "steps": [wait_step(), say] },
        { "steps": [
            { "say": "NO_RETRY was needed", "chunk": 1, "call": [{ "tool": "todo", "arguments": {} }] },
            { "say": "done" },
        ] },
    ]));
    let (run, live) = served.live(&json!({ "input": "cut", "reply": "optional" }), "");
    assert_eq!((names(&live), &last(&live)["silent"]), (vec!["final"], &json!(true)));
    let failed = served.world.ok(&["journal", &run]).matches("model.failed").count();
    assert_eq!(failed, 1);
    let (_, events) = served.ended(&json!({ "input": "alike", "reply": "optional" }), "shape=blocks");
    assert_eq!(texts(&events, "block"), ["NO_RETRY was needed", "[rehearsal] done"]);
}

#[test]
fn where_an_answer_is_due_the_model_is_asked_once_more() {
    let served = start(&json!([
        { "when": "/^twice(.|\n)*an answer is due/", "steps": [{ "say": "No_reply" }] },
        { "when": "an answer is due", "steps": [{ "say": "fine", "call": [{ "tool": "todo", "arguments": {} }] }] },
        { "steps": [{ "say": "NO_REPLY", "chunk": 3 }] },
    ]));
    let (result, events) = served.ended(&json!({ "input": "once" }), "");
    // The request forbids calls, so the script says what it would have called.
    let answer = "[rehearsal] fine\n(rehearsal) step 1 would call todo, but no tools are offered";
    assert_eq!((result["answer"].as_str(), &result["iterations"]), (Some(answer), &json!(2)));
    assert_eq!(
        (texts(&events, "delta").concat().as_str(), last(&events)["text"].as_str()),
        (answer, Some(answer))
    );
    let journal = served.world.ok(&["journal", result["run"].as_str().unwrap()]);
    assert_eq!(journal.matches(r#""flaw":"silent""#).count(), 1);
    let (result, events) = served.ended(&json!({ "input": "twice", "reply": "required" }), "");
    assert_eq!((&result["silent"], &result["iterations"]), (&json!(true), &json!(2)));
    assert_eq!((names(&events), &last(&events)["silent"]), (vec!["final"], &json!(true)));
    // Clients of OpenAI's API never see it.
    let request = json!({ "messages": [{ "role": "user", "content": "twice" }] });
    let answer = served.post("/v1/chat/completions", &request).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "", "{answer}");
    // Nor does a person at a terminal.
    let printed = served.world.ok(&["run", "twice"]);
    assert_eq!(printed.trim(), "");
}

#[test]
fn a_crash_does_not_ask_twice() {
    let mut served = start(&json!([
        { "when": "an answer is due", "steps": [{ "say": "fine", "delay": "1m" }] },
        { "steps": [{ "say": "NO_REPLY" }] },
    ]));
    let run = served.begin_reply(&json!({ "input": "go" }));
    let journal = |served: &Served| served.world.ok(&["journal", &run]);
    until("it is asked again", || journal(&served).matches("model.started").count() == 2);
    served.kill();
    served.start_again();
    until("it goes on", || journal(&served).matches("model.started").count() == 3);
    assert_eq!(journal(&served).matches(r#""flaw":"silent""#).count(), 1);
    served.send(("POST", &format!("/v1/runs/{run}/stop")), &[], "");
    let events = served.reply(&run, "", None);
    assert_eq!((&last(&events)["outcome"], &last(&events)["text"]), (&json!("stopped"), &Value::Null));
}

#[test]
fn the_error_of_a_tool_is_delivered_if_nothing_else_is_left() {
    let read = json!([{ "tool": "read_file", "arguments": { "path": "none.txt" } }]);
    let served = start(&json!([
        { "when": "silent", "steps": [{ "call": read }, { "say": "NO_REPLY" }] },
        { "steps": [{ "call": read }, { "say": "It is not there." }] },
    ]));
    for shape in ["deltas", "blocks"] {
        let query = format!("shape={shape}");
        let (_, events) = served.ended(&json!({ "input": "silent", "reply": "optional" }), &query);
        let end = last(&events);
        assert_eq!((names(&events), &end["source"]), (vec!["final"], &json!("tool_error")));
        let text = end["text"].as_str().unwrap();
        assert!(text.starts_with("read_file: ") && text.contains("none.txt"), "{text}");
        let (_, events) = served.ended(&json!({ "input": "else", "reply": "optional" }), &query);
        assert_eq!(last(&events)["source"], "answer");
    }
}

#[test]
fn a_retry_voids_what_was_shown() {
    let cut = json!({ "cut_after": 6, "cut": "reset", "times": 1 });
    let text = "A first sentence that is long enough to be a block. And a second one, which is cut.";
    let say = json!({ "say": text, "chunk": 12, "chunk_delay": "30ms", "fault": cut });
    let check = |query: &str, shape: &str| {
        let served = start(&json!([{ "steps": [wait_step(), say] }]));
        let (_, live) = served.live(&json!({ "input": "go" }), query);
        let retries = live.iter().filter(|event| event.name == "retry").count();
        let from = live.iter().rposition(|event| event.name == "retry").map_or(0, |at| at + 1);
        assert_eq!(texts(&live[from..], shape).concat(), format!("{PREFIX}{text}"), "{live:?}");
        last(&live);
        (retries, from)
    };
    let (retries, from) = check("", "delta");
    assert!(retries == 1 && from > 1);
    // No block is sent before its message is durable, so none is void.
    assert_eq!(check("shape=blocks&block_break=message_end", "block"), (0, 0));
}

#[test]
fn a_run_that_fails_says_why() {
    let fault = json!({ "status": 400, "times": "forever" });
    let served = start(&json!([{ "steps": [{ "say": "x", "fault": fault }] }]));
    let (result, events) = served.ended(&json!({ "input": "go" }), "shape=blocks");
    let end = last(&events);
    assert_eq!(
        (&result["outcome"], &end["outcome"], &end["source"]),
        (&json!("failed"), &json!("failed"), &json!("failure"))
    );
    assert_eq!(end["text"], end["reason"]);
    assert!(end["text"].as_str().unwrap().contains("provider"));
}

#[test]
fn a_query_that_is_wrong_is_refused() {
    let served = start(&json!([{ "steps": [{ "say": "x" }] }]));
    let run = served.begin_reply(&json!({ "input": "go" }));
    for query in ["shape=lines", "verbose=1", "reasoning=on", "block_break=never", "x=1"] {
        assert_eq!(served.get(&format!("/v1/runs/{run}/reply?{query}")).status, 400, "{query}");
    }
    let wrong = served.post("/v1/runs", &json!({ "input": "go", "reply": "maybe" }));
    assert_eq!(wrong.status, 422);
    world_refuses("[replies]\nblock_max_chars = 5\n", "block_max_chars");
    world_refuses("[replies]\nverbose = \"loud\"\n", "must be \"off\", \"on\" or \"full\"");
}

#[track_caller]
fn world_refuses(config: &str, part: &str) {
    let world = World::new();
    world.configure(config);
    world.fails(&["config", "check"], 78, part);
}
