//! The sandbox of shell commands with real processes: what they cannot do, and the tools that must still work.

mod ending;
mod escapes;
mod limits;
mod network;
mod runs;
mod tools;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hermod::process::{
    self, Command, CommandResult, Environment,
    runner::{LiveRunner, Runner, RunnerOutcome, SpoolName},
    sandbox::{NetworkAccess, SandboxLimits, SandboxMode, SandboxRules, SandboxSpec},
};
use hermod_actors::model::{CallId, RunId};
use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine, shorter than what would be a hang.
const SOON: Duration = Duration::from_mins(2);
/// An ordinary user.
const USER: u32 = 65_534;
const HERMOD: &str = env!("CARGO_BIN_EXE_hermod");

/// A state directory, a workspace, a folder that belongs to neither, and the rules of the sandbox.
struct Cell {
    dir: TempDir,
    rules: SandboxRules,
    /// The workspace, below the folder of everything.
    workspace: String,
    is_on: bool,
    cancel: CancellationToken,
}

/// What a command printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Cell {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (folder, file, text) in [
            ("work", "known", "known"),
            ("state", "control.token", "the token"),
            ("outside", "file", "outside"),
        ] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join(file), text).unwrap();
        }
        let rules = SandboxRules {
            mode: SandboxMode::Required,
            read: Vec::new(),
            write: Vec::new(),
            hide: vec![dir.path().join("state")],
            network: NetworkAccess::Off,
            unix_sockets: false,
            limits: SandboxLimits::default(),
        };
        Self { dir, rules, workspace: "work".into(), is_on: true, cancel: CancellationToken::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            rules: self.rules.clone(),
            workspace: self.at(&self.workspace),
            temp: Some(self.at("state/tmp/run")),
        }
    }

    fn command(&self, script: &str) -> Command {
        Command {
            program: "/bin/sh".into(),
            arguments: vec![
                "-c".into(),
                script.into(),
                "sh".into(),
                self.dir.path().to_str().unwrap().into(),
            ],
            folder: self.at("work"),
            environment: Environment::Clean,
            variables: Vec::new(),
            sandbox: self.is_on.then(|| self.spec()),
            timeout: SOON,
        }
    }

    /// Runs a script in the workspace, as a command of this process. `$1` is the folder of everything. An ordinary user
    /// has the whole sandbox only in a runner.
    async fn run(&self, script: &str) -> Ended {
        if !geteuid().is_root() {
            let end = self.run_detached(script).await;
            fs::remove_dir_all(self.at("state/spool")).unwrap_or_default();
            return end;
        }
        let end = process::run(self.command(script), None, &self.cancel);
        ended(timeout(SOON, end).await.expect("it ends soon").expect("it starts"))
    }

    /// Runs a script by a detached runner.
    async fn run_detached(&self, script: &str) -> Ended {
        self.run_by(HERMOD.as_ref(), script).await
    }

    /// Runs a script by a detached runner of an ordinary user. If this process is not one, everything is given to one.
    async fn run_as_user(&self, script: &str) -> Ended {
        if !geteuid().is_root() {
            return self.run_detached(script).await;
        }
        let (runner, program) = (self.at("runner"), self.at("hermod"));
        if !exists(&runner) {
            // The user may have no access to the folder of this program.
            fs::copy(HERMOD, &program).unwrap();
            let (all, program) = (self.dir.path().display(), program.display());
            // The spool is made by this process.
            let text = format!(
                "#!/bin/sh\nchown -R {USER}:{USER} '{all}'\n\
                 exec setpriv --reuid {USER} --regid {USER} --clear-groups '{program}' \"$@\"\n"
            );
            fs::write(&runner, text).unwrap();
            fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.run_by(&runner, script).await
    }

    async fn run_by(&self, program: &Path, script: &str) -> Ended {
        let runner = self.start(program, script).await;
        match timeout(SOON, runner.wait(&self.cancel)).await.expect("it ends soon") {
            RunnerOutcome::Ended(exit) => ended(exit.end.expect("it starts")),
            other @ (RunnerOutcome::NeverBegun(_) | RunnerOutcome::Unknown | RunnerOutcome::Killed) => {
                panic!("{script}: {other:?}")
            }
        }
    }

    async fn start(&self, program: &Path, script: &str) -> LiveRunner {
        Runner::new(program, &self.at("state")).start(name(), self.command(script)).await.unwrap()
    }

    /// Checks that a script fails in both ways to start it, and says why.
    #[track_caller]
    fn refuses(&self, script: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            for end in [self.run(script).await, self.run_detached(script).await] {
                assert_ne!(end.code, Some(0), "{place}: {script}: {end:?}");
                fs::remove_dir_all(self.at("state/spool")).unwrap_or_default();
            }
            assert_eq!(self.text("outside/file"), "outside", "{place}");
            assert_eq!(self.text("state/control.token"), "the token", "{place}");
        }
    }

    /// Checks that a script succeeds.
    async fn allows(&self, script: &str) -> String {
        let end = self.run(script).await;
        assert_eq!(end.code, Some(0), "{script}: {end:?}");
        end.stdout
    }
}

fn name() -> SpoolName {
    SpoolName { call: CallId { run: RunId::from_bits(7), iteration: 1, n: 1 }, attempt: 1 }
}

fn ended(mut result: CommandResult) -> Ended {
    let text = |stream: &mut process::Capture| {
        String::from_utf8_lossy(stream.truncated(process::HEAD_BYTES).head).into_owned()
    };
    Ended {
        code: result.exit_code,
        signal: result.signal,
        stdout: text(&mut result.stdout),
        stderr: text(&mut result.stderr),
    }
}

fn python(program: &str) -> String {
    assert!(!program.contains('\''), "it stands in single quotes");
    format!("python3 -c '{program}' \"$1\"")
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
