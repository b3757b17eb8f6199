//! View of the supervisors and their children.

use hermod_actors::{
    ChildStatus, SessionPhase, SupervisionTree,
    model::{SessionId, Timestamp},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    encoding,
    schema::{Id, Time},
};

/// Sessions of the list; those that need attention come first.
const MAX_SESSIONS: usize = 200;

/// The actors of the process: `{version, started_at, reasons, children, sessions, live, more}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SupervisionView {
    /// The version of the program.
    pub version: &'static str,
    /// When the process began to serve.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub started_at: Timestamp,
    /// Why the service takes no new work or is not healthy; empty if it is.
    pub reasons: Vec<String>,
    /// The children of the root and the providers, from top to bottom.
    pub children: Vec<SupervisedChildView>,
    /// At most 200 sessions in memory: first those that were quarantined or have crashed, then the newest.
    pub sessions: Vec<SupervisedSessionView>,
    /// Number of sessions with an actor.
    pub live: usize,
    /// Number of sessions in memory that `sessions` leaves out.
    pub more: usize,
}

/// A child of a supervisor: `{name, restarts}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SupervisedChildView {
    /// The actor's name; of a provider, `Provider NAME`.
    pub name: String,
    /// How often it was restarted after a crash.
    pub restarts: u32,
}

/// A session in memory: `{session, phase, reason, crashes}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SupervisedSessionView {
    /// The session.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// `opening`, `live`, `ending` or `quarantined`.
    pub phase: &'static str,
    /// Why it is quarantined; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often its actor has crashed.
    pub crashes: u32,
}

impl SupervisionView {
    /// The tree of a process that began to serve at this time.
    pub fn new(tree: SupervisionTree, started_at: Timestamp, reasons: Vec<String>) -> Self {
        let SupervisionTree { children, mut sessions } = tree;
        let live = sessions.iter().filter(|session| session.phase == SessionPhase::Live).count();
        let needs_attention =
            |phase: &SessionPhase, crashes: u32| crashes > 0 || matches!(phase, SessionPhase::Quarantined(_));
        sessions.sort_by_key(|session| {
            let is_calm = !needs_attention(&session.phase, session.crashes);
            (is_calm, std::cmp::Reverse(session.session))
        });
        let more = sessions.len().saturating_sub(MAX_SESSIONS);
        sessions.truncate(MAX_SESSIONS);
        let sessions = sessions.into_iter().map(|session| {
            let (phase, reason) = match session.phase {
                SessionPhase::Opening => ("opening", None),
                SessionPhase::Live => ("live", None),
                SessionPhase::Ending => ("ending", None),
                SessionPhase::Quarantined(reason) => ("quarantined", Some(reason)),
            };
            SupervisedSessionView { session: session.session, phase, reason, crashes: session.crashes }
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started_at,
            reasons,
            children: children.into_iter().map(SupervisedChildView::from).collect(),
            sessions: sessions.collect(),
            live,
            more,
        }
    }
}

impl From<ChildStatus> for SupervisedChildView {
    fn from(ChildStatus { name, restarts }: ChildStatus) -> Self {
        Self { name, restarts }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::SessionStatus;

    use super::*;

    #[test]
    fn sessions_that_need_attention_come_first_and_the_list_is_bounded() {
        let status = |n: u32, phase, crashes| SessionStatus {
            session: SessionId::from_bits(n.into()),
            phase,
            crashes,
        };
        let mut sessions: Vec<_> =
            (0..300).map(|n| status(n, SessionPhase::Live, u32::from(n == 7))).collect();
        sessions.push(status(300, SessionPhase::Quarantined("damaged".into()), 0));
        let tree = SupervisionTree { children: vec![], sessions };
        let view = SupervisionView::new(tree, Timestamp(0), vec![]);
        let first: Vec<_> =
            view.sessions.iter().take(3).map(|it| (it.session, it.phase, it.crashes)).collect();
        let id = |n: u32| SessionId::from_bits(n.into());
        assert_eq!(first, [(id(300), "quarantined", 0), (id(7), "live", 1), (id(299), "live", 0)]);
        assert_eq!((view.sessions.len(), view.live, view.more), (200, 300, 101));
    }
}
