//! What is wrong with a backup, and with the store that it is made of.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{beside, elsewhere, files, full, ok};

use crate::world::{World, object, stderr};

/// The backup is made, with a warning that contains `part`.
#[track_caller]
fn backup_warns(world: &World, backup: &str, part: &str) {
    let output = world.run(&["backup", "create", backup]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains(part), "{}", stderr(&output));
}

#[test]
fn damage_that_is_known_hides_no_other_of_the_same_file() {
    let world = World::new();
    full(&world);
    let artifact = files(&world.state().join("artifacts")).into_keys().next().unwrap();
    let bytes = fs::read(&artifact).unwrap();
    fs::write(&artifact, &bytes[..bytes.len() / 2]).unwrap();
    let backup = beside(&world, "backup");
    backup_warns(&world, &backup, "in the store itself");
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
        String::from_utf8(whole[&manifest].clone()).unwrap().replace("\"format\": 2", "\"format\": 3");
    fs::write(&manifest, newer).unwrap();
    check(&manifest, "its format is 3, and this program knows 2: use the newer hermod");
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
    backup_warns(&world, &backup, &told);
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
