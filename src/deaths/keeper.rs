use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use hermod_actors::model::{RunId, Seq, Timestamp};
use tokio::time::sleep;

use super::past::{LONG_MS, Past, Start, Trial};
use crate::files::read_regular;

/// The file, in the state directory.
const FILE: &str = "process.json";
/// Bytes of it that are read: it has a few hundred.
const MAX_BYTES: u64 = 1 << 20;

/// Keeps the past in the state directory, for whoever holds the store there. It is moved into place and not synced: what
/// dies with the machine was no death of the process. If it cannot be written, the runs go on all the same.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    past: Past,
}

impl Keeper {
    /// Reads what the process before has left.
    pub fn read(state: &Path) -> Self {
        let path = state.join(FILE);
        let past = match read_regular(&path, MAX_BYTES) {
            Ok(json) => Past::parse(&json).unwrap_or_else(|| {
                tracing::warn!(path = %path.display(), "it is not understood; earlier deaths do not count");
                Past::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "earlier deaths do not count");
                }
                Past::default()
            }
        };
        Self { path, past }
    }

    /// The run that the process before tried when it died.
    pub fn tried(&self) -> Option<RunId> {
        self.past.tried().map(|trial| trial.run)
    }

    /// This process holds the store: see [`Past::take_over`].
    pub fn take_over(&mut self, now: Timestamp, step: Option<Seq>) {
        self.past.take_over((std::process::id(), now), step);
        self.write();
    }

    /// See [`Past::start`].
    pub fn start(&self) -> Start {
        self.past.start()
    }

    /// See [`Past::condemned`].
    pub fn condemned(&self) -> Vec<(RunId, u32)> {
        self.past.condemned()
    }

    /// See [`Past::suspicion`].
    pub fn suspicion(&self, run: RunId) -> u32 {
        self.past.suspicion(run)
    }

    /// See [`Past::rest_before`].
    pub fn rest_before(&self, trial: &Trial) -> Option<Duration> {
        self.past.rest_before(trial)
    }

    /// See [`Past::rest`].
    pub fn rest(&mut self) {
        self.past.rest();
        self.write();
    }

    /// See [`Past::try_out`].
    pub fn try_out(&mut self, trial: Option<Trial>) {
        self.past.try_out(trial);
        self.write();
    }

    /// The run that is tried has been tried for [`LONG_MS`].
    pub fn long(&mut self) {
        let trial = self.past.tried().map(|trial| Trial { long: true, ..trial });
        self.try_out(trial);
    }

    /// See [`Past::clear`].
    pub fn clear(&mut self, run: RunId) {
        self.past.clear(run);
        self.write();
    }

    /// Says when the trial has lasted [`LONG_MS`], while `tried` goes on.
    pub async fn attend<T>(&mut self, tried: impl Future<Output = T>) -> T {
        let mut tried = pin!(tried);
        tokio::select! {
            biased;
            done = &mut tried => return done,
            () = sleep(Duration::from_millis(LONG_MS)) => {}
        }
        if self.past.tried().is_some() {
            self.long();
        }
        tried.await
    }

    /// The process ends well. Without this it has died.
    pub fn end(mut self, now: Timestamp) {
        if self.past.end(now) {
            return self.write();
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "this end will count as a death");
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn write(&self) {
        let part = self.path.with_extension("part");
        let json = serde_json::to_vec(&self.past).map_err(io::Error::other);
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
        let mut first = Keeper::read(state.path());
        first.take_over(Timestamp(0), None);
        assert!(file.exists());
        first.end(Timestamp(1));
        assert!(!file.exists(), "it ended well");
        for at in [2, 3, 4] {
            Keeper::read(state.path()).take_over(Timestamp(at), None);
        }
        let mut last = Keeper::read(state.path());
        last.take_over(Timestamp(5), None);
        assert_eq!(last.start(), Start::Probation(3));
        last.end(Timestamp(6));
        assert_eq!(
            Keeper::read(state.path()).start(),
            Start::Probation(3),
            "one that ended well unmakes no death"
        );
        fs::write(&file, "garbage").unwrap();
        assert_eq!(Keeper::read(state.path()).start(), Start::Ordinary);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_lasts_is_noted() {
        let state = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::read(state.path());
        keeper.take_over(Timestamp(0), None);
        let trial = Trial { run: RunId::from_bits(1), step: 3, alone: true, long: false };
        keeper.try_out(Some(trial));
        keeper.attend(sleep(Duration::from_millis(LONG_MS - 1))).await;
        assert_eq!(Keeper::read(state.path()).past.tried(), Some(trial));
        keeper.attend(sleep(Duration::from_millis(LONG_MS + 1))).await;
        assert_eq!(Keeper::read(state.path()).past.tried(), Some(Trial { long: true, ..trial }));
    }
}
