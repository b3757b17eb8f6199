//! `hermod serve`: the service. `service/` does the work; here are the arguments and the lines for people.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;

use super::{
    CliError, Exit, background, examples,
    exit::has_failed,
    output::{StderrNotes, StdoutLines},
    print_note,
    run::DurabilityArg,
};
use crate::{
    config::Config,
    control::OwnerKind,
    delivery::LineOutput,
    discovery::Variables,
    host::{self, NoteSink, OwnedStore, RehearsalScript, parse_duration},
    service::{ServeRequest, ServiceEnd, TlsFiles, TlsSource, serve},
};

/// Any free port of this machine.
const ANY_LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Serve runs over HTTP, and let unfinished ones go on
///
/// Holds the store until SIGINT or SIGTERM, which suspend all runs: they go on at the next start. SIGHUP reloads the
/// configuration and the certificate. Each request needs a token:
/// see `hermod tokens create`. The current folder is the workspace of runs that name none.
#[derive(Debug, Args)]
#[command(after_help = examples::SERVE)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any free one [default: service.listen]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The state directory; other commands find it by the variable [default: $HERMOD_HOME, or that of the user]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Listen on an address that other machines reach: a proxy in front has TLS
    #[arg(long)]
    behind_proxy: bool,
    /// Speak TLS with the certificate in this PEM file, which has the intermediate ones too [default: service.tls_certificate]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The PEM file with the private key of the certificate [default: service.tls_key]
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Play a scripted model instead of a real one, for runs that name no model; its tool calls are real
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    rehearse: Option<RehearsalScript>,
    /// A client has started this process: it makes way for another service, and ends when it was idle for this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "10m", conflicts_with_all = ["behind_proxy", "tls_certificate"], hide = true)]
    background: Option<Duration>,
    /// What an acknowledged write survives [default: store.durability]
    #[arg(long, value_enum, hide = true)]
    durability: Option<DurabilityArg>,
}

/// Serves until a signal.
pub(crate) async fn execute(args: &ServeArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let (listen, tls) = match args.background {
        Some(_) => (args.listen.unwrap_or(ANY_LOOPBACK), None),
        None => (args.listen.unwrap_or(config.service.listen.0), tls_files(args, &config)?),
    };
    if !listen.ip().is_loopback() && tls.is_none() && !args.behind_proxy {
        return Err(CliError::usage(format!(
            "--listen {listen}: tokens would cross the network unencrypted; give a certificate (service.tls_certificate and \
             service.tls_key, or --tls-certificate and --tls-key), put a proxy with TLS in front and add --behind-proxy, or \
             listen on 127.0.0.1"
        )));
    }
    let state = match &args.store {
        Some(dir) => host::create_state_dir(dir)?,
        None => host::configured_state_dir(variables)?,
    };
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let (kind, start_lock) = if args.background.is_some() {
        background::leave_terminal()?;
        (OwnerKind::Background, None)
    } else {
        (OwnerKind::Service, background::take_place(&state).await?)
    };
    let owner: (_, Arc<dyn NoteSink>) = (kind, Arc::new(StderrNotes));
    let mut store = OwnedStore::acquire(state, durability.into(), owner).await?;
    drop(start_lock);
    // A process in the background has no standard output.
    let output: Option<Arc<dyn LineOutput>> =
        args.background.is_none().then(|| Arc::new(StdoutLines) as Arc<dyn LineOutput>);
    let script = args.rehearse.clone();
    let request = ServeRequest { listen, script, tls, output, idle_timeout: args.background };
    let on_ready = |url: &str| print_note(format!("serving   {url}"));
    let served = serve(request, (&config, variables), &mut store, on_ready).await.map_err(CliError::from);
    store.release(has_failed(&served)).await;
    if let Ok(ServiceEnd::Drained(drained)) = &served {
        print_note(format!("drained   runs that go on at the next start: {}", drained.suspended));
    }
    // A supervisor that stops the service gets a success.
    served.map(|_| Exit::Ok)
}

/// The files with which the service speaks TLS: those of the options, else those of the configuration.
fn tls_files(args: &ServeArgs, config: &Config) -> Result<Option<TlsFiles>, CliError> {
    let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) else {
        return Ok(TlsFiles::configured(config));
    };
    let absolute = |option: &str, path: &PathBuf| {
        std::path::absolute(path)
            .map_err(|error| CliError::usage(format!("{option} {}: {error}", path.display())))
    };
    let (certificate, key) = (absolute("--tls-certificate", certificate)?, absolute("--tls-key", key)?);
    Ok(Some(TlsFiles { certificate, key, source: TlsSource::Options }))
}
