use hermod_actors::{model::Timestamp, port::Clock};

use super::{Undone, Upkeep, files, scripts};
use crate::{
    clock::SystemClock,
    control::{Sweep, Swept, SweptClass},
    store::redb::{Mode, Tally},
};

/// What is made before something refers to it is not looked at before it is so old, in milliseconds.
const UNTOUCHED: u64 = 24 * 60 * 60 * 1000;

/// The times that count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) now: Timestamp,
    /// What nothing refers to and was written before then can go.
    pub(super) untouched: Timestamp,
    /// Artifacts of runs that ended by then go.
    pub(super) artifacts: Option<Timestamp>,
}

/// Removes what is to go. Blocks.
pub(super) fn sweep(upkeep: &Upkeep, sweep: Sweep) -> Result<Swept, Undone> {
    let clock = SystemClock::default();
    let now = clock.at();
    let before = |ms: u64| Timestamp(now.0.saturating_sub_unsigned(ms));
    let artifacts = sweep.artifacts_ms.map(before);
    let times = Times { now, untouched: before(UNTOUCHED), artifacts };
    let mut caring = upkeep.store.begin(if sweep.dry_run { Mode::DryRun } else { Mode::Remove })?;
    let (sessions, keys, gone) = caring.sessions(sweep.sessions_ms.map(before))?;
    let artifacts = files::artifacts(&upkeep.state, &caring, (&gone, times))?;
    let blobs = caring.blobs(&gone)?;
    let scripts = scripts::sweep(&upkeep.state, &caring, (&gone, times))?;
    let spool = files::spool(&upkeep.state, &caring, &gone)?;
    let leftovers = files::leftovers(&upkeep.state, caring.mode(), times)?;
    let classes = [
        ("sessions", sessions),
        ("keys", keys),
        ("artifacts", artifacts),
        ("blobs", blobs),
        ("scripts", scripts),
        ("spool", spool),
        ("leftovers", leftovers),
    ];
    let longest = u64::try_from(caring.longest().as_micros()).unwrap_or(u64::MAX);
    Ok(Swept {
        dry_run: sweep.dry_run,
        classes: classes.into_iter().map(|(class, tally)| told(class, tally)).collect(),
        took_ms: clock.monotonic_ms(),
        longest_wait_us: longest,
    })
}

fn told(class: &str, tally: Tally) -> SweptClass {
    let Tally { seen, removed, bytes, kept } = tally;
    let kept = kept.into_iter().map(|(why, count)| (why.to_owned(), count)).collect();
    SweptClass { class: class.to_owned(), seen, removed, bytes, kept }
}
