//! `hermod journal`: prints the records of a session as JSON lines, on request also those to come.

use clap::Args;
use hermod_actors::model::{Seq, SessionId};

use super::{
    CliError,
    output::{StdoutState, print_json_line},
    print_json, print_note,
};
use crate::{
    control::{ControlRequest, ControlResponse},
    host::{
        DecodedRecord, FollowedPlace, FollowedRecord, Identifier, RecordFollower, StoreClient,
        unexpected_response,
    },
    view::EventView,
};

/// Print a session's records as JSON lines
#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// A session's id or key, the id of one of its runs, or `last` (session of the last run that is not a subagent's)
    session: Identifier,
    /// Begin at this sequence
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: Seq,
    /// Go on with the records to come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
}

/// Prints the records.
pub(crate) async fn execute(args: JournalArgs, client: &StoreClient) -> Result<(), CliError> {
    // Resolves the id first: `last` may name another session when a later page is requested.
    let request = ControlRequest::SessionsShow { session: args.session.into(), max: 0 };
    let ControlResponse::Session(detail) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    let (session, mut next) = (detail.session.id, args.from);
    let print = |event: EventView| {
        next = event.seq + 1;
        print_json(&event)
    };
    client.records(session.to_string(), args.from, print).await?;
    if args.follow { follow(session, next, client).await } else { Ok(()) }
}

/// Prints the records from `next` on, until nothing reads them.
async fn follow(session: SessionId, next: Seq, client: &StoreClient) -> Result<(), CliError> {
    let place = FollowedPlace::Session(session, next);
    let mut records = RecordFollower::new(client.state().clone(), place);
    loop {
        let FollowedRecord { ids, record, .. } = records.next().await?;
        if print_record(ids.seq, record)? == StdoutState::Closed {
            return Ok(());
        }
    }
}

fn print_record(seq: Seq, record: DecodedRecord) -> Result<StdoutState, CliError> {
    match record {
        Ok(record) => {
            let event = EventView::new(seq, &record);
            print_json_line(&event.map_err(|error| CliError::internal(format!("record {seq}: {error}")))?)
        }
        Err(error) => {
            print_note(format!("unreadable record {seq}: {error}"));
            Ok(StdoutState::Open)
        }
    }
}
