//! Reports about backups, for people and for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::backup::{FileClass, Manifest};

/// The form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Text,
    Json,
}

impl From<bool> for OutputFormat {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// The content of a backup in one line.
pub(super) fn line(manifest: &Manifest) -> String {
    let counts = &manifest.counts;
    let of = |class| manifest.sizes.get(&class).copied().unwrap_or_default();
    let files = |class, name: &str| format!("{} {name} ({} bytes)", of(class).files, of(class).bytes);
    format!(
        "{} sessions, {} runs ({} unfinished), {} records; store {} bytes, {}, {}, {}, {}",
        counts.sessions,
        counts.runs,
        counts.open_runs,
        counts.records,
        of(FileClass::Store).bytes,
        files(FileClass::Blobs, "blobs"),
        files(FileClass::Artifacts, "artifacts"),
        files(FileClass::Scripts, "scripts"),
        files(FileClass::Memories, "memories"),
    )
}

/// The content of a backup as JSON: the manifest without the list of files.
pub(super) fn object(dir: &Path, manifest: &Manifest) -> Value {
    json!({
        "dir": dir.display().to_string(),
        "format": manifest.format,
        "hermod": manifest.hermod,
        "schema": manifest.schema,
        "epoch": manifest.epoch,
        "lineage": manifest.restore_generation,
        "created_at": manifest.created_at,
        "counts": manifest.counts,
        "sizes": manifest.sizes,
        "files": manifest.files.len(),
        "store_damage": manifest.damage,
        "more_store_damage": manifest.more_damage,
    })
}
