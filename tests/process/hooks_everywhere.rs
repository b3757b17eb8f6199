//! All names of hooks in one conversation that is killed twenty times: no recorded verdict is asked for again, and each
//! event is told at least once, with the same id. A name without a case fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    hooks::{hook, resumed},
    running::{Lines, Running, until},
    world::{World, object, stderr},
};

/// What a name does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Decides before a session has a run.
    Prompt,
    /// Decides before a run begins.
    Start,
    /// Decides during a run.
    Gate,
    /// Is told of records.
    Observer,
    /// Is told of the service.
    Service,
    /// Is told of commands of chats; `tests/service/telegram.rs` has its kills.
    Chat,
}

/// A case for each name. Gates are killed in this order, so that the run makes progress between two kills.
const CASES: [(&str, Kind); 25] = [
    ("session_bootstrap", Kind::Prompt),
    ("before_prompt_build", Kind::Prompt),
    ("before_run", Kind::Start),
    ("before_model_call", Kind::Gate),
    ("post_tool_call", Kind::Gate),
    ("pre_tool_call", Kind::Gate),
    ("tool_result_persist", Kind::Gate),
    ("message_sending", Kind::Gate),
    ("before_compaction", Kind::Gate),
    ("session_start", Kind::Observer),
    ("session_end", Kind::Observer),
    ("run_end", Kind::Observer),
    ("after_model_call", Kind::Observer),
    ("after_compaction", Kind::Observer),
    ("message_received", Kind::Observer),
    ("message_sent", Kind::Observer),
    ("subagent_start", Kind::Observer),
    ("subagent_end", Kind::Observer),
    ("approval_requested", Kind::Observer),
    ("approval_answered", Kind::Observer),
    ("service_start", Kind::Service),
    ("service_stop", Kind::Service),
    ("command", Kind::Chat),
    ("command:new", Kind::Chat),
    ("command:stop", Kind::Chat),
];

/// Kills within each gate of a run.
const ROUNDS: usize = 2;
/// Kills between events.
const MORE_KILLS: usize = 6;
/// Steps of the run with a long text and a call.
const STEPS: usize = 72;

/// The names of those that decide about a run.
fn gates() -> Vec<&'static str> {
    [names(Kind::Start), names(Kind::Gate)].concat()
}

fn names(kind: Kind) -> Vec<&'static str> {
    CASES.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name).collect()
}

/// A conversation with a hook for each name.
struct Conversation {
    world: World,
    /// How often it was killed.
    kills: usize,
    /// Questions whose verdicts were recorded at a kill, with how often each was asked until then.
    settled: BTreeMap<String, usize>,
}

impl Conversation {
    fn new() -> Self {
        let conversation = Self { world: World::new(), kills: 0, settled: BTreeMap::new() };
        fs::create_dir(conversation.ledger()).unwrap();
        conversation.world.configure(&conversation.config());
        conversation
    }

    fn ledger(&self) -> PathBuf {
        self.world.state().with_file_name("ledger")
    }

    /// Each question and event is a file. A gate waits while its file `hold` is there.
    fn config(&self) -> String {
        let ledger = self.ledger().display().to_string();
        let keep = |name: &str| {
            format!("f=$(mktemp {ledger}/{name}.XXXXXXXX) && cat > $f && mv $f $f.json || exit 1; ")
        };
        let mut config = format!(
            "[models.t]\nwindow = 32000\n[approvals]\napprover = \"person\"\n\
             [targets.box]\nkind = \"folder\"\npath = \"{ledger}/box\"\n"
        );
        for name in [names(Kind::Prompt), gates()].concat() {
            let answer = format!("while [ -e {ledger}/hold.{name} ]; do sleep 0.02; done; ");
            let command = keep(name) + &answer + "echo '{\"verdict\":\"allow\"}'";
            config += &hook(&format!("gate_{name}"), &[name], &command, "deadline = \"1m\"");
        }
        let observed = [names(Kind::Observer), names(Kind::Service)].concat();
        config + &hook("watcher", &observed, &keep("observed"), "")
    }

    /// The questions or events of a gate or of the observer, as far as they are whole.
    fn events(&self, of: &str) -> Vec<Value> {
        let paths = fs::read_dir(self.ledger()).unwrap().map(|entry| entry.unwrap().path());
        let is_event = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("{of}.")) && name.ends_with(".json")
        };
        let texts = paths.filter(is_event).map(|path| fs::read_to_string(path).unwrap());
        // A process that was killed has not written the end of an event.
        texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
    }

    /// How often each id was asked about or told.
    fn ids(&self, of: &str) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for event in self.events(of) {
            *ids.entry(event["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        ids
    }

    /// Kills the process, which is started like this, while this gate is asked.
    fn kill_within(&mut self, gate: &str, start: impl FnOnce(&World) -> Running) {
        let (hold, before) = (self.ledger().join(format!("hold.{gate}")), self.events(gate).len());
        fs::write(&hold, "").unwrap();
        let running = start(&self.world);
        until(&format!("{gate} is asked"), || self.events(gate).len() > before);
        self.kill(running);
        fs::remove_file(&hold).unwrap();
    }

    /// The run, which is the only one.
    fn run(&self) -> String {
        let runs = object(&self.world.ok(&["runs", "list", "--json"]));
        runs[0]["id"].as_str().unwrap_or_else(|| panic!("{runs}")).to_owned()
    }

    fn kill(&mut self, running: Running) {
        running.signal(Signal::KILL);
        running.end();
        self.kills += 1;
    }

    /// Keeps the questions whose verdicts are recorded: they must not be asked again.
    fn settle(&mut self, run: &str) {
        let asked: BTreeMap<String, usize> = gates().iter().flat_map(|gate| self.ids(gate)).collect();
        for id in recorded_questions(&self.world.journal(run)) {
            let times = asked.get(&id).copied().unwrap_or_else(|| panic!("{id} was never asked about"));
            self.settled.entry(id).or_insert(times);
        }
    }

    /// The records of all sessions, with their sessions.
    fn journals(&self) -> Vec<(String, Vec<Value>)> {
        let sessions = object(&self.world.ok(&["sessions", "list", "--json"]));
        let ids =
            sessions.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned());
        ids.map(|id| (id.clone(), self.world.journal(&id))).collect()
    }
}

/// The ids of the questions whose verdicts are in these records.
fn recorded_questions(records: &[Value]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for record in records {
        let (call, attempt) = (record["call"].as_str().unwrap_or_default(), &record["attempt"]);
        let (decisions, attempt) = match record["kind"].as_str().unwrap() {
            "call.admitted" | "summary.started" => (&record["hooks"]["decisions"], "0".to_owned()),
            "call.ended" => (&record["hooks"], attempt.to_string()),
            "run.begun" => {
                let call = format!("{}.0.0", record["run"].as_str().unwrap());
                let decisions = record["hooks"]["decisions"].as_array();
                let points = decisions.into_iter().flatten().map(|one| one["point"].as_str().unwrap());
                ids.extend(points.map(|point| format!("{call}/0/{point}")));
                continue;
            }
            "model.answered" => {
                ids.insert(format!("{call}/{attempt}/before_model_call"));
                continue;
            }
            _ => continue,
        };
        let points = decisions.as_array().into_iter().flatten().map(|one| one["point"].as_str().unwrap());
        ids.extend(points.map(|point| format!("{call}/{attempt}/{point}")));
    }
    ids
}

/// The ids of the events that these records of a session are.
fn expected_events(session: &str, records: &[Value]) -> BTreeSet<String> {
    let is_child =
        records.iter().any(|record| record["kind"] == "run.accepted" && !record["parent"].is_null());
    let is_message = |record: &Value| {
        record["status"] == "ok"
            && records.iter().any(|admitted| {
                admitted["kind"] == "call.admitted"
                    && admitted["call"] == record["call"]
                    && admitted["tool"] == "message"
            })
    };
    let of = |record: &Value| -> Vec<String> {
        let names: &[&str] = match record["kind"].as_str().unwrap() {
            "session.opened" => &["session_start"],
            "run.accepted" if is_child => &["subagent_start"],
            "run.accepted" => &["message_received"],
            "model.answered" => &["after_model_call"],
            "context.compacted" => &["session_start", "session_end", "after_compaction"],
            "child.ended" => &["subagent_end"],
            "approval.requested" => &["approval_requested"],
            "approval.answered" => &["approval_answered"],
            "run.ended" if is_child => &["run_end"],
            "run.ended" => &["run_end", "message_sent"],
            "call.ended" if is_message(record) => &["message_sent"],
            _ => &[],
        };
        names.iter().map(|name| format!("{session}/{}/{name}", record["seq"])).collect()
    };
    records.iter().flat_map(of).collect()
}

/// A run that meets every point: its view is compacted several times, and at the end it asks a person.
fn script(world: &World) -> String {
    let step = |n: usize| {
        let call = match n {
            5 => json!({ "tool": "delegate_task", "arguments": { "goal": "help with it" } }),
            n if n % 3 == 0 => {
                json!({ "tool": "message", "arguments": { "target": "box", "text": format!("message {n}") } })
            }
            n => json!({ "tool": "shell", "arguments": { "command": format!("echo {n} >> done") } }),
        };
        json!({ "say": format!("{n} {}", "x".repeat(5_000)), "call": [call] })
    };
    let mut steps: Vec<Value> = (0..STEPS).map(step).collect();
    steps.push(json!({ "call": [{ "tool": "clarify", "arguments": { "question": "Is it done?" } }] }));
    steps.push(json!({ "say": "done" }));
    let scripts = json!([
        { "when": "/^# The (conversation|notes)/", "steps": [{ "say": "Notes: so far so good." }] },
        { "when": "help with it", "steps": [{ "say": "helped" }] },
        { "steps": steps },
    ]);
    let path = world.state().with_file_name("everywhere.json");
    fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).unwrap();
    format!("--rehearse={}", path.display())
}

#[test]
fn each_name_of_a_hook_has_a_case() {
    let world = World::new();
    world.configure(&hook("h", &["nothing"], "true", ""));
    let output = world.run(&["config", "check"]);
    let text = stderr(&output);
    let names = text.split_once("the names are ").unwrap_or_else(|| panic!("{text}")).1;
    let names: BTreeSet<&str> =
        names.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect();
    let cases: BTreeSet<&str> = CASES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.difference(&cases).collect::<Vec<_>>(), Vec::<&&str>::new(), "add a line to CASES");
    assert!(cases.is_subset(&names), "{names:?}");
}

#[test]
fn killed_twenty_times_all_hooks_are_asked_and_told() {
    let mut conversation = Conversation::new();
    let script = script(&conversation.world);
    let start = |world: &World| world.running(&["run", &script, "go"]);
    for gate in [names(Kind::Prompt), names(Kind::Start)].concat() {
        conversation.kill_within(gate, start);
    }
    let run = conversation.run();
    for gate in (0..ROUNDS).flat_map(|_| names(Kind::Gate)) {
        conversation.kill_within(gate, resumed);
        conversation.settle(&run);
    }
    for n in 0..MORE_KILLS {
        let told = conversation.ids("observed").len();
        let running = resumed(&conversation.world);
        until("more is told", || conversation.ids("observed").len() > told + n);
        conversation.kill(running);
        conversation.settle(&run);
    }
    assert!(conversation.kills >= 20, "{}", conversation.kills);
    // It waits for a person, whose answer ends it.
    let world = &conversation.world;
    let parked = resumed(world).end();
    let records = world.journal(&run);
    let requested = records.iter().find(|record| record["kind"] == "approval.requested");
    let call = requested.unwrap_or_else(|| panic!("{}", stderr(&parked)))["call"].as_str().unwrap();
    world.ok(&["approvals", "answer", call, "yes"]);
    let ended = resumed(world).end();
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    conversation.settle(&run);
    check_ledgers(&conversation, &run);
}

/// Checks what was asked and told in all processes, and what a service tells then.
#[track_caller]
fn check_ledgers(conversation: &Conversation, run: &str) {
    let world = &conversation.world;
    for gate in names(Kind::Prompt) {
        // A kill has no session, so the next process asks again; a subagent has a session too.
        let times = conversation.events(gate).len();
        assert!((2..=4).contains(&times), "{gate}: {times}");
    }
    let asked: BTreeMap<String, usize> = gates().iter().flat_map(|gate| conversation.ids(gate)).collect();
    for (id, times) in &conversation.settled {
        assert_eq!(asked[id], *times, "{id} was asked about after its verdict was recorded");
    }
    for gate in gates() {
        let ids = conversation.ids(gate);
        let repeated: usize = ids.values().map(|times| times - 1).sum();
        assert!(!ids.is_empty() && repeated <= conversation.kills, "{gate}: {repeated} of {ids:?}");
    }
    let done = fs::read_to_string(world.work().join("done")).unwrap();
    let expected =
        (0..STEPS).filter(|n| n % 3 != 0 && *n != 5).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    assert_eq!(done, expected, "no command is left out, and none runs twice");
    let compactions =
        world.journal(run).iter().filter(|record| record["kind"] == "context.compacted").count();
    assert!(compactions >= ROUNDS, "{compactions}");
    // What was not told yet is told by the next process, whichever it is.
    let mut service = world.running(&["serve", "--listen", "127.0.0.1:0", "--rehearse"]);
    Lines::of(&mut service).until("serving");
    let expected = |journals: &[(String, Vec<Value>)]| -> BTreeSet<String> {
        journals.iter().flat_map(|(session, records)| expected_events(session, records)).collect()
    };
    let expected = expected(&conversation.journals());
    until("all is told", || expected.iter().all(|id| conversation.ids("observed").contains_key(id)));
    service.signal(Signal::TERM);
    assert_eq!(service.end().status.code(), Some(0));
    let told = conversation.events("observed");
    let of_service = |event: &&Value| event["id"].as_str().unwrap().starts_with("service/");
    let ids: BTreeSet<String> = conversation.ids("observed").into_keys().collect();
    let unknown: Vec<_> =
        ids.iter().filter(|id| !expected.contains(*id) && !id.starts_with("service/")).collect();
    assert!(unknown.is_empty(), "an id is the same whenever its event is told: {unknown:?}");
    let services: BTreeSet<&str> =
        told.iter().filter(of_service).map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(services, names(Kind::Service).into_iter().collect());
    let names_told: BTreeSet<&str> = told.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names_told, [names(Kind::Observer), names(Kind::Service)].concat().into_iter().collect());
}

/// Hooks that misbehave: each refuses where it decides, and the process lives.
#[test]
fn a_hook_that_misbehaves_refuses_at_each_gate() {
    let calls = json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "echo x" } }] },
        { "call": [{ "tool": "message", "arguments": { "target": "box", "text": "x" } }] },
        { "say": "said" },
    ]);
    // What it does to a summary is in `hooks_compaction.rs`.
    let gates = [names(Kind::Prompt), gates()].concat();
    for gate in gates.into_iter().filter(|gate| *gate != "before_compaction") {
        for misbehaviour in ["sleep 60", "kill -9 $$", "yes", "echo yes"] {
            let world = World::new();
            let target = format!("[targets.box]\nkind = \"folder\"\npath = \"{}\"\n", world.work().display());
            world.configure(&(target + &hook("bad", &[gate], misbehaviour, "deadline = \"150ms\"")));
            let output = world.run(&["run", "--json", &world.script(&calls), "go"]);
            let (code, text) = (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
            let what = format!("{gate} {misbehaviour}: {code:?} {text} {}", stderr(&output));
            match gate {
                "session_bootstrap" | "before_prompt_build" => {
                    assert!(code != Some(0) && what.contains("the hook `bad` refuses"), "{what}");
                }
                "before_run" | "before_model_call" => assert_eq!(code, Some(5), "{what}"),
                _ => {
                    assert_eq!(code, Some(0), "{what}");
                    let run = object(&text)["run"].as_str().unwrap().to_owned();
                    let journal = world.ok(&["journal", &run]);
                    assert!(journal.contains(r#""ruling":"refused""#), "{what}: {journal}");
                }
            }
        }
    }
}
