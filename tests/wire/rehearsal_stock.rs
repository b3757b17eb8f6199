//! The embedded script takes stock of a folder with real commands; its report must be true, whatever the folder.

use std::{fs, path::Path, process::Command};

use hermod::rehearsal::{Script, next_answer, wire::chat_completions};
use hermod_actors::model::{AssistantMessage, ToolCall};
use serde_json::{Value, json};

/// What the tools that the script calls would answer.
fn perform(call: &ToolCall, folder: &Path) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
    let argument = |name: &str| arguments[name].as_str().unwrap();
    match call.name.as_str() {
        "shell" => {
            let done =
                Command::new("sh").args(["-c", argument("command")]).current_dir(folder).output().unwrap();
            let stdout = String::from_utf8_lossy(&done.stdout);
            let stderr = String::from_utf8_lossy(&done.stderr);
            assert_eq!(stderr, "");
            json!({ "exit_code": done.status.code(), "signal": null, "timed_out": false, "stdout": stdout, "stderr": stderr })
                .to_string()
        }
        "write_file" => {
            fs::write(folder.join(argument("path")), argument("content")).unwrap();
            format!("wrote {}", argument("path"))
        }
        "list_files" => "first/\nsecond  12\n".into(),
        other => panic!("the script calls {other}"),
    }
}

/// Plays the script to its end; returns the last answer and the report.
fn play(folder: &Path) -> (AssistantMessage, String) {
    let script = Script::builtin();
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let tools = json!([tool("shell"), tool("write_file"), tool("list_files")]);
    let mut messages = vec![json!({ "role": "user", "content": "Take stock." })];
    for _ in 0..10 {
        let body = json!({ "model": "m", "messages": messages, "tools": tools }).to_string();
        let exchange = chat_completions::read(body.as_bytes()).unwrap();
        let message = next_answer(&script, &exchange.conversation).answer.message;
        if message.calls.is_empty() {
            let report = fs::read_to_string(folder.join("STOCK.md")).unwrap();
            return (message, report);
        }
        let call = |call: &ToolCall| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        };
        let calls: Vec<_> = message.calls.iter().map(call).collect();
        messages.push(json!({ "role": "assistant", "content": message.text, "tool_calls": calls }));
        for call in &message.calls {
            let content = perform(call, folder);
            messages.push(json!({ "role": "tool", "tool_call_id": call.id, "content": content }));
        }
    }
    panic!("the script does not end");
}

/// Makes a folder of these files and checks the report against them.
fn check(files: &[(&str, &str)], folders: usize) {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put(".git/config", "not counted");
    put("STOCK.md", "not counted either");
    for (name, content) in files {
        put(name, content);
    }
    let (last, report) = play(folder.path());
    let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
    let numbers =
        [format!("files: {}", files.len()), format!("folders: {folders}"), format!("bytes: {bytes}")];
    assert!(report.contains(&numbers.join("\n")), "{report}");
    assert!(report.contains("A rehearsal:") && !report.contains("(rehearsal:"), "{report}");
    let listed = report.split("\n## ").find(|section| section.starts_with("Files\n")).unwrap();
    let listed: Vec<_> = listed.lines().filter(|line| line.starts_with("    ")).collect();
    let mut expected: Vec<_> = files.to_vec();
    expected.sort_unstable_by_key(|(name, _)| *name);
    let line = |(name, content): &(&str, &str)| {
        format!("    {:>10} {:>8}  {name}", content.len(), content.matches('\n').count())
    };
    assert_eq!(listed, expected.iter().take(200).map(line).collect::<Vec<_>>());
    assert!(last.text.starts_with("[rehearsal] "));
    assert!(last.text.contains(&numbers.join(", ")), "{}", last.text);
    let names: Vec<_> = expected.iter().take(40).map(|(name, _)| *name).collect();
    assert!(last.text.contains(&format!("{}.", names.join(", "))), "{}", last.text);
    assert!(last.text.ends_with("write_file said: wrote STOCK.md"), "{}", last.text);
}

#[test]
fn a_plain_folder() {
    check(
        &[
            ("README.md", "# Hello\n"),
            ("data/a.csv", "a,b\n1,2\n"),
            ("data/deep/b.csv", ""),
            ("Makefile", "all:"),
        ],
        2,
    );
}

#[test]
fn a_folder_with_awkward_names() {
    let names = [
        ("it's \"here\" $HOME `id`.txt", "x"),
        ("-rf", "y\n"),
        ("total", "zz"),
        ("a  b/ total", "1\n2\n"),
        ("{{user}}", "t"),
    ];
    check(&names, 1);
}

#[test]
fn an_empty_folder() {
    check(&[], 0);
}

#[test]
fn a_large_folder_is_counted_whole_and_listed_in_part() {
    let names: Vec<_> = (0..250).map(|n| format!("part/{n:04}.txt")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "line\n")).collect();
    check(&files, 1);
}

#[test]
fn endings_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.md", "b.md", "c.tar.gz", "plain", ".hidden", "end."] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let (_, report) = play(folder.path());
    let section = report.split("\n## ").find(|section| section.starts_with("Endings\n")).unwrap();
    let counts: Vec<_> = section.lines().filter(|line| line.starts_with("    ")).map(str::trim).collect();
    assert_eq!(counts, ["3  no ending", "2  .md", "1  .gz"]);
}
