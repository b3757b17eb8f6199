//! Writes the rows that a repair sets aside to a file of JSON lines, one for each record and row. An unreadable one is
//! written as `hex`.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use hermod_actors::model::{MessageRow, RunRow, SessionId, SessionRow, decode};
use redb::{AccessGuard, ReadTransaction};
use serde::Serialize;
use serde_json::{Value, json};

use super::survey::RowKey;
use crate::{
    files::{self, IoResult as _},
    store::redb::{
        accounts,
        blobs::{BlobError, Blobs},
        error::Result,
        log::LogRow,
        tables::{
            ACCOUNTS, DEAD_LETTERS, DELIVERED, INBOX, LOG, MESSAGES, MODELS, OCCURRENCES, OUTBOX, RUNS,
            SCHEDULES, SESSIONS,
        },
    },
};

/// Writes rows, a line for each record and other row; returns the number of lines. Without a path, only counts. `owner`
/// is the session of the rows; those of none are written as they are.
pub(super) fn write_rows(
    txn: &ReadTransaction,
    blobs: &Blobs,
    owner: Option<SessionId>,
    rows: &[RowKey],
    path: Option<&Path>,
) -> Result<u64> {
    let mut lines = Lines::create(path)?;
    for row in rows {
        match row {
            RowKey::Session(id) => {
                let row = txn.open_table(SESSIONS)?.get(id.bits())?;
                lines.row(json!({ "table": "sessions" }), row, |row| blobs.json::<SessionRow>(row))?;
            }
            RowKey::SessionKey(key) => lines.write(&json!({ "table": "session_keys", "key": key }))?,
            RowKey::Run(run) => {
                let (line, row) =
                    (json!({ "table": "runs", "run": run }), txn.open_table(RUNS)?.get(run.bits())?);
                lines.row(line, row, |row| blobs.json::<RunRow>(row))?;
            }
            RowKey::Account(run) | RowKey::NeededAccount(run) => {
                let row = txn.open_table(ACCOUNTS)?.get(run.bits())?;
                lines.row(json!({ "table": "accounts", "run": run }), row, accounts::decode)?;
            }
            RowKey::Message(id) => {
                let row = txn.open_table(MESSAGES)?.get(id.bits())?;
                let line = json!({ "table": "messages", "message": id });
                lines.row(line, row, |row| blobs.json::<MessageRow>(row))?;
            }
            RowKey::OpenRun(run) => lines.write(&json!({ "table": "open_runs", "run": run }))?,
            RowKey::Key(key, run) if owner.is_some() => {
                lines.write(&json!({ "table": "keys", "key": key, "run": run }))?;
            }
            RowKey::Key(key, _) => lines.write(&json!({ "table": "keys", "key": key }))?,
            RowKey::Inbox(session, number) => {
                let row = txn.open_table(INBOX)?.get((session.bits(), *number))?;
                lines.row(json!({ "table": "inbox", "number": number }), row, |row| {
                    blobs.json::<Value>(row)
                })?;
            }
            RowKey::Log(position) => {
                if let Some(row) = txn.open_table(LOG)?.get(position)? {
                    lines.log_row(owner, *position, row.value(), blobs)?;
                }
            }
            RowKey::Outbox(..) | RowKey::Delivered(_) | RowKey::DeadLetter(_) => {
                write_delivery(txn, blobs, row, &mut lines)?;
            }
            RowKey::Model(_) | RowKey::Schedule(_) | RowKey::Occurrence(..) => {
                write_named(txn, blobs, row, &mut lines)?;
            }
        }
    }
    lines.finish()
}

/// Writes a row of the tables of deliveries.
fn write_delivery(txn: &ReadTransaction, blobs: &Blobs, row: &RowKey, lines: &mut Lines) -> Result<()> {
    let read = |row: &[u8]| blobs.json::<Value>(row);
    #[expect(clippy::wildcard_enum_match_arm, reason = "other rows are of other tables")]
    match row {
        RowKey::Outbox(target, number) => {
            let line = json!({ "table": "outbox", "target": target, "number": number });
            lines.row(line, txn.open_table(OUTBOX)?.get((target.as_str(), *number))?, read)
        }
        RowKey::Delivered(number) => {
            let line = json!({ "table": "delivered", "number": number });
            lines.row(line, txn.open_table(DELIVERED)?.get(number)?, read)
        }
        RowKey::DeadLetter(number) => {
            let line = json!({ "table": "dead_letters", "number": number });
            lines.row(line, txn.open_table(DEAD_LETTERS)?.get(number)?, read)
        }
        _ => Ok(()),
    }
}

/// Writes a row of the tables of models and schedules.
fn write_named(txn: &ReadTransaction, blobs: &Blobs, row: &RowKey, lines: &mut Lines) -> Result<()> {
    let read = |row: &[u8]| blobs.json::<Value>(row);
    #[expect(clippy::wildcard_enum_match_arm, reason = "other rows are of other tables")]
    match row {
        RowKey::Model(name) => {
            let line = json!({ "table": "models", "model": name });
            lines.row(line, txn.open_table(MODELS)?.get(name.as_str())?, read)
        }
        RowKey::Schedule(name) => {
            let line = json!({ "table": "schedules", "schedule": name });
            lines.row(line, txn.open_table(SCHEDULES)?.get(name.as_str())?, read)
        }
        RowKey::Occurrence(name, at) => {
            let line = json!({ "table": "occurrences", "schedule": name, "at": at });
            lines.row(line, txn.open_table(OCCURRENCES)?.get((name.as_str(), *at))?, read)
        }
        _ => Ok(()),
    }
}

/// Counts lines, and writes them to a file that `finish` syncs.
struct Lines {
    file: Option<(BufWriter<File>, PathBuf)>,
    count: u64,
}

impl Lines {
    fn create(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { file: None, count: 0 }) };
        let folder = path.parent().unwrap_or(path);
        let file = files::make_folder(folder).and_then(|()| files::make(path)).at(path)?;
        Ok(Self { file: Some((BufWriter::new(file), path.to_owned())), count: 0 })
    }

    fn write(&mut self, line: &Value) -> Result<()> {
        self.count += 1;
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        Ok(writeln!(file, "{line}").at(path)?)
    }

    /// Writes a line with the stored bytes.
    fn hex(&mut self, mut line: Value, stored: &[u8]) -> Result<()> {
        line["hex"] = HEXLOWER.encode(stored).into();
        self.write(&line)
    }

    /// Writes a line with a row that exists, or with the stored bytes if the row cannot be read.
    fn row<T: Serialize, E>(
        &mut self,
        mut line: Value,
        stored: Option<AccessGuard<'_, &'static [u8]>>,
        read: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<()> {
        let Some(stored) = stored else { return Ok(()) };
        let Ok(row) = read(stored.value()) else { return self.hex(line, stored.value()) };
        line["row"] = json!(row);
        self.write(&line)
    }

    /// Writes the records of a log row, or the raw row if it cannot be parsed or belongs to no session.
    fn log_row(
        &mut self,
        owner: Option<SessionId>,
        position: u64,
        stored: &[u8],
        blobs: &Blobs,
    ) -> Result<()> {
        let line = json!({ "table": "appends", "place": position });
        let Some(session) = owner else { return self.hex(line, stored) };
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
    fn record(&mut self, mut line: Value, stored: &[u8], blobs: &Blobs) -> Result<()> {
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

    fn unreadable(&mut self, mut line: Value, error: String, bytes: &[u8]) -> Result<()> {
        line["error"] = error.into();
        self.hex(line, bytes)
    }

    fn finish(self) -> Result<u64> {
        if let Some((file, path)) = self.file {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error);
            file.and_then(|file| file.sync_all())
                .and_then(|()| files::sync_folder(path.parent().unwrap_or(&path)))
                .at(&path)?;
        }
        Ok(self.count)
    }
}
