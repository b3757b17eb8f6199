//! One gc of the state directory: the store's rows first, then the files that they named.

use hermod_actors::{model::Timestamp, port::Clock};

use super::{MaintenanceError, StateDirMaintenance, files, scripts};
use crate::{
    clock::SystemClock,
    control::{GcClassReport, GcReport, GcRequest},
    store::redb::{GcMode, Tally},
};

/// Minimum age, in milliseconds, at which a file without references is removed: some files are written before the row
/// that names them.
const MIN_ORPHAN_AGE_MS: u64 = 24 * 60 * 60 * 1000;

/// The times against which ages are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct GcCutoffs {
    pub(super) now: Timestamp,
    /// Unreferenced files that were written later stay.
    pub(super) orphans_before: Timestamp,
    /// Artifacts of runs that ended by then expire; `None` keeps them for good.
    pub(super) artifacts_before: Option<Timestamp>,
}

/// Collects the garbage of the state directory. Blocks.
pub(super) fn sweep(upkeep: &StateDirMaintenance, sweep: GcRequest) -> Result<GcReport, MaintenanceError> {
    let clock = SystemClock::default();
    let now = clock.at();
    let before = |ms: u64| Timestamp(now.0.saturating_sub_unsigned(ms));
    let artifacts = sweep.artifacts_ms.map(before);
    let times = GcCutoffs { now, orphans_before: before(MIN_ORPHAN_AGE_MS), artifacts_before: artifacts };
    let mut caring = upkeep.store.start(if sweep.dry_run { GcMode::DryRun } else { GcMode::Remove })?;
    let (sessions, keys, gone) = caring.remove_sessions(sweep.sessions_ms.map(before))?;
    let artifacts = files::sweep_artifacts(&upkeep.state, &caring, &gone, times)?;
    let blobs = caring.remove_blobs(&gone)?;
    let scripts = scripts::sweep(&upkeep.state, &caring, &gone, times)?;
    let spool = files::sweep_spool(&upkeep.state, &caring, &gone)?;
    let leftovers = files::sweep_leftovers(&upkeep.state, caring.mode(), times)?;
    let classes = [
        ("sessions", sessions),
        ("keys", keys),
        ("artifacts", artifacts),
        ("blobs", blobs),
        ("scripts", scripts),
        ("spool", spool),
        ("leftovers", leftovers),
    ];
    let longest = u64::try_from(caring.max_append_wait().as_micros()).unwrap_or(u64::MAX);
    Ok(GcReport {
        dry_run: sweep.dry_run,
        classes: classes.into_iter().map(|(class, tally)| to_class(class, tally)).collect(),
        took_ms: clock.monotonic_ms(),
        longest_wait_us: longest,
    })
}

fn to_class(class: &str, tally: Tally) -> GcClassReport {
    let Tally { seen, removed, bytes, retained: kept } = tally;
    let kept = kept.into_iter().map(|(why, count)| (why.to_owned(), count)).collect();
    GcClassReport { class: class.to_owned(), seen, removed, bytes, kept }
}
