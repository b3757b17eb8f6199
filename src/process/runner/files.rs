//! A spool folder: its name, its files `task`, `lock` and `started` with their protocol steps, and its removal. The
//! files `exit` and `output` have modules of their own, and so has the ledger beside the spool.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use hermod_actors::model::{Attempt, CallId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    exit,
    identity::RunnerIdentity,
    ledger::{CommandLedger, LedgerMark},
};
use crate::{
    files::{self, IoResult as _},
    process::Command,
};

/// The variable that names the attempt, for the runner and all processes below it.
pub const VARIABLE: &str = "HERMOD_CALL";

const VERSION: u32 = 1;
/// What to run. The runner holds its lock.
const TASK_FILE: &str = "task";
/// The file whose lock runners of earlier versions hold.
const EARLIER_LOCK_FILE: &str = "lock";
const STARTED_FILE: &str = "started";
/// Attempts to take the lock. Others hold it for a moment.
const LOCK_TRIES: u32 = 100;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);
/// Follows the attempt's name in the name of a folder that is being removed.
const REMOVAL_INFIX: &str = ".removed-";

/// The name of one attempt of a call: `<call>.<attempt>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolName {
    /// The call of the attempt.
    pub call: CallId,
    /// Number of the attempt.
    pub attempt: Attempt,
}

impl fmt::Display for SpoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.call, self.attempt)
    }
}

impl SpoolName {
    /// `None` if the text is not the name of an attempt. Only one spelling is valid, so that each folder belongs to one
    /// attempt.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (call, attempt) = text.rsplit_once('.')?;
        let name = Self { call: call.parse().ok()?, attempt: attempt.parse().ok()? };
        (name.to_string() == text).then_some(name)
    }
}

/// The process that made `started`, which is the content of that file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub(super) enum Claim {
    /// A runner.
    Runner(RunnerIdentity),
    /// An owner that revoked the attempt: the runner will not begin.
    #[serde(rename = "reviver")]
    Revoked,
}

#[derive(Serialize, Deserialize)]
struct VersionedFile<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

/// The folder of one attempt.
#[derive(Debug, Clone)]
pub(super) struct SpoolFolder(PathBuf);

impl SpoolFolder {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The attempt's name, which is the folder's.
    pub(super) fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The state directory, which the spool is in.
    pub(super) fn state(&self) -> &Path {
        self.0.ancestors().nth(2).unwrap_or(&self.0)
    }

    /// The ledger of begun commands.
    pub(super) fn ledger(&self) -> CommandLedger {
        CommandLedger::of_spool(self.0.parent().unwrap_or(&self.0))
    }

    /// True if `name` in the folder is still `file`. A command may have removed or replaced it.
    pub(super) fn is_current(&self, name: &str, file: &File) -> io::Result<bool> {
        let opened = file.metadata()?;
        Ok(fs::symlink_metadata(self.file(name))
            .is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())))
    }

    /// Restores a file that a command has removed or replaced. `fill` writes its content before it appears. Fails also
    /// if the state directory is gone.
    pub(super) fn restore_file(
        &self,
        name: &str,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<File> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for folder in self.0.parent().into_iter().chain([&*self.0]) {
            match builder.create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let part = self.file(&format!("{name}.again"));
        files::remove(&part)?;
        let mut file = files::make(&part)?;
        fill(&mut file)?;
        let target = self.file(name);
        match fs::rename(&part, &target) {
            // A folder has taken its name.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                files::remove_tree(&target)?;
                fs::rename(part, target)?;
            }
            renamed => renamed?,
        }
        Ok(file)
    }

    /// Makes the folder, and the spool if there is none. `AlreadyExists` if the folder exists.
    pub(super) fn create(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        match (builder.create(&self.0), self.0.parent()) {
            (Err(error), Some(spool)) if error.kind() == io::ErrorKind::NotFound => {
                files::make_folder(spool)?;
                spool.parent().map_or(Ok(()), files::sync_folder)?;
                builder.create(&self.0)
            }
            (created, _) => created,
        }
    }

    /// Step 1: makes the folder and writes the task. The task is read only after the runner's start.
    pub(super) fn create_with_task(&self, task: &Command) -> io::Result<()> {
        self.ledger().ensure()?;
        self.create()?;
        fs::write(self.file(TASK_FILE), json(task)?)
    }

    pub(super) fn task(&self) -> io::Result<Command> {
        parse(&files::read_own(&self.file(TASK_FILE))?)
    }

    /// Step 2: takes the lock for as long as the file is open. It waits for processes that check whether it is held, and
    /// not for another runner.
    pub(super) fn lock(&self) -> io::Result<File> {
        let task = self.open_lock(TASK_FILE)?;
        if files::lock_within(&task, (LOCK_TRIES, LOCK_RETRY_DELAY), || true)? {
            return Ok(task);
        }
        Err(Errno::WOULDBLOCK.into())
    }

    /// True if a runner holds the lock.
    pub(super) fn has_live_runner(&self) -> io::Result<bool> {
        Ok(self.held_lock()?.is_some())
    }

    /// Waits until no runner holds the lock.
    pub(super) fn wait_unlocked(&self) -> io::Result<()> {
        while let Some(held) = self.held_lock()? {
            held.lock_shared()?;
        }
        Ok(())
    }

    /// The file whose lock a runner holds.
    fn held_lock(&self) -> io::Result<Option<File>> {
        for name in [TASK_FILE, EARLIER_LOCK_FILE] {
            let Some(file) = present(self.open_lock(name))? else { continue };
            match file.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Some file systems lock only files that are open for writing.
    fn open_lock(&self, name: &str) -> io::Result<File> {
        files::open_regular_with(OpenOptions::new().read(true).write(true), &self.file(name))
    }

    /// Step 4, for runner and owner: makes `started`, complete and only once; false if it existed before. `NotFound` if
    /// the folder is being removed.
    pub(super) fn claim(&self, claim: Claim) -> io::Result<bool> {
        let part = match claim {
            Claim::Runner(_) => "started.runner",
            Claim::Revoked => "started.reviver",
        };
        let (part, target) = (self.file(part), self.file(STARTED_FILE));
        // The file that an earlier revocation linked is `started` itself and must not be written again.
        if target.try_exists()? {
            return Ok(false);
        }
        files::remove(&part)?;
        fs::write(&part, json(claim)?)?;
        // Unlike a file opened with O_EXCL, a linked one has its content when it appears.
        match fs::hard_link(part, target) {
            // A folder renamed in between has lost its `started` and could have taken this one.
            Ok(()) if self.read_claim()? != Some(claim) => Err(Errno::NOENT.into()),
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The maker of `started`; `None` if there is no such file.
    pub(super) fn read_claim(&self) -> io::Result<Option<Claim>> {
        let Some(bytes) = present(files::read_own(&self.file(STARTED_FILE)))? else { return Ok(None) };
        // Of another version, or torn by a power loss: the command may have begun.
        Ok(Some(parse(&bytes).unwrap_or(Claim::Runner(RunnerIdentity::UNKNOWN))))
    }

    /// What the ledger says of the attempt. If that was cut, `exit` may still tell that the command was begun.
    pub(super) fn mark(&self, name: SpoolName) -> io::Result<LedgerMark> {
        let mark = self.ledger().mark(name)?;
        let is_contradicted = mark == LedgerMark::NotBegun && exit::has_begun(self)?;
        Ok(if is_contradicted { LedgerMark::Unknown } else { mark })
    }

    /// The runner, by the ledger or else by `started`; `None` if neither names one.
    pub(super) fn runner(&self, name: SpoolName) -> io::Result<Option<RunnerIdentity>> {
        let claimed = match self.read_claim()? {
            Some(Claim::Runner(runner)) => Some(runner),
            None | Some(Claim::Revoked) => None,
        };
        Ok(self.ledger().mark(name)?.runner().or(claimed))
    }

    /// Removes the folder. The rename detaches it from the attempt in one step: a late runner must not find it without
    /// `started`.
    pub(super) fn remove(&self) -> io::Result<()> {
        static REMOVALS: AtomicU64 = AtomicU64::new(0);
        let mut removed = self.0.clone().into_os_string();
        let number = REMOVALS.fetch_add(1, Ordering::Relaxed);
        removed.push(format!("{REMOVAL_INFIX}{}-{number}", process::id()));
        match fs::rename(&self.0, &removed).if_exists()? {
            Some(()) => files::remove_tree(Path::new(&removed)),
            None => Ok(()),
        }
    }
}

/// `None` if the file is missing; something else may have replaced it or its folder.
pub(super) fn present<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound};
    match read {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidInput) => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// True for the name of a folder whose removal was begun.
pub(super) fn is_removal(name: &str) -> bool {
    name.split_once(REMOVAL_INFIX).is_some_and(|(name, _)| SpoolName::parse(name).is_some())
}

fn json(content: impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&VersionedFile { version: VERSION, content })?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let VersionedFile { version, content } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        let error = format!("its version is {version}, and this program knows {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Environment;
    use hermod_actors::model::RunId;

    fn runner() -> Claim {
        Claim::Runner(RunnerIdentity::own().unwrap())
    }

    fn folder() -> (tempfile::TempDir, SpoolFolder) {
        let spool = tempfile::tempdir().unwrap();
        let folder = SpoolFolder::new(spool.path().join("spool/a"));
        folder.create().unwrap();
        (spool, folder)
    }

    #[test]
    fn a_name_is_spelled_in_one_way() {
        let call = CallId { run: RunId::from_bits(7), iteration: 3, n: 2 };
        let name = SpoolName { call, attempt: 4 };
        assert_eq!(SpoolName::parse(&name.to_string()), Some(name));
        for bad in ["", ".", "x.1", &call.to_string(), &format!("{call}.04"), &format!("{call}.4.part")] {
            assert_eq!(SpoolName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn started_is_made_once() {
        let check = |claims: [Claim; 2]| {
            let (_spool, folder) = folder();
            assert_eq!(folder.read_claim().unwrap(), None);
            assert_eq!(claims.map(|claim| folder.claim(claim).unwrap()), [true, false]);
            assert_eq!(folder.read_claim().unwrap(), Some(claims[0]));
        };
        let runner = runner();
        check([runner, Claim::Revoked]);
        check([Claim::Revoked, runner]);
        check([Claim::Revoked, Claim::Revoked]);
    }

    #[test]
    fn both_sides_at_once_and_one_wins() {
        for _ in 0..50 {
            let (_spool, folder) = folder();
            let of = |claim| {
                let folder = folder.clone();
                std::thread::spawn(move || folder.claim(claim).unwrap())
            };
            let both = [of(runner()), of(Claim::Revoked)].map(|one| one.join().unwrap());
            assert_eq!(both.iter().filter(|claimed| **claimed).count(), 1);
            assert_eq!(folder.read_claim().unwrap() == Some(Claim::Revoked), both[1]);
        }
    }

    #[test]
    fn who_comes_while_the_folder_is_removed_does_not_begin() {
        for _ in 0..20 {
            let (_spool, folder) = folder();
            folder.claim(Claim::Revoked).unwrap();
            // Large enough that the removal takes a while.
            (0..500).for_each(|n| fs::write(folder.file(&n.to_string()), "").unwrap());
            let removed = folder.clone();
            let removal = std::thread::spawn(move || removed.remove().unwrap());
            let error = loop {
                match folder.claim(runner()) {
                    Ok(claimed) => assert!(!claimed),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            // A file that came in during the removal is gone at the next start.
            removal.join().unwrap_or_default();
        }
    }

    #[test]
    fn a_folder_that_is_being_removed_is_no_attempts() {
        let call = CallId { run: RunId::from_bits(7), iteration: 3, n: 2 };
        let removed = format!("{}{REMOVAL_INFIX}12-0", SpoolName { call, attempt: 4 });
        assert!(is_removal(&removed));
        assert_eq!(SpoolName::parse(&removed), None);
        for other in ["notes", REMOVAL_INFIX, &format!("{call}.4"), &format!("notes{REMOVAL_INFIX}1-0")] {
            assert!(!is_removal(other), "{other}");
        }
    }

    #[test]
    fn a_started_that_cannot_be_read_is_a_start() {
        let (_spool, folder) = folder();
        for text in ["", "{", r#"{"version":2,"by":"reviver"}"#, r#"{"version":1,"by":"runner","pid":0}"#] {
            fs::write(folder.file(STARTED_FILE), text).unwrap();
            assert_eq!(folder.read_claim().unwrap(), Some(Claim::Runner(RunnerIdentity::UNKNOWN)), "{text}");
        }
    }

    #[test]
    fn a_task_is_the_command_again() {
        let (_spool, folder) = folder();
        let command = Command {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "echo \"ä\"\n".into()],
            folder: "/tmp".into(),
            environment: Environment::Own,
            variables: Vec::new(),
            sandbox: None,
            timeout: std::time::Duration::from_millis(1_234),
        };
        fs::remove_dir(folder.path()).unwrap();
        folder.create_with_task(&command).unwrap();
        assert_eq!(format!("{:?}", folder.task().unwrap()), format!("{command:?}"));
        assert_eq!(folder.create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn the_lock_tells_whether_somebody_lives() {
        let (_spool, folder) = folder();
        assert!(!folder.has_live_runner().unwrap());
        assert_eq!(folder.lock().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(folder.file(TASK_FILE), "").unwrap();
        let lock = folder.lock().unwrap();
        assert!(folder.has_live_runner().unwrap());
        drop(lock);
        assert!(!folder.has_live_runner().unwrap());
    }
}
