//! `hermod runs resume`, the deaths of a process, and tasks that have a key: the real binary, killed and started again.

use std::{collections::BTreeMap, fs, process::Output};

use hermod::{
    config::Config,
    discovery::Variables,
    host::{self, Endpoints},
    rehearsal::Script,
    store::redb::Durability,
};
use hermod_actors::{Defaults, RunRequest};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, kinds, texts, until},
    world::{World, object, stderr},
};

const ALL: [&str; 4] = ["runs", "resume", "--all", "--wait"];

/// Leaves an unfinished run behind, killed when its model is asked, and says its id.
pub(crate) fn left(world: &World, steps: &Value, signal: Signal) -> String {
    let script = world.script(steps);
    let mut running = world.running(&["run", &script, "do it"]);
    let mut lines = Lines::of(&mut running);
    let accepted = lines.until("accepted  run ");
    lines.until("asks ");
    running.signal(signal);
    running.end();
    accepted.split(' ').nth(3).unwrap().to_owned()
}

/// A model that takes too long for a run of which this much is wanted before it is killed.
fn slow() -> Value {
    json!([{ "say": "late", "delay": "1s" }])
}

fn tail(run: &str) -> &str {
    &run[run.len() - 6..]
}

fn rows(output: &Output) -> Vec<Value> {
    object(&String::from_utf8_lossy(&output.stdout)).as_array().unwrap().clone()
}

#[test]
fn all_go_on_and_how_each_ended_is_told() {
    let world = World::new();
    let call = json!({ "call": [{ "tool": "list_files" }], "delay": "500ms" });
    let first = left(&world, &json!([call, { "say": "one" }]), Signal::TERM);
    let second =
        left(&world, &json!([{ "say": "half", "finish": "refused", "delay": "500ms" }]), Signal::TERM);
    let note = world.run(&["run", &world.script(&json!([{ "say": "hi" }])), "hi"]);
    assert!(
        stderr(&note).contains("2 unfinished in other sessions: they go on with `hermod runs resume --all`")
    );
    let output = world.run(&ALL);
    let (table, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(5), "{progress}");
    let line = |run: &str| table.lines().find(|line| line.contains(run)).unwrap().to_owned();
    assert!(line(&first).contains("completed") && line(&second).contains("refused"), "{table}");
    assert!(table.ends_with(&format!("\nanswer of {first}:\n[rehearsal] one\n")), "{table}");
    for part in ["session   taken up again", "tool 1.1  list_files", "ended     completed: iterations 2"] {
        let line = format!("…{} {part}", tail(&first));
        assert!(progress.contains(&line), "{line}: {progress}");
    }
    assert_eq!(kinds(&world.journal(&first)).iter().filter(|kind| **kind == "run.ended").count(), 1);
    let nothing = world.run(&["runs", "resume", "--all", "--json"]);
    assert_eq!((texts(&nothing).0.as_str(), nothing.status.code()), ("[]\n", Some(0)));
    assert!(stderr(&nothing).contains("nothing   is unfinished"));
    world.fails(&["runs", "resume", &first], 2, &format!("run {first} has ended: completed"));
    world.fails(&["runs", "resume", "nobody"], 2, "no run or session `nobody`");
    world.fails(&["runs", "resume"], 2, "<ID>");
    assert!(!world.state().join("process.json").exists(), "no death is to be remembered");
}

#[test]
fn one_goes_on_and_the_others_wait() {
    let world = World::new();
    let first = left(&world, &slow(), Signal::TERM);
    let second = left(&world, &slow(), Signal::TERM);
    let output = world.run(&["runs", "resume", &first, "--wait", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = rows(&output);
    assert_eq!((rows.len(), &rows[0]["id"], &rows[0]["outcome"]), (1, &json!(first), &json!("completed")));
    assert_eq!(rows[0]["answer"], "[rehearsal] late");
    assert_eq!(object(&world.ok(&["runs", "show", &second, "--json"]))["state"], "suspended");
}

#[test]
fn what_a_run_misses_is_its_own_affair() {
    let world = World::new();
    let fine = left(&world, &slow(), Signal::TERM);
    let scriptless = left(&world, &json!([{ "say": "gone", "delay": "1s" }]), Signal::TERM);
    let spec = object(&world.ok(&["runs", "show", &scriptless, "--json"]))["spec"].clone();
    let script = format!("{}.json", spec["script"].as_str().unwrap());
    fs::remove_file(world.state().join("scripts").join(script)).unwrap();
    let keyless = unreachable_run(&world);
    let output = world.run(&[&ALL[..], &["--json"]].concat());
    let progress = stderr(&output);
    assert_eq!(output.status.code(), Some(69), "{progress}");
    let outcome = |run: &str| rows(&output).iter().find(|row| row["id"] == run).unwrap()["outcome"].clone();
    assert_eq!(outcome(&fine), "completed");
    assert_eq!((outcome(&scriptless), outcome(&keyless)), (json!("failed"), json!("failed")));
    assert!(
        progress.contains("missing   openai, which 1 of the runs may ask: there is no provider `openai`")
    );
    assert!(progress.contains("the rehearsal that needs it cannot go on without it"), "{progress}");
}

/// A run whose provider is in nobody's environment any more.
fn unreachable_run(world: &World) -> String {
    // It accepts connections and answers nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut command = world.hermod(&["run", "--model", "m", "hi"]);
    command.envs([("OPENAI_BASE_URL", base_url), ("OPENAI_API_KEY", "k".to_owned())]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut running = Running::new(command.spawn().unwrap());
    let mut lines = Lines::of(&mut running);
    let accepted = lines.until("accepted  run ");
    lines.until("asks ");
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(143));
    accepted.split(' ').nth(3).unwrap().to_owned()
}

#[test]
fn a_signal_suspends_and_the_holder_is_named_and_obeyed_meanwhile() {
    let world = World::new();
    let stalled = json!([{ "say": "late", "delay": "5m" }]);
    let first = left(&world, &stalled, Signal::TERM);
    let second = left(&world, &stalled, Signal::KILL);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut running = world.running(&ALL);
        let mut lines = Lines::of(&mut running);
        lines.until("asks ");
        lines.until("asks ");
        world.fails(&ALL, 75, &format!("process {}", running.pid()));
        running.signal(signal);
        let output = running.end();
        assert_eq!(output.status.code(), Some(code));
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(table.matches("suspended").count(), 2, "{table}");
    }
    let mut running = world.running(&["runs", "resume", "--all"]);
    let mut lines = Lines::of(&mut running);
    lines.until("asks ");
    lines.until("asks ");
    world.ok(&["steer", &first, "hurry"]);
    let line = lines.until("steered   hurry");
    assert!(line.starts_with(&format!("…{}", tail(&first))), "{line}");
    assert!(world.ok(&["providers", "status"]).contains("rehearsal"));
    assert!(world.ok(&["stop", &first]).contains("stopped (by command)"));
    let stopped = object(&world.ok(&["stop", "--all", "--json"]));
    assert_eq!((stopped.as_array().unwrap().len(), &stopped[0]["id"]), (1, &json!(second)));
    assert_eq!(&stopped[0]["outcome"], "stopped");
    // Without --wait the store is held on.
    lines.until("holding   the store: nothing is under way");
    assert_eq!(world.ok(&["tree"]), "no run is unfinished\n");
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(143));
}

#[test]
fn a_key_stands_for_one_run_whatever_happens() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "once: {{user}}", "delay": "1s" }]));
    let mut running = world.running(&["run", &script, "--key", "k", "do it"]);
    let mut lines = Lines::of(&mut running);
    let accepted = lines.until("accepted  run ");
    let run = accepted.split(' ').nth(3).unwrap();
    running.signal(Signal::KILL);
    running.end();
    // Another task with the key is refused, and the run does not go on for it.
    let before = world.journal("last");
    let other = ["run", &script, "--key", "k", "do something else"];
    let expect = format!(
        "--key `k` stands for run {run}, which has another text: its task is \"do it\", this one is \"do something else\""
    );
    world.fails(&other, 2, &expect);
    world.fails(&["run", &script, "--key", "k", "--session", "s", "do it"], 2, "has another conversation");
    assert_eq!(world.journal("last"), before);
    // Unfinished, it goes on.
    let output = world.run(&["run", &script, "--key", "k", "do it"]);
    let (answer, progress) = texts(&output);
    assert_eq!(answer, "[rehearsal] once: do it\n", "{progress}");
    assert!(progress.contains(&format!("known     key k stands for run {run}")), "{progress}");
    // Ended, its result is told, without anything being asked.
    fs::remove_dir_all(world.state().join("scripts")).unwrap();
    let before = world.journal("last");
    let output = world.run(&["run", "--key", "k", "--json", "do it"]);
    let (result, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    let result = object(&result);
    assert_eq!((&result["run"], &result["answer"]), (&json!(run), &json!("[rehearsal] once: do it")));
    assert_eq!(world.journal("last"), before);
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    assert_eq!(runs.as_array().unwrap().len(), 1);
    world.fails(&["run", "--key", "k", "--resume", "last"], 2, "<TEXT>");
}

/// Starts to let all go on, and kills the process when it tells this line.
pub(crate) fn killed_at(world: &World, part: &str) {
    let mut running = world.running(&ALL);
    Lines::of(&mut running).until(part);
    running.signal(Signal::KILL);
    running.end();
}

/// The trial that the process before, or this one, is at.
fn trial(world: &World) -> Value {
    let file = fs::read(world.state().join("process.json")).unwrap_or_default();
    serde_json::from_slice::<Value>(&file).unwrap_or_default()["process"]["doing"]["trying"].clone()
}

#[test]
fn a_run_of_which_the_process_dies_is_found_and_given_up() {
    let world = World::new();
    let fine = left(&world, &slow(), Signal::KILL);
    let bad = left(&world, &json!([{ "say": "late", "delay": "5m" }]), Signal::KILL);
    let also_fine = left(&world, &slow(), Signal::KILL);
    let alone = format!("…{} probation goes on alone", tail(&bad));
    for death in 1..=3 {
        let mut running = world.running(&ALL);
        let mut lines = Lines::of(&mut running);
        lines.until("probation the process has died ");
        lines.until(&alone);
        until("it has been alone for long", || trial(&world)["long"] == true);
        assert_eq!(trial(&world)["run"], json!(bad), "death {death}");
        running.signal(Signal::KILL);
        running.end();
    }
    let output = world.run(&[&ALL[..], &["--json"]].concat());
    let progress = stderr(&output);
    assert_eq!(output.status.code(), Some(70), "{progress}");
    assert!(progress.contains(&format!("given up  run {bad}: the process died 3 times")), "{progress}");
    for run in [&fine, &also_fine] {
        let shown = object(&world.ok(&["runs", "show", run, "--json"]));
        assert_eq!(shown["outcome"], "completed");
    }
    let shown = object(&world.ok(&["runs", "show", &bad, "--json"]));
    assert_eq!((&shown["outcome"], &shown["cause"]), (&json!("failed"), &json!("crash_loop")), "{shown}");
    assert!(shown["error"].as_str().unwrap().contains("while this run alone was under way"), "{shown}");
}

#[test]
fn a_run_of_which_the_process_dies_at_once_is_given_up_too() {
    let world = World::new();
    let bad = left(&world, &json!([{ "say": "late", "delay": "5m" }]), Signal::KILL);
    let alone = format!("…{} probation goes on alone", tail(&bad));
    for _ in 0..2 {
        killed_at(&world, "asks ");
    }
    for _ in 0..6 {
        killed_at(&world, &alone);
    }
    for _ in 0..3 {
        let mut running = world.running(&ALL);
        let mut lines = Lines::of(&mut running);
        lines.until("probation waits whether the process dies without it");
        lines.until(&alone);
        running.signal(Signal::KILL);
        running.end();
    }
    let output = world.run(&ALL);
    assert_eq!(output.status.code(), Some(70), "{}", stderr(&output));
    assert!(stderr(&output).contains("the process died 9 times"), "{}", stderr(&output));
}

#[test]
fn kills_at_a_rhythm_leave_a_long_step_alone() {
    let world = World::new();
    let run = left(&world, &json!([{ "say": "late", "delay": "5m" }]), Signal::KILL);
    let alone = format!("…{} probation goes on alone", tail(&run));
    for _ in 0..2 {
        killed_at(&world, "asks ");
    }
    let mut running = world.running(&ALL);
    Lines::of(&mut running).until(&alone);
    until("it has been alone for long", || trial(&world)["long"] == true);
    running.signal(Signal::KILL);
    running.end();
    // The next one comes no later, and finds the process at rest.
    killed_at(&world, "probation waits whether the process dies without it");
    let mut running = world.running(&ALL);
    let mut lines = Lines::of(&mut running);
    lines.until(&alone);
    let past: Value = serde_json::from_slice(&fs::read(world.state().join("process.json")).unwrap()).unwrap();
    assert_eq!(past["blamed"], json!([]), "{past}");
    running.signal(Signal::TERM);
    drop(lines);
    assert_eq!(running.end().status.code(), Some(143));
}

#[test]
fn on_probation_who_gets_on_lets_the_next_one_go_on() {
    let world = World::new();
    let looks = json!({ "call": [{ "tool": "list_files" }] });
    let first = left(
        &world,
        &json!([{ "call": [{ "tool": "list_files" }], "delay": "500ms" }, looks,
        { "say": "late", "delay": "5m" }]),
        Signal::KILL,
    );
    let second = left(&world, &slow(), Signal::KILL);
    killed_at(&world, "asks ");
    let mut running = world.running(&ALL);
    let mut lines = Lines::of(&mut running);
    lines.until(&format!("…{} probation goes on alone", tail(&first)));
    // It has made a step, and goes on; the second one is not alone.
    lines.until(&format!("…{} probation goes on beside those before it", tail(&second)));
    lines.until(&format!("…{} ended     completed", tail(&second)));
    lines.until("probation is over: all go on");
    world.ok(&["stop", &first]);
    let rest = lines.rest();
    assert!(rest.contains(&format!("…{} ended     stopped", tail(&first))), "{rest}");
    assert_eq!(running.end().status.code(), Some(1));
    // What ended well leaves deaths behind for a minute, and no blame.
    let past: Value = serde_json::from_slice(&fs::read(world.state().join("process.json")).unwrap()).unwrap();
    assert_eq!((&past["process"], &past["blamed"]), (&Value::Null, &json!([])), "{past}");
}

#[test]
fn kills_at_any_instant_condemn_nobody() {
    let world = World::new();
    let mut steps: Vec<Value> = (0..5)
        .map(|n| json!({ "call": [{ "tool": "write_file", "arguments": { "path": format!("f{n}"), "content": "x" } }] }))
        .collect();
    steps.push(json!({ "say": "done" }));
    steps[0]["delay"] = json!("100ms");
    let runs: Vec<String> = (0..3).map(|_| left(&world, &json!(steps), Signal::KILL)).collect();
    // Instants that are spread over the first 200 ms, and hit opening, reviving and running.
    for n in 0..20_u64 {
        let running = world.running(&ALL);
        std::thread::sleep(std::time::Duration::from_millis(n * 73 % 200));
        running.signal(Signal::KILL);
        running.end();
    }
    let output = world.run(&[&ALL[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for run in &runs {
        let shown = object(&world.ok(&["runs", "show", run, "--json"]));
        assert_eq!(shown["outcome"], "completed", "{shown}");
    }
}

/// Leaves so many sessions behind, each with a run that this script is played for.
fn crowd(world: &World, steps: &Value, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let state = host::create_state_dir(&world.state()).unwrap();
        let json = json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string();
        let script = Script::parse(json.as_bytes()).unwrap();
        let (hash, model) = host::store_script(&state, json.as_bytes(), &script).unwrap();
        let config = Config::load(&[], &Variables::new()).unwrap();
        let spec = host::run_defaults::spec(&config, vec![model], Some(hash), &world.work());
        let mut endpoints = Endpoints::new(Vec::new(), state.clone(), config.provider_defaults);
        endpoints.add_for_run(&spec, &Variables::new()).await.unwrap();
        let journal = host::open(&state, Durability::Strict).unwrap();
        let defaults = Defaults::fixed(spec, "");
        let daemon =
            host::start(journal, endpoints, (&config, &BTreeMap::new()), defaults, None).await.unwrap();
        let submitted = (0..count).map(|_| daemon.runtime.submit(RunRequest::new("do it")));
        for accepted in futures::future::join_all(submitted).await {
            accepted.unwrap();
        }
        daemon.runtime.shut_down().await;
        drop(daemon);
    });
}

#[test]
fn a_hundred_sessions_are_suspended_and_stopped_together() {
    let world = World::new();
    crowd(&world, &json!([{ "say": "late", "delay": "5m" }]), 100);
    let mut running = world.running(&["runs", "resume", "--all"]);
    let mut lines = Lines::of(&mut running);
    for _ in 0..100 {
        lines.until("taken up again");
    }
    running.signal(Signal::TERM);
    let told = tokio::time::Instant::now();
    drop(lines);
    assert_eq!(running.end().status.code(), Some(143));
    // Within a second on a machine with nothing else to do.
    assert!(told.elapsed() < std::time::Duration::from_secs(3), "{:?}", told.elapsed());
    let mut running = world.running(&ALL);
    let mut lines = Lines::of(&mut running);
    for _ in 0..100 {
        lines.until("taken up again");
    }
    std::thread::spawn(move || lines.rest());
    let stopped = object(&world.ok(&["stop", "--all", "--json"]));
    let outcomes = stopped.as_array().unwrap().iter().filter(|run| run["outcome"] == "stopped");
    assert_eq!(outcomes.count(), 100);
    assert_eq!(running.end().status.code(), Some(1));
}
