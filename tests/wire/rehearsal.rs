//! The rehearsal model without a socket: which step answers what, and what it is made of.

use hermod::rehearsal::{FaultCounter, Script, next_answer, wire::chat_completions};
use hermod_actors::model::{FinishReason, ModelAnswer, ToolCall, Usage};
use serde_json::{Value, json};

fn script(parts: &Value) -> Script {
    Script::parse(json!({ "name": "t", "scripts": parts }).to_string().as_bytes()).unwrap()
}

fn request(messages: &Value) -> String {
    let tool = json!({ "type": "function", "function": { "name": "shell" } });
    json!({ "model": "m", "messages": messages, "tools": [tool] }).to_string()
}

fn ask(script: &Script, body: &str) -> ModelAnswer {
    let exchange = chat_completions::read(body.as_bytes()).unwrap();
    next_answer(script, &exchange.conversation).answer
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn said(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

fn called(ids: &[&str]) -> Value {
    let function = json!({ "name": "shell", "arguments": "{}" });
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": function });
    json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
}

fn result(id: &str, content: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": content })
}

mod steps {
    use super::*;

    /// The number that the script's step says of itself.
    #[track_caller]
    fn check(messages: &[Value], expected: &str) {
        let script = script(&json!([{ "steps": [{ "say": "{{step}}", "repeat": "forever" }] }]));
        let text = ask(&script, &request(&json!(messages))).message.text;
        assert_eq!(text, format!("[rehearsal] {expected}"));
    }

    #[test]
    fn the_highest_step_seen_plus_one() {
        check(&[user("go")], "1");
        check(&[user("go"), called(&["rh_1_1", "rh_1_2"]), result("rh_1_2", ""), result("rh_1_1", "")], "2");
        let one = [user("go"), called(&["rh_1_1"]), result("rh_1_1", "")];
        let two = [called(&["rh_2_1"]), result("rh_2_1", "")];
        check(&[&one[..], &two[..]].concat(), "3");
    }

    #[test]
    fn a_cut_history_is_where_its_ids_say() {
        check(&[user("summary"), called(&["rh_40_1"]), result("rh_40_1", "")], "41");
    }

    #[test]
    fn without_our_ids_assistant_messages_are_counted() {
        check(&[user("go"), called(&["call_abc"]), result("call_abc", "")], "2");
        let ours = [user("go"), called(&["rh_3_1"]), result("rh_3_1", "")];
        let others = [
            called(&["rh_x_1", "rh_9", "toolu_1"]),
            result("rh_x_1", ""),
            result("rh_9", ""),
            result("toolu_1", ""),
        ];
        check(&[&ours[..], &others[..]].concat(), "5");
    }

    #[test]
    fn a_new_user_text_begins_again() {
        check(&[user("go"), called(&["rh_1_1"]), result("rh_1_1", ""), said("done"), user("again")], "1");
    }

    #[test]
    fn a_nudge_does_not_begin_again() {
        let nudged = json!({
            "name": "t",
            "nudges": ["/^Please go on/"],
            "scripts": [{ "when": "go", "steps": [{ "say": "" }, { "say": "step two of {{user}}" }] }],
        });
        let script = Script::parse(nudged.to_string().as_bytes()).unwrap();
        assert_eq!(ask(&script, &request(&json!([user("go")]))).message.text, "");
        let history = json!([user("go"), said(""), user("Please go on.")]);
        assert_eq!(ask(&script, &request(&history)).message.text, "[rehearsal] step two of go");
    }

    #[test]
    fn repeated_steps_are_steps_of_their_own() {
        let call = json!([{ "tool": "shell" }]);
        let script = script(&json!([{ "steps": [{ "call": call, "repeat": 2000 }, { "say": "end" }] }]));
        let after = |step: u64| {
            let id = format!("rh_{step}_1");
            ask(&script, &request(&json!([user("go"), called(&[&id]), result(&id, "")]))).message
        };
        assert_eq!(after(1998).calls[0].id, "rh_1999_1");
        assert_eq!(after(1999).calls[0].id, "rh_2000_1");
        assert_eq!(after(2000).text, "[rehearsal] end");
        assert_eq!(after(2001).text, "[rehearsal] (rehearsal) nothing more to do");
    }
}

#[test]
fn when_picks_the_script_by_the_users_text() {
    let script = script(&json!([
        { "when": "/^child [0-9]/", "steps": [{ "say": "a child" }] },
        { "when": "é parent", "steps": [{ "say": "a parent" }] },
    ]));
    let check = |content: Value, expected: &str| {
        let messages = json!([{ "role": "user", "content": content }]);
        assert_eq!(ask(&script, &request(&messages)).message.text, format!("[rehearsal] {expected}"));
    };
    check(json!("child 7 of é parent"), "a child");
    check(json!("é parent of child 7"), "a parent");
    check(json!([{ "type": "text", "text": "é par" }, { "type": "text", "text": "ent" }]), "a parent");
    check(json!("stranger"), "(rehearsal) nothing more to do");
}

#[test]
fn calls_are_composed_from_earlier_results() {
    let script = script(&json!([{ "steps": [
        { "call": [{ "tool": "shell", "arguments": { "command": "ls", "n": 1 } }, { "tool": "shell" }] },
        { "think": "{{user}}?", "call": [{ "tool": "shell", "arguments": {
            "deep": [{ "text": "said \"{{result:1.1#/stdout | trim}}\"" }, true],
            "last": "{{result:last}}",
        } }, { "tool": "shell", "arguments": "{broken {{step}}" }] },
    ] }]));
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: "shell".into(),
        arguments: arguments.into(),
    };

    let first = ask(&script, &request(&json!([user("go")])));
    assert_eq!(first.message.calls, [call("rh_1_1", r#"{"command":"ls","n":1}"#), call("rh_1_2", "{}")]);
    assert_eq!((first.message.text.as_str(), first.finish), ("", FinishReason::ToolCalls));

    let stdout = r#"{"stdout":"a \"b\"\n"}"#;
    let results = [result("rh_1_2", "two"), result("rh_1_1", stdout)];
    let history = json!([user("go"), called(&["rh_1_1", "rh_1_2"]), results[0], results[1]]);
    let second = ask(&script, &request(&history)).message;
    let arguments = json!({ "deep": [{ "text": "said \"a \"b\"\"" }, true], "last": stdout });
    assert_eq!(second.reasoning, "go?");
    assert_eq!(second.calls, [call("rh_2_1", &arguments.to_string()), call("rh_2_2", "{broken 2")]);
}

#[test]
fn without_tools_nothing_is_called() {
    let script = script(&json!([{ "steps": [{ "say": "I look.", "call": [{ "tool": "shell" }] }] }]));
    let answer = ask(&script, &json!({ "model": "m", "messages": [user("go")] }).to_string());
    let text = "[rehearsal] I look.\n(rehearsal) step 1 would call shell, but no tools are offered";
    assert_eq!((answer.message.text.as_str(), answer.finish), (text, FinishReason::Stop));
    assert_eq!(answer.message.calls, []);
}

#[test]
fn usage_is_estimated_from_bytes_unless_the_script_says() {
    let body = request(&json!([user("go now")]));
    let check = |step: Value, expected: Usage| {
        assert_eq!(ask(&script(&json!([{ "steps": [step] }])), &body).usage, Some(expected));
    };
    // The name of the tool, and the text in its quotes.
    let input_tokens = ("shell\"go now\"".len() / 4) as u64;
    check(json!({ "say": "12345678" }), Usage { input_tokens, output_tokens: 5, ..Usage::default() });
    check(
        json!({ "say": "x", "usage": { "output_tokens": 900, "cached_tokens": 3 } }),
        Usage { input_tokens, output_tokens: 900, cached_tokens: 3, ..Usage::default() },
    );
}

#[test]
fn a_fault_counts_the_attempts_of_one_request() {
    let check = |times: Value, expected: &[bool]| {
        let step = json!({ "say": "x", "repeat": "forever", "fault": { "status": 503, "times": times } });
        let script = script(&json!([{ "steps": [step] }]));
        let faults = FaultCounter::default();
        let strikes = |body: &str| {
            let exchange = chat_completions::read(body.as_bytes()).unwrap();
            faults.next_fault(&next_answer(&script, &exchange.conversation), &exchange.conversation).is_some()
        };
        for text in ["one", "another"] {
            let body = request(&json!([user(text)]));
            let found: Vec<_> = expected.iter().map(|_| strikes(&body)).collect();
            assert_eq!(found, expected, "{text} {times}");
        }
    };
    check(json!(1), &[true, false, false]);
    check(json!(2), &[true, true, false]);
    check(json!("forever"), &[true, true, true]);
}
