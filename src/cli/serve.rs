//! `hermod serve`: the service. `service/` does the work; here are the arguments and the lines for people.

use std::{net::SocketAddr, sync::Arc};

use clap::Args;

use super::{
    CliError, Exit, examples, exit::has_failed, output::StderrNotes, print_note, run::DurabilityArg,
};
use crate::{
    config::Config,
    control::OwnerKind,
    discovery::Variables,
    host::{self, NoteSink, OwnedStore, RehearsalScript},
    service::{ServeRequest, ServiceEnd, serve},
};

/// Serve runs over HTTP, and let unfinished ones go on
///
/// Holds the store until SIGINT or SIGTERM, which suspend all runs: they go on at the next start. SIGHUP reloads the
/// configuration. Each request needs a token:
/// see `hermod tokens create`. The current folder is the workspace of runs that name none.
#[derive(Debug, Args)]
#[command(after_help = examples::SERVE)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any free one [default: service.listen]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Listen on an address that other machines reach: a proxy in front has TLS
    #[arg(long)]
    behind_proxy: bool,
    /// Play a scripted model instead of a real one, for runs that name no model; its tool calls are real
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    rehearse: Option<RehearsalScript>,
    /// What an acknowledged write survives [default: store.durability]
    #[arg(long, value_enum, hide = true)]
    durability: Option<DurabilityArg>,
}

/// Serves until a signal.
pub(crate) async fn execute(args: &ServeArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let listen = args.listen.unwrap_or(config.service.listen.0);
    if !listen.ip().is_loopback() && !args.behind_proxy {
        return Err(CliError::usage(format!(
            "--listen {listen}: tokens would cross the network unencrypted; listen on 127.0.0.1, or put a proxy with TLS in \
             front and add --behind-proxy"
        )));
    }
    let state = host::configured_state_dir(variables)?;
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let owner: (_, Arc<dyn NoteSink>) = (OwnerKind::Service, Arc::new(StderrNotes));
    let mut store = OwnedStore::acquire(state, durability.into(), owner).await?;
    let request = ServeRequest { listen, script: args.rehearse.clone() };
    let on_ready = |address| print_note(format!("serving   http://{address}"));
    let served = serve(request, (&config, variables), &mut store, on_ready).await.map_err(CliError::from);
    store.release(has_failed(&served)).await;
    if let Ok(ServiceEnd::Drained(drained)) = &served {
        print_note(format!("drained   runs that go on at the next start: {}", drained.suspended));
    }
    // A supervisor that stops the service gets a success.
    served.map(|_| Exit::Ok)
}
