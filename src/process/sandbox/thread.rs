//! The thread that starts commands in their sandbox, one after the other, and ends what is left of each.

use std::{io, sync::mpsc, thread};

use rustix::{
    io::Errno,
    process::{Pid, Signal, getppid, kill_process_group, test_kill_process},
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

use super::{
    limits::{self, RefusedLimits},
    network::{HostProxy, RefusedHosts},
    prepared::{PreparedSandbox, SandboxBasis},
    restrict::{SandboxError, SandboxStatus, restrict_thread},
    spec::{SandboxLimits, SandboxSpec},
};
use crate::process::pidfd;

/// A restricted thread. Dropping this ends all processes of its sandbox.
#[derive(Debug)]
pub(in crate::process) struct SandboxThread {
    requests: mpsc::Sender<Request>,
    /// The hosts that were refused, if the network is limited to hosts.
    refused: Option<RefusedHosts>,
    basis: Option<SandboxBasis>,
    limits: SandboxLimits,
    refused_limits: RefusedLimits,
}

/// A request to the thread.
enum Request {
    Spawn(Box<Command>, oneshot::Sender<io::Result<Child>>),
    /// Kill all processes of the sandbox.
    End(oneshot::Sender<()>),
}

/// What the first command has left in the thread.
struct EnteredSandbox {
    status: SandboxStatus,
    proxy: Option<HostProxy>,
}

impl SandboxThread {
    /// Starts a command in a new sandbox, which may be prepared.
    pub(in crate::process) async fn start(
        command: Command,
        spec: SandboxSpec,
        mut prepared: Option<PreparedSandbox>,
    ) -> Result<(Child, Self), SandboxError> {
        let refused_limits = RefusedLimits::check(&spec.rules)?;
        let (started, is_started) = oneshot::channel();
        let (requests, received) = mpsc::channel();
        let (runtime, limits) = (Handle::current(), spec.rules.limits);
        let basis = prepared.as_mut().map(PreparedSandbox::take_basis);
        thread::Builder::new().name("sandbox".into()).spawn(move || {
            let result = {
                let _runtime = runtime.enter();
                start(command, &spec, prepared)
            };
            let (result, entered) = match result {
                Ok((child, entered)) => {
                    let refused = entered.proxy.as_ref().map(HostProxy::refused).cloned();
                    (Ok((child, refused)), Some(entered))
                }
                Err(error) => (Err(error), None),
            };
            // A command whose caller is gone ends with the value that is dropped here.
            let (Ok(()) | Err(_)) = started.send(result);
            if let Some(EnteredSandbox { status, proxy }) = entered {
                serve(&received, &runtime, status);
                drop(proxy);
            }
        })?;
        let (child, refused) =
            is_started.await.map_err(|_| io::Error::other("the thread of the sandbox ended"))??;
        let thread = Self { requests, refused, basis, limits, refused_limits };
        thread.restrict(&child);
        Ok((child, thread))
    }

    /// Starts a further command in the sandbox.
    pub(in crate::process) async fn spawn(&self, command: Command) -> Result<Child, SandboxError> {
        let ended = || io::Error::other("the thread of the sandbox ended");
        let (started, is_started) = oneshot::channel();
        self.requests.send(Request::Spawn(Box::new(command), started)).map_err(|_| ended())?;
        let child = is_started.await.map_err(|_| ended())??;
        self.restrict(&child);
        Ok(child)
    }

    /// Ends all processes of the sandbox, wherever they have gone. Returns lines about the hosts that they could not reach,
    /// and about limits that are not in force.
    pub(in crate::process) async fn end_processes(&self) -> String {
        let (done, is_done) = oneshot::channel();
        if self.requests.send(Request::End(done)).is_ok() {
            // The thread may have ended by itself, which it does after the signal.
            let (Ok(()) | Err(_)) = is_done.await;
        }
        let hosts = self.refused.as_ref().map(RefusedHosts::text).unwrap_or_default();
        hosts + &self.refused_limits.text()
    }

    /// True if a further command can be started in the sandbox: it was prepared, and has no proxy, which knows one command.
    pub(in crate::process) fn is_reusable(&self) -> bool {
        self.basis.is_some() && self.refused.is_none()
    }

    /// True if a new sandbox would have the same rules.
    pub(in crate::process) fn is_unchanged(&mut self) -> bool {
        self.basis.as_mut().is_some_and(SandboxBasis::is_unchanged)
    }

    /// Limits a child. Not on the restricted thread, which may not set limits of others.
    fn restrict(&self, child: &Child) {
        let restricted = pidfd::of_child(child).map(|pid| limits::restrict_child(pid, &self.limits));
        match restricted {
            // A child that has ended needs none.
            Some(Err(error)) if error.raw_os_error() != Some(Errno::SRCH.raw_os_error()) => {
                tracing::warn!(%error, "a command runs without limits of resources");
            }
            Some(Ok(()) | Err(_)) | None => {}
        }
    }
}

fn start(
    mut command: Command,
    spec: &SandboxSpec,
    prepared: Option<PreparedSandbox>,
) -> Result<(Child, EnteredSandbox), SandboxError> {
    spec.make_temp_folder()?;
    let proxy = HostProxy::start(&spec.rules.network)?;
    command.envs(proxy.iter().flat_map(HostProxy::variables));
    let status = restrict_thread(spec, prepared)?;
    Ok((command.spawn()?, EnteredSandbox { status, proxy }))
}

/// Serves requests. When their sender ends, so do all processes of the sandbox.
fn serve(requests: &mpsc::Receiver<Request>, runtime: &Handle, status: SandboxStatus) {
    for request in requests {
        match request {
            Request::Spawn(mut command, started) => {
                let _runtime = runtime.enter();
                // The requester may be gone. Then the command ends with the sandbox.
                let (Ok(()) | Err(_)) = started.send(command.spawn());
            }
            Request::End(done) => {
                kill_all(status);
                // The requester may be gone.
                let (Ok(()) | Err(())) = done.send(());
            }
        }
    }
    kill_all(status);
}

fn kill_all(status: SandboxStatus) {
    if is_confined(status) {
        // To every process that this thread may signal: those of its sandbox and no other. One
        // call reaches them all: a process that is about to be killed cannot start another one.
        let (Ok(()) | Err(_)) = kill_process_group(Pid::INIT, Signal::KILL);
    }
}

/// True if this thread can signal nothing outside of its sandbox: not even the parent of this process, which is of the
/// same user.
fn is_confined(status: SandboxStatus) -> bool {
    status.has_scopes() && getppid().is_none_or(|parent| test_kill_process(parent).is_err())
}
