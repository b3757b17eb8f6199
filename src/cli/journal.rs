//! `hermod journal`: every record of a session, as JSON lines.

use clap::Args;
use hermod_actors::model::Seq;

use super::{exit::Failure, output::print, reader::Reader, report};

/// Print a session's records as JSON lines
#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// A session's id or key, the id of one of its runs, or `last`
    session: String,
    /// Begin at this sequence
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: Seq,
}

/// Prints them.
pub(crate) async fn execute(args: JournalArgs, reader: &Reader) -> Result<(), Failure> {
    let session = reader.session(&args.session).await?;
    reader
        .records(session.id, args.from, |(seq, record)| print(&report::record(seq, &record)?.to_string()))
        .await
}
