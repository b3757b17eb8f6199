//! `hermod store repair`: moves damaged sessions into files, so that the rest of the store can be used.
//! `store/redb/repair` does the work; here their unfinished runs are ended first.

use std::{path::Path, sync::Arc};

use clap::Args;
use hermod_actors::{
    model::{RunRow, SessionId},
    port::Journal,
};
use tokio::time::sleep;

use crate::{
    artifacts::FileArtifacts,
    cli::{CliError, Exit, print_as, print_note},
    clock::{self, rfc3339},
    control::{self, StoreReader},
    discovery::Variables,
    host::{self, Identifier, RETRY_DELAY, ShutdownUrgency, StartError, open_as_owner},
    store::redb::{CheckReport, Durability, OpenError, Repair, RepairReport, RepairTarget, check},
    view::{SetAsideView, StoreRepairView},
};

/// Limit of rounds; damage that was only a consequence of other damage disappears in the next round.
const MAX_ROUNDS: u32 = 3;
/// Limit of tries to open a store that this process has just closed.
const MAX_TRIES: usize = 100;

/// Set damaged sessions aside, so that the rest of the store goes on; no other hermod may have it open
///
/// All that there is of a damaged session goes into a file of JSON lines in the folder `set-aside` of the state directory,
/// and out of the store in one transaction. Its unfinished runs are ended first.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// A damaged session: its id or key, or one of its runs
    #[arg(conflicts_with = "all")]
    session: Option<Identifier>,
    /// Every damaged session, and damaged rows that belong to none
    #[arg(long)]
    all: bool,
    /// Only say what would be set aside
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Repairs the store, and prints the sessions set aside and the remaining damage.
pub(crate) async fn execute(args: &RepairArgs, variables: &Variables) -> Result<Exit, CliError> {
    let state = host::configured_state_dir(variables)?;
    let target = match &args.session {
        Some(name) => RepairTarget::Session(find_session(name, &state).await?),
        None if args.all => RepairTarget::All,
        None => {
            let text = "name a damaged session, or give --all for every one; `hermod store check` names them";
            return Err(CliError::usage(text));
        }
    };
    let before = check_store(&state).await?;
    if let RepairTarget::Session(session) = target
        && before.more_damages == 0
        && before.damages.iter().all(|damage| damage.session != Some(session))
    {
        return Err(CliError::usage(format!(
            "session {session} is not damaged, so it is not set aside; see `hermod store check`"
        )));
    }
    let stamp = rfc3339(clock::now()).replace(':', "");
    let (mut repaired, mut checked_last) = (RepairReport::default(), before);
    for round in 1..=MAX_ROUNDS {
        let stamp = if round == 1 { stamp.clone() } else { format!("{stamp}-{round}") };
        let repair = Repair { dir: &state, target, damages: &checked_last.damages, stamp: &stamp };
        let planned = repair.run(true).map_err(StartError::from)?;
        if args.dry_run {
            return print_result(args, &StoreRepairView::new(true, planned, checked_last));
        }
        if planned == RepairReport::default() {
            break;
        }
        end_runs(&planned, &state).await?;
        merge(&mut repaired, retry_while_busy(async || repair.run(false)).await?);
        checked_last = check_store(&state).await?;
        if target != RepairTarget::All {
            break;
        }
    }
    print_result(args, &StoreRepairView::new(false, repaired, checked_last))
}

/// Adds the results of another round.
fn merge(repaired: &mut RepairReport, round: RepairReport) {
    let RepairReport { sessions, mended, strays } = round;
    repaired.sessions.extend(sessions);
    let new = mended.into_iter().filter(|session| !repaired.mended.contains(session)).collect::<Vec<_>>();
    repaired.mended.extend(new);
    repaired.strays = repaired.strays.take().or(strays);
}

/// The session with this name.
async fn find_session(name: &str, state: &Path) -> Result<SessionId, CliError> {
    // A damaged session may not be found by name, but its id is always accepted.
    let reader = StoreReader::new(open_as_owner(state, Durability::Strict).await?);
    match (reader.session(name).await, name.parse()) {
        (Ok(row), _) => Ok(row.id),
        (Err(_), Ok(session)) => Ok(session),
        (Err(error), Err(_)) => Err(error.into()),
    }
}

async fn check_store(state: &Path) -> Result<CheckReport, CliError> {
    let artifacts = FileArtifacts::at(state);
    retry_while_busy(async || check(state, &|session, artifact| artifacts.check(session, artifact))).await
}

/// Retries while the store is busy, because this process itself may still be closing it.
async fn retry_while_busy<T>(work: impl AsyncFn() -> Result<T, OpenError>) -> Result<T, CliError> {
    let mut tries = 1..MAX_TRIES;
    loop {
        match work().await {
            Err(OpenError::Busy { .. }) if tries.next().is_some() => sleep(RETRY_DELAY).await,
            result => return Ok(result.map_err(StartError::from)?),
        }
    }
}

/// Ends the unfinished runs of the sessions to set aside, so that their parents and their subagents are notified.
async fn end_runs(repaired: &RepairReport, state: &Path) -> Result<(), CliError> {
    if repaired.sessions.is_empty() {
        return Ok(());
    }
    let journal: Arc<dyn Journal> = open_as_owner(state, Durability::Strict).await?;
    let open = StoreReader::new(Arc::clone(&journal)).read(|rows| rows.open_runs()).await;
    let mut rows: Vec<RunRow> = open?;
    rows.retain(|row| repaired.sessions.contains_key(&row.session));
    if rows.is_empty() {
        return Ok(());
    }
    let host = host::start_write_only(journal, state).await?;
    for row in rows {
        let run = row.id;
        match control::stop(&host.runtime, vec![row]).await {
            Ok(rows) => {
                for ended in rows.iter().filter_map(|row| row.ended.as_ref()) {
                    print_note(format!("ended     run {run}: {ended}"));
                }
            }
            Err(error) => print_note(format!("warning   run {run} goes without an end: {error}")),
        }
    }
    host.suspend(ShutdownUrgency::Normal).await;
    Ok(())
}

fn print_result(args: &RepairArgs, repaired: &StoreRepairView) -> Result<Exit, CliError> {
    print_as(args.json, repaired, format_report)?;
    Ok(if repaired.dry_run || repaired.damages.is_empty() { Exit::Ok } else { Exit::Store })
}

fn format_report(repaired: &StoreRepairView) -> String {
    let (sets_aside, mended) =
        if repaired.dry_run { ("would set aside", "would mend") } else { ("set aside", "mended") };
    let set_aside = repaired.set_aside.iter().map(|SetAsideView { rows, session }| {
        format!("{sets_aside} session {session}: {} rows, in {}\n", rows.rows, rows.file)
    });
    let readable = repaired.mended.iter();
    let readable = readable.map(|session| format!("{mended} session {session}: it can be read, and stays\n"));
    let strays = repaired
        .strays
        .iter()
        .map(|rows| format!("{sets_aside} {} rows that belong to no session, in {}\n", rows.rows, rows.file));
    let mut text: String = set_aside.chain(readable).chain(strays).collect();
    if repaired.dry_run {
        return text + "nothing was changed: this is a dry run";
    }
    text.extend(repaired.damages.iter().map(|damage| format!("damaged: {damage}\n")));
    text + match repaired.damages.len() {
        0 => "nothing is damaged (any more)",
        _ => "the rest is damaged still: restore the folder from a backup",
    }
}
