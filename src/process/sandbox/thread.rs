//! The thread that starts a command in its sandbox, and ends what is left of it.

use std::{sync::mpsc, thread};

use rustix::process::{Pid, Signal, getppid, kill_process_group, test_kill_process};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

use super::{
    limits,
    network::{HostProxy, RefusedHosts},
    prepared::PreparedSandbox,
    restrict::{SandboxError, SandboxStatus, restrict_thread},
    spec::SandboxSpec,
};
use crate::process::pidfd;

/// A restricted thread. Dropping this ends all processes of its sandbox.
#[derive(Debug)]
pub(in crate::process) struct SandboxThread {
    end: Option<mpsc::Sender<oneshot::Sender<()>>>,
    refused: RefusedHosts,
}

impl SandboxThread {
    /// Starts a command in a new sandbox, which may be prepared.
    pub(in crate::process) async fn spawn(
        command: Command,
        spec: SandboxSpec,
        prepared: Option<PreparedSandbox>,
    ) -> Result<(Child, Self), SandboxError> {
        let (started, is_started) = oneshot::channel();
        let (end, requests) = mpsc::channel();
        let (runtime, limits) = (Handle::current(), spec.rules.limits);
        thread::Builder::new().name("sandbox".into()).spawn(move || {
            let result = {
                let _runtime = runtime.enter();
                start(command, &spec, prepared)
            };
            let (result, status, proxy) = match result {
                Ok((child, status, proxy)) => {
                    let refused = proxy.as_ref().map(HostProxy::refused).cloned();
                    (Ok((child, refused.unwrap_or_default())), status, proxy)
                }
                Err(error) => (Err(error), SandboxStatus::default(), None),
            };
            // A command whose caller is gone ends with the value that is dropped here.
            let (Ok(()) | Err(_)) = started.send(result);
            end_on_request(&requests, status);
            drop(proxy);
        })?;
        let (child, refused) =
            is_started.await.map_err(|_| std::io::Error::other("the thread of the sandbox ended"))??;
        // Not on the restricted thread, which may not set limits of others. A child that has ended needs none.
        if let Some(pid) = pidfd::of_child(&child) {
            let (Ok(()) | Err(_)) = limits::restrict_child(pid, &limits);
        }
        Ok((child, Self { end: Some(end), refused }))
    }

    /// Ends all processes of the sandbox, wherever they have gone. Returns lines about the hosts that they could not reach.
    pub(in crate::process) async fn end(mut self) -> String {
        let (done, is_done) = oneshot::channel();
        if self.end.take().is_some_and(|end| end.send(done).is_ok()) {
            // The thread may have ended by itself, which it does after the signal.
            let (Ok(()) | Err(_)) = is_done.await;
        }
        self.refused.text()
    }
}

type Started = (Child, SandboxStatus, Option<HostProxy>);

fn start(
    mut command: Command,
    spec: &SandboxSpec,
    prepared: Option<PreparedSandbox>,
) -> Result<Started, SandboxError> {
    spec.make_temp_folder()?;
    let proxy = HostProxy::start(&spec.rules.network)?;
    command.envs(proxy.iter().flat_map(HostProxy::variables));
    let status = restrict_thread(spec, prepared)?;
    Ok((command.spawn()?, status, proxy))
}

/// Waits for the request, or for the end of its sender, and kills the sandbox.
fn end_on_request(requests: &mpsc::Receiver<oneshot::Sender<()>>, status: SandboxStatus) {
    let request = requests.recv();
    if is_confined(status) {
        // To every process that this thread may signal: those of its sandbox and no other. One
        // call reaches them all: a process that is about to be killed cannot start another one.
        let (Ok(()) | Err(_)) = kill_process_group(Pid::INIT, Signal::KILL);
    }
    if let Ok(done) = request {
        // The requester may be gone.
        let (Ok(()) | Err(())) = done.send(());
    }
}

/// True if this thread can signal nothing outside of its sandbox: not even the parent of this process, which is of the
/// same user.
fn is_confined(status: SandboxStatus) -> bool {
    status.has_scopes() && getppid().is_none_or(|parent| test_kill_process(parent).is_err())
}
