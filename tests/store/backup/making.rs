//! Backups that are made or restored while something comes in between.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hermod::store::redb::{Durability, RedbJournal};
use hermod_actors::port::Journal;
use rustix::process::Signal;

use super::{ALL, beside, full, heavy};

use crate::{
    running::{Lines, Running, texts, until},
    world::{World, stderr},
};

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
fn killed_in_the_middle_it_leaves_a_part_that_the_next_one_replaces() {
    let world = World::new();
    full(&world);
    heavy(&world, 32);
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
    heavy(&world, 8);
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
    heavy(&world, 32);
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
    heavy(&world, 32);
    let big = beside(&world, "big");
    world.ok(&["backup", "create", &big]);
    let running = world.running(&["backup", "restore", &big, "--replace"]);
    until("it copies", || world.state().join("restore.part/hermod.redb").exists());
    running.signal(Signal::KILL);
    running.end();
    assert_eq!(world.ok(&["runs", "list", "--json"]), old);
    let lineage = |state: &Path| RedbJournal::open(state, Durability::Strict).unwrap().restore_generation();
    assert_eq!(lineage(&world.state()), 0, "the old store");
    world.ok(&["backup", "restore", &backup, "--replace"]);
    assert!(!world.state().join("restore.part").exists());
    assert_eq!(lineage(&world.state()), 1, "the new one");
}

#[test]
fn one_at_a_time_makes_a_backup_of_a_name() {
    let world = World::new();
    // Large enough to be under way still when the second command has started and been refused.
    heavy(&world, 256);
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
