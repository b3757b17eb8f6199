//! The supervision tree and the statuses of its actors. Also forgets the failures of a provider on request.

use crate::{
    compressor::{CompressorMsg, CompressorState, CompressorStatus},
    inspect::Inspect,
    provider::{ProviderMsg, ProviderState, ProviderStatus},
    runtime::{RunError, Runtime, submit::MAX_TRIES},
    supervisor::{
        ChildStatus, Directory, Providers, ProvidersMsg, RootMsg, RootState, RuntimeEnd, SessionCounts,
        SessionsMsg, SupervisionTree,
    },
    tool_executor::{ToolExecutorMsg, ToolExecutorState, ToolStatus},
};

impl Runtime {
    /// The tree as its supervisors see it: restarts, open sessions, and quarantined sessions with the reason.
    /// Inspections of crashed actors are repeated; an error means that the runtime has ended, or is about to.
    pub async fn supervision_tree(&self) -> Result<SupervisionTree, RunError> {
        let children = self.child_statuses().await?;
        let send = |inspection| self.parts.sessions.cast(SessionsMsg::Inspect(inspection)).is_ok();
        let sessions = self.inspect("SessionSupervisor", Directory::statuses, send).await?;
        Ok(SupervisionTree { children, sessions })
    }

    /// The restarts of each actor that is no session, and the sessions in numbers. Its cost does not depend on their
    /// number.
    pub async fn supervision_counts(&self) -> Result<(Vec<ChildStatus>, SessionCounts), RunError> {
        let children = self.child_statuses().await?;
        let send = |inspection| self.parts.sessions.cast(SessionsMsg::Inspect(inspection)).is_ok();
        let sessions = self.inspect("SessionSupervisor", Directory::counts, send).await?;
        Ok((children, sessions))
    }

    /// Number of submissions that wait until they are durable.
    pub fn pending_submissions(&self) -> usize {
        self.submissions.saturating_sub(self.parts.admission.available_permits())
    }

    async fn child_statuses(&self) -> Result<Vec<ChildStatus>, RunError> {
        let mut children = self
            .inspect("Root", RootState::child_statuses, |it| self.root.cast(RootMsg::Inspect(it)).is_ok())
            .await?;
        let providers = &self.parts.providers;
        let send = |inspection| providers.cast(ProvidersMsg::Inspect(inspection)).is_ok();
        children.extend(self.inspect("ProviderSupervisor", Providers::child_statuses, send).await?);
        Ok(children)
    }

    async fn inspect<S: 'static, T: Send + 'static>(
        &self,
        name: &'static str,
        read: fn(&S) -> T,
        send: impl Fn(Inspect<S>) -> bool,
    ) -> Result<T, RunError> {
        for _ in 0..MAX_TRIES {
            let (inspection, value) = Inspect::read(read);
            if send(inspection)
                && let Ok(value) = value.await
            {
                return Ok(value);
            }
            self.check_running()?;
        }
        let error = "it dies whenever it is asked".into();
        Err(RunError::Terminated(RuntimeEnd::Actor { name, error }))
    }

    /// The actors and handles that tests make fail.
    #[cfg(feature = "testkit")]
    pub(crate) const fn parts_for_tests(
        &self,
    ) -> (&ractor::ActorRef<RootMsg>, &std::sync::Arc<crate::supervisor::RuntimeParts>) {
        (&self.root, &self.parts)
    }

    /// The status of each provider by name: counts since its actor was started, and the states of its breakers.
    pub async fn providers(&self) -> Vec<ProviderStatus> {
        let mut statuses = Vec::new();
        let now = self.parts.clock.at();
        for gate in self.parts.leases.gates().into_values() {
            let (inspection, status) = Inspect::read(move |state: &ProviderState| state.status(now));
            if gate.actor.cast(ProviderMsg::Inspect(inspection)).is_ok()
                && let Ok(status) = status.await
            {
                statuses.push(status);
            }
        }
        statuses
    }

    /// Forgets every failure of a provider, so that all its models may be called at once; false if there is none of
    /// that name. Runs that wait for a reset time that it reported continue to wait.
    pub fn reset_provider(&self, name: &str) -> bool {
        self.parts.leases.reset(name)
    }

    /// The status of the ToolExecutor; `None` if it is gone.
    pub async fn tool_status(&self) -> Option<ToolStatus> {
        let (inspection, status) = Inspect::read(ToolExecutorState::status);
        self.parts.executor.actor.cast(ToolExecutorMsg::Inspect(inspection)).ok()?;
        status.await.ok()
    }

    /// The status of the Compressor; `None` if it is gone.
    pub async fn compressor_status(&self) -> Option<CompressorStatus> {
        let (inspection, status) = Inspect::read(CompressorState::status);
        self.parts.compressor.actor.cast(CompressorMsg::Inspect(inspection)).ok()?;
        status.await.ok()
    }
}
