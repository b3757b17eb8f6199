//! A state directory and a workspace for tests of the real binary.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A state directory and a workspace of their own.
#[derive(Debug)]
pub(crate) struct World(TempDir);

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("work")).expect("a workspace");
        Self(dir)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("hermod.toml")
    }

    /// Writes the configuration of the processes that are started from now on.
    #[allow(dead_code)] // other binaries use it
    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.config(), text).expect("written");
    }

    /// `hermod` in the workspace, with nothing in its environment that is not here.
    pub(crate) fn hermod(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(args).env_clear().env("PATH", path).env("HERMOD_HOME", self.state());
        if self.config().exists() {
            command.env("HERMOD_CONFIG", self.config());
        }
        command.current_dir(self.work()).stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.hermod(args).output().expect("hermod starts")
    }

    /// Runs to success, and returns standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs to failure with `code`, and an error that contains `part`.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32, part: &str) {
        let output = self.run(args);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn object(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}
