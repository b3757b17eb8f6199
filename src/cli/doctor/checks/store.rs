//! Checks of the store, of the process that holds it, and of the clock by what the store has.

use std::path::Path;

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::model::Timestamp;

use crate::{
    cli::{
        doctor::check::{Examination, Finding},
        report::service_status,
    },
    clock,
    control::{ControlRequest, ControlResponse},
    host::{HostError, StartError, StoreClient, unexpected_response},
    store::redb::{OpenError, is_in},
    view::{ChannelStateView, ChannelView, HookStateView, HookView, RunSummaryView},
};

/// Runs that are read in search of damage.
const MAX_RUNS: usize = 50;
/// Seconds that the clock may be behind the newest record.
const MAX_CLOCK_LAG_MS: u64 = 60_000;
/// A time before this program was written, 2026-01-01: the clock is not set.
const MIN_TIME: Timestamp = Timestamp(1_767_225_600_000);
/// The socket of the process that holds the store.
const SOCKET: &str = "control.sock";

/// A client of the store; `None` if there is neither a store nor a process that holds one.
pub(super) fn client(examination: &Examination) -> Option<Result<StoreClient, HostError>> {
    let state = examination.existing_state()?;
    let exists = is_in(&state) || state.join(SOCKET).exists();
    exists.then(|| StoreClient::new(&examination.variables))
}

/// The newest runs; `None` without a store.
async fn newest_runs(examination: &Examination) -> Option<Result<Vec<RunSummaryView>, HostError>> {
    let client = match client(examination)? {
        Ok(client) => client,
        Err(error) => return Some(Err(error)),
    };
    let request = ControlRequest::newest_runs(MAX_RUNS, Vec::new());
    Some(match client.request(&request).await {
        Ok(ControlResponse::Runs(runs)) => Ok(runs),
        Ok(_) => Err(unexpected_response().into()),
        Err(error) => Err(error),
    })
}

/// Whether the store can be opened, and its newest runs be read.
pub(in crate::cli::doctor) fn store(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let runs = match newest_runs(examination).await {
            None => return vec![Finding::ok("store", "there is none yet: the first run makes it")],
            Some(Err(error)) => {
                let state = examination.existing_state().unwrap_or_default();
                return vec![Finding::fail("store", error.to_string(), remedy(&error, &state))];
            }
            Some(Ok(runs)) => runs,
        };
        let unreadable: Vec<_> = runs
            .iter()
            .filter_map(|run| {
                let reason = run.unreadable.as_ref()?;
                let remedy = format!("`hermod store repair {}` sets its session aside", run.run.session);
                Some(Finding::fail("store", format!("run {} is damaged: {reason}", run.run.id), remedy))
            })
            .collect();
        if unreadable.is_empty() {
            let count = runs.len();
            let value = format!(
                "it opens, and its newest runs ({count}) can be read; `hermod store check` reads all"
            );
            return vec![Finding::ok("store", value)];
        }
        unreadable
    }
    .boxed()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are about the folder")]
fn remedy(error: &HostError, state: &Path) -> String {
    let state = state.display();
    match error {
        HostError::Start(StartError::Store(OpenError::Busy { pid, .. })) => match pid {
            Some(pid) => format!("`kill {pid}` ends that process, or set HERMOD_HOME to another folder"),
            None => "wait until that process has ended, or set HERMOD_HOME to another folder".to_owned(),
        },
        HostError::Start(StartError::Store(OpenError::Newer { .. } | OpenError::Older { .. })) => {
            "install the version of hermod that wrote it, or set HERMOD_HOME to another folder".to_owned()
        }
        HostError::Start(StartError::Store(OpenError::Corrupt { .. })) => format!(
            "restore a backup with `hermod backup restore`, or begin anew: `mv '{state}' '{state}.damaged'`"
        ),
        _ => format!("see that {state} is on a local disk with space, and belongs to this user"),
    }
}

/// Whether a service holds the store, and how it is.
pub(in crate::cli::doctor) fn service(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let client = match client(examination) {
            None => return vec![Finding::skipped("service", "there is no store that one could hold")],
            Some(Ok(client)) => client,
            Some(Err(error)) => {
                return vec![Finding::fail("service", error.to_string(), "see the check of the state")];
            }
        };
        let status = match service_status(&client).await {
            Ok(Some(status)) => status,
            Ok(None) => return vec![Finding::ok("service", "none runs; `hermod serve` is one")],
            Err(error) => {
                let socket = client.state().join(SOCKET);
                let remedy = format!(
                    "end the process that listens at {}, and start `hermod serve` again as this user",
                    socket.display()
                );
                return vec![Finding::fail("service", error.to_string(), remedy)];
            }
        };
        let version = env!("CARGO_PKG_VERSION");
        let mut findings = vec![if status.version == version {
            Finding::ok("service", format!("process {} at {}", status.pid, status.address))
        } else {
            let value = format!("it is version {}, and this is {version}", status.version);
            Finding::warn("service", value, "restart it: `hermod drain`, then start it again")
        }];
        findings.extend(status.reasons.iter().map(|reason| {
            Finding::fail("service", reason.clone(), "`hermod status` and `hermod service logs` tell more")
        }));
        findings.extend(status.hooks.iter().filter_map(disabled_hook));
        findings.extend(status.channels.iter().filter_map(failing_channel));
        findings
    }
    .boxed()
}

fn disabled_hook(hook: &HookView) -> Option<Finding> {
    let error = hook.last_error.as_deref().unwrap_or("no error is known");
    let value = format!("hook {} is disabled: {error}", hook.name);
    let remedy = format!("mend it, then `hermod hooks enable {}`", hook.name);
    (hook.state == Some(HookStateView::Disabled)).then(|| Finding::fail("service", value, remedy))
}

fn failing_channel(channel: &ChannelView) -> Option<Finding> {
    let error = channel.error.as_deref().unwrap_or("no error is known");
    let value = format!("channel {}: {error}", channel.name);
    match channel.state {
        ChannelStateView::Connecting | ChannelStateView::Connected => None,
        ChannelStateView::Failing => {
            Some(Finding::warn("service", value, "see whether the network is up; it is tried again"))
        }
        ChannelStateView::Unusable => {
            let remedy = format!("correct [channels.{}], then `hermod config reload`", channel.name);
            Some(Finding::fail("service", value, remedy))
        }
    }
}

/// Whether the clock is plausible, and time zones are known.
pub(in crate::cli::doctor) fn clock(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let now = clock::now();
        let runs = newest_runs(examination).await.and_then(Result::ok).unwrap_or_default();
        let times = runs.iter().flat_map(|run| [Some(run.run.accepted_at), run.run.ended_at]);
        let newest = times.flatten().max().unwrap_or(MIN_TIME);
        let remedy = "set the clock, for example with `timedatectl set-ntp true`";
        let mut findings = vec![if now < MIN_TIME {
            Finding::fail("clock", format!("it says {now}"), remedy)
        } else if newest.ms_since(now) > MAX_CLOCK_LAG_MS {
            let value = format!("it says {now}, and the store has a run of {newest}");
            Finding::fail("clock", value, remedy)
        } else {
            Finding::ok("clock", now.to_string())
        }];
        let zones = examination.variables.get("TZDIR").map_or("/usr/share/zoneinfo", String::as_str);
        if !Path::new(zones).join("Europe").is_dir() {
            let value = format!("there is no time zone database in {zones}");
            let remedy = "install the package `tzdata` if local times matter; Hermod shows times in UTC";
            findings.push(Finding::warn("time zones", value, remedy));
        }
        findings
    }
    .boxed()
}
