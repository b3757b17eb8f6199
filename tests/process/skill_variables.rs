//! The variables that skills declare, in a run of the real program: which of them a command sees, and that their values
//! are redacted.

use std::{fs, process::Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Running, WAITING, until},
    secrets::files,
    world::{World, stderr},
};

/// Its name tells no secret.
const DECLARED: (&str, &str) = ("TRACKER_LOGIN", "trk-51c07ab2e9d84f36");
const OTHER: (&str, &str) = ("OTHER_LOGIN", "oth-77ab13c09e5d4f21");
const CREDENTIAL: (&str, &str) = ("ACME_LOGIN", "acm-a8b7c6d5e4f30912");

/// Prints which variables are set, and the value of the declared one.
const COMMAND: &str = r#"for name in TRACKER_LOGIN OTHER_LOGIN ACME_LOGIN OPENAI_API_KEY HERMOD_HOME; do
    eval "[ -n \"\${$name-}\" ] && echo has-$name"; done; echo "it is <$TRACKER_LOGIN>"; echo "$TRACKER_LOGIN" > value"#;

fn skill(folder: &std::path::Path, name: &str, env: &str) {
    fs::create_dir_all(folder.join(name)).unwrap();
    let text = format!("---\nname: {name}\ndescription: Does it.\n{env}\n---\nDo it.\n");
    fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
}

fn view(name: &str) -> Value {
    json!({ "tool": "skill_view", "arguments": { "name": name } })
}

/// A world with a skill of the operator and one of the workspace.
fn world() -> World {
    let world = World::new();
    let own = "metadata:\n  env: [TRACKER_LOGIN, UNSET_LOGIN, HERMOD_HOME, ACME_LOGIN, OPENAI_API_KEY]";
    skill(&world.state().join("skills"), "own", own);
    skill(&world.work().join(".hermod/skills"), "confined", "env: OTHER_LOGIN");
    world
}

fn run(world: &World, steps: &Value) -> String {
    let script = world.script(steps);
    let mut command = world.hermod(&["run", &script, "do it"]);
    command.envs([DECLARED, OTHER, CREDENTIAL, ("OPENAI_API_KEY", "sk-0123456789abcdef")]);
    command.env("HERMOD_PROVIDERS__ACME__CREDENTIAL", "env:ACME_LOGIN");
    command.env("HERMOD_PROVIDERS__ACME__BASE_URL", "http://127.0.0.1:1/v1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    world.ok(&["journal", "last"])
}

/// No file of the state directory has the value.
#[track_caller]
fn check_no_copy(world: &World) {
    for (path, bytes) in files(&world.state()) {
        let value = DECLARED.1.as_bytes();
        assert!(!bytes.windows(value.len()).any(|window| window == value), "{path} has the value");
    }
}

#[test]
fn commands_get_the_variables_of_trusted_skills_alone() {
    let world = world();
    let shell = json!({ "tool": "shell", "arguments": { "command": COMMAND } });
    let read = json!({ "tool": "read_file", "arguments": { "path": "value" } });
    let steps = json!([
        { "call": [view("own"), view("confined")] },
        { "call": [shell] },
        { "call": [read] },
        { "say": "done" },
    ]);
    let journal = run(&world, &steps);
    assert!(journal.contains("[variables that commands get: TRACKER_LOGIN]"), "{journal}");
    assert!(journal.contains("[variables of the skill that are not set: UNSET_LOGIN]"), "{journal}");
    let never = "[variables of the skill that commands never get: HERMOD_HOME, ACME_LOGIN, OPENAI_API_KEY]";
    assert!(journal.contains(never), "{journal}");
    assert!(journal.contains("[its `env` is ignored"), "{journal}");
    assert!(journal.contains("has-TRACKER_LOGIN\\\\n"), "{journal}");
    for name in ["OTHER_LOGIN", "ACME_LOGIN", "OPENAI_API_KEY", "HERMOD_HOME"] {
        assert!(!journal.contains(&format!("has-{name}\\\\n")), "{name}: {journal}");
    }
    assert_eq!(fs::read_to_string(world.work().join("value")).unwrap(), format!("{}\n", DECLARED.1));
    assert!(journal.contains("it is <[redacted:TRACKER_LOGIN]>"), "{journal}");
    assert_eq!(journal.matches("[redacted:TRACKER_LOGIN]").count(), 2, "the result and the file: {journal}");
    check_no_copy(&world);
}

#[test]
fn the_value_is_redacted_when_another_process_takes_the_command_up() {
    let world = world();
    let command = format!("{WAITING}; echo \"it is <$TRACKER_LOGIN>\"");
    let shell = json!({ "tool": "shell", "arguments": { "command": command } });
    let script = world.script(&json!([{ "call": [shell] }, { "say": "{{result:1.1}}" }]));
    let mut command = world.hermod(&["run", &script, "do it"]);
    command.envs([DECLARED]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::new(command.spawn().unwrap());
    until("the command runs", || world.work().join("ran").exists());
    running.signal(Signal::KILL);
    running.end();
    world.release();
    let resumed = world.hermod(&["runs", "resume", "--all", "--wait"]).envs([DECLARED]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let journal = world.ok(&["journal", "last"]);
    assert_eq!(world.times_run(), 1, "it was attached to");
    assert!(journal.contains("it is <[redacted:TRACKER_LOGIN]>"), "{journal}");
    check_no_copy(&world);
}

#[test]
fn the_value_is_redacted_in_a_process_that_has_run_no_command() {
    let world = world();
    fs::write(world.work().join("value"), DECLARED.1).unwrap();
    let read = json!({ "tool": "read_file", "arguments": { "path": "value" } });
    let journal = run(&world, &json!([{ "call": [read] }, { "say": "done" }]));
    assert!(journal.contains("[redacted:TRACKER_LOGIN]") && !journal.contains(DECLARED.1), "{journal}");
}

#[test]
fn a_run_without_skill_view_gets_no_variables() {
    let world = World::new();
    let shell = json!({ "tool": "shell", "arguments": { "command": COMMAND } });
    let first = run(&world, &json!([{ "say": "done" }]));
    assert!(first.contains("done"), "{first}");
    // The session began without skills, so it has no tool that reads them.
    skill(&world.state().join("skills"), "own", "env: [TRACKER_LOGIN]");
    let script = world.script(&json!([{ "call": [shell] }, { "say": "done" }]));
    let mut command = world.hermod(&["run", "--resume", "last", &script, "again"]);
    let output = command.envs([DECLARED]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let journal = world.ok(&["journal", "last"]);
    assert!(journal.contains("it is <>") && !journal.contains("has-TRACKER_LOGIN\\\\n"), "{journal}");
}
