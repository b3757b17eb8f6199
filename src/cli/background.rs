//! The service that clients such as a chat share: the one that holds the store, else one that the client starts. It is
//! `hermod serve --background`: it has no terminal, writes to `background.log` in the state directory, and ends when it is
//! idle. Another `hermod serve` takes its place.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::Stdio,
    time::Duration,
};

use hermod_actors::SanitizedText;
use rustix::io::Errno;
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::{CliError, print_note};
use crate::{
    control::{AskError, ControlClient, ControlRequest, OwnerKind, RequestError, RequestErrorKind},
    files,
    host::{self, HostError, OwnerConnection},
    process::runner::OWN_PROGRAM,
};

/// The file to which it writes its lines, in the state directory.
const LOG: &str = "background.log";
/// Above this size the file is emptied before a start.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Most bytes of the file that an error repeats.
const MAX_REPEATED_BYTES: u64 = 2_000;
/// Pause between two looks for the service.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Starts that may fail one after the other. One fails if another client starts a service at the same time.
const MAX_STARTS: u32 = 3;
/// Pause after a start that has failed.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// Variables of a service manager, which belong to another process.
const MANAGER_VARIABLES: [&str; 5] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"];

/// The lock of a process that starts a service, in the state directory.
const START_LOCK: &str = "background.lock";
/// How long another service waits for a client that starts one.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a service in the background ends for another one.
const TAKEOVER_TIME: Duration = Duration::from_secs(30);

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceWait {
    /// A service in the background is starting.
    Start,
    /// The command of this process holds the store; a service can start when it has ended.
    Command {
        /// Its process id.
        pid: u32,
    },
}

impl fmt::Display for ServiceWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("starting  a service in the background"),
            Self::Command { pid } => {
                write!(
                    f,
                    "waiting   the command of process {pid} holds the store; a service starts when it has ended"
                )
            }
        }
    }
}

/// The connection to the service that holds the store in `state`. Without one, a service is started in the background, by one
/// client at a time. `on_wait` learns what is waited for, each time that this changes.
pub(crate) async fn connect(
    state: &Path,
    mut on_wait: impl FnMut(ServiceWait),
) -> Result<OwnerConnection, CliError> {
    let (mut starting, mut starts, mut told) = (None::<StartingService>, 0, None);
    loop {
        let wait = match OwnerConnection::connect(state).await? {
            Some(owner) if owner.submissions.is_some_and(OwnerKind::is_service) => return Ok(owner),
            Some(OwnerConnection { pid, submissions: Some(OwnerKind::Command), .. }) => {
                ServiceWait::Command { pid }
            }
            // A process that starts takes no submissions yet.
            Some(_) => ServiceWait::Start,
            None => {
                let failure = match &mut starting {
                    None => None,
                    Some(service) => service.failure(state)?,
                };
                if let Some(failure) = failure {
                    if starts == MAX_STARTS {
                        return Err(failure);
                    }
                    starting = None;
                    sleep(RESTART_PAUSE).await;
                } else if starting.is_none()
                    && let Some(lock) = StartLock::try_take(state)?
                {
                    starting = Some(StartingService::spawn(state, lock)?);
                    starts += 1;
                }
                ServiceWait::Start
            }
        };
        if told.replace(wait) != Some(wait) {
            on_wait(wait);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Leaves the terminal of the client, so that its end and its signals do not reach this process.
pub(crate) fn leave_terminal() -> Result<(), CliError> {
    // A process that a shell has started by itself leads a group, and keeps its terminal.
    match rustix::process::setsid() {
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(CliError::internal(format!("the service cannot leave its terminal: {error}"))),
    }
}

/// Ends the service in the background that holds the store in `state`, if there is one. Its runs go on in the process that
/// opens the store next. Until the lock is dropped, no client starts another service.
pub(crate) async fn take_place(state: &Path) -> Result<Option<StartLock>, CliError> {
    let begun = tokio::time::Instant::now();
    let lock = loop {
        let lock = StartLock::try_take(state)?;
        // A client that was stopped while it starts a service does not hold this one up.
        if lock.is_some() || begun.elapsed() > START_PATIENCE {
            break lock;
        }
        sleep(POLL_INTERVAL).await;
    };
    let begun = tokio::time::Instant::now();
    let mut drained = None;
    loop {
        let Some(owner) = OwnerConnection::connect(state).await? else { return Ok(lock) };
        if owner.submissions != Some(OwnerKind::Background) {
            return Ok(lock);
        }
        if drained.replace(owner.pid) != Some(owner.pid) {
            print_note(format!("takeover  process {}, a service in the background, ends", owner.pid));
            drain(state).await?;
        } else if begun.elapsed() > TAKEOVER_TIME {
            let text = format!("process {}, a service in the background, does not end; stop it", owner.pid);
            return Err(HostError::from(RequestError::new(RequestErrorKind::Busy, text)).into());
        }
        // The store is closed after the socket is gone, and opening it waits for that.
        sleep(POLL_INTERVAL).await;
    }
}

async fn drain(state: &Path) -> Result<(), HostError> {
    let Some(mut client) = ControlClient::connect(state).await? else { return Ok(()) };
    match client.request(&ControlRequest::ServiceDrain { timeout_ms: 0 }, |_| Ok(())).await {
        Ok(_) | Err(AskError::Disconnected) => Ok(()),
        Err(AskError::Rejected(error)) => Err(error.into()),
    }
}

/// Held by a process that starts a service, until that serves or has failed.
#[derive(Debug)]
pub(crate) struct StartLock {
    _file: File,
}

impl StartLock {
    /// `None` if another process has it. Makes the state directory.
    fn try_take(state: &Path) -> Result<Option<Self>, CliError> {
        let state = host::create_state_dir(state)?;
        let path = state.join(START_LOCK);
        let locked = files::open_lock(&path)
            .and_then(|file| Ok(files::lock_within(&file, (1, Duration::ZERO), || true)?.then_some(file)));
        let file = locked.map_err(|error| CliError::internal(format!("{}: {error}", path.display())))?;
        Ok(file.map(|file| Self { _file: file }))
    }
}

/// A service in the background that was started and is not known to serve.
struct StartingService {
    process: Child,
    /// The length of the log before the start.
    log_start: u64,
    _lock: StartLock,
}

impl StartingService {
    fn spawn(state: &Path, lock: StartLock) -> Result<Self, CliError> {
        let failed = |error: &dyn std::fmt::Display| {
            CliError::internal(format!("a service in the background cannot be started: {error}"))
        };
        let log = open_log(state).map_err(|error| failed(&error))?;
        let log_start = log.metadata().map_err(|error| failed(&error))?.len();
        let mut command = Command::new(OWN_PROGRAM);
        command.arg0("hermod").args(["serve", "--background", "--store"]).arg(state);
        MANAGER_VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(false);
        let process = command.spawn().map_err(|error| failed(&error))?;
        Ok(Self { process, log_start, _lock: lock })
    }

    /// Why it has ended; `None` if it has not.
    fn failure(&mut self, state: &Path) -> Result<Option<CliError>, CliError> {
        let status = self.process.try_wait();
        let status =
            status.map_err(|error| CliError::internal(format!("the service in the background: {error}")))?;
        let Some(status) = status else { return Ok(None) };
        let log = state.join(LOG);
        let said = read_log(&log, self.log_start)
            .unwrap_or_else(|error| format!("{} cannot be read: {error}", log.display()));
        let text = format!(
            "the service in the background has ended at its start ({status}): {}",
            SanitizedText::sanitize(said.trim())
        );
        Ok(Some(CliError::internal(text)))
    }
}

/// Opens the log to append to it, and empties it if it is large.
fn open_log(state: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = files::open_regular_with(options.append(true).create(true).mode(0o600), &state.join(LOG))?;
    if file.metadata()?.len() > MAX_LOG_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// What was written to the log from `start` on: the end of it.
fn read_log(path: &Path, start: u64) -> io::Result<String> {
    let mut file = files::open_regular_with(OpenOptions::new().read(true), path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(MAX_REPEATED_BYTES))))?;
    let mut said = Vec::new();
    file.take(MAX_REPEATED_BYTES).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
