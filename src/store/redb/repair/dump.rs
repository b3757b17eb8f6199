//! Writes the rows that a repair sets aside to a file of JSON lines, one for each record and row. An unreadable one is
//! written as `hex`.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use hermod_actors::model::{RunId, RunRow, SessionId, SessionRow, decode};
use redb::{ReadTransaction, ReadableTable};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::survey::{self, Survey};
use crate::{
    files,
    store::redb::{
        accounts,
        blobs::Blobs,
        error::StoreError,
        log::LogRow,
        tables::{ACCOUNTS, INBOX, KEYS, LOG, MODELS, RUNS, SESSION_KEYS, SESSIONS},
    },
};

type DumpSource<'s> = (&'s ReadTransaction, &'s Blobs);

/// Writes everything that names a session, and returns the number of lines. Without a path, only counts.
pub(super) fn session(
    (txn, blobs): DumpSource<'_>,
    survey: &Survey,
    session: SessionId,
    path: Option<&Path>,
) -> Result<u64, StoreError> {
    let mut lines = Lines::create(path)?;
    let bits = session.bits();
    if let Some(row) = txn.open_table(SESSIONS)?.get(bits)? {
        lines.row::<SessionRow>("sessions", json!({}), blobs, row.value())?;
    }
    for row in txn.open_table(SESSION_KEYS)?.iter()? {
        let (key, owner) = row?;
        if owner.value() == bits {
            lines.write(&json!({ "table": "session_keys", "key": key.value() }))?;
        }
    }
    let (runs, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
    for run in survey.runs.iter().filter(|(_, of)| **of == session).map(|(run, _)| run) {
        if let Some(row) = runs.get(run.bits())? {
            lines.row::<RunRow>("runs", json!({ "run": run }), blobs, row.value())?;
        }
        if let Some(row) = accounts.get(run.bits())? {
            lines.account(*run, row.value())?;
        }
    }
    for row in txn.open_table(KEYS)?.iter()? {
        let (key, run) = row?;
        let run = RunId::from_bits(run.value());
        if survey.runs.get(&run) == Some(&session) {
            lines.write(&json!({ "table": "keys", "key": key.value(), "run": run }))?;
        }
    }
    for row in txn.open_table(INBOX)?.range((bits, 0)..=(bits, u64::MAX))? {
        let (key, row) = row?;
        lines.row::<Value>("inbox", json!({ "number": key.value().1 }), blobs, row.value())?;
    }
    let log = txn.open_table(LOG)?;
    for place in survey.positions.iter().filter(|(_, of)| **of == session).map(|(place, _)| *place) {
        if let Some(row) = log.get(place)? {
            lines.records(session, place, row.value(), blobs)?;
        }
    }
    lines.finish()
}

/// Writes rows that belong to no retained session. Without a path, only counts.
pub(super) fn strays(
    (txn, blobs): DumpSource<'_>,
    survey: &Survey,
    path: Option<&Path>,
) -> Result<u64, StoreError> {
    let mut lines = Lines::create(path)?;
    let strays = &survey.strays;
    let log = txn.open_table(LOG)?;
    for place in &strays.log {
        if let Some(row) = log.get(place)? {
            lines
                .write(&json!({ "table": "appends", "place": place, "hex": HEXLOWER.encode(row.value()) }))?;
        }
    }
    let (runs, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
    for run in &strays.runs {
        if let Some(row) = runs.get(run)? {
            let run = RunId::from_bits(*run);
            lines.write(&json!({ "table": "runs", "run": run, "hex": HEXLOWER.encode(row.value()) }))?;
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
                lines.row::<Value>("models", json!({ "model": name }), blobs, row.value())?;
            }
        }
    }
    lines.finish()
}

/// Counts lines, and writes them to a file that `finish` syncs.
struct Lines {
    file: Option<(BufWriter<File>, PathBuf)>,
    count: u64,
}

impl Lines {
    fn create(path: Option<&Path>) -> Result<Self, StoreError> {
        let Some(path) = path else { return Ok(Self { file: None, count: 0 }) };
        let make = || -> io::Result<File> {
            files::make_folder(path.parent().unwrap_or(path))?;
            files::make(path)
        };
        let file = make().map_err(StoreError::at(path))?;
        Ok(Self { file: Some((BufWriter::new(file), path.to_owned())), count: 0 })
    }

    fn write(&mut self, line: &Value) -> Result<(), StoreError> {
        self.count += 1;
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        writeln!(file, "{line}").map_err(StoreError::at(&*path))
    }

    /// Writes a row of JSON, with the fields of its key first.
    fn row<T: Serialize + DeserializeOwned>(
        &mut self,
        table: &str,
        key: Value,
        blobs: &Blobs,
        stored: &[u8],
    ) -> Result<(), StoreError> {
        let mut line = json!({ "table": table });
        if let (Some(line), Value::Object(key)) = (line.as_object_mut(), key) {
            line.extend(key);
        }
        match survey::json::<T>(blobs, stored) {
            Some(row) => line["row"] = json!(row),
            None => line["hex"] = HEXLOWER.encode(stored).into(),
        }
        self.write(&line)
    }

    fn account(&mut self, run: RunId, stored: &[u8]) -> Result<(), StoreError> {
        let mut line = json!({ "table": "accounts", "run": run });
        match accounts::decode(stored) {
            Ok(account) => line["row"] = json!(account),
            Err(_) => line["hex"] = HEXLOWER.encode(stored).into(),
        }
        self.write(&line)
    }

    /// Writes the records of a log row, or the raw row if it cannot be parsed.
    fn records(
        &mut self,
        session: SessionId,
        place: u64,
        stored: &[u8],
        blobs: &Blobs,
    ) -> Result<(), StoreError> {
        let row = match LogRow::parse(session, place, stored) {
            Ok(row) => row,
            Err(error) => {
                let hex = HEXLOWER.encode(stored);
                return self
                    .write(&json!({ "table": "appends", "place": place, "error": error, "hex": hex }));
            }
        };
        for (seq, record) in row.records() {
            let mut line = json!({ "table": "appends", "place": place, "seq": seq });
            match record {
                Ok(record) => describe_record(&mut line, record, blobs),
                Err(error) => {
                    line["error"] = error.into();
                    line["hex"] = HEXLOWER.encode(stored).into();
                }
            }
            self.write(&line)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<u64, StoreError> {
        if let Some((file, path)) = self.file {
            let end = |file: BufWriter<File>| -> io::Result<()> {
                file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
                files::sync_folder(path.parent().unwrap_or(&path))
            };
            end(file).map_err(StoreError::at(&path))?;
        }
        Ok(self.count)
    }
}

/// Adds a stored record to a line: its fields, or its error and its bytes.
fn describe_record(line: &mut Value, stored: &[u8], blobs: &Blobs) {
    let value = match blobs.resolve(stored) {
        Ok(value) => value,
        Err(error) => {
            line["error"] = error.into_text().into();
            line["hex"] = HEXLOWER.encode(stored).into();
            return;
        }
    };
    match decode(&value) {
        Ok(record) => {
            line["at"] = json!(record.at);
            line["active_ms"] = record.active_ms.into();
            line["kind"] = record.body.kind().name().into();
            line["body"] = record.body.to_json().unwrap_or_default();
        }
        Err(error) => {
            line["error"] = error.to_string().into();
            line["hex"] = HEXLOWER.encode(&value).into();
        }
    }
}
