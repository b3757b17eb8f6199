//! The directory, the state of SessionSupervisor: an entry for each session that is live, being opened, ending or
//! quarantined. It delivers messages to sessions, suspends all, and gives their status. Its other methods are in
//! `opening.rs`, `passivation.rs` and `session_restart.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::Arc,
    time::Duration,
};

use ractor::{ActorId, ActorRef, MessagingErr, RpcReplyPort};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    active_deadline::ActiveDeadline,
    handlers::RunningHandler,
    model::SessionId,
    session::{InputReply, SessionMsg, SubmitError},
    supervisor::{
        RuntimeParts, SessionCounts, SessionPhase, SessionSeed, SessionStatus, SessionsMsg,
        entry::{AfterTasksEnd, EntryPhase, SessionEntry},
        sessions::SessionsInternalMsg,
    },
};

/// Time for a session to suspend itself when all are suspended, and then for its tasks to end.
const SUSPEND_TIMEOUT: Duration = Duration::from_millis(500);

/// The state of SessionSupervisor.
pub(crate) struct Directory {
    pub(super) me: ActorRef<SessionsMsg>,
    pub(super) parts: Arc<RuntimeParts>,
    pub(super) entries: BTreeMap<SessionId, SessionEntry>,
    pub(super) actors: HashMap<ActorId, SessionId>,
    pub(super) is_suspended: bool,
    /// Crashes of all sessions since this directory was started.
    pub(super) crashes: u64,
    /// The timer of the next scan for idle sessions; aborted with the directory.
    pub(super) scan_timer: Option<JoinSet<()>>,
}

impl Directory {
    /// A directory with the sessions that the checkpoint names. Once their tasks have ended, those whose runs are to be
    /// carried out here are revived.
    pub(super) fn start(me: ActorRef<SessionsMsg>, parts: Arc<RuntimeParts>) -> Self {
        let known = parts.checkpoint.restore();
        let (entries, actors) = (BTreeMap::new(), HashMap::new());
        let mut directory =
            Self { me, parts, entries, actors, is_suspended: false, crashes: 0, scan_timer: None };
        for (session, (tasks, is_wanted, incarnation)) in known {
            let phase = EntryPhase::Ending(Vec::new(), AfterTasksEnd::Revive);
            directory.entries.insert(
                session,
                SessionEntry { phase, tasks, is_wanted, incarnation, ..SessionEntry::default() },
            );
            directory.end_tasks(session, AfterTasksEnd::Revive);
        }
        directory
    }

    /// Registers the handler with `HandlerWatch` until the returned value is dropped.
    pub(super) fn track_handler(&self) -> RunningHandler {
        self.parts.handlers.enter("SessionSupervisor", None)
    }

    /// The status of all sessions.
    pub(crate) fn statuses(&self) -> Vec<SessionStatus> {
        let status = |(session, entry): (&SessionId, &SessionEntry)| SessionStatus {
            session: *session,
            phase: match &entry.phase {
                EntryPhase::Opening(_) => SessionPhase::Opening,
                EntryPhase::Live(_) | EntryPhase::Passivating(..) => SessionPhase::Live,
                EntryPhase::Ending(..)
                | EntryPhase::ForceFailing(..)
                | EntryPhase::Closing(_)
                | EntryPhase::Idle => SessionPhase::Ending,
                EntryPhase::Quarantined(why) => SessionPhase::Quarantined(why.clone()),
            },
            crashes: entry.crash_count,
        };
        self.entries.iter().map(status).collect()
    }

    /// The numbers of live sessions and of crashes.
    pub(crate) fn counts(&self) -> SessionCounts {
        SessionCounts { live: self.actors.len(), crashes: self.crashes }
    }

    /// Whether the session's runs are carried out here, or about to be.
    pub(crate) fn is_active(&self, session: SessionId) -> bool {
        let Some(entry) = self.entries.get(&session) else { return false };
        entry.is_wanted && !matches!(entry.phase, EntryPhase::Quarantined(_))
    }

    /// The actor of a live session.
    #[cfg(feature = "testkit")]
    pub(crate) fn actor(&self, session: SessionId) -> Option<ActorRef<SessionMsg>> {
        self.entries.get(&session)?.phase.actor().cloned()
    }

    /// Delivers a message to a session, and opens it if it is not live. Its runs resume, unless the message is a
    /// write-only command (`is_without_resume`).
    pub(super) fn deliver(
        &mut self,
        session: SessionId,
        new: Option<Arc<SessionSeed>>,
        message: Option<SessionMsg>,
    ) {
        if self.is_suspended {
            return;
        }
        let resumes = message.as_ref().is_none_or(|message| !message.is_without_resume());
        if message.is_none() {
            // The checkpoint kept this request for the case of a crash. From here on the session's own entry there says
            // the same.
            self.parts.checkpoint.remove_wanted(session);
        }
        let Some(entry) = self.entries.get_mut(&session) else {
            let phase = EntryPhase::Opening(message.into_iter().collect());
            let entry = SessionEntry { phase, is_wanted: resumes, seed: new, ..SessionEntry::default() };
            self.entries.insert(session, entry);
            return self.open(session);
        };
        entry.seed = entry.seed.take().or(new);
        if resumes && !entry.is_wanted {
            entry.is_wanted = true;
            self.parts.checkpoint.record(session, entry);
        }
        // For a session whose runs are carried out here, a write-only command becomes an ordinary one. Messages for a
        // session that is not live are converted at its start.
        let is_live = matches!(entry.phase, EntryPhase::Live(_));
        let message = if is_live { message.map(|message| entry.prepare_message(message)) } else { message };
        match &mut entry.phase {
            EntryPhase::Opening(waiting)
            | EntryPhase::Ending(waiting, _)
            | EntryPhase::ForceFailing(waiting, _)
            | EntryPhase::Passivating(_, waiting) => waiting.extend(message),
            EntryPhase::Closing(waiting) => {
                entry.has_inbox |= message.is_none();
                waiting.extend(message);
            }
            EntryPhase::Idle => {
                entry.phase = EntryPhase::Opening(message.into_iter().collect());
                self.open(session);
            }
            EntryPhase::Live(actor) => {
                let Some(message) = message else { return };
                // The supervision event of a crashed actor is on its way; the message waits until then.
                if let Err(MessagingErr::SendErr(message)) = actor.cast(message) {
                    entry.phase = EntryPhase::Ending(vec![message], AfterTasksEnd::ReviveIfWanted);
                }
            }
            EntryPhase::Quarantined(why) => {
                let refusal = SubmitError::Quarantined { session, error: why.clone() };
                reject_submission(message, &refusal);
            }
        }
    }

    /// Lets pending appends become durable, then ends all tasks. Nothing is started meanwhile.
    pub(super) fn suspend(&mut self, reply: RpcReplyPort<()>) {
        self.is_suspended = true;
        self.scan_timer = None;
        self.parts.checkpoint.clear();
        let entries = take(&mut self.entries).into_values();
        let tasks: Vec<_> = entries.map(|entry| (entry.phase.actor().cloned(), entry.tasks)).collect();
        tokio::spawn(async move {
            futures::future::join_all(
                tasks.iter().filter_map(|(actor, _)| actor.as_ref()).map(suspend_session),
            )
            .await;
            let ended = futures::future::join_all(tasks.iter().map(|(_, tasks)| tasks.abort_all()));
            if ActiveDeadline::after(SUSPEND_TIMEOUT).bound(ended).await.is_none() {
                tracing::warn!("a call does not end; the process goes without it");
            }
            if reply.send(()).is_err() {
                tracing::debug!("the reply to a suspension was dropped by its caller");
            }
        });
    }
}

/// Sends the reason to a submission; other callers retry when their reply is dropped.
pub(super) fn reject_submission(message: Option<SessionMsg>, why: &SubmitError) {
    if let Some(SessionMsg::Command { reply: InputReply::Submit(caller), .. }) = message {
        caller.send(Err(why.clone()));
    }
}

pub(super) fn send(supervisor: &ActorRef<SessionsMsg>, message: SessionsInternalMsg) {
    if supervisor.cast(SessionsMsg::Inner(message)).is_err() {
        tracing::debug!("said to a supervisor of sessions that has gone");
    }
}

/// Waits a while for a session to suspend itself, then kills it.
async fn suspend_session(actor: &ActorRef<SessionMsg>) {
    let (sender, receiver) = oneshot::channel();
    if actor.cast(SessionMsg::Suspend(sender.into())).is_ok()
        && ActiveDeadline::after(SUSPEND_TIMEOUT).bound(receiver).await.is_none()
    {
        tracing::warn!("a session does not come to rest");
    }
    if let Err(error) = actor.kill_and_wait(None).await {
        tracing::debug!(%error, "it had ended already");
    }
}
