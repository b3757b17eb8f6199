//! `hermod backup`: made while runs work, looked through, made a store again, and gone on with.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{Lines, Running, World, object, stderr, texts, until};
use hermod::{
    config::Config,
    daemon::{self, Endpoints},
    environment::Variables,
    rehearsal::Script,
    store::redb::{Durability, RedbJournal},
};
use hermod_actors::{Defaults, RunRequest, port::Journal};
use rustix::process::Signal;
use serde_json::{Value, json};

const ALL: [&str; 4] = ["runs", "resume", "--all", "--wait"];

/// What a shell is to do.
fn shell(command: &str) -> Value {
    json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] })
}

/// Leaves a session behind for each text, with a run that this script is played for. Its commands begin in a later process:
/// this one is no `hermod` that could run them.
fn crowd(world: &World, mut steps: Value, texts: &[String]) {
    steps[0]["delay"] = json!("2s");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let state = daemon::make_state(&world.state()).unwrap();
        let json = json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string();
        let script = Script::parse(json.as_bytes()).unwrap();
        let (hash, model) = daemon::keep_script(&state, json.as_bytes(), &script).unwrap();
        let config = Config::load(&[], &Variables::new()).unwrap();
        let spec = hermod::spec::spec(&config, vec![model], Some(hash), &world.work());
        let journal = daemon::open(&state, Durability::Strict).unwrap();
        let mut endpoints = Endpoints::new(Vec::new(), state, config.provider_defaults);
        endpoints.offer(&spec, &Variables::new()).await.unwrap();
        let daemon = daemon::start(journal, endpoints, (&config, Defaults::fixed(spec, ""))).await.unwrap();
        for text in texts {
            daemon.runtime.submit(RunRequest::new(text.as_str())).await.unwrap();
        }
        daemon.runtime.suspend().await;
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

/// A folder beside the workspace.
fn beside(world: &World, name: &str) -> String {
    world.state().with_file_name(name).to_str().unwrap().to_owned()
}

/// `hermod` with this state directory.
fn elsewhere(world: &World, state: &str, args: &[&str]) -> Command {
    let mut command = world.hermod(args);
    command.env("HERMOD_HOME", state);
    command
}

#[track_caller]
fn ok(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a folder, and what they hold.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

/// A store with all kinds of files in it, whose only run has ended; its key is `k`.
fn full(world: &World) -> String {
    let long = "x".repeat(20_000);
    let script = world.script(&json!([shell("seq 1 200000"), { "say": "{{user}}" }]));
    let run = object(&world.ok(&["run", &script, "--key", "k", "--json", &long]));
    // What other parts keep there.
    fs::create_dir(world.state().join("credentials")).unwrap();
    fs::write(world.state().join("credentials/acme.json"), "hunter2").unwrap();
    run["run"].as_str().unwrap().to_owned()
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
    let mut load: Vec<Value> = (0..60).map(|_| shell("echo {{user}} >> load")).collect();
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
fn damage_that_is_known_hides_no_other_of_the_same_file() {
    let world = World::new();
    full(&world);
    let artifact = files(&world.state().join("artifacts")).into_keys().next().unwrap();
    let bytes = fs::read(&artifact).unwrap();
    fs::write(&artifact, &bytes[..bytes.len() / 2]).unwrap();
    let backup = beside(&world, "backup");
    world.fails(&["backup", "create", &backup], 74, "in the store itself");
    world.ok(&["backup", "verify", &backup]);
    let path = artifact.strip_prefix(world.state()).unwrap();
    let copy = Path::new(&backup).join(path);
    let known = fs::read(&copy).unwrap();
    let mut flipped = known.clone();
    flipped[7] ^= 1;
    let told = |why: &str| format!("damaged   {}: {why}", path.display());
    for (bytes, why) in [(&flipped[..], "its content was changed"), (&known[1..], "it has ")] {
        fs::write(&copy, bytes).unwrap();
        world.fails(&["backup", "verify", &backup], 74, &told(why));
    }
    fs::remove_file(&copy).unwrap();
    world.fails(&["backup", "verify", &backup], 74, &told("it is missing"));
}

#[test]
fn a_folder_of_another_is_not_taken_for_a_part() {
    let world = World::new();
    full(&world);
    let backup = beside(&world, "thesis");
    let foreign = PathBuf::from(format!("{backup}.part"));
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("chapter"), "one").unwrap();
    world.fails(&["backup", "create", &backup], 2, "thesis.part");
    assert_eq!(fs::read(foreign.join("chapter")).unwrap(), b"one");
    // A name may end with a slash.
    let other = beside(&world, "other");
    world.ok(&["backup", "create", &format!("{other}/")]);
    world.ok(&["backup", "verify", &other]);
}

#[test]
fn a_store_that_nobody_holds_is_the_same_when_it_is_restored() {
    let world = World::new();
    let run = full(&world);
    let backup = beside(&world, "backup");
    let made = object(&world.ok(&["backup", "create", &backup, "--json"]));
    let sizes = &made["sizes"];
    for class in ["store", "blobs", "artifacts", "scripts"] {
        assert!(sizes[class]["files"].as_u64() >= Some(1), "{class}: {made}");
    }
    let mut top: Vec<_> = fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    top.sort();
    assert_eq!(top, ["artifacts", "blobs", "hermod.redb", "manifest.json", "manifest.sha256", "scripts"]);
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
    // The key stands for its run still.
    let known = object(&ok(elsewhere(&world, &state, &["run", "--key", "k", "--json", "anything"])));
    assert_eq!(known["run"], run);
    // The restored store is a store like any other.
    ok(elsewhere(&world, &state, &["backup", "create", &beside(&world, "second")]));
    world.ok(&["backup", "verify", &beside(&world, "second")]);
}

#[test]
fn damage_is_found_in_every_file_and_told_by_name() {
    let world = World::new();
    full(&world);
    let backup = PathBuf::from(beside(&world, "backup"));
    let name = backup.to_str().unwrap();
    world.ok(&["backup", "create", name]);
    let whole = files(&backup);
    let home = beside(&world, "restored");
    let check = |path: &Path, part: &str| {
        let before = files(&backup);
        world.fails(&["backup", "verify", name], 74, part);
        assert!(files(&backup) == before, "verify has written");
        let output = elsewhere(&world, &home, &["backup", "restore", name]).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{}: {}", path.display(), stderr(&output));
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
        assert!(!Path::new(&home).join("hermod.redb").exists(), "a damaged backup was restored");
    };
    for (path, bytes) in &whole {
        let told = path.strip_prefix(&backup).unwrap().to_str().unwrap();
        let told = if told == "manifest.sha256" { "manifest.json" } else { told };
        let mut flipped = bytes.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(path, flipped).unwrap();
        // A flip in the sum's own name of the file changes nothing.
        if !path.ends_with("manifest.sha256") {
            check(path, told);
        }
        fs::write(path, &bytes[..bytes.len() / 3]).unwrap();
        check(path, told);
        fs::remove_file(path).unwrap();
        check(path, path.file_name().unwrap().to_str().unwrap());
        fs::write(path, bytes).unwrap();
    }
    let manifest = backup.join("manifest.json");
    let newer =
        String::from_utf8(whole[&manifest].clone()).unwrap().replace("\"format\": 1", "\"format\": 2");
    fs::write(&manifest, newer).unwrap();
    check(&manifest, "its format is 2, and this program knows 1: use the newer hermod");
    fs::write(&manifest, &whole[&manifest]).unwrap();
    world.ok(&["backup", "verify", name]);
    world.fails(&["backup", "verify", &beside(&world, "nothing")], 74, "nothing/manifest.json");
}

#[test]
fn what_is_lost_in_the_store_is_told_and_hinders_no_backup() {
    let world = World::new();
    full(&world);
    let artifacts = files(&world.state().join("artifacts"));
    let lost = artifacts.keys().next().unwrap();
    fs::remove_file(lost).unwrap();
    let name = lost.file_name().unwrap().to_str().unwrap();
    // Not the value that names the artifact: nobody would know of it.
    let blobs = files(&world.state().join("blobs"));
    let other = blobs.iter().find(|(_, bytes)| !String::from_utf8_lossy(bytes).contains(name));
    fs::remove_file(other.unwrap().0).unwrap();
    let backup = beside(&world, "backup");
    let told = format!("damaged   in the store itself, and so in its backup: artifacts/{}", {
        let session = lost.parent().unwrap().file_name().unwrap().to_str().unwrap();
        format!("{session}/{name}")
    });
    world.fails(&["backup", "create", &backup], 74, &told);
    let output = world.run(&["backup", "verify", &backup, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("in the store itself"));
    let verified = object(&String::from_utf8(output.stdout).unwrap());
    let damage = verified["store_damage"].as_array().unwrap();
    for (table, of_record) in [("appends", true), ("artifacts/", false), ("blobs/", false)] {
        let is_told = |damage: &Value| {
            damage["table"].as_str().unwrap().starts_with(table) && damage["seq"].is_u64() == of_record
        };
        assert!(damage.iter().any(is_told), "{table}: {verified}");
    }
    ok(elsewhere(&world, &beside(&world, "restored"), &["backup", "restore", &backup]));
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
    assert_eq!(now[0]["state"], "running", "as it was when the backup was made");
}

fn made_epoch(backup: &str) -> Option<u64> {
    object(&fs::read_to_string(Path::new(backup).join("manifest.json")).unwrap())["epoch"].as_u64()
}

/// Makes the backup long.
fn heavy(world: &World) {
    fs::create_dir_all(world.state().join("scripts")).unwrap();
    for n in 0..8 {
        fs::write(world.state().join(format!("scripts/{n}.json")), vec![b'x'; 8 << 20]).unwrap();
    }
}

#[test]
fn killed_in_the_middle_it_leaves_a_part_that_the_next_one_replaces() {
    let world = World::new();
    full(&world);
    heavy(&world);
    let backup = beside(&world, "backup");
    let part = PathBuf::from(format!("{backup}.part"));
    let killed = || {
        let running = world.running(&["backup", "create", &backup]);
        until("it has begun", || part.join("hermod.redb").exists() || Path::new(&backup).exists());
        running.signal(Signal::KILL);
        running.end();
        !Path::new(&backup).exists()
    };
    assert!(killed(), "it was done before it could be killed");
    assert!(part.exists());
    fs::create_dir_all(part.join("artifacts")).unwrap();
    fs::write(part.join("artifacts/rest"), "of the first").unwrap();
    world.ok(&["backup", "create", &backup]);
    assert!(!part.exists() && !Path::new(&backup).join("artifacts/rest").exists());
    world.ok(&["backup", "verify", &backup]);
}

#[test]
fn without_room_nothing_is_left() {
    let world = World::new();
    full(&world);
    heavy(&world);
    let backup = beside(&world, "backup");
    // A file may have 4 MiB at most.
    let mut command = Command::new("bash");
    let hermod = world.hermod(&[]);
    command.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" backup create \"$1\""]);
    command.arg(hermod.get_program()).arg(&backup).env("HERMOD_HOME", world.state()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("backup.part/scripts/") && stderr(&output).contains("must have room"),
        "{}",
        stderr(&output)
    );
    assert!(!Path::new(&backup).exists() && !Path::new(&format!("{backup}.part")).exists());
}

#[test]
fn who_waits_for_a_holder_that_ends_makes_it_himself() {
    let world = World::new();
    heavy(&world);
    let mut holder = world.started(&[]);
    let mut progress = Lines::of(&mut holder);
    let backup = beside(&world, "backup");
    let making = world.running(&["backup", "create", &backup]);
    until("it is begun", || Path::new(&format!("{backup}.part")).exists());
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().status.code(), Some(143));
    drop(progress.until("suspended"));
    let output = making.end();
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    world.ok(&["backup", "verify", &backup]);
    world.release();
    assert_eq!(world.run(&ALL).status.code(), Some(0));
}

#[test]
fn a_process_that_goes_in_the_middle_of_a_restore_leaves_the_old_store_or_the_new() {
    let world = World::new();
    full(&world);
    let backup = beside(&world, "backup");
    world.ok(&["backup", "create", &backup]);
    let old = world.ok(&["runs", "list", "--json"]);
    heavy(&world);
    let big = beside(&world, "big");
    world.ok(&["backup", "create", &big]);
    let running = world.running(&["backup", "restore", &big, "--replace"]);
    until("it copies", || world.state().join("restore.part/hermod.redb").exists());
    running.signal(Signal::KILL);
    running.end();
    assert_eq!(world.ok(&["runs", "list", "--json"]), old);
    let lineage = |state: &Path| RedbJournal::open(state, Durability::Strict).unwrap().lineage();
    assert_eq!(lineage(&world.state()), 0, "the old store");
    world.ok(&["backup", "restore", &backup, "--replace"]);
    assert!(!world.state().join("restore.part").exists());
    assert_eq!(lineage(&world.state()), 1, "the new one");
}

#[test]
fn one_at_a_time_makes_a_backup_of_a_name() {
    let world = World::new();
    heavy(&world);
    let holder = world.started(&[]);
    let backup = beside(&world, "backup");
    let first = world.running(&["backup", "create", &backup]);
    until("it is begun", || Path::new(&format!("{backup}.part")).exists());
    world.fails(&["backup", "create", &backup], 75, "another backup of this store is under way");
    // Who goes away is not waited for.
    first.signal(Signal::KILL);
    first.end();
    until("the holder gives it up", || !Path::new(&format!("{backup}.part")).exists());
    assert!(!Path::new(&backup).exists());
    world.release();
    assert_eq!(Running::end(holder).status.code(), Some(0));
}
