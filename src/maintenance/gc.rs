//! One gc of the state directory: the store's rows first, then the files that they named, with a report. What is
//! removed is decided in `files.rs` and `scripts.rs`, and for rows and blobs in `store/redb/gc`.

use std::{io, path::Path};

use hermod_actors::{
    model::{SessionId, Timestamp},
    port::{ArtifactName, Clock},
};

use super::{MaintenanceError, StateDirMaintenance};
use crate::{
    artifacts::FileArtifacts,
    clock::SystemClock,
    control::{GcClassReport, GcReport, GcRequest, SessionRemoval},
    files::{IoResult as _, PathError},
    store::redb::{GcMode, GcPass, RemovedSet, Tally, why},
};

/// Minimum age, in milliseconds, at which a file without references is removed: some files are written before the row
/// that names them.
const MIN_ORPHAN_AGE_MS: u64 = 24 * 60 * 60 * 1000;

/// A gc of the state directory, after the rows of sessions are removed.
pub(super) struct Sweep<'s> {
    pub(super) state: &'s Path,
    pub(super) pass: GcPass,
    /// The sessions and runs that this pass removed, or would remove.
    pub(super) removed: RemovedSet,
    pub(super) now: Timestamp,
    /// Unreferenced files that were written later stay.
    pub(super) orphans_before: Timestamp,
    /// Artifacts of runs that ended by then expire; `None` keeps them for good.
    pub(super) artifacts_before: Option<Timestamp>,
}

impl Sweep<'_> {
    /// Removes what is at `path`, or only counts it.
    pub(super) fn remove(
        &self,
        tally: &mut Tally,
        path: &Path,
        bytes: u64,
        remove: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), PathError> {
        if self.pass.mode == GcMode::Remove {
            remove().at(path)?;
        }
        tally.remove(bytes);
        Ok(())
    }
}

/// Collects the garbage of the state directory. Blocks.
pub(super) fn sweep(
    maintenance: &StateDirMaintenance,
    request: GcRequest,
) -> Result<GcReport, MaintenanceError> {
    let clock = SystemClock::default();
    let now = clock.at();
    let before = |ms: u64| Timestamp(now.0.saturating_sub_unsigned(ms));
    let mut pass = maintenance.store.start(if request.dry_run { GcMode::DryRun } else { GcMode::Remove })?;
    let (sessions, keys, removed) = pass.remove_sessions(request.sessions_ms.map(before))?;
    let mut sweep = Sweep {
        state: &maintenance.state,
        pass,
        removed,
        now,
        orphans_before: before(MIN_ORPHAN_AGE_MS),
        artifacts_before: request.artifacts_ms.map(before),
    };
    let classes = [
        ("sessions", sessions),
        ("keys", keys),
        ("artifacts", sweep.artifacts()?),
        ("blobs", sweep.pass.remove_blobs(&sweep.removed)?),
        ("scripts", sweep.scripts()?),
        ("spool", sweep.spool()?),
        ("leftovers", sweep.leftovers()?),
    ];
    Ok(GcReport {
        dry_run: request.dry_run,
        classes: classes.into_iter().map(|(class, tally)| to_class(class, tally)).collect(),
        took_ms: clock.monotonic_ms(),
        longest_wait_us: u64::try_from(sweep.pass.max_append_wait.as_micros()).unwrap_or(u64::MAX),
    })
}

/// Removes the rows of a session and of its subagents' sessions, then their artifacts. Blocks. Their blobs, and files that
/// cannot be removed now or that belong to messages, go with a later gc.
pub(super) fn remove_session(
    maintenance: &StateDirMaintenance,
    session: SessionId,
) -> Result<SessionRemoval, MaintenanceError> {
    let mut pass = maintenance.store.start(GcMode::Remove)?;
    let removed = match pass.remove_session(session)? {
        Ok(removed) => removed,
        Err((session, why::OPEN)) => return Ok(SessionRemoval::Open(session)),
        Err((_, why)) => return Ok(SessionRemoval::Retained(why)),
    };
    let attachments = pass.snapshot()?.attachments()?;
    // If some messages cannot be read, any file may belong to one.
    let is_attached = |name: ArtifactName| attachments.as_ref().is_none_or(|known| known.contains(&name));
    let artifacts = FileArtifacts::at(&maintenance.state);
    for session in removed.sessions {
        let names = artifacts.of_session(session).if_exists();
        let files_removed = names.and_then(|stored| {
            let Some(stored) = stored.filter(|_| artifacts.folder_modified(session).is_ok()) else {
                return Ok(());
            };
            let names = stored.iter().map(|file| file.name).filter(|name| !is_attached(*name));
            let names: Vec<_> = names.collect();
            artifacts.remove(session, &names)
        });
        if let Err(error) = files_removed {
            tracing::warn!(%session, %error, "artifacts of a removed session stay until the next gc");
        }
    }
    Ok(SessionRemoval::Removed)
}

fn to_class(class: &str, tally: Tally) -> GcClassReport {
    let Tally { seen, removed, bytes, retained: kept } = tally;
    let kept = kept.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
    GcClassReport { class: class.to_owned(), seen, removed, bytes, kept }
}
