//! What programs and people read of runs while they go on: `run --json-events`, `watch`, `journal --follow`.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    handover::{run_of, script, serve, start, until_begun},
    running::{Lines, Running, texts, until},
    world::World,
};

/// JSON lines.
#[track_caller]
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// A process whose standard output goes to a file, which is read while the process goes on.
struct Read {
    running: Running,
    file: tempfile::NamedTempFile,
}

impl Read {
    fn start(world: &World, args: &[&str]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = world.hermod(args);
        command.stdout(file.reopen().unwrap()).stderr(Stdio::null());
        Self { running: Running::new(command.spawn().unwrap()), file }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file.path()).unwrap()
    }

    /// The lines so far; a last one may be written at the moment.
    fn lines(&self) -> Vec<Value> {
        let text = self.text();
        json_lines(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
    }
}

#[test]
fn events_are_the_same_in_this_process_and_at_a_service() {
    let events = |world: &World| {
        let output = world.run(&["run", &script(world, 0, false), "--json-events", "hi"]);
        let (text, progress) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{progress}");
        json_lines(&text)
    };
    let (own, served) = (World::new(), World::new());
    let service = serve(&served);
    let (mine, theirs) = (events(&own), events(&served));
    // Deltas and streamed calls are of the moment; all else follows from the records.
    let lasting = |events: &[Value]| -> Vec<String> {
        let name = |event: &Value| match event["event"].as_str().unwrap() {
            name @ ("record" | "status" | "lifecycle") => {
                format!("{name} {}{}{}", event["kind"], event["status"], event["stage"])
            }
            name => name.to_owned(),
        };
        let of_moment = ["text.delta", "reasoning.delta", "tool_call.streamed", "tool.progress"];
        events.iter().map(name).filter(|name| !of_moment.contains(&name.as_str())).collect()
    };
    assert_eq!(lasting(&mine), lasting(&theirs));
    for events in [&mine, &theirs] {
        let has = |name: &str| events.iter().any(|event| event["event"] == name);
        assert!(["tool.start", "tool.end", "iteration.end"].into_iter().all(has), "{events:?}");
        let last = events.last().unwrap();
        assert_eq!((&last["event"], &last["answer"]), (&json!("result"), &json!("[rehearsal] answer 0")));
    }
    own.fails(&["run", "--rehearse", "--json", "--json-events", "hi"], 2, "--json-events");
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_watcher_sees_each_record_once_over_a_restart_and_changes_nothing() {
    let world = World::new();
    world.ok(&["run", &script(&world, 9, false), "before"]);
    let service = serve(&world);
    let (all, followed) = (
        Read::start(&world, &["watch", "--json", "--after", "0.0"]),
        Read::start(&world, &["journal", "last", "--follow"]),
    );
    let run = start(&world, 0, &["--resume", &run_of(&world, "before")]);
    until_begun(&world, 2);
    let watched = Read::start(&world, &["watch", "--json", &run_of(&world, "do 0")]);
    let is_begun = |read: &Read| read.text().contains("call.started");
    until("all watch", || is_begun(&watched) && is_begun(&followed) && is_begun(&all));
    service.signal(Signal::KILL);
    service.end();
    let service = serve(&world);
    world.release();
    assert_eq!(run.end().status.code(), Some(0));
    let Read { running, file } = watched;
    assert_eq!(running.end().status.code(), Some(0), "the exit code of the run");
    let shown = json_lines(&std::fs::read_to_string(file.path()).unwrap());
    assert_eq!(shown.last().unwrap()["answer"], "[rehearsal] answer 0");
    let journal = world.journal("last");
    until("all is read", || followed.lines().len() == journal.len() && all.lines().len() == journal.len());
    assert_eq!(followed.lines(), journal, "each record once, as `journal` prints it");
    let numbers = |events: &[Value]| -> Vec<u64> {
        let records = events.iter().filter(|event| event["event"] == "record");
        records.map(|record| record["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&all.lines()), (1..=journal.len() as u64).collect::<Vec<_>>());
    assert!(numbers(&shown).is_sorted_by(|a, b| a < b), "each once: {:?}", numbers(&shown));
    // A cursor leads to what comes behind it.
    let cursor = all.lines()[journal.len() - 2]["cursor"].as_str().unwrap().to_owned();
    let rest = Read::start(&world, &["watch", "--json", "--after", &cursor]);
    until("the last record is read", || rest.lines().len() == 1);
    assert_eq!(rest.lines()[0]["kind"], "run.ended");
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_run_that_no_process_carries_out_is_told_as_it_is() {
    let world = World::new();
    let mut owner = start(&world, 0, &[]);
    until_begun(&world, 1);
    let run = run_of(&world, "do 0");
    Lines::of(&mut owner).until("tool 1.1");
    owner.signal(Signal::TERM);
    owner.end();
    let before = world.journal(&run);
    world.fails(&["watch", &run], 143, "suspended no process carries run ");
    assert_eq!(world.journal(&run), before, "nothing goes on");
    world.release();
    world.ok(&["run", "--resume", &run]);
    assert_eq!(world.ok(&["watch", &run]), "[rehearsal] answer 0\n");
    let last = json_lines(&world.ok(&["watch", "--json", &run]));
    assert_eq!((&last[0]["event"], &last[0]["outcome"]), (&json!("run"), &json!("completed")));
    world.fails(&["watch", "nothing"], 2, "nothing");
    world.fails(&["watch", "--after", "x"], 2, "--after");
}
