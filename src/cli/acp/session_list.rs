//! The sessions of the store as ACP lists them.

use std::{collections::HashMap, path::Path};

use agent_client_protocol::v1::schema::{ListSessionsResponse, SessionInfo};
use hermod_actors::model::SessionId;

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

/// Sessions without a run that can be read are left out: their folder is not known.
fn infos(
    sessions: Vec<SessionView>,
    runs: Vec<RunSummaryView>,
    folder: Option<&Path>,
) -> Vec<SessionInfo> {
    let mut newest: HashMap<SessionId, RunSummaryView> = HashMap::new();
    for run in runs {
        let session = run.run.session;
        if newest.get(&session).is_none_or(|known| known.run.accepted_at <= run.run.accepted_at) {
            newest.insert(session, run);
        }
    }
    let with_run = sessions.into_iter().filter_map(|session| Some((newest.remove(&session.id)?, session)));
    let mut listed: Vec<_> = with_run
        .filter_map(|(run, session)| {
            let workspace = run.workspace?;
            let is_there = folder.is_none_or(|folder| Path::new(&workspace) == folder);
            let name = if session.key.starts_with(KEY_PREFIX) { session.key } else { session.id.to_string() };
            let title = session.title.unwrap_or(run.input);
            let at = run.run.accepted_at;
            let info = SessionInfo::new(name, workspace).title(title).updated_at(rfc3339(at));
            is_there.then_some((at, info))
        })
        .collect();
    listed.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    listed.into_iter().map(|(_, info)| info).collect()
}
