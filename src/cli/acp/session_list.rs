//! The sessions of the store as ACP lists them.

use std::{cmp::Reverse, collections::HashMap, path::Path};

use agent_client_protocol::v1::schema::{ListSessionsResponse, SessionInfo};
use hermod_actors::model::{RunId, SessionId};

use super::{agent::KEY_PREFIX, owner::Owner};
use crate::{
    clock::rfc3339,
    control::{ControlRequest, ControlResponse},
    host::{HostError, unexpected_response},
    view::{RunSummaryView, SessionView},
};

/// Most sessions, and most runs in which their folders are looked for; the newest of each.
const MAX_SESSIONS: usize = 200;
const MAX_RUNS: usize = 1_000;
/// How the key of a subagent's session begins; its run follows.
const SUBAGENT_KEY_PREFIX: &str = "task:";

/// The newest sessions, those with the latest runs first; with `folder` only those that work there.
pub(super) async fn list(owner: &Owner, folder: Option<&Path>) -> Result<ListSessionsResponse, HostError> {
    let ControlResponse::Sessions(sessions) =
        owner.ask(&ControlRequest::SessionsList { max: MAX_SESSIONS }).await?
    else {
        return Err(unexpected_response().into());
    };
    let request = ControlRequest::RunsList {
        max: MAX_RUNS,
        agent: None,
        since: None,
        until: None,
        schedule: None,
        outcomes: Vec::new(),
    };
    let ControlResponse::Runs(runs) = owner.ask(&request).await? else {
        return Err(unexpected_response().into());
    };
    Ok(ListSessionsResponse::new(infos(sessions, runs, folder)))
}

/// The title is that of the session, else its oldest known prompt. Sessions without a run that can be read are left out, because
/// their folder is not known, and so are those of subagents.
fn infos(sessions: Vec<SessionView>, runs: Vec<RunSummaryView>, folder: Option<&Path>) -> Vec<SessionInfo> {
    let mut by_session: HashMap<SessionId, Vec<RunSummaryView>> = HashMap::new();
    for run in runs {
        by_session.entry(run.run.session).or_default().push(run);
    }
    let mut listed: Vec<_> = sessions
        .into_iter()
        .filter(|session| !is_of_subagent(&session.key))
        .filter_map(|session| {
            let runs = by_session.remove(&session.id)?;
            let newest = runs.iter().max_by_key(|run| run.run.accepted_at)?;
            let oldest = runs.iter().min_by_key(|run| run.run.accepted_at)?;
            let workspace = newest.workspace.as_deref()?;
            let is_there = folder.is_none_or(|folder| Path::new(workspace) == folder);
            let name = if session.key.starts_with(KEY_PREFIX) { session.key } else { session.id.to_string() };
            let at = newest.run.accepted_at;
            let title = session.title.unwrap_or_else(|| oldest.input.clone());
            let info = SessionInfo::new(name, workspace).title(title).updated_at(rfc3339(at));
            is_there.then_some((at, info))
        })
        .collect();
    listed.sort_by_key(|(at, _)| Reverse(*at));
    listed.into_iter().map(|(_, info)| info).collect()
}

fn is_of_subagent(key: &str) -> bool {
    key.strip_prefix(SUBAGENT_KEY_PREFIX).is_some_and(|run| run.parse::<RunId>().is_ok())
}
