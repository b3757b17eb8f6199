//! The content of a backup in one line of text, which all reports about backups share.

use crate::backup::{BackupView, FileClass};

/// The content of a backup in one line.
pub(super) fn format_backup(backup: &BackupView) -> String {
    let counts = &backup.info.counts;
    let size = |class| backup.info.sizes.get(&class).copied().unwrap_or_default();
    let files = |class, name: &str| format!("{} {name} ({} bytes)", size(class).files, size(class).bytes);
    format!(
        "{} sessions, {} runs ({} unfinished), {} records; store {} bytes, {}, {}, {}, {}",
        counts.sessions,
        counts.runs,
        counts.open_runs,
        counts.records,
        size(FileClass::Store).bytes,
        files(FileClass::Blobs, "blobs"),
        files(FileClass::Artifacts, "artifacts"),
        files(FileClass::Scripts, "scripts"),
        files(FileClass::Memories, "memories"),
    )
}
