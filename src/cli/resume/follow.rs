//! The event loop of `hermod runs resume`.

use super::{probation::Probation, resumed_runs::ResumedRuns};
use crate::{
    cli::{
        exit::{CliError, Exit},
        output::print_note,
        owner::Signals,
    },
    control::StoreReader,
    crash_loop::CrashHistoryFile,
};

/// Processes events until a signal comes, and returns its exit code; with `wait`, also ends when no run is in
/// progress.
pub(super) async fn follow(
    crowd: &mut ResumedRuns<'_>,
    trials: &mut Probation,
    (reader, deaths): (&StoreReader, &mut CrashHistoryFile),
    (signals, wait): (&mut Signals, bool),
) -> Result<Option<Exit>, CliError> {
    let runtime = crowd.runtime;
    let mut told = false;
    loop {
        trials.advance(crowd, (reader, deaths)).await?;
        if trials.is_over() && crowd.is_idle() {
            if wait {
                return Ok(None);
            }
            if !told {
                print_note("holding   the store: nothing is under way; a signal ends this");
            }
        }
        told = crowd.is_idle();
        tokio::select! {
            biased;
            exit = signals.next_exit() => return Ok(Some(exit)),
            reason = runtime.wait_for_end() => return Err(reason.into()),
            heard = crowd.next_event() => {
                crowd.on_event(&heard).await?;
                trials.on_event(&heard);
            }
            () = trials.wait_for_timer() => trials.on_timer(crowd, deaths)?,
        }
    }
}
