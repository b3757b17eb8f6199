//! `hermod acp`, as an editor drives it.

use serde_json::{Value, json};

use crate::{
    editor::{Editor, SAYS, asking, check_error, check_stopped, greeting, service, waiting},
    running::until,
    world::World,
};

#[test]
fn a_prompt_is_answered_in_pieces() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Say hello");
    let end = editor.answer(id);
    check_stopped(&end, "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), SAYS);
    assert!(editor.updates("agent_message_chunk").len() > 1, "it is streamed");
    assert_eq!(editor.text("agent_thought_chunk"), "I ponder");
    assert!(editor.updates("user_message_chunk").is_empty(), "the editor shows its own prompt");
    let (code, stderr) = editor.end();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn tool_calls_are_shown_with_differences_output_and_plan() {
    let world = World::new();
    let todo = json!([{ "id": "1", "content": "Write", "status": "in_progress" },
        { "id": "2", "content": "Rest", "status": "cancelled" }]);
    let steps = json!([
        { "call": [{ "tool": "todo", "arguments": { "todos": todo } }] },
        { "call": [{ "tool": "write_file", "arguments": { "path": "a.txt", "content": "one\n" } },
            { "tool": "read_file", "arguments": { "path": "none.txt" } }] },
        { "call": [{ "tool": "edit_file", "arguments": { "path": "a.txt", "edits": [{ "old": "one", "new": "two" }] } }] },
        { "call": [{ "tool": "shell", "arguments": { "command": "cat a.txt; exit 3" } }] },
        { "say": "Done." },
    ]);
    let _service = service(&world, &json!([{ "steps": steps }]));
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Work");
    check_stopped(&editor.answer(id), "end_turn");
    let plan = editor.updates("plan");
    let entry = json!({ "content": "Write", "priority": "medium", "status": "in_progress" });
    assert_eq!(plan[0]["entries"], json!([entry]));
    let calls = editor.updates("tool_call");
    let titles: Vec<&str> = calls.iter().filter_map(|call| call["title"].as_str()).collect();
    assert_eq!(
        titles,
        ["Update the plan", "Write a.txt", "Read none.txt", "Edit a.txt", "cat a.txt; exit 3"]
    );
    let file = world.work().join("a.txt");
    let diff = json!({ "type": "diff", "path": file, "oldText": "one", "newText": "two" });
    assert_eq!(calls[3]["content"], json!([diff]));
    assert_eq!(calls[3]["locations"], json!([{ "path": file }]));
    let updates = editor.updates("tool_call_update");
    let end = |n: usize| {
        let is_end = |update: &&&Value| {
            update["toolCallId"] == calls[n]["toolCallId"] && update.get("rawOutput").is_some()
        };
        *updates.iter().find(is_end).unwrap()
    };
    assert_eq!(end(1)["status"], "completed");
    assert_eq!(end(2)["status"], "failed");
    assert_eq!(end(4)["rawOutput"]["exit_code"], 3);
    let shown = end(4)["content"][0]["content"]["text"].as_str().unwrap();
    assert_eq!(shown, "```\ntwo\n```\nexit 3");
}

#[test]
fn a_call_is_made_if_the_user_allows_it() {
    let world = World::new();
    let _service = service(&world, &asking());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    for (option, is_made) in [("deny", false), ("allow", true)] {
        let id = editor.send_prompt(&session, "Make it");
        let asked = editor.choose(option);
        let options: Vec<&str> = asked["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|o| o["optionId"].as_str())
            .collect();
        assert_eq!((options[0], options[options.len() - 1]), ("allow", "deny"));
        assert_eq!(asked["params"]["toolCall"]["title"], "touch made");
        check_stopped(&editor.answer(id), "end_turn");
        assert_eq!(world.work().join("made").exists(), is_made);
    }
    assert!(world.ok(&["approvals", "list", "--json"]).trim() == "[]");
}

#[test]
fn an_approval_for_the_run_and_a_client_that_cannot_ask() {
    let world = World::new();
    let touch = |name: &str| json!({ "tool": "shell", "arguments": { "command": format!("touch {name}") } });
    let steps = json!([{ "call": [touch("one")] }, { "call": [touch("one")] }, { "say": "Twice." }]);
    let _service = service(&world, &json!([{ "steps": steps }]));
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Make it");
    editor.choose("allow_run");
    check_stopped(&editor.answer(id), "end_turn");
    let is_question = |line: &&Value| line["method"] == "session/request_permission";
    assert_eq!(editor.seen.iter().filter(is_question).count(), 1, "the second call is like the first");
    // A client without the method.
    let id = editor.send_prompt(&session, "Make it");
    let mut asked = 0;
    let end = loop {
        let line = editor.next();
        if line["method"] == "session/request_permission" {
            asked += 1;
            let error = json!({ "code": -32601, "message": "no such method" });
            editor.write(&json!({ "jsonrpc": "2.0", "id": line["id"], "error": error }).to_string());
        } else if line["id"] == id {
            break line;
        }
    };
    check_stopped(&end, "end_turn");
    assert!(asked > 0 && editor.text("agent_message_chunk").contains("so it is denied: no such method"));
}

#[test]
fn a_question_of_the_model_is_answered_by_a_choice_or_by_the_next_prompt() {
    let world = World::new();
    let ask = |arguments: Value| json!([{ "call": [{ "tool": "clarify", "arguments": arguments }] }, { "say": "{{result:1.1}}" }]);
    let _service = service(
        &world,
        &json!([
            { "when": "colour", "steps": ask(json!({ "question": "Which?", "choices": ["red", "blue"] })) },
            { "when": "branch", "steps": ask(json!({ "question": "Which branch?" })) },
        ]),
    );
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "colour");
    editor.choose("choice:1");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] blue");
    let id = editor.send_prompt(&session, "branch");
    check_stopped(&editor.answer(id), "end_turn");
    assert!(editor.text("agent_message_chunk").contains("Which branch?"));
    let id = editor.send_prompt(&session, "main");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] main");
}

#[test]
fn a_cancelled_prompt_ends_as_such_and_the_session_goes_on() {
    let world = World::new();
    let _service = service(&world, &waiting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    editor.cancel(&session);
    check_stopped(&editor.answer(id), "cancelled");
    let id = editor.send_prompt(&session, "Hi");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] You said Hi");
    // A prompt and its cancellation right behind it.
    let id = editor.send_prompt(&session, "wait");
    editor.cancel(&session);
    check_stopped(&editor.answer(id), "cancelled");
}

#[test]
fn servers_of_the_editor_are_ignored_and_named() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let server = json!({ "name": "files", "command": "/bin/files", "args": [], "env": [] });
    let answer = editor.call("session/new", json!({ "cwd": editor.work, "mcpServers": [server] }));
    assert_eq!(answer["result"]["_meta"]["hermod"]["ignored"]["mcpServers"], 1, "{answer}");
}

#[test]
fn an_editor_with_forms_answers_in_its_own_words() {
    let world = World::new();
    let ask = json!({ "tool": "clarify", "arguments": { "question": "Which?", "choices": ["red", "blue"] } });
    let _service = service(&world, &json!([{ "steps": [{ "call": [ask] }, { "say": "{{result:1.1}}" }] }]));
    // As Zed 1.20 presents itself.
    let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true,
        "session": { "configOptions": { "boolean": {} } }, "auth": { "terminal": true },
        "elicitation": { "form": {}, "url": {} }, "_meta": { "terminal_output": true } });
    let mut editor = Editor::with(&world, &can);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Ask me");
    let asked = editor.until(|line| line["method"] == "elicitation/create");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["choice"]["enum"], json!(["red", "blue"]));
    let content = json!({ "choice": "red", "own_words": "green" });
    let result = json!({ "action": "accept", "content": content });
    editor.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string());
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] green");
}

#[test]
fn options_are_those_of_the_configuration() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let answer = editor.call("session/new", json!({ "cwd": editor.work, "mcpServers": [] }));
    let options = answer["result"]["configOptions"].as_array().unwrap();
    let ids: Vec<&str> = options.iter().filter_map(|option| option["id"].as_str()).collect();
    assert_eq!(ids, ["agent", "thinking"]);
    let session = &answer["result"]["sessionId"];
    let choose = |id: &str, value: &str| json!({ "sessionId": session, "configId": id, "value": value });
    let chosen = editor.call("session/set_config_option", choose("agent", "reviewer"));
    assert_eq!(chosen["result"]["configOptions"][0]["currentValue"], "reviewer", "{chosen}");
    check_error(
        &editor.call("session/set_config_option", choose("agent", "none")),
        -32602,
        "`none` is no value",
    );
    let id = editor.send_prompt(session.as_str().unwrap(), "Say hello");
    check_stopped(&editor.answer(id), "end_turn");
    let runs: Value = serde_json::from_str(&world.ok(&["runs", "list", "--json"])).unwrap();
    assert_eq!(runs[0]["agent"], "reviewer");
    check_error(
        &editor.call("session/set_config_option", choose("agent", "default")),
        -32602,
        "no option `agent` now",
    );
}
