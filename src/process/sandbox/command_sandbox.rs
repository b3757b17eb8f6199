//! The sandbox of a process that starts one command after the other.

use tokio::process::{Child, Command};

use super::{prepared::PreparedSandbox, restrict::SandboxError, spec::SandboxSpec, thread::SandboxThread};

/// A sandbox for the commands of one process, which have the same rules. It is entered with the first one that has rules.
/// Dropping this ends all processes in it.
#[derive(Debug)]
pub(in crate::process) struct CommandSandbox {
    /// What was prepared for the first command.
    prepared: Option<PreparedSandbox>,
    thread: Option<SandboxThread>,
}

impl CommandSandbox {
    pub(in crate::process) fn new(prepared: Option<PreparedSandbox>) -> Self {
        Self { prepared, thread: None }
    }

    /// Starts a command in the sandbox.
    pub(in crate::process) async fn spawn(
        &mut self,
        command: Command,
        spec: SandboxSpec,
    ) -> Result<Child, SandboxError> {
        if let Some(thread) = &mut self.thread {
            return thread.spawn(command).await;
        }
        let (child, thread) = SandboxThread::start(command, spec, self.prepared.take()).await?;
        self.thread = Some(thread);
        Ok(child)
    }

    /// Ends all processes of the sandbox, wherever they have gone. Returns lines about the hosts that they could not reach.
    pub(in crate::process) async fn end_processes(&mut self) -> String {
        match &mut self.thread {
            Some(thread) => thread.end_processes().await,
            None => String::new(),
        }
    }

    /// True if a further command can be started in it.
    pub(in crate::process) fn is_reusable(&self) -> bool {
        self.thread.as_ref().is_none_or(SandboxThread::is_reusable)
    }

    /// True if a new sandbox would have the same rules.
    pub(in crate::process) fn is_unchanged(&mut self) -> bool {
        self.thread.as_mut().is_none_or(SandboxThread::is_unchanged)
    }
}
