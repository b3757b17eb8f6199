//! The files of expectations: found in the workspace, opened, and read within a limit.

use std::{fs::File, io::Read as _};

use hermod_actors::model::{RunSpec, Timestamp};
use rustix::fs::Stat;
use serde_json::Value;

use super::{Settings, text};
use crate::tool::paths::resolve_outside_state;

/// Most bytes of a file that is matched with a schema.
const MAX_JSON_BYTES: u64 = 4 << 20;
/// The kernel's clock of files may be this much behind the clock of the run.
const CLOCK_SLACK_MS: i64 = 20;

/// Refuses a path that leaves the workspace, or goes into the state directory.
pub(super) fn locate(settings: &Settings, spec: &RunSpec, path: &str) -> Result<(), String> {
    let located = resolve_outside_state(settings.state.as_deref(), &spec.workspace, "path", path);
    located.map(drop).map_err(text)
}

/// Opens a file of the workspace.
pub(super) fn open(settings: &Settings, spec: &RunSpec, path: &str) -> Result<(File, Stat), String> {
    let path = resolve_outside_state(settings.state.as_deref(), &spec.workspace, "path", path);
    path.and_then(|path| path.open_file()).map_err(|bad| bad.error)
}

/// Whether the file was last written before the run started.
pub(super) fn is_older(stat: &Stat, started_at: Timestamp) -> bool {
    let written_at = stat.st_mtime.saturating_mul(1_000).saturating_add(mtime_ms(stat));
    written_at < started_at.0.saturating_sub(CLOCK_SLACK_MS)
}

fn mtime_ms(stat: &Stat) -> i64 {
    // The type of the field differs between machines.
    i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0)
}

/// The JSON in an open file.
pub(super) fn read_json(file: File, stat: &Stat) -> Result<Value, String> {
    let too_long =
        || Err(format!("it has more than {MAX_JSON_BYTES} bytes, and is not matched with a schema"));
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_JSON_BYTES {
        return too_long();
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return too_long();
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("it is not JSON: {error}"))
}
