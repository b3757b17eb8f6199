//! Tries what a sandbox should refuse, in a process of its own (`hermod doctor sandbox`). A protection counts only if the
//! same attempt succeeds without a sandbox.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use hermod_actors::model::{CallId, RunId};
use rustix::{
    process::{getppid, test_kill_process},
    thread::no_new_privs,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    network::NetworkAccess,
    spec::{SandboxLimits, SandboxMode, SandboxRules, SandboxSpec},
};
use crate::process::{
    Command, Environment, HEAD_BYTES,
    runner::{Runner, RunnerOutcome, SpoolName},
};

/// The first argument of a probing process; the others are the probes' folder and port.
const ARGUMENT: &str = "__sandbox_probe";
const TIMEOUT: Duration = Duration::from_secs(20);

/// What an attempt may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// No file outside of the workspace is written.
    WriteOutside,
    /// The mode of no file outside of the workspace is changed.
    ChangeModeOutside,
    /// No hidden file is read.
    ReadHidden,
    /// No other process is read, such as its variables.
    ReadProcess,
    /// No process outside is signalled.
    Signal,
    /// No abstract socket of others is reached.
    AbstractSocket,
    /// No socket with a path is reached.
    PathSocket,
    /// No TCP connection is made.
    Tcp,
    /// No datagram is sent.
    Udp,
    /// No new namespace is made.
    Namespace,
    /// No program gives new privileges.
    NewPrivileges,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// Refused in the sandbox, possible without.
    Refused,
    /// Possible in the sandbox.
    Possible,
    /// Refused without a sandbox as well, so it proves nothing.
    RefusedAnyway,
}

/// The folder of an examination with what the probes look for.
struct ProbeTargets {
    folder: PathBuf,
    tcp: TcpListener,
    _abstract_socket: UnixListener,
    _path_socket: UnixListener,
}

impl ProbeTargets {
    fn create(folder: &Path) -> io::Result<Self> {
        for name in ["work", "hidden", "outside"] {
            fs::create_dir(folder.join(name))?;
            fs::write(folder.join(name).join("file"), "probe")?;
        }
        Ok(Self {
            tcp: TcpListener::bind("127.0.0.1:0")?,
            _abstract_socket: UnixListener::bind_addr(&abstract_address(folder)?)?,
            _path_socket: UnixListener::bind(folder.join("outside/socket"))?,
            folder: folder.to_owned(),
        })
    }

    fn command(&self, program: &Path, sandbox: Option<SandboxRules>) -> io::Result<Command> {
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidFilename);
        let port = self.tcp.local_addr()?.port().to_string();
        let workspace = self.folder.join("work");
        Ok(Command {
            program: text(program)?,
            arguments: vec![ARGUMENT.into(), text(&self.folder)?, port],
            folder: workspace.clone(),
            environment: Environment::Clean,
            variables: Vec::new(),
            sandbox: sandbox.map(|rules| SandboxSpec { rules, workspace, temp: None }),
            timeout: TIMEOUT,
        })
    }

    async fn run(
        &self,
        program: &Path,
        sandbox: Option<SandboxRules>,
    ) -> io::Result<Vec<(Protection, bool)>> {
        let command = self.command(program, sandbox)?;
        // As the commands of models are run: where a user needs a namespace, only a runner can enter it.
        let runner = Runner::new(program, &self.folder.join("state"));
        let name = SpoolName { call: CallId { run: RunId::from_bits(0), iteration: 1, n: 1 }, attempt: 1 };
        let live_runner = runner.start(name, command).await?;
        let outcome = live_runner.wait(&CancellationToken::new()).await;
        runner.forget(name);
        runner.wait_cleared().await;
        let RunnerOutcome::Ended(exit) = outcome else {
            return Err(io::Error::other(format!("the probe did not end: {outcome:?}")));
        };
        let mut result = exit.end.map_err(io::Error::other)?;
        let mut text = |error: bool| {
            let stream = if error { &mut result.stderr } else { &mut result.stdout };
            String::from_utf8_lossy(stream.truncated(HEAD_BYTES).head).into_owned()
        };
        serde_json::from_str(&text(false))
            .map_err(|_| io::Error::other(format!("the probe failed: {}", text(true).trim())))
    }
}

/// Tries each protection in a sandbox of this machine, in this empty folder. `program` is a `hermod` binary.
pub async fn probe(program: &Path, folder: &Path) -> io::Result<Vec<(Protection, ProbeOutcome)>> {
    let targets = ProbeTargets::create(folder)?;
    let rules = |unix_sockets| SandboxRules {
        mode: SandboxMode::Workspace,
        read: vec![program.to_owned()],
        write: Vec::new(),
        hide: vec![folder.join("hidden")],
        network: NetworkAccess::Off,
        unix_sockets,
        limits: SandboxLimits::default(),
    };
    let free = targets.run(program, None).await?;
    let closed = targets.run(program, Some(rules(false))).await?;
    // Where no socket is allowed at all, the kernel's boundary of abstract sockets would not be seen.
    let with_sockets = targets.run(program, Some(rules(true))).await?;
    let outcome = |(((protection, in_sandbox), (_, with_sockets)), (_, without)): Attempts| {
        let is_possible = if protection == Protection::AbstractSocket { with_sockets } else { in_sandbox };
        let outcome = match (is_possible, without) {
            (true, _) => ProbeOutcome::Possible,
            (false, true) => ProbeOutcome::Refused,
            (false, false) => ProbeOutcome::RefusedAnyway,
        };
        (protection, outcome)
    };
    Ok(closed.into_iter().zip(with_sockets).zip(free).map(outcome).collect())
}

type Attempt = (Protection, bool);
type Attempts = ((Attempt, Attempt), Attempt);

/// Makes the attempts and prints which were possible, if this process's arguments are those of a probing process.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let folder = PathBuf::from(arguments.next()?);
    let port = arguments.next()?.to_str()?.parse().ok()?;
    let text = serde_json::to_string(&attempts(&folder, port)).ok()?;
    let mut stdout = io::stdout();
    Some(io::Write::write_all(&mut stdout, text.as_bytes()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn attempts(folder: &Path, port: u16) -> Vec<Attempt> {
    let parent = getppid();
    let variables = parent.map(|parent| format!("/proc/{}/environ", parent.as_raw_pid()));
    let abstract_socket = || UnixStream::connect_addr(&abstract_address(folder)?);
    vec![
        (Protection::WriteOutside, OpenOptions::new().append(true).open(folder.join("outside/file")).is_ok()),
        (Protection::ChangeModeOutside, changes_mode(&folder.join("outside/file"))),
        (Protection::ReadHidden, File::open(folder.join("hidden/file")).is_ok()),
        (Protection::ReadProcess, variables.is_some_and(|path| File::open(path).is_ok())),
        (Protection::Signal, parent.is_some_and(|parent| test_kill_process(parent).is_ok())),
        (Protection::AbstractSocket, abstract_socket().is_ok()),
        (Protection::PathSocket, UnixStream::connect(folder.join("outside/socket")).is_ok()),
        (Protection::Tcp, TcpStream::connect(("127.0.0.1", port)).is_ok()),
        (Protection::Udp, UdpSocket::bind("127.0.0.1:0").is_ok()),
        (Protection::Namespace, makes_namespace()),
        (Protection::NewPrivileges, !no_new_privs().unwrap_or(false)),
    ]
}

fn changes_mode(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| fs::set_permissions(path, file.permissions()).is_ok())
}

fn abstract_address(folder: &Path) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(folder.as_os_str().as_encoded_bytes())
}

#[expect(deprecated, reason = "sound: no descriptor table is shared; the successor is an unsafe function")]
fn makes_namespace() -> bool {
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWUSER).is_ok()
}
