//! The event loop of resumed runs: waits for signals, records and timers until the runs or the process end.

use super::{probation::Probation, resumed_runs::ResumedRuns};
use crate::{
    control::StoreReader,
    crash_loop::CrashHistoryFile,
    host::{
        error::HostError,
        notes::NoteSink,
        signals::{ShutdownSignal, Signals},
    },
};

/// Processes events until a signal comes, and returns it; with `wait`, also ends when no run is in
/// progress.
pub(super) async fn follow(
    runs: &mut ResumedRuns<'_>,
    trials: &mut Probation,
    (reader, crash_history): (&StoreReader, &mut CrashHistoryFile),
    (signals, notes, wait): (&mut Signals, &dyn NoteSink, bool),
) -> Result<Option<ShutdownSignal>, HostError> {
    let runtime = runs.runtime;
    let mut was_idle = false;
    loop {
        trials.advance(runs, reader, crash_history).await?;
        if trials.is_over() && runs.is_idle() {
            if wait {
                return Ok(None);
            }
            if !was_idle {
                notes.note("holding   the store: nothing is under way; a signal ends this");
            }
        }
        was_idle = runs.is_idle();
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(Some(signal)),
            reason = runtime.wait_for_end() => return Err(reason.into()),
            event = runs.next_event() => {
                runs.on_event(&event).await?;
                trials.on_event(&event);
            }
            () = trials.wait_for_timer() => trials.on_timer(runs, crash_history)?,
        }
    }
}
