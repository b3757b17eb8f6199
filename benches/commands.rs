//! What a detached command costs beside a plain spawn of the same shell: processor time of all processes, and time on the
//! wall. In turns: a plain spawn, a durable command, and a durable command in the sandbox whose script is judged first.
//! These are commands of one run. Then the same with a run for each command, whose runner is a new process. Then many
//! durable commands at once.
//!
//! `cargo bench --bench commands -- [--rounds N] [--commands N] [--at-once N] [--only TEXT]`
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{fs, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use common::{
    is_measured, is_wanted, option,
    usage::{Cost, Each, quantile},
};
use futures::future::join_all;
use hermod::{
    policy::{Policy, PolicySettings},
    process::{
        Command, Environment,
        runner::{Runner, RunnerOutcome, SpoolName},
        sandbox::{NetworkAccess, SandboxLimits, SandboxMode, SandboxRules, SandboxSpec},
    },
};
use hermod_actors::{
    model::{AgentName, CallId, RunId},
    port::{CallPolicy as _, CallVerdict, ProposedCall},
};
use rustix::process::{WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const HERMOD: &str = env!("CARGO_BIN_EXE_hermod");
const SCRIPT: &str = "echo done";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Durable,
    Sandboxed,
    FirstDurable,
    FirstSandboxed,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Plain, Self::Durable, Self::Sandboxed, Self::FirstDurable, Self::FirstSandboxed];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain spawn",
            Self::Durable => "durable",
            Self::Sandboxed => "durable, judged and sandboxed",
            Self::FirstDurable => "first of its run",
            Self::FirstSandboxed => "first, judged and sandboxed",
        }
    }
}

/// A state directory and a workspace.
struct World {
    dir: TempDir,
    policy: Policy,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("work")).expect("a workspace");
        let policy = Policy::new(PolicySettings::default(), &dir.path().join("state"));
        Self { dir, policy }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, is_sandboxed: bool) -> Command {
        let rules = SandboxRules {
            mode: SandboxMode::Workspace,
            read: Vec::new(),
            write: Vec::new(),
            hide: vec![self.state()],
            network: NetworkAccess::Off,
            unix_sockets: false,
            limits: SandboxLimits::default(),
        };
        let sandbox = SandboxSpec {
            rules,
            workspace: self.dir.path().join("work"),
            temp: Some(self.state().join("tmp/run")),
        };
        Command {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), SCRIPT.into()],
            folder: self.dir.path().join("work"),
            environment: Environment::Clean,
            variables: Vec::new(),
            sandbox: is_sandboxed.then_some(sandbox),
            timeout: Duration::from_mins(1),
        }
    }

    async fn run(&self, kind: Kind, runner: &Runner, n: u32) {
        match kind {
            Kind::Plain => {
                let output = tokio::process::Command::new("/bin/sh")
                    .args(["-c", SCRIPT])
                    .current_dir(self.dir.path().join("work"))
                    .stdin(Stdio::null())
                    .output();
                assert_eq!(output.await.expect("a shell").stdout, b"done\n");
            }
            Kind::Durable | Kind::FirstDurable => self.run_durable(kind, runner, n).await,
            Kind::Sandboxed | Kind::FirstSandboxed => {
                let workspace = self.dir.path().join("work");
                let call = ProposedCall {
                    agent: &AgentName::default(),
                    tool: "shell",
                    arguments: &json!({ "command": SCRIPT }),
                    workspace: workspace.to_str().expect("a name"),
                };
                assert_eq!(self.policy.judge(&call), CallVerdict::Allow);
                self.run_durable(kind, runner, n).await;
            }
        }
    }

    async fn run_durable(&self, kind: Kind, runner: &Runner, n: u32) {
        let is_sandboxed = matches!(kind, Kind::Sandboxed | Kind::FirstSandboxed);
        let is_first = matches!(kind, Kind::FirstDurable | Kind::FirstSandboxed);
        let run = if is_first { u128::MAX - u128::from(n) } else { u128::MAX };
        let call = CallId { run: RunId::from_bits(run), iteration: 1, n };
        let name = SpoolName { call, attempt: 1 };
        let live = runner.start(name, self.command(is_sandboxed)).await.expect("it starts");
        let outcome = live.wait(&CancellationToken::new()).await;
        let RunnerOutcome::Ended(exit) = outcome else { panic!("{outcome:?}") };
        assert_eq!(exit.end.expect("it runs").stdout.truncated(100).head, b"done\n");
        runner.forget(name);
    }

    /// Runs commands one after the other, or all at once, with a runner of their own.
    async fn measure(&self, kind: Kind, commands: u32, is_at_once: bool) -> Each {
        let (cpu, start) = (processor_time(), Cost::now());
        let runner = Runner::new(HERMOD, &self.state());
        if is_at_once {
            join_all((0..commands).map(|n| self.run(kind, &runner, n))).await;
        } else {
            for n in 0..commands {
                self.run(kind, &runner, n).await;
            }
        }
        let wall = start.spent().wall;
        runner.wait_cleared().await;
        drop(runner);
        // The fork server and the last runners count once they are reaped.
        while has_children() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            while let Ok(Some(_)) = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {}
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(commands);
        Each { cpu: micros(processor_time().saturating_sub(cpu)), wall: micros(wall) }
    }
}

/// Time of the processor of this process and of all processes below it that were reaped, to 10 ms.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells of its processes");
    let words: Vec<_> = stat.rsplit(')').next().expect("a name").split_ascii_whitespace().collect();
    let ticks = words[11..15].iter().map(|word| word.parse::<u64>().expect("ticks"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

fn has_children() -> bool {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok);
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .any(|text| !text.is_empty())
}

fn main() {
    let is_measured = is_measured();
    // Runners that outlive their fork server become children of this process.
    set_child_subreaper(Some(getpid())).expect("Linux has subreapers");
    let (rounds, commands) =
        if is_measured { (option("--rounds", 7), option("--commands", 200)) } else { (1, 2) };
    let at_once = if is_measured { option("--at-once", 1_000) } else { 10 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = Arc::new(runtime.expect("a runtime"));
    let world = World::new();
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| is_wanted(kind.name())).collect();
    let mut samples = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            samples.push(runtime.block_on(world.measure(*kind, commands as u32, false)));
        }
    }
    println!("one after the other, {commands} commands, {rounds} rounds (median, minimum)");
    let mut plain = Each::default();
    for (kind, samples) in kinds.iter().zip(&samples) {
        let median = Each::median(samples);
        if *kind == Kind::Plain {
            plain = median;
        }
        println!(
            "{:<32} CPU {:7.0} us (min {:5.0}), {:+6.0} beside plain; wall {:7.0} us (min {:5.0}), {:+6.0}",
            kind.name(),
            median.cpu,
            quantile(samples.iter().map(|each| each.cpu), 0.0),
            median.cpu - plain.cpu,
            median.wall,
            quantile(samples.iter().map(|each| each.wall), 0.0),
            median.wall - plain.wall,
        );
    }
    println!("{at_once} at once");
    for kind in kinds {
        let each = runtime.block_on(world.measure(kind, at_once as u32, true));
        println!("{:<32} CPU {:7.0} us, wall {:7.0} us for each", kind.name(), each.cpu, each.wall);
    }
}
