//! The detached runner: the real program, and each state that a kill can leave its folder in.

mod clearing;
mod damaged;
mod fork_server;
mod life;
mod limits;
mod removed;
mod reuse;
mod states;
mod whole;

use std::{
    fs::{self, File, OpenOptions},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command as Program, Stdio},
    time::Duration,
};

use hermod::process::{
    Capture, Command, Environment, ExitCause, Tee,
    runner::{
        ARGUMENT, AttachedRunner, ExitRecord, LiveRunner, Runner, RunnerOutcome, STOP_TIMEOUT, SpoolName,
        VARIABLE, follow,
    },
};
use hermod_actors::{
    model::{CallId, RunId},
    port::Boot,
};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process, test_kill_process},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    running::{Running, until},
    world::World,
};

/// Longer than anything here takes on a busy machine, shorter than what would be a hang.
const SOON: Duration = Duration::from_secs(30);
const HERMOD: &str = env!("CARGO_BIN_EXE_hermod");
/// Notes that it runs, waits to be released, and says so.
const WAITS: &str =
    "echo $$ >> ran; echo begun; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done; echo released";

/// A state directory, a folder for commands, and a runner.
struct Place {
    dir: TempDir,
    runner: Runner,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| HERMOD.into())
    }

    fn with(program: impl FnOnce(&Path) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let runner = Runner::new(program(dir.path()), &dir.path().join("state"));
        Self { dir, runner }
    }

    /// A runner that does something first.
    fn wrapped(first: &str) -> Self {
        Self::with(|dir| {
            let script = dir.join("wrapper");
            let text = format!("#!/bin/sh\ncd '{}'\n{first}\nexec '{HERMOD}' \"$@\"\n", dir.display());
            write_program(&script, &text);
            script
        })
    }

    fn work(&self, path: &str) -> PathBuf {
        self.dir.path().join("work").join(path)
    }

    fn spool(&self) -> PathBuf {
        self.dir.path().join("state/spool")
    }

    fn folder(&self) -> PathBuf {
        self.spool().join(name().to_string())
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder().join(path)
    }

    fn command(&self, command: &str) -> Command {
        Command {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            folder: self.work(""),
            environment: Environment::Clean,
            variables: Vec::new(),
            sandbox: None,
            timeout: SOON,
        }
    }

    async fn start(&self, command: &str) -> LiveRunner {
        self.runner.start(name(), self.command(command)).await.unwrap()
    }

    /// Starts the fork server, with a command of another run: its runner is used for no other one.
    async fn start_server(&self) {
        let call = CallId { run: RunId::from_bits(8 | 1 << 127), ..name().call };
        let started = self.runner.start(SpoolName { call, ..name() }, self.command("true")).await;
        ended(end(started.unwrap()).await);
    }

    /// Starts a command that waits, and forgets that it did.
    async fn left_alone(&self) {
        drop(self.start(WAITS).await);
        self.begun();
    }

    fn begun(&self) {
        until("the command runs", || {
            fs::read_to_string(self.work("ran")).is_ok_and(|ran| ran.ends_with('\n'))
        });
    }

    /// The pid that the waiting command, or whatever wrote it, has.
    fn pid(&self, path: &str) -> Pid {
        let pid = fs::read_to_string(self.work(path)).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
    }

    fn release(&self) {
        fs::write(self.work("release"), "").unwrap();
    }

    fn times_run(&self) -> usize {
        fs::read_to_string(self.work("ran")).map_or(0, |ran| ran.lines().count())
    }

    /// The runner, as `started` names it.
    fn runner_pid(&self) -> Pid {
        let started: serde_json::Value =
            serde_json::from_slice(&fs::read(self.file("started")).unwrap()).unwrap();
        Pid::from_raw(started["pid"].as_i64().unwrap().try_into().unwrap()).unwrap()
    }

    async fn attach(&self, boot: Boot) -> AttachedRunner {
        timeout(SOON, self.runner.attach(name(), boot)).await.expect("it is found soon")
    }

    async fn alive(&self) -> LiveRunner {
        match self.attach(Boot::Same).await {
            AttachedRunner::Alive(watched) => *watched,
            AttachedRunner::Over(left) => panic!("it is over: {left:?}"),
        }
    }

    /// What is found in the end.
    async fn found(&self) -> RunnerOutcome {
        match self.attach(Boot::Same).await {
            AttachedRunner::Alive(watched) => end(*watched).await,
            AttachedRunner::Over(left) => left,
        }
    }

    /// What is found at once.
    async fn over(&self, boot: Boot) -> RunnerOutcome {
        match self.attach(boot).await {
            AttachedRunner::Over(left) => left,
            AttachedRunner::Alive(watched) => panic!("it is alive: {watched:?}"),
        }
    }

    /// Makes the folder with these files.
    fn lay_out(&self, files: &[(&str, &[u8])]) {
        fs::create_dir_all(self.folder()).unwrap();
        for (name, content) in files {
            fs::write(self.file(name), content).unwrap();
        }
    }

    /// Makes the ledger as it is when only these runners have begun this attempt's command.
    fn enter(&self, runners: &[u32]) {
        fs::create_dir_all(self.dir.path().join("state")).unwrap();
        let head = "hermod-begun 1 0000000000000".to_owned();
        let entries = runners.iter().map(|runner| format!("{} {runner}", name()));
        let lines: Vec<_> = std::iter::once(head).chain(entries).collect();
        fs::write(self.ledger(), lines.join("\n") + "\n").unwrap();
    }

    fn ledger(&self) -> PathBuf {
        self.dir.path().join("state/begun")
    }

    /// Locks as a runner does, or one of an earlier version.
    fn lock(&self, name: &str) -> File {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(self.file(name)).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock
    }

    /// What a real runner writes for a command.
    async fn exit_of(&self, command: &str) -> Vec<u8> {
        ended(end(self.start(command).await).await);
        let exit = fs::read(self.file("exit")).unwrap();
        fs::remove_dir_all(self.folder()).unwrap();
        exit
    }
}

/// Writes a program. What this process itself has open for writing, a child of another test may have too for a moment,
/// and then it cannot be executed.
fn write_program(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let written = Program::new("sh").args(["-c", write, "sh", text]).arg(path).status().unwrap();
    assert!(written.success());
}

/// Of a run that was accepted long after every ledger was made.
const RUN: RunId = RunId::from_bits(7 | 1 << 127);

fn name() -> SpoolName {
    SpoolName { call: CallId { run: RUN, iteration: 1, n: 1 }, attempt: 1 }
}

async fn end(watched: LiveRunner) -> RunnerOutcome {
    timeout(SOON, watched.wait(&CancellationToken::new())).await.expect("it ends soon")
}

async fn stop(watched: LiveRunner) -> RunnerOutcome {
    let cancel = CancellationToken::new();
    cancel.cancel();
    timeout(SOON, watched.wait(&cancel)).await.expect("it ends soon")
}

fn ended(left: RunnerOutcome) -> ExitRecord {
    match left {
        RunnerOutcome::Ended(exit) => *exit,
        RunnerOutcome::NeverBegun(_) | RunnerOutcome::Unknown | RunnerOutcome::Killed => panic!("{left:?}"),
    }
}

/// Cause, exit code, signal, stdout and stderr.
fn told(exit: ExitRecord) -> (ExitCause, Option<i32>, Option<i32>, String, String) {
    let ran = exit.end.expect("it ran");
    let text = |mut stream: Capture| {
        let shown = stream.truncated(usize::MAX / 2);
        String::from_utf8_lossy(&[shown.head, shown.tail].concat()).into_owned()
    };
    (ran.cause, ran.exit_code, ran.signal, text(ran.stdout), text(ran.stderr))
}

fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().starts_with('Z'));
    test_kill_process(pid).is_err() || state == Some(true)
}

/// A process in a session of its own that does not outlive its test.
fn stranger(variable: Option<String>) -> Running {
    let mut program = Program::new("setsid");
    program.args(["sleep", "1000"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    program.envs(variable.map(|value| (VARIABLE, value)));
    let child: Child = program.spawn().unwrap();
    let stranger = Running::new(child);
    let stat = format!("/proc/{}/comm", stranger.pid());
    until("the stranger is itself", || fs::read_to_string(&stat).is_ok_and(|name| name == "sleep\n"));
    stranger
}

fn started_by(pid: u32) -> Vec<u8> {
    json!({ "version": 1, "by": "runner", "pid": pid }).to_string().into_bytes()
}

/// A pid that nobody has.
fn nobody() -> u32 {
    let mut child = Program::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// The runners of a place.
fn runners(place: &Place) -> Vec<Pid> {
    processes(place, "hermod-runner\n")
}

/// The runners of a place that wait for a command.
fn idle_runners(place: &Place) -> Vec<Pid> {
    processes(place, "hermod-idle\n")
}

/// The fork servers of a place.
fn fork_servers(place: &Place) -> Vec<Pid> {
    processes(place, "hermod-forks\n")
}

/// The processes of this name that the spool of a place has.
fn processes(place: &Place, name: &str) -> Vec<Pid> {
    let spool = place.spool();
    let named = |pid: &Pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let argument = line.split(|byte| *byte == 0).nth(2);
        argument.is_some_and(|argument| argument == spool.as_os_str().as_encoded_bytes())
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|read| read == name)
    };
    let entries =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.filter_map(Pid::from_raw).filter(named).collect()
}
