//! Tests that run in a process of their own.

use std::{
    env,
    ffi::OsString,
    process::{Command, Output},
};

use crate::running::texts;

/// Set in the environment of that process.
const OWN_PROCESS: &str = "HERMOD_TEST_IN_OWN_PROCESS";

/// Runs `work` of the test `test` (`module::name`) in a process that `launcher` starts, with nothing beside it. An empty
/// launcher starts it directly.
#[track_caller]
pub(crate) fn in_own_process(launcher: &[&str], test: &str, work: impl FnOnce()) {
    if env::var_os(OWN_PROCESS).is_some() {
        return work();
    }
    let own: OsString = env::current_exe().expect("a path").into();
    let mut words = launcher.iter().map(OsString::from).chain([own]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args([test, "--exact", "--nocapture"]).env(OWN_PROCESS, "1");
    let output: Output = command.output().expect("it starts");
    let (out, error) = texts(&output);
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{error}");
}
