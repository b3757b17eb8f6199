//! `hermod rehearse`: the scripted model alone, for other programs to talk to.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use super::{
    exit::{Exit, Failure},
    hold::Signals,
    output::{print, say},
};
use crate::{
    files::read_regular,
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
pub(crate) async fn execute(args: RehearseArgs) -> Result<(), Failure> {
    let script = match &args.file {
        None => Script::stock(),
        Some(path) => {
            let wrong = |error: String| Failure::usage(format!("{}: {error}", path.display()));
            let json = read_regular(path, MAX_SCRIPT_BYTES).map_err(|error| wrong(error.to_string()))?;
            Script::parse(&json).map_err(|error| wrong(error.to_string()))?
        }
    };
    let mut signals = Signals::listen()?;
    let running = Rehearsal::start(&*args.listen, Arc::new(script)).await.map_err(|error| {
        Failure::usage(format!("--listen {}: {error}; give an address like 127.0.0.1:0", args.listen))
    })?;
    say(NOTICE);
    print(&running.base_url)?;
    let _exit = signals.either().await;
    running.stop().await.map_err(|error| Failure {
        exit: Exit::Internal,
        text: format!("the rehearsal did not end well: {error}"),
    })
}
