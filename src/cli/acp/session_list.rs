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

#[cfg(test)]
mod tests {
    use hermod_actors::model::{AgentName, QueueOverrides, RunAccepted, RunSpec, Timestamp, Usage};

    use super::*;
    use crate::view::{RunStateView, RunView};

    fn session(id: u128, key: &str, title: Option<&str>) -> SessionView {
        SessionView {
            id: SessionId::from_bits(id),
            key: key.into(),
            agent: AgentName::default(),
            opened_at: Timestamp(0),
            title: title.map(Into::into),
            queue: QueueOverrides::default(),
            quarantined: None,
        }
    }

    fn run(session: u128, at: u32, (input, folder): (&str, &str)) -> RunSummaryView {
        let id = RunId::from_bits(u128::from(at));
        let view = RunView {
            id,
            session: SessionId::from_bits(session),
            agent: AgentName::default(),
            state: RunStateView::Ended,
            ended: None,
            accepted_at: Timestamp(i64::from(at)),
            started_at: None,
            ended_at: None,
            legs: 1,
            iterations: 0,
            usage: Usage::default(),
        };
        let spec = RunSpec::new(vec!["p/m".parse().unwrap()], folder);
        RunSummaryView::new(view, Some(&RunAccepted::new(id, input, spec.into())))
    }

    #[track_caller]
    fn check(folder: Option<&str>, expect: &[(&str, &str, &str)]) {
        let subagent = format!("task:{}", RunId::from_bits(7));
        let sessions = vec![
            session(1, "acp-1", None),
            session(2, "mine", Some("Titled")),
            session(3, &subagent, None),
            session(4, "without-run", None),
        ];
        let runs = vec![
            run(1, 10, ("first", "/w")),
            run(2, 20, ("other", "/v")),
            run(3, 25, ("below", "/w")),
            run(1, 30, ("second", "/w")),
        ];
        let listed = infos(sessions, runs, folder.map(Path::new));
        let got: Vec<(String, String, String)> = listed
            .into_iter()
            .map(|info| {
                (info.session_id.to_string(), info.cwd.display().to_string(), info.title.unwrap_or_default())
            })
            .collect();
        let text = |(id, folder, title): &(&str, &str, &str)| {
            ((*id).to_owned(), (*folder).to_owned(), (*title).to_owned())
        };
        assert_eq!(got, expect.iter().map(text).collect::<Vec<_>>());
    }

    #[test]
    fn sessions_are_listed_by_their_latest_run() {
        let other = SessionId::from_bits(2).to_string();
        let (first, second) = (("acp-1", "/w", "first"), (other.as_str(), "/v", "Titled"));
        check(None, &[first, second]);
        check(Some("/v"), &[second]);
        check(Some("/"), &[]);
    }
}
