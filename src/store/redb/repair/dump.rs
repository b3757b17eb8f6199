//! Writes the rows that a repair sets aside to a file of JSON lines, one for each record and row. An unreadable one is
//! written as `hex`.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use hermod_actors::model::{RunId, RunRow, SessionId, SessionRow, decode};
use redb::ReadTransaction;
use serde::Serialize;
use serde_json::{Value, json};

use super::survey::Survey;
use crate::{
    files::{self, IoResult as _},
    store::redb::{
        accounts,
        blobs::{BlobError, Blobs},
        error::StoreError,
        log::LogRow,
        tables::{ACCOUNTS, INBOX, KEYS, LOG, MODELS, RUNS, SESSION_KEYS, SESSIONS, for_each_row, rows_of},
    },
};

/// The rows that a repair sets aside.
pub(super) struct DamagedRows<'r> {
    pub(super) txn: &'r ReadTransaction,
    pub(super) blobs: &'r Blobs,
    pub(super) survey: &'r Survey,
}

impl DamagedRows<'_> {
    /// Writes the rows of a session, except those that can be derived: tails, marks and lists of runs. Returns the
    /// number of lines. Without a path, only counts.
    pub(super) fn write_session(&self, session: SessionId, path: Option<&Path>) -> Result<u64, StoreError> {
        let Self { txn, blobs, survey } = self;
        let mut lines = Lines::create(path)?;
        if let Some(row) = txn.open_table(SESSIONS)?.get(session.bits())? {
            let value = blobs.json::<SessionRow>(row.value());
            lines.row(json!({ "table": "sessions" }), value, row.value())?;
        }
        for_each_row(txn, SESSION_KEYS, |key, owner| {
            if owner == session.bits() {
                lines.write(&json!({ "table": "session_keys", "key": key }))?;
            }
            Ok(())
        })?;
        let (runs, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
        for run in survey.runs.iter().filter(|(_, of)| **of == session).map(|(run, _)| run) {
            if let Some(row) = runs.get(run.bits())? {
                let value = blobs.json::<RunRow>(row.value());
                lines.row(json!({ "table": "runs", "run": run }), value, row.value())?;
            }
            if let Some(row) = accounts.get(run.bits())? {
                lines.account(*run, row.value())?;
            }
        }
        for_each_row(txn, KEYS, |key, run| {
            let run = RunId::from_bits(run);
            if survey.runs.get(&run) == Some(&session) {
                lines.write(&json!({ "table": "keys", "key": key, "run": run }))?;
            }
            Ok(())
        })?;
        for row in txn.open_table(INBOX)?.range(rows_of(session))? {
            let (key, row) = row?;
            let line = json!({ "table": "inbox", "number": key.value().1 });
            lines.row(line, blobs.json::<Value>(row.value()), row.value())?;
        }
        let log = txn.open_table(LOG)?;
        for position in
            survey.positions.iter().filter(|(_, of)| **of == session).map(|(position, _)| *position)
        {
            if let Some(row) = log.get(position)? {
                lines.records(session, position, row.value(), blobs)?;
            }
        }
        lines.finish()
    }

    /// Writes rows that belong to no retained session. Without a path, only counts.
    pub(super) fn write_strays(&self, path: Option<&Path>) -> Result<u64, StoreError> {
        let Self { txn, blobs, survey } = self;
        let mut lines = Lines::create(path)?;
        let strays = &survey.strays;
        let log = txn.open_table(LOG)?;
        for position in &strays.log {
            if let Some(row) = log.get(position)? {
                lines.hex(json!({ "table": "appends", "place": position }), row.value())?;
            }
        }
        let (runs, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
        for run in &strays.runs {
            if let Some(row) = runs.get(run)? {
                lines.hex(json!({ "table": "runs", "run": RunId::from_bits(*run) }), row.value())?;
            }
        }
        for run in &strays.accounts {
            if let Some(row) = accounts.get(run)? {
                lines.account(RunId::from_bits(*run), row.value())?;
            }
        }
        for run in &strays.open_runs {
            lines.write(&json!({ "table": "open_runs", "run": RunId::from_bits(*run) }))?;
        }
        for key in &strays.keys {
            lines.write(&json!({ "table": "keys", "key": key }))?;
        }
        if !strays.models.is_empty() {
            let models = txn.open_table(MODELS)?;
            for name in &strays.models {
                if let Some(row) = models.get(name.as_str())? {
                    let line = json!({ "table": "models", "model": name });
                    lines.row(line, blobs.json::<Value>(row.value()), row.value())?;
                }
            }
        }
        lines.finish()
    }
}

/// Counts lines, and writes them to a file that `finish` syncs.
struct Lines {
    file: Option<(BufWriter<File>, PathBuf)>,
    count: u64,
}

impl Lines {
    fn create(path: Option<&Path>) -> Result<Self, StoreError> {
        let Some(path) = path else { return Ok(Self { file: None, count: 0 }) };
        let folder = path.parent().unwrap_or(path);
        let file = files::make_folder(folder).and_then(|()| files::make(path)).at(path)?;
        Ok(Self { file: Some((BufWriter::new(file), path.to_owned())), count: 0 })
    }

    fn write(&mut self, line: &Value) -> Result<(), StoreError> {
        self.count += 1;
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        Ok(writeln!(file, "{line}").at(path)?)
    }

    /// Writes a line with the stored bytes.
    fn hex(&mut self, mut line: Value, stored: &[u8]) -> Result<(), StoreError> {
        line["hex"] = HEXLOWER.encode(stored).into();
        self.write(&line)
    }

    /// Writes a line with a row, or with the stored bytes if the row cannot be read.
    fn row<T: Serialize, E>(
        &mut self,
        mut line: Value,
        row: Result<T, E>,
        stored: &[u8],
    ) -> Result<(), StoreError> {
        let Ok(row) = row else { return self.hex(line, stored) };
        line["row"] = json!(row);
        self.write(&line)
    }

    fn account(&mut self, run: RunId, stored: &[u8]) -> Result<(), StoreError> {
        self.row(json!({ "table": "accounts", "run": run }), accounts::decode(stored), stored)
    }

    /// Writes the records of a log row, or the raw row if it cannot be parsed.
    fn records(
        &mut self,
        session: SessionId,
        position: u64,
        stored: &[u8],
        blobs: &Blobs,
    ) -> Result<(), StoreError> {
        let line = json!({ "table": "appends", "place": position });
        let row = match LogRow::parse(session, position, stored) {
            Ok(row) => row,
            Err(error) => return self.unreadable(line, error, stored),
        };
        for (seq, record) in row.records() {
            let mut line = line.clone();
            line["seq"] = seq.into();
            match record {
                Ok(record) => self.record(line, record, blobs)?,
                Err(error) => self.unreadable(line, error, stored)?,
            }
        }
        Ok(())
    }

    /// Writes the fields of a stored record, or its error and its bytes.
    fn record(&mut self, mut line: Value, stored: &[u8], blobs: &Blobs) -> Result<(), StoreError> {
        let value = match blobs.resolve(stored) {
            Ok(value) => value,
            Err(error) => return self.unreadable(line, BlobError::into_text(error), stored),
        };
        match decode(&value) {
            Ok(record) => {
                line["at"] = json!(record.at);
                line["active_ms"] = record.active_ms.into();
                line["kind"] = record.body.kind().name().into();
                line["body"] = record.body.to_json().unwrap_or_default();
                self.write(&line)
            }
            Err(error) => self.unreadable(line, error.to_string(), &value),
        }
    }

    fn unreadable(&mut self, mut line: Value, error: String, bytes: &[u8]) -> Result<(), StoreError> {
        line["error"] = error.into();
        self.hex(line, bytes)
    }

    fn finish(self) -> Result<u64, StoreError> {
        if let Some((file, path)) = self.file {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error);
            file.and_then(|file| file.sync_all())
                .and_then(|()| files::sync_folder(path.parent().unwrap_or(&path)))
                .at(&path)?;
        }
        Ok(self.count)
    }
}
