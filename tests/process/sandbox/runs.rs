//! The sandbox in a run of the real program: on by default, explained to the model, and cleaned up.

use std::{fs, process::Command};

use serde_json::json;

use crate::world::{World, stderr};

/// The results of the commands of a run, as the journal has them.
fn journal(world: &World, commands: &[&str], set: &[(&str, &str)]) -> String {
    let call = |command: &&str| json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] });
    let mut steps: Vec<_> = commands.iter().map(call).collect();
    steps.push(json!({ "say": "done" }));
    let script = world.script(&json!(steps));
    let run = world.hermod(&["run", &script, "do it"]).envs(set.iter().copied()).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    world.ok(&["journal", "last"])
}

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn commands_of_a_run_are_kept_inside() {
    let world = World::new();
    let journal = journal(
        &world,
        &[
            "echo kept > $TMPDIR/note; echo made > made",
            "echo again: $(cat $TMPDIR/note)",
            "cat ../state/control.token ../state/*.redb",
            "echo x > ../outside",
            "echo unreachable: Could not resolve host; exit 6",
        ],
        &[],
    );
    assert!(journal.contains("again: kept"), "{journal}");
    assert!(journal.contains("sandbox.write"), "{journal}");
    assert!(journal.contains("sandbox.network"), "{journal}");
    assert_eq!(fs::read_to_string(world.work().join("made")).unwrap(), "made\n");
    assert!(!super::exists(&world.work().join("../outside")));
    assert_eq!(fs::read_dir(world.state().join("tmp")).unwrap().count(), 0, "it is removed with the run");
}

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn commands_of_a_run_are_told_which_hosts_they_reach() {
    let world = World::new();
    let hosts = r#"["example.com", "127.0.0.1:1"]"#;
    let journal = journal(
        &world,
        &["curl -sS --max-time 60 https://evil.example/"],
        &[("HERMOD_SANDBOX__NETWORK", hosts)],
    );
    assert!(journal.contains("sandbox.network does not allow evil.example:443"), "{journal}");
    assert!(journal.contains("hosts in sandbox.network (example.com, 127.0.0.1:1)"), "{journal}");
}

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn a_sandbox_that_is_off_keeps_nothing_inside() {
    let world = World::new();
    journal(&world, &["echo x > ../outside"], &[("HERMOD_SANDBOX__MODE", "off")]);
    assert!(super::exists(&world.work().join("../outside")));
}

#[test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
fn descriptors_of_the_caller_reach_no_command() {
    let world = World::new();
    let steps = json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "ls /proc/self/fd | tr '\\n' ' '" } }] },
        { "say": "open: {{result:1.1#/stdout}}" },
    ]);
    let run = ["run", &world.script(&steps), "do it"];
    // A shell hands on what it has opened by number.
    let mut program = Command::new("sh");
    program.args(["-c", "exec 7</dev/zero; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_hermod")]).args(run);
    let environment = world.hermod(&[]);
    let variables = environment.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = program.env_clear().envs(variables).current_dir(world.work()).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    // The last one is that of the listing itself.
    assert!(answer.contains("open: 0 1 2 3 "), "{answer}{}", stderr(&output));
    assert!(!answer.contains('7'), "{answer}");
}
