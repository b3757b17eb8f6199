use super::{crowd::Crowd, trials::Trials};
use crate::{
    cli::{
        exit::{Exit, Failure},
        hold::Signals,
        output::say,
    },
    control::Reader,
    deaths::Keeper,
};

/// Lets the runs go on until a signal comes, whose exit is returned; to wait, until none is under way.
pub(super) async fn follow(
    crowd: &mut Crowd<'_>,
    trials: &mut Trials,
    (reader, deaths): (&Reader, &mut Keeper),
    (signals, wait): (&mut Signals, bool),
) -> Result<Option<Exit>, Failure> {
    let runtime = crowd.runtime;
    let mut told = false;
    loop {
        trials.go_on(crowd, (reader, deaths)).await?;
        if trials.is_over() && crowd.is_settled() {
            if wait {
                return Ok(None);
            }
            if !told {
                say("holding   the store: nothing is under way; a signal ends this");
            }
        }
        told = crowd.is_settled();
        tokio::select! {
            biased;
            exit = signals.either() => return Ok(Some(exit)),
            reason = runtime.terminated() => return Err(reason.into()),
            heard = crowd.hear() => {
                crowd.take(&heard).await?;
                trials.heard(&heard);
            }
            () = trials.time() => trials.rang(crowd, deaths)?,
        }
    }
}
