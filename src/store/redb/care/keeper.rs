use std::{
    collections::HashSet,
    sync::{Arc, Weak, mpsc::sync_channel},
    time::Duration,
};

use hermod_actors::model::{RunId, SessionId, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    super::{fault::Fault, journal::RedbJournal},
    chores::{Chore, Reply, SLICE},
    footprint::{self, StoreFootprint},
    mark::{self, Lookup},
    plan::{Doomed, Plan},
    tally::{Mode, Tally, why},
};

/// Sessions whose rows are looked up at once.
const CHUNK: usize = 64;

/// Why a store is not cared for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CareError {
    /// It was closed.
    #[error("the store was closed before this was done; what is left is removed the next time")]
    Closed,
    /// Somebody else cares for it.
    #[error("another care of the store is under way; try again when that has ended")]
    Busy,
    /// It cannot be read or written.
    #[error("the store cannot be cared for: {0}")]
    Failed(String),
}

impl From<Fault> for CareError {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.to_string())
    }
}

/// Care of a store that is open in this process. Does not keep it open. All of it blocks.
#[derive(Debug, Clone)]
pub struct Care {
    journal: Weak<RedbJournal>,
}

/// The sessions that have gone in this care, or would go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gone {
    /// The sessions.
    pub sessions: HashSet<SessionId>,
    /// Their runs.
    pub runs: HashSet<RunId>,
}

impl Care {
    pub(in super::super) const fn new(journal: Weak<RedbJournal>) -> Self {
        Self { journal }
    }

    /// Begins to remove what is not needed; nobody else does until the answer is dropped.
    pub fn begin(&self, mode: Mode) -> Result<Caring, CareError> {
        let gate = Arc::clone(self.journal()?.care_gate());
        let alone = gate.try_acquire_owned().map_err(|_| CareError::Busy)?;
        Ok(Caring { care: self.clone(), mode, longest: Duration::ZERO, _alone: alone })
    }

    /// What the store takes up. Reads all of it.
    pub fn footprint(&self) -> Result<StoreFootprint, CareError> {
        let (reader, blobs) = {
            let journal = self.journal()?;
            (journal.reader()?, journal.blobs().clone())
        };
        let file = reader.file();
        Ok(file.run(|| footprint::measure(reader.txn(), file.path(), &blobs))?)
    }

    /// Reads the store; what the engine cannot decode is told with the file and the remedy.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, CareError>) -> Result<T, CareError> {
        let file = self.journal()?.db.file().clone();
        file.catch(work)?.map_err(|error| match (error, file.known_damage()) {
            (CareError::Failed(_), Some(fault)) => fault.into(),
            (error, _) => error,
        })
    }

    fn journal(&self) -> Result<Arc<RedbJournal>, CareError> {
        self.journal.upgrade().ok_or(CareError::Closed)
    }

    fn plan(&self) -> Result<Plan, CareError> {
        let journal = self.journal()?;
        Ok(Plan::new(journal.reader()?, journal.blobs().clone()))
    }
}

/// A care under way.
#[derive(Debug)]
pub struct Caring {
    care: Care,
    mode: Mode,
    longest: Duration,
    _alone: OwnedSemaphorePermit,
}

impl Caring {
    /// Whether something is removed.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The longest time for which appends had to wait.
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// Answers questions from what is there now.
    pub fn lookup(&self) -> Result<Lookup, CareError> {
        Ok(Lookup::new(self.care.journal()?.reader()?))
    }

    /// Removes the sessions whose last record is not younger than `before`, if that is set; and what an earlier care has left
    /// of some. Says what it saw, how many idempotency keys went with them, and which have gone: no power loss brings these
    /// back, so that their files can go.
    pub fn sessions(&mut self, before: Option<Timestamp>) -> Result<(Tally, Tally, Gone), CareError> {
        let care = self.care.clone();
        let done = care.guarded(|| self.expire(before))?;
        if self.mode == Mode::Remove {
            self.chore(Chore::Settle)?;
        }
        Ok(done)
    }

    fn expire(&mut self, before: Option<Timestamp>) -> Result<(Tally, Tally, Gone), CareError> {
        let (mut tally, mut keys, mut gone) = (Tally::default(), Tally::default(), Gone::default());
        self.bury()?;
        let all_keys = self.care.plan()?.keys()?;
        let Some(before) = before else {
            tally.keep(why::FOREVER, self.care.plan()?.sessions()?);
            keys.keep(why::RUN, all_keys);
            return Ok((tally, keys, gone));
        };
        let mut expired = self.care.plan()?.expired(before, &mut tally)?.into_iter();
        loop {
            let mut doomed = Vec::new();
            // A snapshot keeps the store from using again what is freed: it is not held for longer than needed.
            let plan = self.care.plan()?;
            for expired in expired.by_ref().take(CHUNK) {
                match plan.doomed(expired)? {
                    Some(one) => doomed.push(one),
                    None => tally.keep(why::UNREADABLE, 1),
                }
            }
            drop(plan);
            if doomed.is_empty() && expired.len() == 0 {
                break;
            }
            self.remove(doomed, (&mut tally, &mut keys, &mut gone))?;
            self.bury()?;
        }
        keys.keep(why::RUN, all_keys.saturating_sub(keys.removed));
        Ok((tally, keys, gone))
    }

    fn remove(
        &mut self,
        mut doomed: Vec<Doomed>,
        (tally, keys, gone): (&mut Tally, &mut Tally, &mut Gone),
    ) -> Result<(), CareError> {
        while !doomed.is_empty() {
            let (sent, mode) = (doomed.clone(), self.mode);
            let verdicts = self.chore(|reply| Chore::Remove(sent, mode, reply))?;
            for (one, verdict) in doomed.drain(..verdicts.len()).zip(verdicts) {
                if let Err(why) = verdict {
                    tally.keep(why, 1);
                    continue;
                }
                tally.remove(one.bytes);
                one.keys.iter().for_each(|key| keys.remove(key.len() as u64));
                gone.sessions.insert(SessionId::from_bits(one.session));
                gone.runs.extend(one.runs.into_iter().map(RunId::from_bits));
            }
        }
        Ok(())
    }

    /// Removes the rows that are left of removed sessions.
    fn bury(&mut self) -> Result<(), CareError> {
        while self.mode == Mode::Remove {
            let graves = self.care.plan()?.graves()?;
            if graves.is_empty() {
                break;
            }
            for grave in graves {
                self.chore(|reply| Chore::Bury(grave, reply))?;
            }
        }
        Ok(())
    }

    /// Removes the blobs to which nothing refers, but what has gone.
    pub fn blobs(&mut self, gone: &Gone) -> Result<Tally, CareError> {
        self.chore(Chore::Note)?;
        let care = self.care.clone();
        let swept = care.guarded(|| self.sweep(gone));
        if let Ok(journal) = self.care.journal() {
            journal.tend(Chore::Rest);
        }
        swept
    }

    fn sweep(&mut self, gone: &Gone) -> Result<Tally, CareError> {
        let mut tally = Tally::default();
        let (reader, blobs) = {
            let journal = self.care.journal()?;
            (journal.reader()?, journal.blobs().clone())
        };
        let mut all = Vec::new();
        blobs.each(|blob, _| all.push(blob)).map_err(|error| CareError::Failed(error.to_string()))?;
        if all.is_empty() {
            return Ok(tally);
        }
        // Whatever has gone refers to nothing any more, and what has the same name now is something else.
        let gone = if self.mode == Mode::DryRun { gone } else { &Gone::default() };
        let Some(referred) = mark::referred(reader.txn(), gone)? else {
            tally.keep(why::UNKNOWN, all.len() as u64);
            return Ok(tally);
        };
        drop(reader);
        let before = all.len();
        all.retain(|blob| !referred.contains(blob));
        tally.keep(why::REFERRED, (before - all.len()) as u64);
        for slice in all.chunks(SLICE) {
            let mode = self.mode;
            for freed in self.chore(|reply| Chore::Unlink(slice.to_vec(), mode, reply))? {
                match freed {
                    Ok(bytes) => tally.remove(bytes),
                    Err(why) => tally.keep(why, 1),
                }
            }
        }
        Ok(tally)
    }

    /// Has something done by the committer, between two batches.
    fn chore<T>(&mut self, chore: impl FnOnce(Reply<T>) -> Chore) -> Result<T, CareError> {
        let (reply, answer) = sync_channel(1);
        if !self.care.journal()?.tend(chore(reply)) {
            return Err(CareError::Closed);
        }
        let done = answer.recv().map_err(|_| CareError::Closed)?;
        self.longest = self.longest.max(done.took);
        done.result.map_err(CareError::Failed)
    }
}
