use std::{io, sync::mpsc::SyncSender, time::Duration};

use hermod_actors::model::SessionId;
use redb::ReadableTable;
use tokio::time::Instant;

use super::{
    super::{
        batch::Memory,
        blobs::Digest,
        committer::Committer,
        fault::Fault,
        journal::Durability,
        tables::{Place, Tables},
    },
    plan::{Doomed, Grave},
    tally::{Mode, why},
};

/// Rows of the log, or files, that go in one step: about a millisecond. (A row lies on a page of its own.)
pub(super) const SLICE: usize = 96;
/// Rows that go with a run.
const PER_RUN: usize = 4;

/// A piece of work for the committer.
pub(in super::super) enum Chore {
    /// Note every blob that is stored from now on.
    Note(Reply<()>),
    /// Remove as many of these sessions as a step has room for, at least one; say what became of each.
    Remove(Vec<Doomed>, Mode, Reply<Vec<Verdict>>),
    /// Remove the last rows that are left of a session.
    Bury(Grave, Reply<()>),
    /// Remove these blobs, if they were not stored meanwhile.
    Unlink(Vec<Digest>, Mode, Reply<Vec<Freed>>),
    /// Bring to disk what was removed.
    Settle(Reply<()>),
    /// Note no more.
    Rest,
}

/// Who waits for a chore.
pub(in super::super) type Reply<T> = SyncSender<Done<T>>;

/// What came of a chore, and for how long nothing else was written.
pub(in super::super) struct Done<T> {
    pub(in super::super) result: Result<T, String>,
    pub(super) took: Duration,
}

/// What became of a session: removed, or why not.
pub(in super::super) type Verdict = Result<(), &'static str>;
/// What became of a blob: its bytes, or why it stays.
pub(in super::super) type Freed = Result<u64, &'static str>;

impl Committer {
    pub(in super::super) fn tend(&mut self, chore: Chore) {
        let begun = Instant::now();
        match chore {
            Chore::Note(reply) => {
                self.spiller.note();
                say(&reply, begun, Ok(()));
            }
            Chore::Remove(doomed, mode, reply) => {
                let done = self.unless_failed(|this| this.remove(&doomed, mode));
                say(&reply, begun, done);
            }
            Chore::Bury(grave, reply) => {
                let done = self.unless_failed(|this| this.bury(&grave));
                say(&reply, begun, done);
            }
            Chore::Unlink(blobs, mode, reply) => {
                let done = self.unless_failed(|this| Ok(this.unlink(&blobs, mode)));
                say(&reply, begun, done);
            }
            Chore::Settle(reply) => {
                self.settle();
                let done = self.unless_failed(|_| Ok(()));
                say(&reply, begun, done);
            }
            Chore::Rest => self.spiller.rest(),
        }
    }

    fn unless_failed<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, String> {
        if let Some(failed) = &self.failed {
            return Err(format!("an earlier commit failed: {failed}"));
        }
        self.file().run(|| work(self)).map_err(|fault| self.fail(&fault))
    }

    fn remove(&mut self, doomed: &[Doomed], mode: Mode) -> Result<Vec<Verdict>, Fault> {
        let txn = self.begin()?;
        let (mut tables, mut verdicts, mut room) = (Tables::of(&txn), Vec::new(), SLICE);
        for doomed in doomed {
            let verdict = judge(&mut tables, &self.memory, doomed)?;
            if verdict.is_ok() && mode == Mode::Remove {
                erase(&mut tables, doomed, room)?;
            }
            verdicts.push(verdict);
            room = room.saturating_sub(doomed.places.len() + PER_RUN * doomed.runs.len());
            if room == 0 {
                break;
            }
        }
        drop(tables);
        if mode == Mode::Remove && verdicts.iter().any(Result::is_ok) {
            txn.commit()?;
            self.pending += u32::from(self.durability == Durability::Relaxed);
        } else {
            txn.abort()?;
        }
        Ok(verdicts)
    }

    fn bury(&mut self, grave: &Grave) -> Result<(), Fault> {
        let txn = self.begin()?;
        let mut tables = Tables::of(&txn);
        for place in &grave.places {
            tables.log.open()?.remove(place)?;
        }
        match grave.next {
            0 => drop(tables.graves.open()?.remove(grave.session)?),
            next => drop(tables.graves.open()?.insert(grave.session, next)?),
        }
        drop(tables);
        txn.commit()?;
        self.pending += u32::from(self.durability == Durability::Relaxed);
        Ok(())
    }

    fn unlink(&mut self, blobs: &[Digest], mode: Mode) -> Vec<Freed> {
        // What a power loss would bring back of a relaxed store refers to more than the snapshot that was searched.
        self.settle();
        let unlink = |blob: &Digest| match (self.failed.is_none() && self.spiller.may_go(blob), mode) {
            (false, _) => Err(why::REFERRED),
            (true, Mode::Remove) => freed(self.spiller.unlink(blob)),
            (true, Mode::DryRun) => freed(self.spiller.length(blob)),
        };
        blobs.iter().map(unlink).collect()
    }
}

fn freed(bytes: io::Result<u64>) -> Freed {
    bytes.map_err(|error| {
        tracing::warn!(%error, "a blob that nothing refers to stays");
        why::REFUSED
    })
}

fn say<T>(reply: &Reply<T>, begun: Instant, result: Result<T, String>) {
    // Whoever asked may have gone.
    let _ = reply.send(Done { result, took: begun.elapsed() });
}

/// Whether the session is as it was when it was looked at, and nobody's.
fn judge(tables: &mut Tables<'_>, memory: &Memory, doomed: &Doomed) -> Result<Verdict, Fault> {
    let bits = doomed.session;
    if memory.is_open(SessionId::from_bits(bits)) {
        return Ok(Err(why::OPEN));
    }
    let tail = tables.tails.open()?.get(bits)?.map(|tail| tail.value());
    if tail != Some(doomed.tail) || tables.graves.open()?.get(bits)?.is_some() {
        return Ok(Err(why::CHANGED));
    }
    let waits = tables.inbox.open()?.range(all_of(bits))?.next().transpose()?.is_some();
    Ok(if waits { Err(why::MESSAGE) } else { Ok(()) })
}

/// Removes what names the session, and as many of its records' rows as there is room for.
fn erase(tables: &mut Tables<'_>, doomed: &Doomed, room: usize) -> Result<(), Fault> {
    let bits = doomed.session;
    tables.sessions.open()?.remove(bits)?;
    let key = tables.session_keys.open()?;
    if key.get(&*doomed.key)?.is_some_and(|id| id.value() == bits) {
        key.remove(&*doomed.key)?;
    }
    tables.tails.open()?.remove(bits)?;
    tables.marks.open()?.retain_in(all_of(bits), |_, _| false)?;
    tables.runs_by_session.open()?.retain_in((bits, 0)..=(bits, u128::MAX), |_, ()| false)?;
    for run in &doomed.runs {
        tables.runs.open()?.remove(run)?;
        tables.accounts.open()?.remove(run)?;
    }
    for key in &doomed.keys {
        tables.keys.open()?.remove(&**key)?;
    }
    let (now, later) = doomed.places.split_at(doomed.places.len().min(room));
    for place in now {
        tables.log.open()?.remove(place)?;
    }
    if let Some(place) = later.first() {
        tables.graves.open()?.insert(bits, place)?;
    }
    Ok(())
}

const fn all_of(session: u128) -> std::ops::RangeInclusive<Place> {
    (session, 0)..=(session, u64::MAX)
}
