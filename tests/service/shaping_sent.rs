//! Replies of runs whose model has sent a text with the tool `message`: no text reaches a person twice, whatever hooks have
//! made of it.

use std::fs;

use serde_json::{Value, json};

use crate::{
    running::until,
    served::Served,
    shaping::{last, names, texts, wait_step},
    world::World,
};

/// An answer of the model: a script says that it is one.
const ANSWER: &str = "[rehearsal] The build is green again.";

/// Sends this text to the folder `box`.
fn send(text: &str) -> Value {
    json!({ "call": [{ "tool": "message", "arguments": { "target": "box", "text": text } }] })
}

/// Says it in small pieces.
fn say(text: &str) -> Value {
    json!({ "say": text.trim_start_matches("[rehearsal] "), "chunk": 3, "chunk_delay": "1ms" })
}

/// A service with the target `box` and these hooks.
fn start(steps: &[Value], hooks: &str) -> Served {
    let world = World::new();
    let folder = world.work().join("box");
    let target = format!("[targets.box]\nkind = \"folder\"\npath = \"{}\"\n", folder.display());
    world.configure(&(target + hooks));
    Served::start_in(world, &json!([{ "steps": steps }]))
}

/// The texts that are in the folder.
fn delivered(served: &Served) -> Vec<String> {
    let files = fs::read_dir(served.world.work().join("box")).into_iter().flatten();
    let paths =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
    let text = |path| {
        let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        file["data"]["text"].as_str().unwrap().to_owned()
    };
    paths.map(text).collect()
}

const SHAPES: [&str; 3] = ["shape=deltas", "shape=blocks", "shape=blocks&block_break=message_end"];

#[test]
fn a_text_that_the_message_tool_has_sent_is_in_no_reply() {
    for shape in SHAPES {
        let served = start(&[wait_step(), send(ANSWER), say("The build  is green\nagain.")], "");
        let (run, live) = served.live(&json!({ "input": "go" }), shape);
        for events in [live, served.reply(&run, shape, None)] {
            assert_eq!(names(&events), ["final"], "{shape}: {events:?}");
            let end = last(&events);
            assert_eq!((&end["source"], &end["text"]), (&json!("sent"), &Value::Null), "{shape}");
        }
        until("it is delivered", || delivered(&served) == [ANSWER]);
    }
}

#[test]
fn another_text_is_in_the_reply_once() {
    for shape in SHAPES {
        let served = start(&[wait_step(), send("[rehearsal] The build is green"), say(ANSWER)], "");
        let (_, live) = served.live(&json!({ "input": "go" }), shape);
        let pieces = texts(&live, if shape == "shape=deltas" { "delta" } else { "block" });
        let plain = |text: &str| text.replace(char::is_whitespace, "");
        assert_eq!(plain(&pieces.concat()), plain(ANSWER), "{shape}");
        assert_eq!(last(&live)["source"], "answer");
    }
}

#[test]
fn what_a_hook_has_made_of_a_message_counts() {
    let verdict = json!({ "verdict": "replace", "arguments": { "target": "box", "text": ANSWER } });
    let command = format!("echo '{verdict}'");
    let hooks = format!("[hooks.scrub]\non = [\"message_sending\"]\ncommand = {command:?}\n");
    let written = "[rehearsal] The build of Ada is green.";
    let check = |answer: &str, shape: &str, expect: (&[&str], &str)| {
        let served = start(&[send(written), say(answer)], &hooks);
        let (result, events) = served.ended(&json!({ "input": "go" }), shape);
        assert_eq!(result["outcome"], "completed", "{result}");
        assert_eq!((names(&events).as_slice(), last(&events)["source"].as_str()), (expect.0, Some(expect.1)));
        until("it is delivered", || delivered(&served) == [ANSWER]);
    };
    for shape in SHAPES {
        check(ANSWER, shape, (&["final"], "sent"));
    }
    // What the model has written went nowhere, so it is no repeat.
    check(written, "shape=deltas", (&["delta", "final"], "answer"));
}

#[test]
fn a_process_that_comes_later_knows_what_was_sent() {
    let mut served = start(&[send(ANSWER), wait_step(), say(ANSWER)], "");
    let run = served.begin_reply(&json!({ "input": "go" }));
    until("the command runs", || served.world.work().join("ran").exists());
    served.kill();
    served.start_again();
    served.world.release();
    let events = served.reply(&run, "shape=blocks", None);
    assert_eq!((names(&events), &last(&events)["source"]), (vec!["final"], &json!("sent")));
    until("it is delivered once", || delivered(&served) == [ANSWER]);
}
