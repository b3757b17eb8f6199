//! What the supervisors know of the actors.

use crate::{
    look::Look,
    provider::{ProviderMsg, ProviderState, ProviderStatus},
    runtime::{RunError, Runtime, submit::TRIES},
    supervisor::{Directory, Providers, ProvidersMsg, RootMsg, RootState, SessionsMsg, Terminated, Tree},
    tool_executor::{ToolExecutorMsg, ToolStatus},
};

impl Runtime {
    /// The tree as its supervisors see it: what was started again, which sessions are there, which are quarantined and
    /// why. Who dies before it can say is asked again; an error means that the runtime has ended, or is about to.
    pub async fn tree(&self) -> Result<Tree, RunError> {
        let mut parts =
            self.seen("Root", RootState::parts, |look| self.root.cast(RootMsg::Look(look)).is_ok()).await?;
        let providers = &self.doors.wiring.providers;
        let ask = |look| providers.cast(ProvidersMsg::Look(look)).is_ok();
        parts.extend(self.seen("ProviderSupervisor", Providers::parts, ask).await?);
        let ask = |look| self.doors.sessions.cast(SessionsMsg::Look(look)).is_ok();
        let sessions = self.seen("SessionSupervisor", Directory::statuses, ask).await?;
        Ok(Tree { parts, sessions })
    }

    async fn seen<S: 'static, T: Send + 'static>(
        &self,
        name: &'static str,
        read: fn(&S) -> T,
        ask: impl Fn(Look<S>) -> bool,
    ) -> Result<T, RunError> {
        for _ in 0..TRIES {
            let (look, seen) = Look::read(read);
            if ask(look)
                && let Ok(seen) = seen.await
            {
                return Ok(seen);
            }
            self.alive()?;
        }
        let error = "it dies whenever it is asked".into();
        Err(RunError::Terminated(Terminated::Actor { name, error }))
    }

    /// Whom a test strikes.
    #[cfg(feature = "testkit")]
    pub(crate) const fn inside(&self) -> (&ractor::ActorRef<RootMsg>, &crate::supervisor::Doors) {
        (&self.root, &self.doors)
    }

    /// What each provider has seen since its actor was started, by name, and which of its models are asked now.
    pub async fn providers(&self) -> Vec<ProviderStatus> {
        let mut statuses = Vec::new();
        let now = self.doors.wiring.clock.at();
        for name in self.doors.wiring.leases.names() {
            let (look, status) = Look::read(move |state: &ProviderState| state.status(now));
            let message = ProvidersMsg::To(std::sync::Arc::clone(name), ProviderMsg::Look(look));
            if self.doors.wiring.providers.cast(message).is_ok()
                && let Ok(status) = status.await
            {
                statuses.push(status);
            }
        }
        statuses
    }

    /// Forgets every failure of a provider, so that all its models are asked again at once; says whether there is one of
    /// that name. Runs that wait for a time that it has named go on waiting.
    pub fn reset_provider(&self, name: &str) -> bool {
        self.doors.wiring.leases.reset(name)
    }

    /// What the executor has seen since it was started; `None` if it is gone.
    pub async fn tool_status(&self) -> Option<ToolStatus> {
        let (look, status) = Look::read(ToolStatus::clone);
        self.doors.wiring.executor.cast(ToolExecutorMsg::Look(look)).ok()?;
        status.await.ok()
    }
}
