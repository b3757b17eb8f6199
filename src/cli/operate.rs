//! `hermod status`, `hermod drain` and `hermod config reload`: operates the service that holds the store.

use std::time::Duration;

use clap::Args;

use super::{CliError, Exit, print, print_as, print_json, print_note};
use crate::{
    clock,
    control::{AskError, ControlClient, ControlRequest, ControlResponse, OwnerKind},
    host::{HostError, StoreClient, millis, parse_duration, unexpected_response},
    view::{
        BreakerView, ChannelView, DrainView, HookStateView, HookView, ReloadView, ServiceStatusView,
        UnfinishedRunsView,
    },
};

/// Show how the service is: its process and address, unfinished runs, open breakers
///
/// The exit code is 0 if it is healthy, 1 if it is not or no service runs.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Let the service take no new work, and end when its runs have ended
///
/// Waits until the service has ended. Interrupted, it leaves the service draining. Runs that wait for a person are not waited
/// for: they go on at the next start, like those that are left when the time is over.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Time after which the runs that are left are suspended
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10m")]
    timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the status of the service.
pub(crate) async fn status(args: &StatusArgs, client: &StoreClient) -> Result<Exit, CliError> {
    let Some(mut owner) = client.owner().await? else {
        return without_service(args, None, client);
    };
    let ping = owner.request(&ControlRequest::Ping {}, |_| Ok(())).await;
    let (pid, kind) = match ping {
        Ok(ControlResponse::Pong { pid, submissions, .. }) => (pid, submissions),
        Ok(_) => return Err(unexpected_response().into()),
        Err(AskError::Disconnected) => return without_service(args, None, client),
        Err(AskError::Rejected(error)) => return Err(error.into()),
    };
    if !kind.is_some_and(OwnerKind::is_service) {
        return without_service(args, Some(pid), client);
    }
    let request = ControlRequest::ServiceStatus {};
    let ControlResponse::ServiceStatus(status) = ask(&mut owner, &request).await? else {
        return Err(unexpected_response().into());
    };
    print_as(args.json, &*status, format_status)?;
    Ok(if status.reasons.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// Tells that no service runs, and which process holds the store.
fn without_service(args: &StatusArgs, owner: Option<u32>, client: &StoreClient) -> Result<Exit, CliError> {
    let state = client.state();
    if args.json {
        let value = serde_json::json!({ "pid": null, "owner": owner, "state_dir": state });
        print_json(&value)?;
    } else {
        let owner = match owner {
            Some(pid) => format!("the command of process {pid} holds the store"),
            None => "no process holds the store".to_owned(),
        };
        print(&format!("no service: {owner} in {}", state.display()))?;
    }
    Ok(Exit::Failed)
}

fn format_status(status: &ServiceStatusView) -> String {
    let phase: &'static str = status.phase.into();
    let uptime = Duration::from_secs(clock::now().ms_since(status.started_at) / 1_000);
    let UnfinishedRunsView { queued, running, parked } = status.runs;
    let mut lines = vec![
        format!("service      {phase} at {}", status.address),
        format!("process      {}, version {}", status.pid, status.version),
        format!("uptime       {}", humantime::format_duration(uptime)),
        format!("store        {}", status.state_dir.display()),
        format!("unfinished   {running} running, {queued} queued, {parked} waiting for a person"),
        format!("submissions  {} waiting for the store", status.submissions),
        format!("clients      {} connections, {} event streams", status.connections, status.streams),
    ];
    lines.extend(status.breakers.iter().map(format_breaker));
    lines.extend(status.hooks.iter().filter_map(format_hook));
    lines.extend(status.gone_targets.iter().map(|name| {
        format!(
            "target       {name} is gone: messages wait for it, and are dead letters once they are too old"
        )
    }));
    lines.extend(status.channels.iter().map(format_channel));
    lines.extend(status.reasons.iter().map(|reason| format!("unhealthy    {reason}")));
    lines.join("\n")
}

/// A line for a hook that fails; `None` for one that works.
fn format_hook(hook: &HookView) -> Option<String> {
    let state = hook.state.filter(|state| *state != HookStateView::Ready)?;
    let error = hook.last_error.as_deref().unwrap_or("no error is known");
    let again = |s| {
        let pause = humantime::format_duration(Duration::from_secs(s));
        format!(" (called again in {pause}, or after `hermod hooks enable {}`)", hook.name)
    };
    let again = hook.retry_in_s.map(again).unwrap_or_default();
    Some(format!("hook         {} is {}: {error}{again}", hook.name, <&'static str>::from(state)))
}

/// The line of a channel.
fn format_channel(channel: &ChannelView) -> String {
    let bot = channel.bot.as_ref().map(|bot| format!(" as @{bot}")).unwrap_or_default();
    let state: &'static str = channel.state.into();
    let error = channel.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("channel      {} ({}{bot}) is {state}{error}", channel.name, channel.kind)
}

fn format_breaker(view: &BreakerView) -> String {
    let model = view.model.as_ref().map(|model| format!("/{model}")).unwrap_or_default();
    let state = match view.breaker {
        hermod_actors::model::BreakerState::Open { until } => format!("open until {}", clock::rfc3339(until)),
        hermod_actors::model::BreakerState::HalfOpen => "half open".to_owned(),
        hermod_actors::model::BreakerState::Closed => "closed".to_owned(),
    };
    format!("breaker      {}{model}: {state}", view.provider)
}

/// Drains the service, and waits for its end.
pub(crate) async fn drain(args: &DrainArgs, client: &StoreClient) -> Result<(), CliError> {
    let mut owner = service(client, "nothing is to be drained").await?;
    let request = ControlRequest::ServiceDrain { timeout_ms: millis(args.timeout) };
    let ControlResponse::Drained(drained) = ask(&mut owner, &request).await? else {
        return Err(unexpected_response().into());
    };
    print_as(args.json, &drained, |DrainView { suspended, parked }| match (suspended, parked) {
        (0, 0) => "drained: every run has ended".to_owned(),
        (suspended, parked) => format!(
            "drained: {suspended} runs were suspended and go on at the next start, {parked} wait for a person"
        ),
    })
}

/// Lets the service read its configuration again.
pub(crate) async fn reload(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let mut owner = service(client, "its next start reads the configuration").await?;
    let ControlResponse::Reloaded(reloaded) = ask(&mut owner, &ControlRequest::ConfigReload {}).await? else {
        return Err(unexpected_response().into());
    };
    print_as(json, &reloaded, |ReloadView { changed, .. }| match changed.as_slice() {
        [] => "reloaded: no setting of new runs has changed; the keys of providers are read again".to_owned(),
        changed => format!("reloaded: {}", changed.join(", ")),
    })?;
    if !json && !reloaded.restart.is_empty() {
        print_note(format!("only a restart applies {}", reloaded.restart.join(", ")));
    }
    Ok(())
}

/// The service that holds the store. `consequence` says what follows if there is none.
pub(super) async fn service(client: &StoreClient, consequence: &str) -> Result<ControlClient, CliError> {
    let owner = client.owner().await?;
    owner.ok_or_else(|| {
        let state = client.state().display();
        CliError { exit: Exit::Failed, text: format!("no service runs for {state}; {consequence}") }
    })
}

/// The answer of the service to a request.
pub(super) async fn ask(
    owner: &mut ControlClient,
    request: &ControlRequest,
) -> Result<ControlResponse, HostError> {
    owner.request(request, |_| Ok(())).await.map_err(|error| match error {
        AskError::Disconnected => {
            HostError::ConnectionLost("`hermod status` shows what became of it".to_owned())
        }
        AskError::Rejected(error) => error.into(),
    })
}
