//! The daemon's side: starts runners, finds those of an earlier daemon, and clears away.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use hermod_actors::{model::RunId, port::Boot};
use rustix::process::Pid;
use tokio::{process, sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    exit::ExitRecord,
    files::{Claim, ClaimResult, RunnerTask, SpoolFolder, SpoolName, VARIABLE, delete_tree, is_removal},
    ledger::{CommandLedger, LedgerMark},
    live_runner::{LiveRunner, RunnerOutcome, outcome_of_dead_runner, unknown_outcome},
    orphans, output,
    runner_process::ARGUMENT,
};
use crate::{
    disk_space::is_full,
    process::{Command, inherited},
};

const SPOOL_FOLDER: &str = "spool";
/// Folders that are cleared at once, when each may take as long as its command takes to end.
const MAX_CONCURRENT_CLEARS: usize = 16;
/// Between two looks whether a full disk has room.
const DISK_FULL_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Starts commands that outlive this process, and finds them again.
#[derive(Debug, Clone)]
pub struct Runner {
    program: Arc<Path>,
    spool: Arc<Path>,
    /// Has a receiver for everything that is being cleared.
    clearings: Arc<watch::Sender<()>>,
}

impl PartialEq for Runner {
    fn eq(&self, other: &Self) -> bool {
        (&self.program, &self.spool) == (&other.program, &other.spool)
    }
}

impl Eq for Runner {}

/// What is found of an attempt.
#[derive(Debug)]
pub enum AttachedRunner {
    /// It is under way.
    Alive(Box<LiveRunner>),
    /// It is over.
    Over(RunnerOutcome),
}

/// What is in the spool and not needed.
#[derive(Default)]
struct SpoolLeftovers {
    attempts: Vec<(SpoolFolder, SpoolName)>,
    /// Folders whose removal an earlier process has begun.
    removed: Vec<PathBuf>,
}

impl Runner {
    /// Runners are processes of `program`, which is a `hermod`; what they say is kept in this state directory.
    pub fn new(program: impl Into<PathBuf>, state: &Path) -> Self {
        let (clearings, _) = watch::channel(());
        Self {
            program: program.into().into(),
            spool: state.join(SPOOL_FOLDER).into(),
            clearings: Arc::new(clearings),
        }
    }

    /// Starts a command. Its environment is the clean one, and a variable that names the attempt. Errors: nothing was run.
    pub async fn start(&self, name: SpoolName, command: Command) -> io::Result<LiveRunner> {
        let folder = self.folder(name);
        let task = RunnerTask::try_from(command)?;
        let lay_out = || {
            let (folder, task) = (folder.clone(), task.clone());
            off_thread(move || folder.create_with_task(&task))
        };
        match lay_out().await {
            // Of an attempt that a relaxed store has lost with the power.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                clear_attempt(folder.clone(), name).await?;
                lay_out().await?;
            }
            made => made?,
        }
        let child = spawn(&self.program, &folder, name)?;
        Ok(LiveRunner::own(folder, name, child))
    }

    /// Finds an attempt that an earlier process has started, or sees to it that it never begins.
    /// That takes room, which is waited for: a full disk makes nothing doubtful.
    pub async fn attach(&self, name: SpoolName, boot: Boot) -> AttachedRunner {
        loop {
            let found = match boot {
                Boot::Same => attach_same_boot(self.folder(name), name).await,
                Boot::Other => attach_other_boot(self.folder(name)).await,
            };
            match found {
                Err(error) if is_full(&error) => sleep(DISK_FULL_RETRY_DELAY).await,
                found => {
                    return found.unwrap_or_else(|error| AttachedRunner::Over(unknown_outcome(name, &error)));
                }
            }
        }
    }

    /// The commands that go on by themselves in this state directory, each with its runner's pid, if that is known.
    pub fn running_commands(&self) -> io::Result<Vec<(SpoolName, Option<i32>)>> {
        let mut under_way = Vec::new();
        for (folder, name) in self.attempts(|_| false)?.attempts {
            let claimed = match folder.read_claim()? {
                Some(Claim::Runner(pid)) => pid,
                None | Some(Claim::Revoked) => None,
            };
            let pid = folder.ledger().mark(name)?.runner().or(claimed);
            if folder.has_live_runner()? || pid.is_some_and(|pid| orphans::is_runner(pid, folder.path())) {
                under_way.push((name, pid.map(Pid::as_raw_pid)));
            }
        }
        Ok(under_way)
    }

    /// Ends all commands of this state directory, and sees to it that none begins that has not. What is kept of them stays.
    pub async fn end_all(&self) -> io::Result<()> {
        let attempts = stream::iter(self.attempts(|_| false)?.attempts.into_iter().map(Ok));
        attempts
            .try_for_each_concurrent(MAX_CONCURRENT_CLEARS, |(folder, name)| end_attempt(folder, name))
            .await
    }

    /// Where the output of an attempt is, both streams as they came.
    pub fn output(&self, name: SpoolName) -> PathBuf {
        self.folder(name).file(output::FILE)
    }

    /// Removes what is kept of an attempt. If it is still under way, it is ended.
    pub fn forget(&self, name: SpoolName) {
        let (folder, clearing) = (self.folder(name), self.clearings.subscribe());
        tokio::spawn(async move {
            clear_or_warn(folder, name).await;
            drop(clearing);
        });
    }

    /// Resolves when all is cleared that is to go by now.
    pub async fn wait_cleared(&self) {
        self.clearings.closed().await;
    }

    /// Removes what is kept of runs that are not open any more, and ends what they still run. What is to go is decided
    /// before this returns, so that later runs may begin while it goes.
    pub fn sweep(&self, is_open: impl Fn(RunId) -> bool) -> BoxFuture<'static, ()> {
        let ledger = CommandLedger::of_spool(&self.spool);
        if let Err(error) = ledger.ensure().and_then(|()| ledger.shorten(&is_open)) {
            tracing::warn!(%error, "the ledger of begun commands cannot be kept: one whose traces are lost will be in doubt");
        }
        let SpoolLeftovers { attempts, removed } = match self.attempts(is_open) {
            Ok(stale) => stale,
            Err(error) => {
                tracing::warn!(spool = %self.spool.display(), %error, "cannot be looked through");
                SpoolLeftovers::default()
            }
        };
        let clearing = self.clearings.subscribe();
        Box::pin(async move {
            let cleared = |(folder, name)| clear_or_warn(folder, name);
            stream::iter(attempts).for_each_concurrent(MAX_CONCURRENT_CLEARS, cleared).await;
            stream::iter(removed).for_each(delete_or_warn).await;
            drop(clearing);
        })
    }

    /// What is kept of attempts, and of folders whose removal was begun (those belong to no attempt).
    pub fn entries(&self) -> io::Result<Vec<(Option<SpoolName>, PathBuf)>> {
        let SpoolLeftovers { attempts, removed } = self.leftovers(|_| false)?;
        let attempts = attempts.into_iter().map(|(folder, name)| (Some(name), folder.path().to_owned()));
        Ok(attempts.chain(removed.into_iter().map(|path| (None, path))).collect())
    }

    /// Whether a runner of this attempt lives.
    pub fn is_alive(&self, name: SpoolName) -> io::Result<bool> {
        self.folder(name).has_live_runner()
    }

    /// Removes what is kept of an attempt whose run has ended and whose runner does not live.
    pub fn discard(&self, name: SpoolName) -> io::Result<()> {
        self.folder(name).remove()
    }

    /// What is kept of attempts, and those under way of which nothing is kept: a command may have removed its own folder.
    fn attempts(&self, is_open: impl Fn(RunId) -> bool) -> io::Result<SpoolLeftovers> {
        let mut stale = self.leftovers(&is_open)?;
        for (name, pid) in CommandLedger::of_spool(&self.spool).started_attempts() {
            let folder = self.folder(name);
            let is_listed = || stale.attempts.iter().any(|(_, listed)| *listed == name);
            if !is_open(name.call.run) && orphans::is_runner(pid, folder.path()) && !is_listed() {
                stale.attempts.push((folder, name));
            }
        }
        Ok(stale)
    }

    fn leftovers(&self, is_open: impl Fn(RunId) -> bool) -> io::Result<SpoolLeftovers> {
        let mut stale = SpoolLeftovers::default();
        let entries = match fs::read_dir(&self.spool) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(stale),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?.file_name();
            // What is no attempt's is not ours.
            let Some(entry) = entry.to_str() else { continue };
            if is_removal(entry) {
                stale.removed.push(self.spool.join(entry));
            } else if let Ok(name) = entry.parse::<SpoolName>()
                && !is_open(name.call.run)
            {
                stale.attempts.push((self.folder(name), name));
            }
        }
        Ok(stale)
    }

    fn folder(&self, name: SpoolName) -> SpoolFolder {
        SpoolFolder::new(self.spool.join(name.to_string()))
    }
}

/// Starts the runner. It gets no variable but those that a command may see: it may be looked at by every command.
fn spawn(program: &Path, folder: &SpoolFolder, name: SpoolName) -> io::Result<process::Child> {
    process::Command::new(program)
        .arg(ARGUMENT)
        .arg(folder.path())
        .env_clear()
        .envs(inherited())
        .env(VARIABLE, name.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// On the same boot.
async fn attach_same_boot(folder: SpoolFolder, name: SpoolName) -> io::Result<AttachedRunner> {
    let at = folder.clone();
    let found = off_thread(move || {
        let revoked = revoke(&at).and_then(|claimed| {
            Ok(claimed == ClaimResult::Claimed || at.read_claim()? == Some(Claim::Revoked))
        });
        // Looked at behind the revocation: a runner that makes its entry later sees that.
        match at.ledger().mark(name)? {
            LedgerMark::NotBegun if revoked? => Ok(Err(RunnerOutcome::NeverBegun(None))),
            LedgerMark::NotBegun | LedgerMark::Begun(_) | LedgerMark::Unknown => {
                Ok(Ok(LiveRunner::find(at, name)?))
            }
        }
    });
    Ok(match found.await? {
        Ok(Some(watched)) => AttachedRunner::Alive(Box::new(watched)),
        Ok(None) => AttachedRunner::Over(outcome_of_dead_runner(&folder, name, None).await),
        Err(left) => AttachedRunner::Over(left),
    })
}

/// Makes `started`, in a folder that may not be there.
fn revoke(folder: &SpoolFolder) -> io::Result<ClaimResult> {
    match folder.create() {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => folder.claim(Claim::Revoked),
    }
}

/// After another boot.
async fn attach_other_boot(folder: SpoolFolder) -> io::Result<AttachedRunner> {
    let exit = off_thread(move || ExitRecord::read(&folder)).await?;
    Ok(AttachedRunner::Over(exit.map_or(RunnerOutcome::Unknown, |exit| RunnerOutcome::Ended(Box::new(exit)))))
}

/// Ends an attempt if it is under way, and removes its folder.
async fn clear_attempt(folder: SpoolFolder, name: SpoolName) -> io::Result<()> {
    let at = folder.clone();
    let may_live = move || {
        let is_alive = |runner| orphans::is_runner(runner, at.path());
        Ok(at.path().try_exists()? || at.ledger().mark(name)?.runner().is_some_and(is_alive))
    };
    if off_thread(may_live).await? {
        end_attempt(folder.clone(), name).await?;
    }
    off_thread(move || folder.remove()).await
}

/// Ends an attempt if it is under way. Makes its folder if there is none.
async fn end_attempt(folder: SpoolFolder, name: SpoolName) -> io::Result<()> {
    if let AttachedRunner::Alive(watched) = attach_same_boot(folder, name).await? {
        let stop = CancellationToken::new();
        stop.cancel();
        watched.wait(&stop).await;
    }
    Ok(())
}

async fn clear_or_warn(folder: SpoolFolder, name: SpoolName) {
    if let Err(error) = clear_attempt(folder, name).await {
        tracing::warn!(%name, %error, "what is kept of a command stays until the next start");
    }
}

async fn delete_or_warn(removed: PathBuf) {
    let at = removed.clone();
    if let Err(error) = off_thread(move || delete_tree(&at)).await {
        tracing::warn!(path = %removed.display(), %error, "what is kept of a command stays until the next start");
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}
