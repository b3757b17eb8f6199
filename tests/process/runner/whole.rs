//! The whole program.

use super::*;

#[test]
fn a_fork_server_without_an_owner_ends() {
    for arguments in [&[ARGUMENT][..], &[ARGUMENT, "/does/not/exist"]] {
        let mut server = Program::new("setsid");
        server.arg("--wait").arg(HERMOD).args(arguments).stdin(Stdio::null());
        assert!(!server.output().unwrap().status.success());
    }
}

#[test]
fn a_killed_daemon_leaves_its_commands() {
    let world = World::new();
    let mut running = world.started(&[]);
    running.child().kill().unwrap();
    running.end();
    world.release();
    let exits = || {
        let folders = fs::read_dir(world.state().join("spool")).unwrap().map(|entry| entry.unwrap().path());
        folders.filter_map(|folder| fs::read(folder.join("exit")).ok()).collect::<Vec<_>>()
    };
    until("the runner has ended", || exits().iter().any(|exit| exit.starts_with(b"hermod-exit")));
    assert!(String::from_utf8_lossy(&exits()[0]).contains(r#""exit_code":0"#));
    assert_eq!(world.times_run(), 1);
}

#[test]
fn a_replaced_program_still_runs_commands() {
    let world = World::new();
    let own = world.work().join("../hermod");
    assert!(Program::new("cp").arg(HERMOD).arg(&own).status().unwrap().success());
    let shell = |command: &str| json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] });
    let wait = "touch ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";
    let script = world.script(&json!([shell(wait), shell("echo second"), { "say": "{{result:2.1}}" }]));
    let mut command = Program::new(&own);
    command.args(["run", &script, "go"]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HERMOD_HOME", world.state()).current_dir(world.work()).stdin(Stdio::null());
    let running = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    until("the command runs", || world.work().join("ran").exists());
    fs::remove_file(&own).unwrap();
    write_program(&own, "#!/bin/sh\nexit 1\n");
    world.release();
    let output = running.end();
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""stdout":"second"#), "{output:?}");
}

#[test]
fn a_start_sweeps_what_ended_runs_left() {
    let world = World::new();
    world.ok(&["run", &world.script(&json!([{ "say": "hi" }])), "go"]);
    let left = world.state().join("spool").join(name().to_string());
    fs::create_dir_all(&left).unwrap();
    let mut running = world.started(&[]);
    until("what an ended run left is gone", || !left.exists());
    // What runs is left alone.
    assert!(running.child().try_wait().unwrap().is_none());
    world.release();
    let output = running.end();
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""exit_code":0"#), "{output:?}");
}

#[test]
fn a_command_that_removes_the_spool_is_run_once_and_its_end_is_told() {
    for is_killed in [false, true] {
        let world = World::new();
        let wait = "while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done; echo last; exit 3";
        let spool = world.state().join("spool");
        let command = format!("rm -rf '{}'; echo once >> ran; {wait}", spool.display());
        let call = json!({ "tool": "shell", "arguments": { "command": command } });
        let script = world.script(&json!([{ "call": [call] }, { "say": "done" }]));
        // Neither the policy nor the sandbox lets a command do so as they are shipped.
        let mut unguarded = world.hermod(&["run", &script, "go"]);
        unguarded.env("HERMOD_POLICY__ALLOW", "shell(rm -rf *)").env("HERMOD_SANDBOX__MODE", "off");
        unguarded.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::new(unguarded.spawn().unwrap());
        until("the command runs", || {
            fs::read_to_string(world.work().join("ran")).is_ok_and(|ran| ran.ends_with('\n'))
        });
        if is_killed {
            running.child().kill().unwrap();
            running.end();
            running = world.running(&["runs", "resume", "--all", "--wait"]);
        }
        world.release();
        let output = running.end();
        assert_eq!((output.status.code(), world.times_run()), (Some(0), 1), "{output:?}");
        let journal = world.journal("last");
        let ends: Vec<_> = journal.iter().filter(|record| record["kind"] == "call.ended").collect();
        let [end] = ends[..] else { panic!("{ends:?}") };
        let content = end["content"].as_str().unwrap();
        assert!(content.contains(r#""exit_code":3"#) && content.contains("last"), "{content}");
        assert!(journal.iter().all(|record| record["kind"] != "call.lost"), "it was begun");
    }
}
