//! The real binary, as a person or a program calls it, against the rehearsal model.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, kinds},
    world::{World, object, stderr},
};

#[test]
fn the_first_run_works_and_its_report_is_true() {
    let world = World::new();
    fs::create_dir(world.work().join("folder")).unwrap();
    for (name, content) in [("a.txt", "hello\n"), ("b.rs", "fn b() {}\n"), ("folder/c.txt", "12345")] {
        fs::write(world.work().join(name), content).unwrap();
    }
    let output = world.run(&["run", "--rehearse", "take stock"]);
    let (answer, progress) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(answer.starts_with("[rehearsal] I took stock"), "{answer}");
    let report = fs::read_to_string(world.work().join("STOCK.md")).unwrap();
    assert!(report.contains("files: 3\nfolders: 1\nbytes: 21\n"), "{report}");
    assert!(report.contains("2  .txt"), "{report}");
    for part in ["this is a rehearsal", "accepted  run ", "tool 1.2  shell ok in ", "ended     completed"] {
        assert!(progress.contains(part), "{part}: {progress}");
    }
}

#[test]
fn the_journal_shows_every_step() {
    let world = World::new();
    let call = json!({ "call": [{ "tool": "list_files", "arguments": {} }] });
    world.ok(&["run", &world.script(&json!([call, { "say": "done" }])), "--session", "k", "look"]);
    let records = world.journal("k");
    let expect = [
        "session.opened",
        "run.accepted",
        "model.started",
        "model.answered",
        "call.admitted",
        "call.started",
        "call.ended",
        "model.started",
        "model.answered",
        "run.ended",
    ];
    assert_eq!(kinds(&records), expect);
    let seqs: Vec<_> = records.iter().filter_map(|record| record["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
    assert_eq!(records[1]["input"], "look");
    assert_eq!(records[6]["status"], "ok");
    let at = records[9]["at"].as_str().unwrap();
    let year: u32 = at[..4].parse().unwrap();
    assert!(at.ends_with('Z') && year >= 2024, "{at}");
    assert_eq!(world.journal("last"), records);
}

#[test]
fn calls_of_one_answer_wait_for_what_they_conflict_with() {
    let world = World::new();
    let write = |content| json!({ "tool": "write_file", "arguments": { "path": "a", "content": content } });
    let read = json!({ "tool": "read_file", "arguments": { "path": "./a" } });
    // The shell would overtake a writer that did not wait for it.
    let slow = json!({ "tool": "shell", "arguments": { "command": "sleep 0.2; cat a" } });
    let step = json!({ "call": [write("one"), read, slow, write("two"), read] });
    let say = json!({ "say": "{{result:1.2}} {{result:1.3}} {{result:1.5}}" });
    let answer = world.ok(&["run", &world.script(&json!([step, say])), "go"]);
    assert!(answer.starts_with("[rehearsal] one {") && answer.ends_with("} two\n"), "{answer}");
    assert!(answer.contains(r#""stdout":"one""#), "{answer}");
}

#[test]
fn what_a_model_means_to_do_is_kept_and_shown() {
    let world = World::new();
    let todo = |arguments: Value| json!({ "call": [{ "tool": "todo", "arguments": arguments }] });
    let first = json!({ "todos": [{ "id": "a", "content": "look" }, { "id": "b", "content": "write" }] });
    let then = json!({ "todos": [{ "id": "a", "status": "completed" }], "merge": true });
    let script = world.script(&json!([todo(first), todo(then), { "say": "begun" }]));
    let output = world.run(&["run", &script, "--session", "plan", "go"]);
    assert!(stderr(&output).contains("todo      1 of 2 done"), "{}", stderr(&output));
    // The next run of the conversation finds it.
    let script = world.script(&json!([todo(json!({})), { "say": "{{result:1.1}}" }]));
    let answer = world.ok(&["run", &script, "--session", "plan", "go on"]);
    assert!(
        answer.contains(r#""summary":{"total":2,"pending":1,"in_progress":0,"completed":1,"cancelled":0}"#),
        "{answer}"
    );
    let list = "- [x] a: look\n- [ ] b: write";
    assert!(world.ok(&["sessions", "show", "plan"]).ends_with(&format!("\ntodo:\n{list}\n")));
    assert_eq!(object(&world.ok(&["sessions", "show", "plan", "--json"]))["todo"], list);
    let records = world.journal("plan");
    let changed = records.iter().filter(|record| record["kind"] == "todo.changed").count();
    let ends = records.iter().filter(|record| record["kind"] == "call.ended");
    assert_eq!((changed, ends.map(|end| &end["attempt"]).collect::<Vec<_>>()), (2, vec![&json!(0); 3]));
    assert!(records.iter().all(|record| record["kind"] != "call.started"));
}

#[test]
fn a_model_that_calls_badly_is_told_and_then_given_up() {
    let world = World::new();
    let call = |tool: &str, arguments: Value| json!({ "call": [{ "tool": tool, "arguments": arguments }] });
    // What is meant is understood; what is not gets an error that says what there is.
    let meant = call("ListFilesTool", json!("\"{\\\"limit\\\": 5}\""));
    let unknown = call("weather", json!({}));
    let steps = json!([meant, unknown, { "say": "{{result:1.1}} {{result:2.1}}" }]);
    let answer = world.ok(&["run", &world.script(&steps), "hi"]);
    assert!(
        answer.contains("[empty folder]")
            && answer.contains("the tools are: current_time, delegate_task, edit_file"),
        "{answer}"
    );
    // Broken JSON never runs: the model is asked twice more, then told.
    let broken = call("write_file", json!("{\"path\": \"a\", \"content\": \"x"));
    let answer = world.ok(&["run", &world.script(&json!([broken, { "say": "{{result:1.1}}" }])), "hi"]);
    assert!(answer.contains("the arguments are not JSON: EOF while parsing a string at line 1"), "{answer}");
    assert!(!world.work().join("a").exists());
    let records = world.journal("last");
    let answers = records.iter().filter(|record| record["kind"] == "model.answered");
    let flaws: Vec<_> = answers.map(|record| &record["flaw"]).collect();
    assert_eq!(flaws, [&json!("malformed"), &json!("malformed"), &Value::Null, &Value::Null]);
    // A model that keeps calling what is not there is given up.
    let forever = json!([{ "call": [{ "tool": "weather" }], "repeat": "forever" }]);
    world.fails(&["run", &world.script(&forever), "hi"], 1, "failed (unknown_tool");
    let cut = json!([{ "call": [{ "tool": "list_files" }], "finish": "length" }]);
    world.fails(&["run", &world.script(&cut), "hi"], 1, "truncated");
    let kinds = world.journal("last");
    assert_eq!(kinds.iter().filter(|record| record["kind"] == "model.answered").count(), 5);
    assert!(kinds.iter().all(|record| record["kind"] != "call.started"));
}

#[test]
fn what_a_run_said_that_did_not_complete_is_a_partial() {
    let world = World::new();
    let check = |steps: Value, cause: &str, partial: &str, iterations: u32| {
        let output = world.run(&["run", "--json", &world.script(&steps), "hi"]);
        assert_eq!(output.status.code(), Some(1));
        let result = object(&String::from_utf8(output.stdout).unwrap());
        assert_eq!((&result["outcome"], &result["cause"]), (&json!("failed"), &json!(cause)), "{result}");
        assert_eq!((&result["answer"], &result["answer_source"]), (&Value::Null, &json!("partial")));
        assert_eq!((&result["partial"], &result["iterations"]), (&json!(partial), &json!(iterations)));
        let shown = world.ok(&["runs", "show", result["run"].as_str().unwrap(), "--json"]);
        assert_eq!(object(&shown)["said"], partial);
    };
    let looks = json!({ "say": "I look", "call": [{ "tool": "list_files" }] });
    check(json!([looks, { "say": "", "repeat": "forever" }]), "empty_answer", "I look", 6);
    let cut = json!([{ "say": "half ", "finish": "length", "repeat": "forever" }]);
    check(cut, "truncated", &"[rehearsal] half ".repeat(4), 4);
}

#[test]
fn long_output_is_an_artifact_that_the_model_pages() {
    let world = World::new();
    let make = json!({ "tool": "shell", "arguments": { "command": "seq 1000000" } });
    let steps = json!([
        { "call": [make] },
        { "call": [{ "tool": "read_artifact", "arguments": { "handle": "{{result:1.1#/artifact/handle}}", "offset": 6_888_874, "limit": 50 } }] },
        { "say": "{{result:2.1}}" },
    ]);
    let answer = world.ok(&["run", &world.script(&steps), "hi"]);
    assert!(answer.contains("\n999999\n1000000\n\n[bytes 6888"), "{answer}");
    let records = world.journal("last");
    let end = records.iter().find(|record| record["kind"] == "call.ended").unwrap();
    assert_eq!(end["artifact"]["bytes"], 6_888_896, "{end}");
    assert!(end["content"].as_str().unwrap().len() <= 50_000);
}

#[test]
fn a_conversation_goes_on_with_its_history() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "step {{step}}: {{user}}", "repeat": "forever" }]));
    let long = "remember this ".repeat(400);
    world.ok(&["run", &script, &long]);
    let output = world.run(&["run", "--resume", "last", "--json", "and now?"]);
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert!(result["answer"].as_str().unwrap().ends_with("and now?"), "{result}");
    assert!(stderr(&output).contains("this is a rehearsal"), "it goes on with the script it had");
    let read: Vec<_> =
        world.journal("last").iter().filter_map(|r| r["usage"]["input_tokens"].as_u64()).collect();
    let runs = object(&world.ok(&["sessions", "show", "last", "--json"]))["runs"].as_array().unwrap().len();
    assert_eq!(runs, 2);
    // The second text is short: that its request is longer than the first is the history in it.
    assert!(read.len() >= 2 && read[0] > 1000 && read.last() > read.first(), "{read:?}");
}

/// Its prompt names its folder: from another one it goes on there, and a new one is only taken by name.
#[test]
fn a_conversation_goes_on_in_its_folder() {
    let world = World::new();
    world.ok(&["run", &world.script(&json!([{ "say": "yes", "repeat": "forever" }])), "hi"]);
    let above = world.work().parent().unwrap().to_owned();
    let from_above = |more: &[&str]| {
        let mut command = world.hermod(&["run", "--resume", "last", "and now?"]);
        let output = command.args(more).current_dir(&above).output().unwrap();
        (output.status.code().unwrap(), stderr(&output))
    };
    let check = |more: &[&str], folder: PathBuf| {
        assert_eq!(from_above(more).0, 0, "{more:?}");
        let shown = object(&world.ok(&["runs", "show", "last", "--json"]));
        assert_eq!(shown["spec"]["workspace"], json!(folder.canonicalize().unwrap()));
    };
    check(&[], world.work());
    check(&["--workspace", "other", "--create"], above.join("other"));
    check(&[], above.join("other"));
    fs::remove_dir(above.join("other")).unwrap();
    let (code, told) = from_above(&[]);
    assert!(code == 2 && told.contains("--workspace DIR names another folder"), "{code}: {told}");
}

#[test]
fn a_key_in_the_environment_is_all_it_takes() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "hello" }]));
    let file = script.strip_prefix("--rehearse=").unwrap();
    let mut command = world.hermod(&["rehearse", file]);
    let mut model = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut base_url = String::new();
    BufReader::new(model.child().stdout.take().unwrap()).read_line(&mut base_url).unwrap();
    assert!(base_url.starts_with("http://127.0.0.1:") && base_url.ends_with("/v1\n"), "{base_url}");
    let output = world
        .hermod(&["run", "--model", "m", "hi"])
        .envs([("OPENAI_BASE_URL", base_url.trim()), ("OPENAI_API_KEY", "sk-secret")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[rehearsal] hello\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("openai/m"));
    let journal = world.ok(&["journal", "last"]);
    assert!(!journal.contains("sk-secret"));
    model.signal(Signal::TERM);
    let mut notice = String::new();
    model.child().stderr.take().unwrap().read_to_string(&mut notice).unwrap();
    assert!(notice.contains("this is a rehearsal"));
    assert_eq!(model.end().status.code(), Some(0));
}

#[test]
fn without_a_provider_it_says_how_to_get_one() {
    let world = World::new();
    world.fails(&["run", "--provider", "openrouter", "hi"], 78, "set OPENROUTER_API_KEY");
    world.fails(&["run", "--provider", "acme", "hi"], 78, "there is no provider `acme`");
    // With a local Ollama there is one.
    if TcpStream::connect("127.0.0.1:11434").is_err() {
        world.fails(&["run", "hi"], 78, "--rehearse");
        let output = world.run(&["run", "--json", "hi"]);
        let result = object(&String::from_utf8_lossy(&output.stdout));
        assert_eq!((output.status.code(), &result["outcome"]), (Some(78), &Value::Null));
        assert!(result["error"].as_str().unwrap().contains("OPENAI_API_KEY"), "{result}");
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    let world = World::new();
    world.fails(&["run", "--rehearse", ""], 2, "TEXT is empty");
    world.fails(&["run", "--rehearse"], 2, "TEXT");
    world.fails(&["run", "--rehearse", "--budget", "iterations=0", "hi"], 2, "whole number from 1");
    world.fails(&["run", "--rehearse", "--budget", "usd=1", "hi"], 2, "price of rehearsal-");
    world.fails(&["run", "--rehearse", "--timeout", "never", "hi"], 2, "write it like 90s");
    world.fails(&["run", "--rehearse=nowhere.json", "hi"], 2, "nowhere.json");
    world.fails(&["run", "--rehearse", "--workspace", "nowhere", "hi"], 2, "--create makes it");
    world.fails(&["run", "--rehearse", "--workspace", "../state", "hi"], 2, "state directory");
    world.fails(&["run", "--resume", "last"], 2, "there is no last run");
    world.fails(&["run", "--resume", "nobody", "hi"], 2, "no run or session `nobody`");
    world.fails(&["runs", "show", "nobody"], 2, "no run or session `nobody`");
    assert_eq!(world.ok(&["runs", "list", "--json"]), "[]\n", "nothing of this was accepted");
}

#[test]
fn nothing_unfinished_is_said_and_options_without_effect_are_refused() {
    let world = World::new();
    world.ok(&["run", &world.script(&json!([{ "say": "done" }])), "hi"]);
    world.fails(&["run", "--resume", "last"], 2, "has ended: completed; give a TEXT");
    world.fails(&["run", "--resume", "last", "--budget", "tokens=5"], 2, "--budget: the unfinished run");
}

/// As in `$HOME`, with the state in `~/.local/state/hermod`.
#[test]
fn a_workspace_may_contain_the_state_directory() {
    let world = World::new();
    let call = |tool: &str, path: &str| json!({ "tool": tool, "arguments": { "path": path } });
    let script = world.script(&json!([
        { "call": [
            call("list_files", "."),
            call("read_file", "state/control.token"),
            { "tool": "write_file", "arguments": { "path": "state/new", "content": "x" } },
            { "tool": "write_file", "arguments": { "path": "beside", "content": "x" } },
        ] },
        { "say": "{{result:1.1}}\n{{result:1.2}}\n{{result:1.3}}\n{{result:1.4}}" },
    ]));
    let mut command = world.hermod(&["run", &script, "hi"]);
    let output = command.current_dir(world.work().parent().unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.contains("state/ [Hermod's state directory; no file tool goes there]\n"), "{answer}");
    assert_eq!(answer.matches("lies in Hermod's state directory").count(), 2, "{answer}");
    assert!(answer.contains("wrote 1 bytes to beside"), "{answer}");
    assert!(!world.state().join("new").exists());
}

#[test]
fn a_workspace_is_made_when_asked_for() {
    let world = World::new();
    let call = json!({ "call": [{ "tool": "write_file", "arguments": { "path": "x", "content": "y" } }] });
    let script = world.script(&json!([call, { "say": "done" }]));
    world.ok(&["run", &script, "--workspace", "new/er", "--create", "hi"]);
    assert_eq!(fs::read_to_string(world.work().join("new/er/x")).unwrap(), "y");
}

#[test]
fn what_is_piped_is_the_task_or_stands_below_it_and_is_never_dropped() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "{{user}}" }]));
    let mut command = world.hermod(&["run", &script, "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("from there".as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"[rehearsal] from there\n");
    let piped = |args: &[&str], input: &str| {
        let mut command = world.hermod(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let below = "[rehearsal] from here\n\nStandard input:\n\n```\nfrom there\n```\n";
    assert_eq!(String::from_utf8_lossy(&piped(&["run", &script, "from here"], "from there\n").stdout), below);
    assert_eq!(piped(&["run", &script, "from here"], "").stdout, b"[rehearsal] from here\n");
    // A file is input too.
    fs::write(world.work().join("input"), "from there").unwrap();
    let file = fs::File::open(world.work().join("input")).unwrap();
    let output = world.hermod(&["run", &script, "from here"]).stdin(file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), below);
    // A pipe that is left open is waited for, and that is said.
    let mut running = {
        let mut command = world.hermod(&["run", &script, "from here"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().unwrap())
    };
    let mut open = running.child().stdin.take().unwrap();
    Lines::of(&mut running).until("stdin     waits for the end of what is piped");
    open.write_all(b"from there").unwrap();
    drop(open);
    assert_eq!(String::from_utf8_lossy(&running.end().stdout), below);
    // Nothing takes what is piped without a task.
    let refused = piped(&["run", "--resume", "last"], "go on");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("standard input has text"), "{}", stderr(&refused));
    let binary =
        world.hermod(&["run", &script, "x"]).stdin(fs::File::open("/bin/sh").unwrap()).output().unwrap();
    assert_eq!(binary.status.code(), Some(2), "{}", stderr(&binary));
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "hello" }]));
    for args in [&["run", &script, "hi"][..], &["journal", "last"], &["runs", "list"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = world.hermod(args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn every_outcome_is_told_by_its_code() {
    let world = World::new();
    let look = json!([{ "call": [{ "tool": "list_files", "arguments": {} }], "repeat": "forever" }]);
    let output = world.run(&["run", &world.script(&look), "--budget", "iterations=2", "--json", "hi"]);
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!((output.status.code(), &result["outcome"]), (Some(3), &json!("budget_exhausted")), "{result}");
    assert_eq!(result["answer"], Value::Null);
    let fault = json!({ "status": 401, "times": 100 });
    world.fails(&["run", &world.script(&json!([{ "say": "x", "fault": fault }])), "hi"], 69, "auth");
    let output = world.started(&["--timeout", "300ms"]).end();
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    let outcomes: Vec<_> =
        runs.as_array().unwrap().iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["budget_exhausted", "failed", "timed_out"]);
}

#[test]
fn a_budget_that_is_used_up_leaves_what_was_done() {
    let world = World::new();
    let steps = json!([{ "call": [{ "tool": "list_files", "arguments": {} }] }, { "say": "half of it" }]);
    let output = world.run(&["run", &world.script(&steps), "--budget", "iterations=1", "--json", "hi"]);
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!((output.status.code(), &result["outcome"]), (Some(3), &json!("budget_exhausted")), "{result}");
    let told = ["answer", "partial", "answer_source", "iterations"].map(|field| &result[field]);
    assert_eq!(
        told,
        [&Value::Null, &json!("[rehearsal] half of it"), &json!("partial"), &json!(1)],
        "{result}"
    );
}

#[test]
fn the_store_is_held_by_one_process_which_runs_for_the_others() {
    let world = World::new();
    let running = world.started(&[]);
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    assert_eq!(runs[0]["state"], "running", "who only reads asks the process that has the store");
    let output = world.run(&["run", &world.script(&json!([{ "say": "done" }])), "hi"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[rehearsal] done\n", "{}", stderr(&output));
    let holder = format!("handover  process {} holds the store", running.pid());
    assert!(stderr(&output).contains(&holder), "{}", stderr(&output));
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn an_interrupted_run_is_stopped() {
    let world = World::new();
    let running = world.started(&["--json"]);
    running.signal(Signal::INT);
    let output = running.end();
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!((output.status.code(), &result["outcome"]), (Some(130), &json!("stopped")), "{result}");
    assert_eq!((&result["cause"], &result["reason"]), (&json!("stop"), &json!("signal")));
    world.fails(&["run", "--resume", "last"], 2, "has ended: stopped");
}

#[test]
fn a_terminated_run_goes_on_at_the_next_start() {
    let world = World::new();
    let running = world.started(&[]);
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(stderr(&output).contains("hermod run --resume last"), "{}", stderr(&output));
    let run = &object(&world.ok(&["runs", "list", "--json"]))[0];
    assert_eq!(
        (&run["state"], &run["outcome"], &run["iterations"]),
        (&json!("suspended"), &Value::Null, &json!(1))
    );
    let other = world.run(&["run", &world.script(&json!([{ "say": "done" }])), "another"]);
    assert!(stderr(&other).contains("1 unfinished in other sessions"), "{}", stderr(&other));
    let id = run["id"].as_str().unwrap();
    world.release();
    assert!(world.ok(&["run", "--resume", id]).starts_with("[rehearsal] result: "));
    assert_eq!(world.times_run(), 1);
}

#[test]
fn a_killed_run_goes_on_and_repeats_no_command() {
    let world = World::new();
    let running = world.started(&[]);
    running.signal(Signal::KILL);
    running.end();
    world.release();
    let output = world.run(&["run", "--resume", "last"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("[rehearsal] result: "));
    assert_eq!(world.times_run(), 1, "what goes on by itself is not begun again");
    let records = world.journal("last");
    let kinds = kinds(&records);
    assert_eq!(kinds.iter().filter(|kind| **kind == "run.ended").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| **kind == "call.started").count(), 1);
    let end = records.iter().find(|record| record["kind"] == "call.ended").unwrap();
    assert_eq!(end["status"], "ok", "the command outlived the process: {end}");
}

#[test]
fn a_history_and_a_key_for_the_tools_come_from_the_command_line() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "done" }]));
    let history = world.work().join("history.json");
    let write = |messages: &Value| fs::write(&history, messages.to_string()).unwrap();
    let run = |more: &[&str]| {
        world.run(&[&["run", &script, "--json", "--history", "history.json", "next"], more].concat())
    };
    // A call without a result is repaired, as everywhere.
    let function = json!({ "name": "shell", "arguments": "{}" });
    write(&json!([
        { "role": "system", "content": "be brief" },
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": "", "tool_calls": [{ "id": "1", "type": "function", "function": function }] },
    ]));
    let result = object(&String::from_utf8(run(&["--task-id", "mine"]).stdout).unwrap());
    assert_eq!((&result["outcome"], &result["isolation_key"]), (&json!("completed"), &json!("mine")));
    let accepted = world.journal("last").into_iter().find(|record| record["kind"] == "run.accepted").unwrap();
    assert_eq!(accepted["history"]["rounds"][0]["user"], "hello", "{accepted}");

    let check = |messages: &Value, part: &str| {
        write(messages);
        let output = run(&[]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    };
    check(&json!({}), "--history history.json: invalid type: map, expected a sequence");
    check(
        &json!([{ "role": "user", "tool_call_id": "1" }]),
        "[0].tool_call_id: a message of this role has none",
    );
    check(&json!([{ "role": "person" }]), "[0].role: unknown variant `person`");
    world.fails(&["run", &script, "--history", "absent", "next"], 2, "--history absent: ");
    world.fails(
        &["run", "--resume", "last", "--history", "absent"],
        2,
        "--history: the unfinished run goes on",
    );
    world.fails(&["run", &script, "--task-id", " ", "next"], 2, "it is empty; give a name");
}

#[test]
fn a_list_of_runs_says_what_each_is_to_do_with_which_model_and_where() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "done" }]));
    world.ok(&["run", &script, "count the words\nof this"]);
    let list = world.ok(&["runs", "list"]);
    let folder = world.work().display().to_string();
    for part in ["RUN", "TASK", "count the words of this", "rehearsal-", &folder] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let runs: Value = serde_json::from_str(&world.ok(&["runs", "list", "--json"])).unwrap();
    assert_eq!(
        (&runs[0]["input"], &runs[0]["workspace"]),
        (&json!("count the words\nof this"), &json!(folder))
    );
}
