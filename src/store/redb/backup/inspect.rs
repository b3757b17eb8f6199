use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    path::Path,
};

use hermod_actors::{
    model::{Artifact, Body, Record, RunId, RunRow, RunState, SessionId, SessionRow, decode},
    port::ArtifactName,
};
use redb::{
    Builder, Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition, Value,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{copy::CopyError, overlay::Overlay, swap::LINEAGE};
use crate::store::redb::{
    accounts,
    blobs::Blobs,
    fault::Fault,
    log::{Row, Tail},
    open,
    past::{EPOCH, SCHEMA_VERSION},
    tables::{
        ACCOUNTS, INBOX, KEYS, LOG, MARKS, META, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, SESSIONS,
        TAILS,
    },
};

/// Bytes of rows that are looked at without hearing whether to go on.
const BATCH: usize = 1 << 20;

/// How many of each a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the names say it
pub struct Counts {
    pub sessions: u64,
    pub runs: u64,
    pub unfinished_runs: u64,
    pub records: u64,
    pub inbox: u64,
    pub accounts: u64,
    pub keys: u64,
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damage {
    /// What: the same in the store and in every copy of it.
    pub what: String,
    /// Why, with the place.
    pub why: String,
}

/// What there is in a store's file, and what it refers to.
#[derive(Debug, Default)]
pub struct Found {
    /// The version of its schema.
    pub schema: u64,
    /// Its last epoch.
    pub epoch: u64,
    /// How often it was restored.
    pub lineage: u64,
    /// How many there are.
    pub counts: Counts,
    /// The spilled values, by their paths in the folder of blobs, with their bytes.
    pub blobs: BTreeMap<String, u64>,
    /// The artifacts that records name, with their bytes.
    pub artifacts: BTreeMap<ArtifactName, u64>,
    /// What is wrong, sorted.
    pub damage: Vec<Damage>,
}

/// Looks through all of a store's file, whose spilled values are in the folder `blobs`. Nothing is written. Blocks; `pace`
/// hears how many bytes were looked at. Fails if there is no store in the file, or one that this program does not know.
pub fn inspect(
    file: &Path,
    blobs: &Path,
    pace: &mut dyn FnMut(usize) -> Result<(), CopyError>,
) -> Result<Found, CopyError> {
    let explain = |fault| open::explain(file.parent().unwrap_or(file), file, fault);
    let open = || -> Result<Database, Fault> {
        let overlay = File::open(file).and_then(Overlay::new).map_err(Fault::at(file))?;
        Ok(Builder::new().set_cache_size(open::CACHE).create_with_backend(overlay)?)
    };
    let mut found = Found::default();
    let opened = open().and_then(|mut db| {
        found.tell(&db.begin_read()?)?;
        if !db.check_integrity()? {
            found.damaged("hermod.redb", "its pages do not agree with one another");
        }
        Ok(db)
    });
    let db = opened.map_err(|fault| CopyError::Unfit(explain(fault)))?;
    // Brings an older schema up to date, in memory alone.
    open::bring_up(file, &db).map_err(CopyError::Unfit)?;
    let txn = db.begin_read().map_err(Fault::from)?;
    let blobs = Blobs::new(blobs.to_owned());
    let mut look = Look { txn: &txn, blobs, found, pace, unheard: 0 };
    look.all()?;
    let mut found = look.found;
    found.damage.sort();
    found.damage.dedup_by(|a, b| a.what == b.what);
    Ok(found)
}

impl Found {
    fn tell(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        let meta = match txn.open_table(META) {
            // What opens it says better what it is.
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
            meta => meta?,
        };
        let row = |key| -> Result<u64, Fault> { Ok(meta.get(key)?.map_or(0, |row| row.value())) };
        (self.schema, self.epoch, self.lineage) = (row(SCHEMA_VERSION)?, row(EPOCH)?, row(LINEAGE)?);
        Ok(())
    }

    fn damaged(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.damage.push(Damage { what: what.into(), why: why.into() });
    }
}

struct Look<'l> {
    txn: &'l ReadTransaction,
    blobs: Blobs,
    found: Found,
    pace: &'l mut dyn FnMut(usize) -> Result<(), CopyError>,
    /// Bytes since `pace` has heard of any.
    unheard: usize,
}

impl Look<'_> {
    fn all(&mut self) -> Result<(), CopyError> {
        let tails = self.log()?;
        self.tails(tails)?;
        self.marks()?;
        self.sessions()?;
        self.runs()?;
        self.rest()
    }

    /// Hands each row of a table to `each`.
    fn rows<K: Key + 'static, V: Value + 'static>(
        &mut self,
        table: TableDefinition<K, V>,
        mut each: impl FnMut(&mut Self, K::SelfType<'_>, V::SelfType<'_>) -> Result<(), Fault>,
    ) -> Result<u64, CopyError> {
        let table = self.txn.open_table(table).map_err(Fault::from)?;
        for row in table.iter().map_err(Fault::from)? {
            let (key, value) = row.map_err(Fault::from)?;
            let value = value.value();
            let bytes = V::as_bytes(&value).as_ref().len();
            each(self, key.value(), value)?;
            self.heard(bytes)?;
        }
        Ok(table.len().map_err(Fault::from)?)
    }

    fn heard(&mut self, bytes: usize) -> Result<(), CopyError> {
        self.unheard += bytes;
        if self.unheard < BATCH { Ok(()) } else { (self.pace)(std::mem::take(&mut self.unheard)) }
    }

    /// The value that is stored so; a blob that it is in is noted, and so is one that is lost.
    fn value<'v>(&mut self, stored: &'v [u8]) -> Option<std::borrow::Cow<'v, [u8]>> {
        if let Some((path, bytes)) = Blobs::named(stored) {
            self.unheard += usize::try_from(bytes).unwrap_or(BATCH);
            self.found.blobs.insert(path, bytes);
        }
        match self.blobs.resolve(stored) {
            Ok(value) => Some(value),
            Err(error) => {
                let name =
                    Blobs::named(stored).map_or("a blob".to_owned(), |(path, _)| format!("blobs/{path}"));
                self.found.damaged(name, error.into_text());
                None
            }
        }
    }

    /// Follows the chains of all sessions through the log, and says where they end.
    fn log(&mut self) -> Result<HashMap<u128, (u64, u64)>, CopyError> {
        let mut ends: HashMap<u128, (u64, u64)> = HashMap::new();
        self.rows(LOG, |look, place, bytes| {
            let Some(session) = Row::owner(bytes) else {
                look.found.damaged(format!("row {place} of the log"), "it is too short");
                return Ok(());
            };
            let (before, last) = ends.get(&session.bits()).copied().unwrap_or_default();
            let row = match Row::parse(session, place, bytes) {
                Ok(row) if (row.before, row.first) == (before, last + 1) => row,
                Ok(row) => {
                    let why = format!(
                        "it names row {} and begins with record {}; the one before it is row {before}, to record {last}",
                        row.before, row.first
                    );
                    look.found.damaged(format!("row {place} of the log, of session {session}"), why);
                    row
                }
                Err(why) => {
                    look.found.damaged(format!("row {place} of the log, of session {session}"), why);
                    return Ok(());
                }
            };
            let mut end = row.first.saturating_sub(1);
            for (seq, stored) in row.records() {
                end = seq;
                look.record((session, seq), stored);
            }
            ends.insert(session.bits(), (place, end));
            Ok(())
        })?;
        Ok(ends)
    }

    fn record(&mut self, (session, seq): (SessionId, u64), stored: Result<&[u8], String>) {
        self.found.counts.records += 1;
        let read = stored.and_then(|stored| {
            // What is wrong with a blob is told by its own name.
            let value = self.value(stored);
            value.map(|value| decode(&value).map_err(|error| error.to_string())).transpose()
        });
        match read {
            Ok(Some(record)) => self.artifacts(session, &record),
            Ok(None) => {}
            Err(why) => self.found.damaged(format!("record {seq} of session {session}"), why),
        }
    }

    fn artifacts(&mut self, session: SessionId, record: &Record) {
        for Artifact { handle, bytes } in named(&record.body) {
            match ArtifactName::of_handle(session, handle) {
                Some(name) => drop(self.found.artifacts.insert(name, *bytes)),
                None => self
                    .found
                    .damaged(format!("artifact `{handle}` of session {session}"), "it has no such name"),
            }
        }
    }

    fn tails(&mut self, mut ends: HashMap<u128, (u64, u64)>) -> Result<(), CopyError> {
        self.rows(TAILS, |look, session, tail| {
            let Tail { place, last, .. } = Tail::of(tail);
            let end = ends.remove(&session).unwrap_or_default();
            if end != (place, last) {
                let why = format!(
                    "it is to end at row {place} with record {last}, and ends at row {} with {}",
                    end.0, end.1
                );
                look.found.damaged(format!("the journal of session {}", SessionId::from_bits(session)), why);
            }
            Ok(())
        })?;
        for session in ends.into_keys() {
            let what = format!("the journal of session {}", SessionId::from_bits(session));
            self.found.damaged(what, "nothing says where it ends");
        }
        Ok(())
    }

    fn marks(&mut self) -> Result<(), CopyError> {
        let log = self.txn.open_table(LOG).map_err(Fault::from)?;
        self.rows(MARKS, |look, (session, last), place| {
            let session = SessionId::from_bits(session);
            let row = log.get(place)?;
            let fits = row.is_some_and(|row| {
                Row::parse(session, place, row.value())
                    .is_ok_and(|row| row.records().last().is_some_and(|(seq, _)| seq == last))
            });
            if !fits {
                let what = format!("the mark of record {last} of session {session}");
                look.found.damaged(what, format!("row {place} of the log does not end with it"));
            }
            Ok(())
        })?;
        Ok(())
    }

    fn sessions(&mut self) -> Result<(), CopyError> {
        let keys = self.txn.open_table(SESSION_KEYS).map_err(Fault::from)?;
        self.found.counts.sessions = self.rows(SESSIONS, |look, id, stored| {
            let id = SessionId::from_bits(id);
            let Some(row) = look.json::<SessionRow>(format!("the row of session {id}"), stored) else {
                return Ok(());
            };
            if keys.get(&*row.key)?.map(|of| of.value()) != Some(id.bits()) {
                look.found.damaged(
                    format!("the key of session {id}"),
                    format!("`{}` does not stand for it", row.key),
                );
            }
            Ok(())
        })?;
        Ok(())
    }

    fn runs(&mut self) -> Result<(), CopyError> {
        let open = self.txn.open_table(OPEN_RUNS).map_err(Fault::from)?;
        let of_session = self.txn.open_table(RUNS_BY_SESSION).map_err(Fault::from)?;
        self.found.counts.runs = self.rows(RUNS, |look, id, stored| {
            let run = RunId::from_bits(id);
            let Some(row) = look.json::<RunRow>(format!("the row of run {run}"), stored) else {
                return Ok(());
            };
            if open.get(id)?.is_some() == (row.state == RunState::Ended) {
                look.found.damaged(
                    format!("the state of run {run}"),
                    "it is unfinished in one place, and not in the other",
                );
            }
            if of_session.get((row.session.bits(), id))?.is_none() {
                look.found.damaged(format!("run {run} among those of its session"), "it is missing");
            }
            Ok(())
        })?;
        let runs = self.txn.open_table(RUNS).map_err(Fault::from)?;
        let has_row = |look: &mut Self, id| -> Result<(), Fault> {
            if runs.get(id)?.is_none() {
                look.found.damaged(format!("the row of run {}", RunId::from_bits(id)), "it is missing");
            }
            Ok(())
        };
        self.found.counts.unfinished_runs = self.rows(OPEN_RUNS, |look, id, ()| has_row(look, id))?;
        self.found.counts.keys = self.rows(KEYS, |look, _, id| has_row(look, id))?;
        self.rows(RUNS_BY_SESSION, |look, (_, id), ()| has_row(look, id)).map(drop)
    }

    fn rest(&mut self) -> Result<(), CopyError> {
        self.found.counts.inbox = self.rows(INBOX, |look, (session, row), stored| {
            let what = format!("row {row} of the inbox of session {}", SessionId::from_bits(session));
            look.json::<serde::de::IgnoredAny>(what, stored);
            Ok(())
        })?;
        self.found.counts.accounts = self.rows(ACCOUNTS, |look, id, stored| {
            if let Err(why) = accounts::decode(stored) {
                look.found.damaged(format!("account {}", RunId::from_bits(id)), why);
            }
            Ok(())
        })?;
        (self.pace)(std::mem::take(&mut self.unheard))
    }

    fn json<T: DeserializeOwned>(&mut self, what: String, stored: &[u8]) -> Option<T> {
        let value = self.value(stored)?;
        let read = serde_json::from_slice(&value);
        read.map_err(|error| self.found.damaged(what, error.to_string())).ok()
    }
}

/// The artifacts that a record names.
fn named(body: &Body) -> Vec<&Artifact> {
    match body {
        Body::RunAccepted(accepted) => accepted.images.iter().map(|image| &image.artifact).collect(),
        Body::CallEnded(ended) => {
            let images = ended.end.images.iter().map(|image| &image.artifact);
            ended.end.artifact.iter().chain(images).collect()
        }
        Body::SessionOpened(_)
        | Body::SessionRevived(_)
        | Body::RunStopping(_)
        | Body::RunEnded(_)
        | Body::ModelStarted(_)
        | Body::ModelAnswered(_)
        | Body::ModelFailed(_)
        | Body::ModelWaiting(_)
        | Body::LateSettled(_)
        | Body::CallAdmitted(_)
        | Body::CallStarted(_)
        | Body::CallLost(_)
        | Body::MessageSteered(_)
        | Body::ApprovalRequested(_)
        | Body::ApprovalAnswered(_) => Vec::new(),
    }
}
