//! The control socket, from the outside: the real binary, and a client that does not keep to the rules.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    time::Duration,
};

use hermod::store::redb::{Durability, RedbJournal};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Running, kinds, until},
    world::{World, object, stderr},
};

/// A raw connection.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn connect(world: &World) -> Self {
        let stream = UnixStream::connect(world.state().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    /// A connection that has greeted.
    fn greeted(world: &World) -> Self {
        let mut raw = Self::connect(world);
        let token = fs::read_to_string(world.state().join("control.token")).unwrap();
        raw.say(&json!({ "token": token }).to_string());
        raw
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; `None` if the other side has ended.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        // A connection that is closed with something unread in it is reset.
        let read = self.0.read_line(&mut line).unwrap_or(0);
        (read > 0).then(|| object(&line))
    }

    fn ask(&mut self, line: &str) -> Value {
        self.say(line);
        self.hear().expect("an answer")
    }
}

const PING: &str = r#"{"verb":"ping"}"#;

/// Starts a run whose model takes its time, and returns when it is asked.
fn thinking(world: &World) -> Running {
    let script = world.script(&json!([{ "say": "late", "delay": "5m" }]));
    let mut running = world.running(&["run", &script, "think"]);
    asked(&mut running);
    running
}

/// Reads the progress of a run until its model is asked.
fn asked(running: &mut Running) {
    let progress = BufReader::new(running.child().stderr.as_mut().unwrap());
    progress.lines().map(|line| line.unwrap()).find(|line| line.starts_with("model 1   asks")).unwrap();
}

#[test]
fn a_run_under_way_is_seen_from_outside() {
    let world = World::new();
    let running = world.started(&["--session", "k"]);
    let run = object(&world.ok(&["runs", "show", "last", "--json"]));
    assert_eq!(
        (&run["state"], &run["iterations"], &run["input"]),
        (&json!("running"), &json!(1), &json!("wait"))
    );
    let id = run["id"].as_str().unwrap();
    assert!(world.ok(&["runs", "list"]).contains(id));
    assert_eq!(object(&world.ok(&["sessions", "list", "--json"]))[0]["key"], "k");
    assert_eq!(object(&world.ok(&["sessions", "show", "k", "--json"]))["runs"][0]["id"], id);
    let records = world.journal("k");
    assert_eq!(kinds(&records).last(), Some(&"call.started"));
    let from = world.ok(&["journal", "k", "--from", "3"]);
    assert_eq!(from.lines().count(), records.len() - 2);
    let tree = object(&world.ok(&["tree", "--json"]));
    assert_eq!((&tree[0]["id"], &tree[0]["children"]), (&json!(id), &json!([])));
    let drawn = world.ok(&["tree", "last"]);
    assert!(drawn.starts_with(&format!("{id}  running, runs shell ")), "{drawn}");
    assert!(drawn.contains("  iterations 1 of ") && drawn.ends_with("  \"wait\"\n"), "{drawn}");
    assert_eq!(world.ok(&["tree", &id[18..]]).lines().count(), 1, "named by the end of its id");
    world.fails(&["runs", "show", "nobody"], 2, "no run or session `nobody`");
    for file in ["control.sock", "control.token"] {
        let mode = fs::metadata(world.state().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }

    world.release();
    assert_eq!(running.end().status.code(), Some(0));
    assert!(!world.state().join("control.sock").exists() && !world.state().join("control.token").exists());
    // The same questions, without anybody to ask.
    assert_eq!(object(&world.ok(&["runs", "show", id, "--json"]))["outcome"], "completed");
    assert_eq!(world.journal("k")[..records.len()], records);
    assert_eq!(world.ok(&["tree"]), "no run is unfinished\n");
    let drawn = world.ok(&["tree", "last"]);
    assert!(drawn.starts_with(&format!("{id}  completed  iterations 2 of ")), "{drawn}");
}

#[test]
fn a_stop_from_outside_ends_a_model_call() {
    let world = World::new();
    let running = thinking(&world);
    let stopped = object(&world.ok(&["stop", "last", "--json"]));
    assert_eq!((&stopped[0]["outcome"], &stopped[0]["reason"]), (&json!("stopped"), &json!("command")));
    assert_eq!(running.end().status.code(), Some(1), "stopped by command");
    let records = world.journal("last");
    let kinds = kinds(&records);
    assert_eq!(kinds[kinds.len() - 3..], ["run.stopping", "model.failed", "run.ended"]);
    assert!(world.ok(&["stop", "last"]).contains("has ended: stopped (by command)"), "again");
}

#[test]
fn a_stop_from_outside_ends_a_command() {
    let world = World::new();
    let running = world.started(&[]);
    assert!(world.ok(&["stop", "--all"]).contains("has ended: stopped (by command)"));
    assert_eq!(running.end().status.code(), Some(1));
    let ended = world.journal("last").into_iter().find(|record| record["kind"] == "call.ended").unwrap();
    assert_eq!(ended["status"], "stopped");
    assert_eq!(world.ok(&["stop", "--all"]), "no run is unfinished\n");
}

#[test]
fn a_run_that_nobody_runs_is_stopped_in_the_store() {
    let world = World::new();
    let running = world.started(&[]);
    running.signal(Signal::KILL);
    running.end();
    let stopped = object(&world.ok(&["stop", "last", "--json"]));
    assert_eq!(stopped[0]["outcome"], "stopped");
    world.fails(&["run", "--resume", "last"], 2, "has ended: stopped");
    let records = world.journal("last");
    let end = records.iter().find(|record| record["kind"] == "call.ended").unwrap();
    assert_eq!(end["status"], "stopped", "what the dead process has left is ended: {end}");
    world.fails(&["stop", "nobody"], 2, "no run or session `nobody`");
    world.fails(&["stop"], 2, "<RUN>");
}

#[test]
fn who_runs_one_conversation_stops_a_run_of_another() {
    let world = World::new();
    let first = world.started(&[]);
    first.signal(Signal::TERM);
    assert_eq!(first.end().status.code(), Some(143));
    let other = object(&world.ok(&["runs", "list", "--json"]))[0]["id"].as_str().unwrap().to_owned();
    let running = thinking(&world);
    world.fails(&["steer", &other, "x"], 2, &format!("process {} has another conversation", running.pid()));
    let stopped = object(&world.ok(&["stop", &other, "--json"]));
    assert_eq!((&stopped[0]["id"], &stopped[0]["outcome"]), (&json!(other), &json!("stopped")));
    let tree = object(&world.ok(&["tree", "--json"]));
    assert_eq!(
        (tree.as_array().unwrap().len(), &tree[0]["state"]),
        (1, &json!("running")),
        "the other goes on"
    );
    world.ok(&["stop", "last"]);
    assert_eq!(running.end().status.code(), Some(1));
}

#[test]
fn a_model_reads_what_is_said_to_its_run() {
    let world = World::new();
    let running = world.started(&[]);
    let steered = object(&world.ok(&["steer", "last", "look elsewhere", "--json"]));
    world.release();
    let output = running.end();
    let (answer, progress) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(answer.contains("look elsewhere"), "{answer}");
    assert!(progress.contains("steered   look elsewhere"), "{progress}");
    let records = world.journal("last");
    let said = records.iter().find(|record| record["kind"] == "message.steered").unwrap();
    assert_eq!((&said["run"], &said["next"]), (&steered["run"], &steered["next"]));
    assert_eq!(object(&world.ok(&["runs", "list", "--json"])).as_array().unwrap().len(), 1);
}

#[test]
fn what_is_said_too_late_waits_as_a_run() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "heard {{user}}", "delay": "2s", "repeat": "forever" }]));
    let mut running = world.running(&["run", &script, "think"]);
    asked(&mut running);
    let steered = object(&world.ok(&["steer", "last", "and this", "--json"]));
    let next = steered["next"].as_str().unwrap();
    let output = running.end();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[rehearsal] heard think\n");
    assert!(stderr(&output).contains(&format!("hermod run --resume {next}")), "{}", stderr(&output));
    assert_eq!(world.ok(&["run", "--resume", next]), "[rehearsal] heard and this\n");
}

#[test]
fn nobody_is_there_to_be_steered() {
    let world = World::new();
    let running = world.started(&[]);
    running.signal(Signal::TERM);
    running.end();
    world.fails(&["steer", "last", "x"], 2, "no process runs run");
    world.release();
    world.ok(&["run", "--resume", "last"]);
    world.fails(&["steer", "last", "x"], 2, "has ended: completed; `hermod run --resume");
    world.fails(&["steer", "nobody", "x"], 2, "no run or session `nobody`");
}

#[test]
fn without_the_token_nothing_is_told() {
    let world = World::new();
    let running = thinking(&world);
    let no = json!({ "token": "0".repeat(64) }).to_string();
    for greeting in [no.as_str(), PING, "{}", "\u{0}garbage", "", r#"{"token":1}"#] {
        let mut raw = Raw::connect(&world);
        assert_eq!(raw.ask(greeting)["refused"]["kind"], "denied", "{greeting}");
        assert_eq!(raw.hear(), None, "{greeting}");
    }
    let token = world.state().join("control.token");
    let right = fs::read_to_string(&token).unwrap();
    fs::write(&token, "wrong").unwrap();
    world.fails(&["stop", "last"], 77, "control.token");
    fs::write(&token, right).unwrap();
    world.ok(&["stop", "last"]);
    assert_eq!(running.end().status.code(), Some(1));
}

#[test]
fn garbage_is_refused_and_the_next_line_answered() {
    let world = World::new();
    let running = thinking(&world);
    let mut raw = Raw::greeted(&world);
    for line in ["garbage", "", "[]", r#"{"verb":"dance"}"#, r#"{"verb":"stop","run":"last","now":1}"#] {
        assert_eq!(raw.ask(line)["refused"]["kind"], "usage", "{line}");
    }
    let pong = raw.ask(PING);
    assert_eq!(pong["pong"]["pid"], running.pid());
    assert_eq!(pong["pong"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(pong["pong"]["writing_since"], Value::Null, "nothing is being written");
    assert_eq!(raw.ask(r#"{"verb":"journal","session":"last"}"#)["record"]["kind"], "session.opened");
    while raw.hear().expect("more")["end"].is_null() {}
    let long = json!({ "verb": "steer", "run": "last", "text": "x".repeat(300_000) }).to_string();
    raw.0.get_mut().write_all(long.as_bytes()).unwrap();
    let refused = raw.hear().unwrap();
    assert!(refused["refused"]["text"].as_str().unwrap().contains("262144 bytes"), "{refused}");
    assert_eq!(raw.hear(), None);
    world.ok(&["stop", "last"]);
    assert_eq!(running.end().status.code(), Some(1));
}

#[test]
fn clients_do_not_hold_each_other_up() {
    let world = World::new();
    let running = thinking(&world);
    let (mut silent, mut one, mut two) = (Raw::connect(&world), Raw::greeted(&world), Raw::greeted(&world));
    one.say(r#"{"verb":"#);
    assert_eq!(two.ask(PING)["pong"]["pid"], running.pid(), "beside one that is in the middle of a line");
    // One that asks for much and takes nothing of it.
    let mut greedy = Raw::greeted(&world);
    greedy.say(&[r#"{"verb":"journal","session":"last"}"#; 1_000].join("\n"));
    assert_eq!(two.ask(PING)["pong"]["pid"], running.pid());
    assert_eq!(silent.hear(), None, "who does not greet is shown out");
    let mut crowd: Vec<Raw> = (0..264).map(|_| Raw::connect(&world)).collect();
    let answers: Vec<Value> = crowd.iter_mut().filter_map(Raw::hear).collect();
    let turned_away = answers.iter().filter(|answer| answer["refused"]["kind"] == "crowded").count();
    assert!((8..264).contains(&turned_away), "{turned_away} of {}", answers.len());
    drop((crowd, greedy, one));
    assert_eq!(two.ask(PING)["pong"]["pid"], running.pid());
    two.say(r#"{"verb":"stop","run":"last"}"#);
    assert_eq!(two.hear().unwrap()["stopped"][0]["state"], "ended", "answered before the process ends");
    assert_eq!(running.end().status.code(), Some(1));
}

#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    let world = World::new();
    let killed = thinking(&world);
    killed.signal(Signal::KILL);
    killed.end();
    assert!(world.state().join("control.sock").exists());
    let token = fs::read(world.state().join("control.token")).unwrap();
    assert_eq!(
        object(&world.ok(&["runs", "list", "--json"]))[0]["state"],
        "suspended",
        "opened, as nobody answers"
    );
    let running = thinking(&world);
    assert_eq!(Raw::greeted(&world).ask(PING)["pong"]["pid"], running.pid());
    assert_ne!(fs::read(world.state().join("control.token")).unwrap(), token);
    world.ok(&["stop", "--all"]);
    assert_eq!(running.end().status.code(), Some(1));
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    assert!(runs.as_array().unwrap().iter().all(|run| run["outcome"] == "stopped"), "{runs}");
}

/// Takes the place of a process that holds the store: answers each connection's first request so, and ends.
fn holder(world: &World, answers: Vec<String>) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(world.state().join("control.sock")).unwrap();
    fs::write(world.state().join("control.token"), "token").unwrap();
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut raw = Raw(BufReader::new(stream));
            assert_eq!(raw.hear(), Some(json!({ "token": "token" })));
            raw.hear().expect("a request");
            raw.0.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    })
}

#[test]
fn who_ends_before_the_answer_is_replaced_by_the_store() {
    let world = World::new();
    world.ok(&["run", &world.script(&json!([{ "say": "done" }])), "--session", "k", "hi"]);
    let records = world.journal("k");
    let id = object(&world.ok(&["sessions", "show", "k", "--json"]))["id"].clone();

    let gone = holder(&world, vec![String::new()]);
    assert_eq!(object(&world.ok(&["runs", "list", "--json"]))[0]["outcome"], "completed");
    gone.join().unwrap();
    fs::remove_file(world.state().join("control.sock")).unwrap();

    let session = json!({ "session": {
        "id": id, "key": "k", "opened_at": "1970-01-01T00:00:00.000Z", "quarantined": null, "runs": [], "todo": null } });
    let half = json!({ "record": records[0] }).to_string();
    let gone = holder(&world, vec![format!("{session}\n"), format!("{half}\n{half}")]);
    assert_eq!(world.journal("k"), records, "none is missing and none comes twice");
    gone.join().unwrap();
}

#[test]
fn who_holds_the_store_and_never_answers_is_named() {
    let world = World::new();
    let held = RedbJournal::open(&world.state(), Durability::Strict).unwrap();
    world.fails(&["runs", "list"], 75, &format!("process {}", std::process::id()));
    world.fails(&["run", "--rehearse", "hi"], 75, &format!("process {}", std::process::id()));
    // One that only looks into the store has it for an instant: a run waits for it.
    let run = world.running(&["run", &world.script(&json!([{ "say": "done" }])), "hi"]);
    drop(held);
    assert_eq!(run.end().status.code(), Some(0));
    assert_eq!(object(&world.ok(&["runs", "list", "--json"]))[0]["outcome"], "completed");
}

#[test]
fn who_takes_no_runs_of_others_is_named() {
    let world = World::new();
    let _held = RedbJournal::open(&world.state(), Durability::Strict).unwrap();
    let listener = UnixListener::bind(world.state().join("control.sock")).unwrap();
    fs::write(world.state().join("control.token"), "token").unwrap();
    let old = std::thread::spawn(move || {
        // Some connections only find out that a process listens.
        loop {
            let mut raw = Raw(BufReader::new(listener.accept().unwrap().0));
            raw.hear().expect("a greeting");
            if raw.hear().is_some_and(|request| request["verb"] == "ping") {
                return raw.say(&json!({ "pong": { "pid": 1, "version": "0.0.1" } }).to_string());
            }
        }
    });
    world.fails(&["run", "--rehearse", "hi"], 75, &format!("process {}", std::process::id()));
    old.join().unwrap();
}

#[test]
fn wrong_submissions_are_refused() {
    let world = World::new();
    let running = thinking(&world);
    let mut raw = Raw::greeted(&world);
    assert_eq!(raw.ask(PING)["pong"]["submissions"], "command");
    let mut check = |request: Value, part: &str| {
        let answer = raw.ask(&request.to_string());
        assert_eq!(answer["refused"]["kind"], "usage", "{answer}");
        assert!(answer["refused"]["text"].as_str().unwrap().contains(part), "{answer}");
    };
    let submit = |more: Value| {
        let mut request = json!({ "verb": "runs.submit", "text": "hi", "idempotency_key": "k" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    check(json!({ "verb": "runs.submit", "text": "hi" }), "missing field `idempotency_key`");
    check(submit(json!({ "spec": {} })), "unknown field `spec`");
    check(submit(json!({ "workspace": "work" })), "workspace: `work` is not absolute");
    check(submit(json!({ "images": ["?"] })), "images: ");
    check(submit(json!({ "conversation": { "id": "nobody" } })), "no run or session `nobody`");
    check(json!({ "verb": "runs.submit_file", "name": "../script.json" }), "is no name of a file");
    check(json!({ "verb": "runs.submit_file", "name": "0.json" }), "cannot be read");
    check(json!({ "verb": "runs.follow", "run": "nobody" }), "no run or session `nobody`");
    check(json!({ "verb": "runs.resume", "id": "nobody" }), "no run or session `nobody`");
    check(json!({ "verb": "stop", "run": "last", "reason": "parent" }), "reason: ");
    assert_eq!(object(&world.ok(&["runs", "list", "--json"])).as_array().unwrap().len(), 1, "none was taken");
    world.ok(&["stop", "--all"]);
    running.end();
}

#[test]
fn a_state_directory_may_have_a_long_path() {
    let world = World::new();
    let deep = world.state().join("d".repeat(200));
    let script = world.script(&json!([{ "say": "late", "delay": "5m" }]));
    let mut command = world.hermod(&["run", &script, "think"]);
    command.env("HERMOD_HOME", &deep).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let running = Running::new(command.spawn().unwrap());
    until("the socket is there", || deep.join("control.sock").exists());
    let stop = || world.hermod(&["stop", "--all"]).env("HERMOD_HOME", &deep).output().unwrap();
    // The socket is there before the run is accepted.
    until("the run is stopped", || String::from_utf8_lossy(&stop().stdout).contains("stopped (by command)"));
    assert_eq!(running.end().status.code(), Some(1));
}
