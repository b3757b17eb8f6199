//! A backup that becomes a store.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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

use super::{ALL, beside, elsewhere, files, full, ok, remember, remembered, shell};

use crate::{
    running::{Lines, until},
    world::{World, object, stderr},
};

/// Leaves a session behind for each text, with a run that this script is played for. Its commands begin in a later process:
/// this one is no `hermod` that could run them.
fn crowd(world: &World, mut steps: Value, texts: &[String]) {
    steps[0]["delay"] = json!("2s");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let state = host::create_state_dir(&world.state()).unwrap();
        let json = json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string();
        let script = Script::parse(json.as_bytes()).unwrap();
        let (hash, model) = host::store_script(&state, json.as_bytes(), &script).unwrap();
        let config = Config::load(&[], &Variables::new()).unwrap();
        let spec = host::run_defaults::spec(&config, vec![model], Some(hash), &world.work());
        let journal = host::open(&state, Durability::Strict).unwrap();
        let mut endpoints = Endpoints::new(Vec::new(), state, config.provider_defaults);
        endpoints.add_for_run(&spec, &Variables::new()).await.unwrap();
        let daemon =
            host::start(journal, endpoints, (&config, &BTreeMap::new()), Defaults::fixed(spec, ""), None)
                .await
                .unwrap();
        for text in texts {
            daemon.runtime.submit(RunRequest::new(text.as_str())).await.unwrap();
        }
        daemon.runtime.shut_down().await;
        drop(daemon);
    });
}

/// How often each line stands in a file of the workspace.
fn lines(world: &World, file: &str) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(world.work().join(file)).unwrap_or_default();
    text.lines().fold(BTreeMap::new(), |mut counts, line| {
        *counts.entry(line.to_owned()).or_default() += 1;
        counts
    })
}

/// How many shells that note that they ran are there still.
fn commands(world: &World) -> usize {
    let ran = fs::read_to_string(world.work().join("ran")).unwrap();
    ran.lines().filter(|pid| Path::new("/proc").join(pid).exists()).count()
}

/// Leaves a command behind whose `hermod` was killed.
fn left_alone(world: &World) {
    let script = world.script(&json!([
        shell("echo $$ >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done"),
        { "say": "done" },
    ]));
    let running = world.running(&["run", &script, "wait"]);
    until("the command runs", || {
        fs::read_to_string(world.work().join("ran")).is_ok_and(|ran| ran.ends_with('\n'))
    });
    running.signal(Signal::KILL);
    running.end();
    assert_eq!(commands(world), 1);
}

fn made_epoch(backup: &str) -> Option<u64> {
    object(&fs::read_to_string(Path::new(backup).join("manifest.json")).unwrap())["epoch"].as_u64()
}

#[test]
fn a_backup_of_working_runs_goes_on_elsewhere_and_does_nothing_twice() {
    let world = World::new();
    let names: Vec<String> = (1..=3).map(|n| format!("run{n}")).collect();
    let waits = "echo {{user}} 2 >> lines; while [ -e lines ] && [ ! -e release ]; do sleep 0.02; done";
    crowd(
        &world,
        json!([shell("echo {{user}} 1 >> lines"), shell(waits), shell("echo {{user}} 3 >> lines"), { "say": "done" }]),
        &names,
    );
    let mut load: Vec<Value> = (0..60).map(|n| shell(&format!("echo {{{{user}}}} >> load; : {n}"))).collect();
    load.push(json!({ "say": "done" }));
    crowd(&world, json!(load), &["load1".into(), "load2".into()]);
    let mut running = world.running(&["runs", "resume", "--all"]);
    let mut progress = Lines::of(&mut running);
    progress.until("asks ");
    let draining = std::thread::spawn(move || progress.rest());
    until("all wait, and others work", || {
        names.iter().all(|name| lines(&world, "lines").contains_key(&format!("{name} 2")))
            && lines(&world, "load").values().sum::<usize>() > 10
    });
    let backup = beside(&world, "backup");
    let before = lines(&world, "load").values().sum::<usize>();
    let made = object(&world.ok(&["backup", "create", &backup, "--json"]));
    assert_eq!((&made["counts"]["runs"], &made["counts"]["open_runs"]), (&json!(5), &json!(5)), "{made}");
    until("the others go on", || lines(&world, "load").values().sum::<usize>() > before + 2);
    running.signal(Signal::KILL);
    running.end();
    drop(draining);
    assert!(world.ok(&["backup", "verify", &backup]).starts_with("whole     "));
    let state = beside(&world, "restored");
    let restored = object(&ok(elsewhere(&world, &state, &["backup", "restore", &backup, "--json"])));
    assert_eq!((&restored["lineage"], &restored["replaced"]), (&json!(1), &Value::Null), "{restored}");
    let runs = object(&ok(elsewhere(&world, &state, &[&ALL[..], &["--json"]].concat())));
    let runs = runs.as_array().unwrap();
    assert!(runs.len() == 5 && runs.iter().all(|run| run["outcome"] == "completed"), "{runs:?}");
    let expect: BTreeMap<String, usize> =
        names.iter().flat_map(|name| (1..=3).map(move |n| (format!("{name} {n}"), 1))).collect();
    assert_eq!(lines(&world, "lines"), expect);
    for run in runs.iter().take(names.len()) {
        let journal = ok(elsewhere(&world, &state, &["journal", run["session"].as_str().unwrap()]));
        assert_eq!(journal.matches(r#""status":"in_doubt""#).count(), 1, "{journal}");
    }
    world.release();
}

#[test]
fn what_a_restored_run_had_started_is_not_taken_for_never_begun() {
    let world = World::new();
    left_alone(&world);
    let (backup, again) = (beside(&world, "backup"), beside(&world, "again"));
    world.ok(&["backup", "create", &backup]);
    // A backup of what was restored, restored: its lineage is a new one again.
    for (lineage, from) in [(1, &backup), (2, &again)] {
        let restored = object(&world.ok(&["backup", "restore", from, "--replace", "--json"]));
        // The command has outlived its hermod, and not its store.
        assert_eq!((&restored["lineage"], &restored["ended"]), (&json!(lineage), &json!(2 - lineage)));
        assert_eq!(commands(&world), 0);
        assert!(Path::new(restored["replaced"].as_str().unwrap()).join("hermod.redb").exists());
        if lineage == 1 {
            world.ok(&["backup", "create", &again]);
        }
    }
    let output = world.run(&ALL);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(world.times_run(), 1);
    let journal = world.journal("last");
    let ends: Vec<&Value> = journal.iter().filter(|record| record["kind"] == "call.ended").collect();
    assert!(ends.len() == 1 && ends[0]["status"] == "in_doubt", "{ends:?}");
}

#[test]
fn commands_of_a_store_that_cannot_be_opened_do_not_stand_in_the_way() {
    let world = World::new();
    full(&world);
    let backup = beside(&world, "backup");
    world.ok(&["backup", "create", &backup]);
    left_alone(&world);
    let store = world.state().join("hermod.redb");
    fs::write(&store, "no store").unwrap();
    world.fails(&["stop", "--all"], 74, "cannot be used as a store");
    let restored = object(&world.ok(&["backup", "restore", &backup, "--replace", "--json"]));
    assert_eq!((&restored["ended"], commands(&world)), (&json!(1), 0));
    // What it had begun is known still, where the old store lies.
    let replaced = Path::new(restored["replaced"].as_str().unwrap());
    assert_eq!(fs::read_dir(replaced.join("spool")).unwrap().count(), 1);
}

#[test]
fn commands_that_no_run_of_the_store_has_started_are_told_and_can_be_stopped() {
    let world = World::new();
    full(&world);
    let backup = beside(&world, "backup");
    world.ok(&["backup", "create", &backup]);
    left_alone(&world);
    fs::remove_file(world.state().join("hermod.redb")).unwrap();
    let runner = fs::read_dir(world.state().join("spool")).unwrap().next().unwrap().unwrap().path();
    let pid = object(&fs::read_to_string(runner.join("started")).unwrap())["pid"].clone();
    world.fails(&["backup", "restore", &backup], 75, &format!("(process {pid})"));
    assert_eq!(world.ok(&["stop", "--all"]), "no run is unfinished\n");
    assert_eq!((commands(&world), runner.exists()), (0, false));
}

#[test]
fn a_store_that_nobody_holds_is_the_same_when_it_is_restored() {
    let world = World::new();
    let run = full(&world);
    let backup = beside(&world, "backup");
    let made = object(&world.ok(&["backup", "create", &backup, "--json"]));
    let sizes = &made["sizes"];
    for class in ["store", "blobs", "artifacts", "scripts", "memories"] {
        assert!(sizes[class]["files"].as_u64() >= Some(1), "{class}: {made}");
    }
    let mut top: Vec<_> = fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    top.sort();
    let parts =
        ["artifacts", "blobs", "hermod.redb", "manifest.json", "manifest.sha256", "memories", "scripts"];
    assert_eq!(top, parts);
    assert_eq!(made["sizes"]["memories"], json!({ "files": 1, "bytes": 8 }), "{made}");
    assert!(files(Path::new(&backup)).values().all(|file| !file.windows(7).any(|part| part == b"hunter2")));
    let verified = object(&world.ok(&["backup", "verify", &backup, "--json"]));
    assert_eq!((&verified["ok"], &verified["counts"]), (&json!(true), &made["counts"]), "{verified}");
    let state = beside(&world, "restored");
    ok(elsewhere(&world, &state, &["backup", "restore", &backup]));
    for args in [&["runs", "list", "--json"][..], &["journal", &run], &["runs", "show", &run, "--json"]] {
        assert_eq!(ok(elsewhere(&world, &state, args)), world.ok(args), "{args:?}");
    }
    for folder in ["artifacts", "blobs", "scripts"] {
        let of = |state: &Path| files(&state.join(folder)).into_values().collect::<Vec<_>>();
        assert_eq!(of(Path::new(&state)), of(&world.state()), "{folder}");
    }
    assert_eq!(remembered(Path::new(&state)), "it rains");
    // The key stands for its run still.
    let known = object(&ok(elsewhere(&world, &state, &["run", "--key", "k", "--json", &"x".repeat(20_000)])));
    assert_eq!(known["run"], run);
    // The restored store is a store like any other.
    ok(elsewhere(&world, &state, &["backup", "create", &beside(&world, "second")]));
    world.ok(&["backup", "verify", &beside(&world, "second")]);
}

#[test]
fn what_agents_remember_comes_back_with_the_store_unless_the_backup_is_older_than_that() {
    let world = World::new();
    full(&world);
    let backup = beside(&world, "backup");
    world.ok(&["backup", "create", &backup]);
    remember(&world, "the sun shines");
    let restored = object(&world.ok(&["backup", "restore", &backup, "--replace", "--json"]));
    let replaced = PathBuf::from(restored["replaced"].as_str().unwrap());
    assert_eq!(
        (remembered(&world.state()), remembered(&replaced)),
        ("it rains".into(), "the sun shines".into())
    );
    remember(&world, "it snows");
    older(Path::new(&backup));
    world.ok(&["backup", "verify", &backup]);
    world.ok(&["backup", "restore", &backup, "--replace"]);
    assert_eq!(remembered(&world.state()), "it snows");
}

/// Makes a backup one of format 1.
fn older(backup: &Path) {
    let path = backup.join("manifest.json");
    let mut manifest = object(&fs::read_to_string(&path).unwrap());
    manifest["format"] = json!(1);
    manifest["files"].as_object_mut().unwrap().remove("memories/MEMORY.md");
    manifest["sizes"].as_object_mut().unwrap().remove("memories");
    fs::remove_dir_all(backup.join("memories")).unwrap();
    fs::write(&path, manifest.to_string()).unwrap();
    let mut sum = Command::new("sha256sum");
    sum.arg("manifest.json").current_dir(backup);
    fs::write(backup.join("manifest.sha256"), ok(sum)).unwrap();
}

#[test]
fn what_would_be_overwritten_is_refused() {
    let world = World::new();
    let running = world.started(&[]);
    let backup = beside(&world, "backup");
    world.ok(&["backup", "create", &backup]);
    world.fails(&["backup", "create", &backup], 2, "it is there already");
    let inside = world.state().join("backup");
    world.fails(&["backup", "create", inside.to_str().unwrap()], 2, "it lies in the state directory");
    world.fails(&["backup", "create", "no/such/folder"], 74, "no/such");
    let pid = running.pid();
    world.fails(&["backup", "restore", &backup, "--replace"], 75, &format!("process {pid}"));
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
    world.fails(&["backup", "restore", &backup], 2, "there is a store already; --replace moves it aside");
    let before = world.ok(&["runs", "list", "--json"]);
    let restored = object(&world.ok(&["backup", "restore", &backup, "--replace", "--json"]));
    let replaced = restored["replaced"].as_str().unwrap();
    assert!(Path::new(replaced).starts_with(world.state()));
    // Above every epoch that the replaced one had: it has been opened since.
    assert!(restored["epoch"].as_u64() > made_epoch(&backup), "{restored}");
    assert_eq!(
        ok(elsewhere(&world, replaced, &["runs", "list", "--json"])),
        before,
        "the old store is whole"
    );
    let now = object(&world.ok(&["runs", "list", "--json"]));
    assert_eq!(now[0]["state"], "suspended", "unfinished, as it was when the backup was made");
}
