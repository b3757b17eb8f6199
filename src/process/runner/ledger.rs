//! The ledger of begun commands: the file `begun` in the state directory, beside the spool.
//!
//! A runner appends its attempt's name and its pid after it made `started` and before it runs the command. A command
//! can remove its spool folder, but not the fact that it was begun. The ledger proves that an attempt was *not* begun
//! only if it exists, is complete and is older than the run. A command that removes the ledger removes that proof for
//! all runs accepted before the ledger is made again. Of a damaged ledger the entries count that are left.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use hermod_actors::model::RunId;

use super::{files::SpoolName, identity::RunnerIdentity};
use crate::files::{IoResult as _, lock_within, make, make_folder, open_regular, open_regular_with, remove};

pub(super) const FILE: &str = "begun";
const MAGIC: &str = "hermod-begun 2 ";
/// The first line of earlier versions. They cannot read the entries of this one, and must not take them for none.
const EARLIER_MAGIC: &str = "hermod-begun 1 ";
/// Limit of the first line.
const MAX_HEAD_BYTES: u64 = 64;
/// Digits of the time in the first line. A line that was cut has fewer: it must not pass for one of long ago.
const MIN_TIME_DIGITS: usize = 13;
/// Size from which entries of runs that are not open are removed.
const SHORTEN_FROM_BYTES: u64 = 64 << 10;
/// Limit of a read: far more than the entries of all open runs.
const MAX_BYTES: u64 = 64 << 20;
/// Attempts to take the lock. Writers hold it for a moment.
const LOCK_TRIES: u32 = 500;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Held while a ledger is replaced: two replacements would use the same temporary file. Only the owner of the store
/// replaces its ledger, so no other process competes.
static REPLACEMENT_LOCK: Mutex<()> = Mutex::new(());

/// The ledger's statement about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerMark {
    /// The command was not begun.
    NotBegun,
    /// The command was begun by this runner.
    Begun(RunnerIdentity),
    /// Nothing is proven: the ledger is missing, damaged or younger than the run.
    Unknown,
}

impl LedgerMark {
    pub(super) const fn runner(self) -> Option<RunnerIdentity> {
        match self {
            Self::Begun(runner) => Some(runner),
            Self::NotBegun | Self::Unknown => None,
        }
    }
}

/// The ledger of one state directory.
#[derive(Debug, Clone)]
pub(super) struct CommandLedger(PathBuf);

/// The content of the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct LedgerEntries {
    /// Time when the ledger was made, in milliseconds of the wall clock. `None` if it is damaged: entries may be missing.
    since_ms: Option<u64>,
    begun: Vec<(SpoolName, RunnerIdentity)>,
}

/// The state of the file, by its first line and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LedgerState {
    Missing,
    Current,
    /// Of an earlier version, damaged, or too long to be read.
    Replaceable,
}

impl CommandLedger {
    /// The ledger beside this spool.
    pub(super) fn of_spool(spool: &Path) -> Self {
        Self(spool.with_file_name(FILE))
    }

    /// Makes the ledger unless it exists. A damaged one is replaced: its entries stay, and a missing one proves something
    /// only about later runs.
    pub(super) fn ensure(&self) -> io::Result<()> {
        if self.state()? == LedgerState::Current {
            return Ok(());
        }
        let _lock = lock_replacement();
        // Another thread may have made it, and a runner may have written into it.
        match self.state()? {
            LedgerState::Current => Ok(()),
            LedgerState::Replaceable => self.replace(|_, _| true),
            LedgerState::Missing => {
                make_folder(self.0.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
                self.write(&LedgerEntries::default())
            }
        }
    }

    /// Records that a command is about to run. `NotFound` without a ledger.
    pub(super) fn record_start(&self, attempt: &str, runner: RunnerIdentity) -> io::Result<()> {
        let mut file = self.open_locked()?;
        // Starts with a newline, so that it has its own line after a truncated one.
        file.write_all(format!("\n{attempt} {}\n", runner.format()).as_bytes())
    }

    /// The ledger's statement about an attempt.
    pub(super) fn mark(&self, name: SpoolName) -> io::Result<LedgerMark> {
        let Some(entries) = self.read().if_exists()? else { return Ok(LedgerMark::Unknown) };
        let begun = entries.begun.iter().rposition(|(begun, _)| *begun == name);
        Ok(match begun {
            Some(at) if entries.is_superseded(at) => LedgerMark::Begun(RunnerIdentity::UNKNOWN),
            Some(at) => LedgerMark::Begun(entries.begun[at].1),
            None if entries.since_ms.is_some_and(|since| accepted_ms(name.call.run) > since) => {
                LedgerMark::NotBegun
            }
            None => LedgerMark::Unknown,
        })
    }

    /// The begun attempts that the ledger still has, and whose runners have begun no other one since. None without a
    /// ledger, and an error if it is damaged: others may have begun.
    pub(super) fn started_attempts(&self) -> io::Result<Vec<(SpoolName, RunnerIdentity)>> {
        let Some(entries) = self.read().if_exists()? else { return Ok(Vec::new()) };
        if entries.since_ms.is_none() {
            let error = format!(
                "the ledger of begun commands is damaged, so commands may run that cannot be found: end them, and remove {}",
                self.0.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let mut later = HashSet::new();
        let is_last = |(_, runner): &(_, RunnerIdentity)| !runner.is_exact() || later.insert(*runner);
        let mut last: Vec<_> = entries.begun.into_iter().rev().filter(is_last).collect();
        last.reverse();
        Ok(last)
    }

    /// Removes the entries that are not wanted any more, if the file is large.
    pub(super) fn shorten(&self, is_kept: impl Fn(SpoolName, RunnerIdentity) -> bool) -> io::Result<()> {
        if !fs::metadata(&self.0).is_ok_and(|file| file.len() > SHORTEN_FROM_BYTES) {
            return Ok(());
        }
        let _lock = lock_replacement();
        self.replace(is_kept)
    }

    /// Replaces the file by one of this version with some of its entries. The caller holds the replacement lock.
    fn replace(&self, is_kept: impl Fn(SpoolName, RunnerIdentity) -> bool) -> io::Result<()> {
        let _locked = self.open_locked()?;
        let mut entries = self.read()?;
        if entries.since_ms.is_none() {
            tracing::warn!(ledger = %self.0.display(), kept = entries.begun.len(), "the ledger of begun commands was damaged");
        }
        entries.begun.retain(|(name, runner)| is_kept(*name, *runner));
        self.write(&entries)
    }

    /// Writes a ledger of this version in the place of any other; a damaged one is from now on.
    fn write(&self, entries: &LedgerEntries) -> io::Result<()> {
        let (file, part) = self.create_part()?;
        let now = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let since_ms = entries.since_ms.map_or(now.as_millis(), u128::from);
        let mut file = BufWriter::new(file);
        writeln!(file, "{MAGIC}{since_ms:0MIN_TIME_DIGITS$}")?;
        for (name, runner) in &entries.begun {
            writeln!(file, "{name} {}", runner.format())?;
        }
        file.flush()?;
        fs::rename(part, &self.0)
    }

    fn state(&self) -> io::Result<LedgerState> {
        let mut head = Vec::new();
        let Some(file) = open_regular(&self.0).if_exists()? else { return Ok(LedgerState::Missing) };
        let is_too_long = file.metadata()?.len() > MAX_BYTES;
        file.take(MAX_HEAD_BYTES).read_to_end(&mut head)?;
        let is_current = head.starts_with(MAGIC.as_bytes())
            && LedgerEntries::parse(&String::from_utf8_lossy(&head)).since_ms.is_some();
        Ok(if is_current && !is_too_long { LedgerState::Current } else { LedgerState::Replaceable })
    }

    /// Reads the entries. A ledger that is too long has none, and is damaged.
    fn read(&self) -> io::Result<LedgerEntries> {
        let mut bytes = Vec::new();
        open_regular(&self.0)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Ok(LedgerEntries::default());
        }
        Ok(LedgerEntries::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Opens the file for appending and locks it. Repeats if the file was replaced before the lock was taken.
    fn open_locked(&self) -> io::Result<File> {
        loop {
            let file = open_regular_with(OpenOptions::new().append(true), &self.0)?;
            lock(&file)?;
            let (opened, named) = (file.metadata()?, fs::metadata(&self.0)?);
            if (opened.dev(), opened.ino()) == (named.dev(), named.ino()) {
                return Ok(file);
            }
        }
    }

    /// Makes the temporary file that replaces the ledger.
    fn create_part(&self) -> io::Result<(File, PathBuf)> {
        let part = self.0.with_extension("part");
        remove(&part)?;
        Ok((make(&part)?, part))
    }
}

impl LedgerEntries {
    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let (name, runner) = line.split_once(' ')?;
            Some((SpoolName::parse(name)?, RunnerIdentity::parse(runner)?))
        };
        Self {
            since_ms: text.split_once('\n').and_then(|(head, _)| since_ms(head)),
            begun: text.lines().filter_map(entry).collect(),
        }
    }

    /// True if the runner of an entry has begun another attempt later, which it does only after the end of this one.
    fn is_superseded(&self, at: usize) -> bool {
        let (_, runner) = self.begun[at];
        runner.is_exact() && self.begun[at + 1..].iter().any(|(_, later)| *later == runner)
    }
}

fn lock_replacement() -> MutexGuard<'static, ()> {
    REPLACEMENT_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the ledger. A command may hold the lock, which must not block others forever: after 500 tries it is an error.
fn lock(file: &File) -> io::Result<()> {
    if lock_within(file, (LOCK_TRIES, LOCK_RETRY_DELAY), || true)? {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another process keeps it locked"))
}

fn since_ms(head: &str) -> Option<u64> {
    let time = head.strip_prefix(MAGIC).or_else(|| head.strip_prefix(EARLIER_MAGIC))?;
    time.parse().ok().filter(|_| time.len() >= MIN_TIME_DIGITS)
}

/// Time of the run's acceptance in milliseconds, from its id.
fn accepted_ms(run: RunId) -> u64 {
    u64::try_from(run.bits() >> 80).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermod_actors::model::CallId;

    fn ledger() -> (tempfile::TempDir, CommandLedger) {
        let state = tempfile::tempdir().unwrap();
        let ledger = CommandLedger::of_spool(&state.path().join("state/spool"));
        (state, ledger)
    }

    /// An attempt of a run that was accepted at this time.
    fn name(accepted_ms: u64, n: u32) -> SpoolName {
        let run = RunId::from_bits(u128::from(accepted_ms) << 80);
        SpoolName { call: CallId { run, iteration: 1, n }, attempt: 1 }
    }

    const LATER: u64 = 1 << 47;

    fn runner() -> RunnerIdentity {
        RunnerIdentity::own().unwrap()
    }

    /// All entries.
    fn begun(ledger: &CommandLedger) -> Vec<(SpoolName, RunnerIdentity)> {
        ledger.read().unwrap().begun
    }

    #[test]
    fn one_of_an_earlier_version_keeps_its_entries() {
        let (_state, ledger) = ledger();
        fs::create_dir_all(ledger.0.parent().unwrap()).unwrap();
        fs::write(&ledger.0, format!("hermod-begun 1 0000000000017\n\n{} 4711\n", name(LATER, 1))).unwrap();
        ledger.ensure().unwrap();
        assert!(fs::read_to_string(&ledger.0).unwrap().starts_with("hermod-begun 2 0000000000017\n"));
        // A runner of that version that was about to begin.
        let mut file = OpenOptions::new().append(true).open(&ledger.0).unwrap();
        write!(file, "\n{} 4712\n", name(LATER, 2)).unwrap();
        for (n, pid) in [(1, 4711), (2, 4712)] {
            let begun = LedgerMark::Begun(RunnerIdentity::parse(&pid.to_string()).unwrap());
            assert_eq!(ledger.mark(name(LATER, n)).unwrap(), begun);
        }
        assert_eq!(ledger.mark(name(LATER, 3)).unwrap(), LedgerMark::NotBegun);
        assert_eq!(ledger.mark(name(16, 3)).unwrap(), LedgerMark::Unknown, "it is older than the ledger");
    }

    #[test]
    fn it_speaks_for_runs_that_are_younger() {
        let (_state, ledger) = ledger();
        assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::Unknown, "there is none");
        assert_eq!(ledger.record_start("x", runner()).unwrap_err().kind(), io::ErrorKind::NotFound);
        ledger.ensure().unwrap();
        assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::NotBegun);
        assert_eq!(ledger.mark(name(1, 1)).unwrap(), LedgerMark::Unknown, "it was accepted before");
        for accepted in [1, LATER] {
            ledger.record_start(&name(accepted, 2).to_string(), runner()).unwrap();
            assert_eq!(ledger.mark(name(accepted, 2)).unwrap(), LedgerMark::Begun(runner()));
        }
        // A complete ledger is not made again.
        ledger.ensure().unwrap();
        assert_eq!(begun(&ledger).len(), 2);
    }

    #[test]
    fn a_runner_has_only_its_last_attempt() {
        let (_state, ledger) = ledger();
        ledger.ensure().unwrap();
        let other = RunnerIdentity::parse("1 2").unwrap();
        for (n, runner) in [(1, runner()), (2, other), (3, runner()), (4, other)] {
            ledger.record_start(&name(LATER, n).to_string(), runner).unwrap();
        }
        let expected = [RunnerIdentity::UNKNOWN, RunnerIdentity::UNKNOWN, runner(), other];
        for (n, runner) in (1..).zip(expected) {
            assert_eq!(ledger.mark(name(LATER, n)).unwrap(), LedgerMark::Begun(runner), "{n}");
        }
        assert_eq!(ledger.started_attempts().unwrap(), [(name(LATER, 3), runner()), (name(LATER, 4), other)]);
        // A pid alone may have been given to another process.
        let reused = RunnerIdentity::parse("7").unwrap();
        for n in [5, 6] {
            ledger.record_start(&name(LATER, n).to_string(), reused).unwrap();
            assert_eq!(ledger.mark(name(LATER, 5)).unwrap(), LedgerMark::Begun(reused), "{n}");
        }
    }

    #[test]
    fn one_that_was_removed_or_damaged_proves_nothing_for_older_runs() {
        for damage in [
            (|path: &Path| fs::remove_file(path).unwrap()) as fn(&Path),
            |path| fs::write(path, "").unwrap(),
            |path| fs::write(path, [0; 100]).unwrap(),
            |path| fs::write(path, "hermod-begun 3 0\n").unwrap(),
            |path| File::options().write(true).open(path).unwrap().set_len(20).unwrap(),
        ] {
            let (_state, ledger) = ledger();
            ledger.ensure().unwrap();
            let since_ms = || ledger.read().unwrap().since_ms.unwrap();
            let accepted = since_ms() + 1;
            ledger.record_start(&name(accepted, 1).to_string(), runner()).unwrap();
            damage(&ledger.0);
            let is_there = ledger.0.exists();
            assert_eq!(ledger.started_attempts().is_err(), is_there);
            assert_eq!(ledger.mark(name(accepted, 1)).unwrap(), LedgerMark::Unknown);
            if is_there {
                // What is entered later counts, and does not make the ledger whole.
                ledger.record_start(&name(accepted, 2).to_string(), runner()).unwrap();
                ledger.started_attempts().unwrap_err();
                assert_eq!(ledger.mark(name(accepted, 2)).unwrap(), LedgerMark::Begun(runner()));
                assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::Unknown);
            }
            ledger.ensure().unwrap();
            assert_eq!(ledger.started_attempts().unwrap().len(), usize::from(is_there));
            // The clock of files may have ticks of several milliseconds.
            while since_ms() < accepted {
                fs::remove_file(&ledger.0).unwrap();
                ledger.ensure().unwrap();
            }
            assert_eq!(ledger.mark(name(accepted, 1)).unwrap(), LedgerMark::Unknown);
            assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::NotBegun);
        }
    }

    #[test]
    fn what_is_no_file_or_is_locked_is_an_error_and_waits_for_nothing() {
        let (_state, ledger) = ledger();
        ledger.ensure().unwrap();
        let held = File::open(&ledger.0).unwrap();
        held.lock_shared().unwrap();
        assert_eq!(ledger.record_start("x", runner()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        ledger.record_start("x", runner()).unwrap();
        for path in [ledger.0.clone(), ledger.0.with_extension("part")] {
            fs::remove_file(&ledger.0).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
            let is_replaced = path != ledger.0;
            assert_eq!(ledger.ensure().is_ok(), is_replaced);
            assert_eq!(ledger.record_start("x", runner()).is_ok(), is_replaced);
            assert_eq!(ledger.mark(name(LATER, 1)).is_ok(), is_replaced);
            assert_eq!(ledger.started_attempts().is_ok(), is_replaced);
        }
    }

    #[test]
    fn one_that_is_too_long_is_made_again() {
        let (_state, ledger) = ledger();
        ledger.ensure().unwrap();
        File::options().write(true).open(&ledger.0).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::Unknown);
        ledger.started_attempts().unwrap_err();
        ledger.ensure().unwrap();
        assert_eq!(ledger.started_attempts().unwrap(), []);
        assert!(fs::metadata(&ledger.0).unwrap().len() < 100);
    }

    #[test]
    fn many_threads_make_one_ledger() {
        for damage in [|_: &Path| {}, |path: &Path| fs::write(path, [0; 100]).unwrap()] {
            for _ in 0..50 {
                let (_state, ledger) = ledger();
                fs::create_dir_all(ledger.0.parent().unwrap()).unwrap();
                damage(&ledger.0);
                let start = std::sync::Barrier::new(8);
                std::thread::scope(|scope| {
                    for n in 0..8 {
                        let (ledger, start) = (&ledger, &start);
                        scope.spawn(move || {
                            start.wait();
                            ledger.ensure().unwrap();
                            ledger.record_start(&name(LATER, n).to_string(), runner()).unwrap();
                        });
                    }
                });
                assert_eq!(begun(&ledger).len(), 8, "no thread's entry is replaced");
            }
        }
    }

    #[test]
    fn what_was_cut_costs_no_other_entry() {
        let (_state, ledger) = ledger();
        ledger.ensure().unwrap();
        let cut = OpenOptions::new().append(true).open(&ledger.0).unwrap();
        (&cut).write_all(&name(LATER, 7).to_string().as_bytes()[..20]).unwrap();
        ledger.record_start(&name(LATER, 1).to_string(), runner()).unwrap();
        assert_eq!(ledger.mark(name(LATER, 1)).unwrap(), LedgerMark::Begun(runner()));
        assert_eq!(ledger.mark(name(LATER, 7)).unwrap(), LedgerMark::NotBegun);
    }

    #[test]
    fn a_large_one_keeps_what_is_open_though_others_write() {
        let (_state, ledger) = ledger();
        ledger.ensure().unwrap();
        let open = RunId::from_bits(u128::from(LATER) << 80);
        let writers: Vec<_> = (0..4_u32)
            .map(|of| {
                let ledger = ledger.clone();
                std::thread::spawn(move || {
                    for n in 0..500 {
                        ledger.record_start(&name(LATER, of * 1_000 + n).to_string(), runner()).unwrap();
                        ledger.record_start(&name(LATER + 1, of * 1_000 + n).to_string(), runner()).unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            ledger.shorten(|name, _| name.call.run == open).unwrap();
        }
        ledger.shorten(|name, _| name.call.run == open).unwrap();
        let kept = begun(&ledger).into_iter().filter(|(name, _)| name.call.run == open).count();
        assert_eq!(kept, 2_000);
        assert!(fs::metadata(&ledger.0).unwrap().len() < 4_000 * 50);
    }
}
