//! The owner's side: starts runners, attaches to those of an earlier owner, lists and ends running commands, and
//! removes spool folders.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use hermod_actors::{model::RunId, port::Boot};
use rustix::process::Pid;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    exit::ExitRecord,
    files::{Claim, SpoolFolder, SpoolName, is_removal},
    fork_server::ForkRequest,
    forked::ForkClient,
    identity::RunnerIdentity,
    idle::RunnerKind,
    ledger::{CommandLedger, LedgerMark},
    live_runner::{LiveRunner, RunnerOutcome, outcome_of_dead_runner, unknown_outcome},
    output,
};
use crate::{
    disk_space::is_full,
    files::{entries, off_thread, remove_tree},
    process::Command,
};

const SPOOL_FOLDER: &str = "spool";
/// Folders cleared concurrently. Each may take as long as its command takes to end.
const MAX_CONCURRENT_CLEARS: usize = 16;
/// Pause before `attach` tries again while the disk is full.
const DISK_FULL_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Starts commands that outlive this process, and attaches to them later.
#[derive(Debug, Clone)]
pub struct Runner {
    fork_client: Arc<ForkClient>,
    spool: Arc<Path>,
    /// Each removal under way holds a receiver. `wait_cleared` waits until none is left.
    clearings: Arc<watch::Sender<()>>,
}

impl PartialEq for Runner {
    fn eq(&self, other: &Self) -> bool {
        self.spool == other.spool && self.fork_client.is_like(&other.fork_client)
    }
}

impl Eq for Runner {}

/// The state of an attempt that an earlier process started.
#[derive(Debug)]
pub enum AttachedRunner {
    /// The runner is alive.
    Alive(Box<LiveRunner>),
    /// There is no runner to wait for: it has ended, never began its command, or cannot be examined.
    Over(RunnerOutcome),
}

/// The entries of the spool that a scan has selected.
#[derive(Default)]
struct SpoolLeftovers {
    attempts: Vec<(SpoolFolder, SpoolName)>,
    /// Folders whose removal was begun, by this process or an earlier one.
    removed: Vec<PathBuf>,
}

impl Runner {
    /// Runners are forked by a process of `program`, a `hermod` binary, which the first command starts and which ends with
    /// the last clone of this. The spool is in the state directory `state`.
    pub fn new(program: impl Into<PathBuf>, state: &Path) -> Self {
        let (clearings, _) = watch::channel(());
        let spool: Arc<Path> = state.join(SPOOL_FOLDER).into();
        Self {
            fork_client: Arc::new(ForkClient::new(program.into().into(), Arc::clone(&spool))),
            spool,
            clearings: Arc::new(clearings),
        }
    }

    /// Starts a command with a clean environment and a variable that names the attempt. An error means that nothing was
    /// run.
    pub async fn start(&self, name: SpoolName, command: Command) -> io::Result<LiveRunner> {
        let folder = self.folder(name);
        self.fork_client.take_ended(name);
        let create_folder = || {
            let (folder, command) = (folder.clone(), command.clone());
            off_thread(move || folder.create_with_task(&command))
        };
        match create_folder().await {
            // The folder of an attempt that a relaxed store lost in a power loss.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                clear_attempt(folder.clone(), name).await?;
                create_folder().await?;
            }
            created => created?,
        }
        let request = ForkRequest { folder: folder.path().to_owned(), variables: command.variables };
        let kind = RunnerKind { run: name.call.run, sandbox: command.sandbox };
        let runner = self.fork_client.request(kind, request).await?;
        Ok(LiveRunner::of_forked(folder, name, runner))
    }

    /// Attaches to an attempt of an earlier process, or makes sure that it never begins. It waits for disk space: a
    /// full disk must not put a call in doubt.
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

    /// The detached commands that run in this state directory, each with its runner's pid if known.
    pub fn running_commands(&self) -> io::Result<Vec<(SpoolName, Option<i32>)>> {
        let mut under_way = Vec::new();
        for (folder, name) in self.attempts(|_| false)?.attempts {
            let runner = folder.runner(name)?;
            let is_living = |runner: RunnerIdentity| runner.living(folder.path(), name, false).is_some();
            if folder.has_live_runner()? || runner.is_some_and(is_living) {
                under_way.push((name, runner.and_then(RunnerIdentity::pid).map(Pid::as_raw_pid)));
            }
        }
        Ok(under_way)
    }

    /// Ends all commands of this state directory, and revokes those not yet begun. Their folders stay.
    pub async fn end_all(&self) -> io::Result<()> {
        let attempts = stream::iter(self.attempts(|_| false)?.attempts.into_iter().map(Ok));
        attempts
            .try_for_each_concurrent(MAX_CONCURRENT_CLEARS, |(folder, name)| end_attempt(folder, name))
            .await
    }

    /// Path of an attempt's output file with both streams.
    pub fn output(&self, name: SpoolName) -> PathBuf {
        self.folder(name).file(output::FILE)
    }

    /// Ends an attempt if it is running, and removes its folder, in the background. `wait_cleared` waits for that.
    pub fn forget(&self, name: SpoolName) {
        let (folder, clearing) = (self.folder(name), self.clearings.subscribe());
        let has_ended = self.fork_client.take_ended(name);
        tokio::spawn(async move {
            if has_ended {
                warn_on_error(name, off_thread(move || folder.remove()).await);
            } else {
                clear_or_warn(folder, name).await;
            }
            drop(clearing);
        });
    }

    /// Resolves when all removals that have begun are done.
    pub async fn wait_cleared(&self) {
        self.clearings.closed().await;
    }

    /// Removes the folders of runs that are not open, and ends their commands. The selection is made before this
    /// returns, so new runs may begin while the future works.
    pub fn sweep(&self, is_open: impl Fn(RunId) -> bool) -> BoxFuture<'static, ()> {
        let ledger = CommandLedger::of_spool(&self.spool);
        // A command that lives is found below, and ended.
        let is_kept = |name: SpoolName, runner| is_open(name.call.run) || self.is_living(name, runner);
        if let Err(error) = ledger.ensure().and_then(|()| ledger.shorten(is_kept)) {
            tracing::warn!(%error, "the ledger of begun commands cannot be kept: one whose traces are lost will be in doubt");
        }
        let mut leftovers = self.leftovers(&is_open).unwrap_or_else(|error| {
            tracing::warn!(spool = %self.spool.display(), %error, "cannot be looked through");
            SpoolLeftovers::default()
        });
        if let Err(error) = self.add_without_folder(&mut leftovers, &is_open) {
            tracing::warn!(%error, "commands of ended runs that have removed their folders are not looked for");
        }
        let SpoolLeftovers { attempts, removed } = leftovers;
        let clearing = self.clearings.subscribe();
        Box::pin(async move {
            let cleared = |(folder, name)| clear_or_warn(folder, name);
            stream::iter(attempts).for_each_concurrent(MAX_CONCURRENT_CLEARS, cleared).await;
            stream::iter(removed).for_each(delete_or_warn).await;
            drop(clearing);
        })
    }

    /// The folders of all attempts, and the folders whose removal was begun, which belong to no attempt.
    pub fn entries(&self) -> io::Result<Vec<(Option<SpoolName>, PathBuf)>> {
        let SpoolLeftovers { attempts, removed } = self.leftovers(|_| false)?;
        let attempts = attempts.into_iter().map(|(folder, name)| (Some(name), folder.path().to_owned()));
        Ok(attempts.chain(removed.into_iter().map(|path| (None, path))).collect())
    }

    /// True if a runner of this attempt is alive.
    pub fn is_alive(&self, name: SpoolName) -> io::Result<bool> {
        self.folder(name).has_live_runner()
    }

    /// Removes the folder of an attempt whose run has ended and whose runner is dead.
    pub fn discard(&self, name: SpoolName) -> io::Result<()> {
        self.folder(name).remove()
    }

    /// Attempts with a folder, except those of open runs. Also running ones without: a command may have removed its own
    /// folder.
    fn attempts(&self, is_open: impl Fn(RunId) -> bool) -> io::Result<SpoolLeftovers> {
        let mut leftovers = self.leftovers(&is_open)?;
        self.add_without_folder(&mut leftovers, &is_open)?;
        Ok(leftovers)
    }

    /// Adds the running commands that the ledger has and the spool has not, except those of open runs.
    fn add_without_folder(
        &self,
        leftovers: &mut SpoolLeftovers,
        is_open: impl Fn(RunId) -> bool,
    ) -> io::Result<()> {
        for (name, runner) in CommandLedger::of_spool(&self.spool).started_attempts()? {
            let is_listed = || leftovers.attempts.iter().any(|(_, listed)| *listed == name);
            if !is_open(name.call.run) && self.is_living(name, runner) && !is_listed() {
                leftovers.attempts.push((self.folder(name), name));
            }
        }
        Ok(())
    }

    fn is_living(&self, name: SpoolName, runner: RunnerIdentity) -> bool {
        runner.living(self.folder(name).path(), name, false).is_some()
    }

    fn leftovers(&self, is_open: impl Fn(RunId) -> bool) -> io::Result<SpoolLeftovers> {
        let mut leftovers = SpoolLeftovers::default();
        for path in entries(&self.spool)? {
            // Other names in the spool are not touched.
            let Some(entry) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if is_removal(entry) {
                leftovers.removed.push(path);
            } else if let Some(name) = SpoolName::parse(entry)
                && !is_open(name.call.run)
            {
                leftovers.attempts.push((self.folder(name), name));
            }
        }
        Ok(leftovers)
    }

    fn folder(&self, name: SpoolName) -> SpoolFolder {
        SpoolFolder::new(self.spool.join(name.to_string()))
    }
}

/// Attaches on the same boot.
async fn attach_same_boot(folder: SpoolFolder, name: SpoolName) -> io::Result<AttachedRunner> {
    let spool_folder = folder.clone();
    let found = off_thread(move || {
        let revoked = revoke(&spool_folder)
            .and_then(|claimed| Ok(claimed || spool_folder.read_claim()? == Some(Claim::Revoked)));
        // Read after the revocation: a runner that writes its entry later sees the revocation.
        match spool_folder.mark(name)? {
            LedgerMark::NotBegun if revoked? => Ok(Err(RunnerOutcome::NeverBegun(None))),
            LedgerMark::NotBegun | LedgerMark::Begun(_) | LedgerMark::Unknown => {
                Ok(Ok(LiveRunner::find(spool_folder, name)?))
            }
        }
    });
    Ok(match found.await? {
        Ok(Some(runner)) => AttachedRunner::Alive(Box::new(runner)),
        Ok(None) => AttachedRunner::Over(outcome_of_dead_runner(&folder, name, None).await),
        Err(outcome) => AttachedRunner::Over(outcome),
    })
}

/// Revokes the attempt by creating `started`; the folder may be missing. False if `started` existed before.
fn revoke(folder: &SpoolFolder) -> io::Result<bool> {
    match folder.create() {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => folder.claim(Claim::Revoked),
    }
}

/// Attaches after another boot, where only a complete `exit` counts.
async fn attach_other_boot(folder: SpoolFolder) -> io::Result<AttachedRunner> {
    let exit = off_thread(move || ExitRecord::read(&folder)).await?;
    Ok(AttachedRunner::Over(exit.map_or(RunnerOutcome::Unknown, |exit| RunnerOutcome::Ended(Box::new(exit)))))
}

/// Ends an attempt if it is running, and removes its folder.
async fn clear_attempt(folder: SpoolFolder, name: SpoolName) -> io::Result<()> {
    let spool_folder = folder.clone();
    let may_live = move || {
        if has_ended(&spool_folder, name)? {
            return Ok(false);
        }
        let is_alive = |runner: RunnerIdentity| runner.living(spool_folder.path(), name, false).is_some();
        Ok(spool_folder.path().try_exists()?
            || spool_folder.ledger().mark(name)?.runner().is_some_and(is_alive))
    };
    if off_thread(may_live).await? {
        end_attempt(folder.clone(), name).await?;
    }
    off_thread(move || folder.remove()).await
}

/// True if the files of a folder alone tell that its runner has ended its command and itself.
fn has_ended(folder: &SpoolFolder, name: SpoolName) -> io::Result<bool> {
    let Some(Claim::Runner(runner)) = folder.read_claim()? else { return Ok(false) };
    Ok(!folder.has_live_runner()?
        && runner.living(folder.path(), name, false).is_none()
        && ExitRecord::read(folder)?.is_some())
}

/// Ends an attempt if it is running. Creates its folder if there is none.
async fn end_attempt(folder: SpoolFolder, name: SpoolName) -> io::Result<()> {
    if let AttachedRunner::Alive(runner) = attach_same_boot(folder, name).await? {
        let stop = CancellationToken::new();
        stop.cancel();
        runner.wait(&stop).await;
    }
    Ok(())
}

async fn clear_or_warn(folder: SpoolFolder, name: SpoolName) {
    warn_on_error(name, clear_attempt(folder, name).await);
}

fn warn_on_error(name: SpoolName, cleared: io::Result<()>) {
    if let Err(error) = cleared {
        tracing::warn!(%name, %error, "what is kept of a command stays until the next start");
    }
}

async fn delete_or_warn(removed: PathBuf) {
    let path = removed.clone();
    if let Err(error) = off_thread(move || remove_tree(&path)).await {
        tracing::warn!(path = %removed.display(), %error, "what is kept of a command stays until the next start");
    }
}
