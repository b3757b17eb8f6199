//! The conversations of a store, as people choose among them: without those of subagents, the one with the latest run first.

use std::{cmp::Reverse, collections::HashMap};

use hermod_actors::model::{RunId, SessionId, Timestamp};

use super::shared_owner::SharedOwner;
use crate::{
    control::{ControlRequest, ControlResponse},
    host::{HostError, unexpected_response},
    view::{RunSummaryView, SessionView},
};

/// Most sessions, and most runs in which their tasks and folders are looked for; the newest of each.
const MAX_SESSIONS: usize = 200;
const MAX_RUNS: usize = 1_000;
/// How the key of a subagent's session begins; its run follows.
const SUBAGENT_KEY_PREFIX: &str = "task:";

/// A conversation to choose.
#[derive(Debug)]
pub(crate) struct ListedConversation {
    pub(crate) session: SessionView,
    /// The title of the session, else its oldest known task.
    pub(crate) title: String,
    /// The folder of the latest run; `None` if that cannot be read.
    pub(crate) workspace: Option<String>,
    /// When the latest run was accepted.
    pub(crate) last_run_at: Timestamp,
}

/// The newest conversations of the store.
pub(crate) async fn read(owner: &SharedOwner) -> Result<Vec<ListedConversation>, HostError> {
    let request = ControlRequest::SessionsList { max: MAX_SESSIONS };
    let ControlResponse::Sessions(sessions) = owner.ask(&request).await? else {
        return Err(unexpected_response().into());
    };
    let request = ControlRequest::newest_runs(MAX_RUNS, Vec::new());
    let ControlResponse::Runs(runs) = owner.ask(&request).await? else {
        return Err(unexpected_response().into());
    };
    Ok(listed(sessions, runs))
}

/// Sessions without a known run are left out.
pub(crate) fn listed(sessions: Vec<SessionView>, runs: Vec<RunSummaryView>) -> Vec<ListedConversation> {
    let mut by_session: HashMap<SessionId, Vec<RunSummaryView>> = HashMap::new();
    for run in runs {
        by_session.entry(run.run.session).or_default().push(run);
    }
    let sessions = sessions.into_iter().filter(|session| !is_of_subagent(&session.key));
    let mut listed: Vec<_> = sessions
        .filter_map(|session| {
            let runs = by_session.remove(&session.id)?;
            let newest = runs.iter().max_by_key(|run| run.run.accepted_at)?;
            let oldest = runs.iter().min_by_key(|run| run.run.accepted_at)?;
            let title = session.title.clone().unwrap_or_else(|| oldest.input.clone());
            let (workspace, last_run_at) = (newest.workspace.clone(), newest.run.accepted_at);
            Some(ListedConversation { session, title, workspace, last_run_at })
        })
        .collect();
    listed.sort_by_key(|conversation| Reverse(conversation.last_run_at));
    listed
}

fn is_of_subagent(key: &str) -> bool {
    key.strip_prefix(SUBAGENT_KEY_PREFIX).is_some_and(|run| run.parse::<RunId>().is_ok())
}
