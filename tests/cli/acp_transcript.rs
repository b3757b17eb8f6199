//! Transcripts of editors are replayed: each line that an editor sends is sent as it is, and what must come comes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    editor::{Editor, service},
    world::World,
};

/// Values of `$name`.
type Names = BTreeMap<String, Value>;

/// Whether a value that came has all that the pattern has. Names without a value get theirs.
fn matches(pattern: &Value, came: &Value, names: &mut Names) -> bool {
    match pattern {
        Value::Object(fields) => fields
            .iter()
            .all(|(name, field)| came.get(name).is_some_and(|value| matches(field, value, names))),
        Value::Array(items) => came.as_array().is_some_and(|values| {
            values.len() == items.len()
                && items.iter().zip(values).all(|(item, value)| matches(item, value, names))
        }),
        Value::String(text) => {
            if let Some(name) = text.strip_prefix('$') {
                return names.entry(name.to_owned()).or_insert_with(|| came.clone()) == came;
            }
            match text.strip_prefix('*').and_then(|text| text.strip_suffix('*')) {
                Some(part) => came.as_str().is_some_and(|came| came.contains(part)),
                None => pattern == came,
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => pattern == came,
    }
}

/// The line with the values of its names. A name alone keeps its type: an id may be a number.
fn filled(line: &str, names: &Names) -> String {
    names.iter().fold(line.to_owned(), |line, (name, value)| {
        let line = line.replace(&format!("\"${name}\""), &value.to_string());
        line.replace(&format!("${name}"), value.as_str().unwrap_or_default())
    })
}

fn check(transcript: &str, world: &World) {
    let mut editor = Editor::spawn(world);
    let mut names = Names::from([("work".to_owned(), json!(editor.work))]);
    for (n, line) in (1..).zip(transcript.lines()) {
        let (kind, rest) = line.split_at(1);
        match kind {
            "#" => {}
            ">" => editor.write(&filled(rest.trim(), &names)),
            "<" => {
                let pattern: Value = serde_json::from_str(rest).unwrap();
                // An answer that differs would otherwise be waited for until the time is over.
                let is_answer = |came: &Value| pattern.get("method").is_none() && came["id"] == pattern["id"];
                println!("line {n} waits for {pattern}");
                loop {
                    let came = editor.next();
                    println!("{came}");
                    let mut bound = names.clone();
                    if matches(&pattern, &came, &mut bound) {
                        names = bound;
                        break;
                    }
                    assert!(!is_answer(&came), "line {n} is\n{pattern}\nand came as\n{came}");
                }
            }
            "=" => {
                assert_eq!(editor.end().0, Some(0));
                editor = Editor::spawn(world);
            }
            _ => panic!("line {n} is none of a transcript"),
        }
    }
}

#[test]
fn a_transcript_of_zed_is_replayed() {
    let world = World::new();
    let touch = json!({ "tool": "shell", "arguments": { "command": "touch made" } });
    let making = json!({ "when": "/make it$/", "steps": [{ "call": [touch] }, { "say": "Made." }] });
    let _service =
        service(&world, &json!([making, { "steps": [{ "say": "You said {{user}}", "chunk": 4096 }] }]));
    check(include_str!("../fixtures/acp/zed.transcript"), &world);
    assert!(world.work().join("made").exists());
}
