//! Commands of the shell that go on when this process ends, and are found again.

use std::time::Duration;

use hermod_actors::{
    model::{CallEnd, CallStatus},
    port::{Boot, Found},
};

use super::{
    shell::{ENDING, never_started, not_run},
    spool::{Spooled, spooled},
    told::told,
    typed::Site,
};
use crate::process::{
    Command, Tee,
    runner::{Attached, Exit, Left, Name, Runner, follow},
};

const LOOK: &str = "look at what is there before you repeat anything";

/// Runs a command. When the future is dropped, the command goes on.
pub(super) async fn run(runner: &Runner, command: Command, site: &Site) -> CallEnd {
    let name = name(site);
    let watched = match runner.start(name, command).await {
        Ok(watched) => watched,
        Err(error) => return not_begun(&error.to_string()),
    };
    match followed(watched.end(&site.cancel), runner, site).await {
        (Left::Ended(exit), spooled) => ended(*exit, spooled, site).await,
        (Left::NeverBegun(_), _) if site.cancel.is_cancelled() => never_started(),
        (Left::NeverBegun(Some(reason)), _) => not_begun(&reason.to_string()),
        (Left::NeverBegun(None), _) => not_begun("its runner ended at once"),
        (Left::Unknown, _) => lost(),
        (Left::Killed, _) => killed(),
    }
}

/// What became of a command that an earlier process has started.
pub(super) async fn attach(runner: &Runner, site: &Site, boot: Boot) -> Found {
    let attached = runner.attach(name(site), boot).await;
    let over = async {
        match attached {
            Attached::Alive(watched) => {
                // As the command was started: what is set now may be less.
                let limit = watched.timeout().await.map_or(Duration::MAX, |timeout| timeout + ENDING);
                watched.end_within(limit, &site.cancel).await
            }
            Attached::Over(left) => left,
        }
    };
    match followed(over, runner, site).await {
        (Left::Ended(exit), spooled) => Found::Ended(ended(*exit, spooled, site).await),
        (Left::NeverBegun(_), _) => Found::NeverBegun,
        (Left::Unknown, _) => Found::Unknown,
        (Left::Killed, _) => Found::Ended(killed()),
    }
}

fn name(site: &Site) -> Name {
    Name { call: site.call, attempt: site.attempt }
}

async fn followed(over: impl Future<Output = Left>, runner: &Runner, site: &Site) -> (Left, Spooled) {
    let (tee, pieces) = Tee::new();
    let output = runner.output(name(site));
    tokio::join!(follow(over, &output, tee), spooled(pieces, site))
}

async fn ended(exit: Exit, spooled: Spooled, site: &Site) -> CallEnd {
    match exit.end {
        Ok(ran) => {
            // A command may have written into what is kept of it.
            let lost = exit.output.bytes.saturating_sub(spooled.seen());
            told(ran, spooled.without(exit.output.left_out + lost), &site.shelf).await
        }
        Err(error) => not_run(&error),
    }
}

fn not_begun(reason: &str) -> CallEnd {
    CallEnd::error(
        CallStatus::Error,
        &format!("the command was not run: {reason}"),
        None,
        "wait and try again; if it stays, the operator has to see to the state directory",
    )
}

/// The end of a call whose runner was killed.
fn lost() -> CallEnd {
    let error = "what became of the command is not known: it was killed together with what watched over it, or what was \
        kept of it was removed";
    CallEnd::error(CallStatus::InDoubt, error, None, LOOK)
}

/// The end of a call that did not end when it was told to.
fn killed() -> CallEnd {
    CallEnd::error(CallStatus::Stopped, "the command was stopped and killed", None, LOOK)
}
