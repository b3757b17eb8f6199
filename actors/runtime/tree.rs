//! What the supervisors know of the actors.

use crate::{
    look::Look,
    provider::{ProviderMsg, ProviderStatus},
    runtime::Runtime,
    supervisor::{Directory, ProvidersMsg, RootMsg, SessionsMsg, Tree},
    tool_executor::{ToolExecutorMsg, ToolStatus},
};

impl Runtime {
    /// The tree as its supervisors see it: what was started again, which sessions are there, which are quarantined and
    /// why. What does not answer is absent.
    pub async fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        let (look, parts) = Look::read(crate::supervisor::RootState::parts);
        if self.root.cast(RootMsg::Look(look)).is_ok() {
            tree.parts = parts.await.unwrap_or_default();
        }
        let (look, providers) = Look::read(crate::supervisor::Providers::parts);
        if self.doors.wiring.providers.cast(ProvidersMsg::Look(look)).is_ok() {
            tree.parts.extend(providers.await.unwrap_or_default());
        }
        let (look, sessions) = Look::read(Directory::statuses);
        if self.doors.sessions.cast(SessionsMsg::Look(look)).is_ok() {
            tree.sessions = sessions.await.unwrap_or_default();
        }
        tree
    }

    /// Whom a test strikes.
    #[cfg(feature = "testkit")]
    pub(crate) const fn inside(&self) -> (&ractor::ActorRef<RootMsg>, &crate::supervisor::Doors) {
        (&self.root, &self.doors)
    }

    /// What each provider has seen since its actor was started, by name.
    pub async fn providers(&self) -> Vec<ProviderStatus> {
        let mut statuses = Vec::new();
        for name in self.doors.wiring.leases.names() {
            let (look, status) = Look::read(ProviderStatus::clone);
            let message = ProvidersMsg::To(std::sync::Arc::clone(name), ProviderMsg::Look(look));
            if self.doors.wiring.providers.cast(message).is_ok()
                && let Ok(status) = status.await
            {
                statuses.push(status);
            }
        }
        statuses
    }

    /// What the executor has seen since it was started; `None` if it is gone.
    pub async fn tool_status(&self) -> Option<ToolStatus> {
        let (look, status) = Look::read(ToolStatus::clone);
        self.doors.wiring.executor.cast(ToolExecutorMsg::Look(look)).ok()?;
        status.await.ok()
    }
}
