//! The script's format: what is refused and how that is said, the published schema, and the documented example.

use hermod::rehearsal::{Script, next_answer, wire::chat_completions};
use serde_json::{Value, json};

/// A script of one step.
fn one(step: &Value) -> Value {
    json!({ "name": "t", "scripts": [{ "steps": [step] }] })
}

#[track_caller]
fn check(script: &Value, expected: &str) {
    let error = Script::parse(script.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(error, expected);
}

/// As `check`, for errors whose place also says line and column.
#[track_caller]
fn check_json(script: &Value, place: &str, rest: &str) {
    let error = Script::parse(script.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.place.split_once(" (line").unwrap().0, place);
    assert_eq!(format!("{}; {}", error.problem, error.remedy), rest);
}

#[test]
fn json_of_the_wrong_shape() {
    check_json(
        &one(&json!({ "say": "x", "delay": 5 })),
        "scripts[0].steps[0].delay",
        "invalid type: integer `5`; expected a length of time such as \"200ms\" or \"1m 30s\"",
    );
    check_json(
        &one(&json!({ "say": "x", "repeat": "always" })),
        "scripts[0].steps[0].repeat",
        "invalid value: string \"always\"; expected a number from 1, or \"forever\"",
    );
    check_json(
        &one(&json!({ "say": "x", "usage": { "tokens": 1 } })),
        "scripts[0].steps[0].usage.tokens",
        "unknown field `tokens`; expected one of `input_tokens`, `output_tokens`, `cached_tokens`, `cache_write_tokens`",
    );
    check_json(
        &one(&json!("hello")),
        "scripts[0].steps[0]",
        "invalid type: string \"hello\"; expected an object with `say` or `call`",
    );
    check_json(&json!({ "name": "t" }), "script", "missing field `scripts`; add it");
}

#[test]
fn what_is_no_json() {
    let check = |text: &str, expected: &str| {
        assert_eq!(Script::parse(text.as_bytes()).unwrap_err().to_string(), expected);
    };
    let object = "the script must be one valid JSON object";
    check("{\"name\": \"t\",\n  }", &format!("script (line 2, column 3): trailing comma; {object}"));
    let script = one(&json!({ "say": "x" })).to_string();
    let column = script.len() + 2;
    check(
        &format!("{script} 7"),
        &format!("script (line 1, column {column}): trailing characters; {object}"),
    );
}

#[test]
fn steps_that_make_no_sense() {
    check(
        &one(&json!({ "chunk": 3 })),
        "scripts[0].steps[0]: a step has neither `say` nor `call`; add one of them; `\"say\": \"\"` is an empty answer",
    );
    check(
        &one(&json!({ "say": "x", "chunk": 0 })),
        "scripts[0].steps[0].chunk: 0 bytes would never end; give a number from 1, or leave it out",
    );
    check(
        &one(&json!({ "call": [] })),
        "scripts[0].steps[0].call: the list is empty; give at least one call",
    );
    check(&json!({ "name": "t", "scripts": [] }), "scripts: the list is empty; give at least one script");
    check(
        &json!({ "name": "t", "scripts": [{ "steps": [{ "say": "x", "repeat": "forever" }, { "say": "y" }] }] }),
        "scripts[0].steps[1]: the step before it is repeated for ever; remove this step, or give a number to that `repeat`",
    );
    check(
        &json!({ "name": "t", "scripts": [{ "steps": [{ "say": "x" }] }, { "when": "y", "steps": [{ "say": "y" }] }] }),
        "scripts[0]: a script without `when` fits every text, so that no later one can play; add a `when`, or move it to the end",
    );
    check(
        &json!({ "name": "a b", "scripts": [{ "steps": [{ "say": "x" }] }] }),
        "name: `a b` cannot be part of a model's name; give a word without blanks",
    );
    let pattern = json!({ "name": "t", "nudges": ["/(/"], "scripts": [{ "steps": [{ "say": "x" }] }] });
    let error = Script::parse(pattern.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.place, "nudges[0]");
    assert_eq!(error.remedy, "correct it, or leave the slashes away to look for a plain text");
}

#[test]
fn templates_that_cannot_be_filled() {
    let sources = "write `user`, `step`, `open`, `result:last` or `result:<step>.<n>`, each result perhaps with a JSON pointer such as `result:1.1#/stdout`; for two plain braces write `{{open}}`";
    check(
        &one(&json!({ "say": "{{users}}" })),
        &format!("scripts[0].steps[0].say: the template `{{{{users}}}}` is unknown; {sources}"),
    );
    check(
        &one(&json!({ "call": [{ "tool": "t", "arguments": { "a": ["{{x}}"] } }] })),
        &format!("scripts[0].steps[0].call[0].arguments: the template `{{{{x}}}}` is unknown; {sources}"),
    );
    check(
        &one(&json!({ "say": "{{result:last}}" })),
        "scripts[0].steps[0].say: `result:last` has no call before it; call a tool in an earlier step",
    );
    let after_three = |text: &str| {
        let steps = json!([{ "call": [{ "tool": "t" }], "repeat": 3 }, { "say": text }]);
        json!({ "name": "t", "scripts": [{ "steps": steps }] })
    };
    Script::parse(after_three("{{result:3.1}}").to_string().as_bytes()).unwrap();
    let remedy = "refer to <step>.<call>, both counted from 1, each repetition is a step";
    check(
        &after_three("{{result:3.2}}"),
        &format!(
            "scripts[0].steps[1].say: `result:3.2` is no call of an earlier step (calls of step 3: 1); {remedy}"
        ),
    );
    check(
        &after_three("{{result:4.1}}"),
        &format!(
            "scripts[0].steps[1].say: `result:4.1` is no call of an earlier step (calls of step 4: 0); {remedy}"
        ),
    );
}

#[test]
fn faults_that_make_no_sense() {
    let check = |fault: Value, expected: &str| {
        let step = json!({ "say": "x", "fault": fault });
        check(&one(&step), &format!("scripts[0].steps[0].fault{expected}"));
    };
    let which = "a fault is exactly one of `status`, `cut_after` and `stall`";
    check(json!({ "times": 2 }), &format!(": {which}, not []; give one, a second one in a step of its own"));
    check(
        json!({ "status": 500, "stall": "1s" }),
        &format!(": {which}, not [\"status\", \"stall\"]; give one, a second one in a step of its own"),
    );
    check(json!({ "status": 200 }), ".status: 200 is no error; give a status from 400 to 599");
    check(
        json!({ "stall": "1s", "body": "x" }),
        ".body: `body` has no meaning beside `stall`; remove it, or use `status`",
    );
    check(
        json!({ "status": 429, "headers": { "retry after": "1" } }),
        ".headers.retry after: `retry after` is no name of a header; use letters, digits and `-`",
    );
}

/// What the parser takes the schema takes, and it refuses what is of the wrong shape.
#[test]
fn the_schema_agrees_with_the_parser() {
    let schema = jsonschema::validator_for(&Script::schema()).unwrap();
    let good = [
        serde_json::from_str(include_str!("../../src/rehearsal/default.json")).unwrap(),
        example(),
        one(&json!({ "say": "x", "repeat": "forever", "delay": "1m 30s", "usage": { "input_tokens": 3 } })),
        one(&json!({ "say": "x", "fault": { "stall": "10s", "stall_after": 2, "times": "forever" } })),
    ];
    for script in good {
        assert!(Script::parse(script.to_string().as_bytes()).is_ok(), "{script}");
        assert!(schema.is_valid(&script), "{script}");
    }
    let bad = [
        json!({ "name": "t" }),
        one(&json!({ "say": "x", "delay": 5 })),
        one(&json!({ "say": "x", "delay": "soon" })),
        one(&json!({ "say": "x", "repeat": 0 })),
        one(&json!({ "say": "x", "chunk": 0 })),
        one(&json!({ "say": "x", "sey": "y" })),
        one(&json!({ "call": [{ "arguments": {} }] })),
        one(&json!({ "say": "x", "finish": "bored" })),
        one(&json!({ "say": "x", "fault": { "status": 200 } })),
    ];
    for script in bad {
        assert!(Script::parse(script.to_string().as_bytes()).is_err(), "{script}");
        assert!(!schema.is_valid(&script), "{script}");
    }
}

/// The block of the documentation that is a whole script.
fn example() -> Value {
    let (_, rest) = include_str!("../../docs/rehearsal.md").split_once("```json\n").unwrap();
    let (script, _) = rest.split_once("\n```").unwrap();
    serde_json::from_str(script).unwrap()
}

#[test]
fn the_documented_example_plays() {
    let script = Script::parse(example().to_string().as_bytes()).unwrap();
    assert_eq!(script.model(), "rehearsal/two-children");
    let tools = json!([{ "type": "function", "function": { "name": "delegate_task" } }]);
    let check = |user: &str, expected: &[&str], text: &str| {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": user }], "tools": tools });
        let body = body.to_string();
        let exchange = chat_completions::read(body.as_bytes()).unwrap();
        let message = next_answer(&script, &exchange.conversation).answer.message;
        let tools: Vec<_> = message.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!((tools.as_slice(), message.text.as_str()), (expected, text));
    };
    check("Please split the work", &["delegate_task", "delegate_task"], "Two parts, two helpers.");
    check("Count the words of notes.txt", &["shell"], "");
    check("Hello", &[], "[rehearsal] You said: Hello");
}
