//! What a snapshot refers to.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use hermod_actors::{
    model::{Body, RunId, RunRow, SessionId},
    port::{Read, Rows},
};
use redb::{ReadTransaction, ReadableTable};

use super::{
    super::{
        blobs::{Blobs, Digest},
        fault::Fault,
        log::Row,
        read::Reader,
        tables::{INBOX, LOG, RUNS, SESSIONS},
    },
    keeper::{CareError, Gone},
};

/// The blobs that something refers to which stays; `None` if a row cannot be read.
pub(super) fn referred(txn: &ReadTransaction, gone: &Gone) -> Result<Option<HashSet<Digest>>, Fault> {
    let mut found = HashSet::new();
    for row in txn.open_table(LOG)?.iter()? {
        let (place, row) = row?;
        let Ok((session, row)) = Row::owned(place.value(), row.value()) else { return Ok(None) };
        if gone.sessions.contains(&session) {
            continue;
        }
        for (_, stored) in row.records() {
            let Ok(stored) = stored else { return Ok(None) };
            found.extend(Blobs::referred(stored));
        }
    }
    for row in txn.open_table(SESSIONS)?.iter()? {
        let (id, stored) = row?;
        if !gone.sessions.contains(&SessionId::from_bits(id.value())) {
            found.extend(Blobs::referred(stored.value()));
        }
    }
    for row in txn.open_table(RUNS)?.iter()? {
        let (id, stored) = row?;
        if !gone.runs.contains(&RunId::from_bits(id.value())) {
            found.extend(Blobs::referred(stored.value()));
        }
    }
    for row in txn.open_table(INBOX)?.iter()? {
        found.extend(Blobs::referred(row?.1.value()));
    }
    Ok(Some(found))
}

/// Answers questions from one snapshot. Blocks.
pub struct Lookup {
    reader: Reader,
}

impl Lookup {
    pub(super) const fn new(reader: Reader) -> Self {
        Self { reader }
    }

    /// Whether there is this session.
    pub fn has_session(&self, session: SessionId) -> Result<bool, CareError> {
        let is_there = || Ok(self.reader.txn().open_table(SESSIONS)?.get(session.bits())?.is_some());
        Ok(self.reader.file().run(is_there)?)
    }

    /// The row of a run.
    pub fn run(&mut self, run: RunId) -> Result<Option<RunRow>, CareError> {
        match self.reader.read(&Read::Run(run)) {
            Ok(Rows::Runs(rows)) => Ok(rows.into_iter().next()),
            Ok(
                Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_),
            ) => Err(CareError::Failed("the store answered another question".to_owned())),
            Err(error) => Err(CareError::Failed(error.to_string())),
        }
    }

    fn runs(&self) -> Result<Vec<RunId>, Fault> {
        self.reader.file().run(|| {
            let rows = self.reader.txn().open_table(RUNS)?;
            rows.iter()?.map(|row| Ok(RunId::from_bits(row?.0.value()))).collect()
        })
    }

    /// The rehearsal scripts of runs that stay; `None` if one cannot be read.
    pub fn scripts(&mut self, gone: &Gone) -> Result<Option<BTreeSet<String>>, CareError> {
        let mut scripts = BTreeSet::new();
        for run in self.runs()?.into_iter().filter(|run| !gone.runs.contains(run)) {
            let Ok(Some(row)) = self.run(run) else { return Ok(None) };
            let read = Read::Records { session: row.session, from: row.first, max: 1 };
            let Ok(Rows::Records(records)) = self.reader.read(&read) else { return Ok(None) };
            let Some(Body::RunAccepted(accepted)) = records.first().map(|stored| &stored.record.body) else {
                return Ok(None);
            };
            scripts.extend(accepted.spec.script.map(|hash| hash.to_string()));
        }
        Ok(Some(scripts))
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").finish_non_exhaustive()
    }
}
