//! `hermod rehearse`: serves the scripted model alone, as an endpoint for other programs.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use super::{CliError, print, print_note};
use crate::{
    files::read_regular,
    host::Signals,
    rehearsal::{MAX_SCRIPT_BYTES, NOTICE, Rehearsal, Script},
};

/// Serve a scripted model on a local endpoint
#[derive(Debug, Args)]
pub(crate) struct RehearseArgs {
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The script [default: the embedded one]
    file: Option<PathBuf>,
}

/// Serves until SIGINT or SIGTERM. The first line on standard output is the base URL.
pub(crate) async fn execute(args: RehearseArgs) -> Result<(), CliError> {
    let script = match &args.file {
        None => Script::builtin(),
        Some(path) => {
            let script_error = |error: String| CliError::usage(format!("{}: {error}", path.display()));
            let json =
                read_regular(path, MAX_SCRIPT_BYTES).map_err(|error| script_error(error.to_string()))?;
            Script::parse(&json).map_err(|error| script_error(error.to_string()))?
        }
    };
    let mut signals = Signals::listen()?;
    let rehearsal = Rehearsal::start(&*args.listen, Arc::new(script)).await.map_err(|error| {
        CliError::usage(format!("--listen {}: {error}; give an address like 127.0.0.1:0", args.listen))
    })?;
    print_note(NOTICE);
    print(&rehearsal.base_url)?;
    signals.next().await;
    rehearsal
        .stop()
        .await
        .map_err(|error| CliError::internal(format!("the rehearsal did not end well: {error}")))
}
