//! The crash history as a file of the state directory, written at every change. Also times the trial of a single run.
//! Decides nothing.

use std::{
    fs, io,
    ops::Deref,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use hermod_actors::model::{RunId, Seq, Timestamp};
use tokio::time::sleep;

use super::history::{CrashHistory, MIN_UPTIME_MS, Trial};
use crate::files::{IoResult as _, read_regular, remove};

/// The file's name in the state directory.
const FILE: &str = "process.json";
/// Size limit of the file, which has a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Keeps the crash history in the state directory, for the process that owns the store.
/// The file is renamed into place and not synced: an end of the whole machine is no death of the process. If it cannot
/// be written, the runs are resumed all the same.
#[derive(Debug)]
pub struct CrashHistoryFile {
    path: PathBuf,
    history: CrashHistory,
}

/// Decisions are those of the history.
impl Deref for CrashHistoryFile {
    type Target = CrashHistory;

    fn deref(&self) -> &CrashHistory {
        &self.history
    }
}

impl CrashHistoryFile {
    /// Reads the history that earlier processes left; an empty one if it is missing or cannot be read.
    pub fn read(state: &Path) -> Self {
        let path = state.join(FILE);
        let history = match read_regular(&path, MAX_BYTES).if_exists() {
            Ok(None) => CrashHistory::default(),
            Ok(Some(json)) => CrashHistory::parse(&json).unwrap_or_else(|| {
                tracing::warn!(path = %path.display(), "it is not understood; earlier deaths do not count");
                CrashHistory::default()
            }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "earlier deaths do not count");
                CrashHistory::default()
            }
        };
        Self { path, history }
    }

    /// This process owns the store: see [`CrashHistory::replace_process`].
    pub fn begin_process(&mut self, now: Timestamp, step: Option<Seq>) {
        self.history.replace_process(std::process::id(), now, step);
        self.write();
    }

    /// See [`CrashHistory::start_backoff`].
    pub fn start_backoff(&mut self) {
        self.history.start_backoff();
        self.write();
    }

    /// See [`CrashHistory::set_trial`].
    pub fn set_trial(&mut self, trial: Option<Trial>) {
        self.history.set_trial(trial);
        self.write();
    }

    /// Records that the current trial has lasted [`MIN_UPTIME_MS`].
    pub fn mark_long_trial(&mut self) {
        let trial = self.history.last_trial().map(|trial| Trial { has_min_uptime: true, ..trial });
        self.set_trial(trial);
    }

    /// See [`CrashHistory::clear`].
    pub fn clear(&mut self, run: RunId) {
        self.history.clear(run);
        self.write();
    }

    /// Awaits `work`, and records it when the trial has lasted [`MIN_UPTIME_MS`].
    pub async fn watch_trial<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(Duration::from_millis(MIN_UPTIME_MS)) => {}
        }
        if self.history.last_trial().is_some() {
            self.mark_long_trial();
        }
        work.await
    }

    /// The process ends cleanly. Without this call its end counts as a death.
    pub fn end(mut self, now: Timestamp) {
        if self.history.end(now) {
            return self.write();
        }
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "this end will count as a death");
        }
    }

    fn write(&self) {
        let part = self.path.with_extension("part");
        let json = serde_json::to_vec(&self.history).map_err(io::Error::other);
        let written =
            json.and_then(|json| fs::write(&part, json)).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "a death of this process may not count");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_to_be_remembered_stays() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(FILE);
        let mut first = CrashHistoryFile::read(state.path());
        first.begin_process(Timestamp(0), None);
        assert!(file.exists());
        first.end(Timestamp(1));
        assert!(!file.exists(), "it ended well");
        for at in [2, 3, 4] {
            CrashHistoryFile::read(state.path()).begin_process(Timestamp(at), None);
        }
        let mut last = CrashHistoryFile::read(state.path());
        last.begin_process(Timestamp(5), None);
        assert_eq!(last.probation(), Some(3));
        last.end(Timestamp(6));
        assert_eq!(
            CrashHistoryFile::read(state.path()).probation(),
            Some(3),
            "one that ended well unmakes no death"
        );
        fs::write(&file, "garbage").unwrap();
        assert_eq!(CrashHistoryFile::read(state.path()).probation(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_lasts_is_noted() {
        let state = tempfile::tempdir().unwrap();
        let mut keeper = CrashHistoryFile::read(state.path());
        keeper.begin_process(Timestamp(0), None);
        let trial = Trial { run: RunId::from_bits(1), step: 3, is_alone: true, has_min_uptime: false };
        keeper.set_trial(Some(trial));
        keeper.watch_trial(sleep(Duration::from_millis(MIN_UPTIME_MS - 1))).await;
        assert_eq!(CrashHistoryFile::read(state.path()).history.last_trial(), Some(trial));
        keeper.watch_trial(sleep(Duration::from_millis(MIN_UPTIME_MS + 1))).await;
        assert_eq!(
            CrashHistoryFile::read(state.path()).history.last_trial(),
            Some(Trial { has_min_uptime: true, ..trial })
        );
    }
}
