//! The sessions of the store as ACP lists them.

use std::path::Path;

use agent_client_protocol::v1::schema::{ListSessionsResponse, SessionInfo};

use super::agent::KEY_PREFIX;
use crate::{
    cli::{
        conversation_list::{self, ListedConversation},
        shared_owner::SharedOwner,
    },
    clock::rfc3339,
    host::HostError,
};

/// The newest sessions, those with the latest runs first; with `folder` only those that work there.
pub(super) async fn list(
    owner: &SharedOwner,
    folder: Option<&Path>,
) -> Result<ListSessionsResponse, HostError> {
    Ok(ListSessionsResponse::new(infos(conversation_list::read(owner).await?, folder)))
}

/// Sessions whose folder is not known are left out.
fn infos(listed: Vec<ListedConversation>, folder: Option<&Path>) -> Vec<SessionInfo> {
    let info = |conversation: ListedConversation| {
        let ListedConversation { session, title, workspace, last_run_at } = conversation;
        let workspace = workspace?;
        let is_there = folder.is_none_or(|folder| Path::new(&workspace) == folder);
        let name = if session.key.starts_with(KEY_PREFIX) { session.key } else { session.id.to_string() };
        let info = SessionInfo::new(name, workspace).title(title).updated_at(rfc3339(last_run_at));
        is_there.then_some(info)
    };
    listed.into_iter().filter_map(info).collect()
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        AgentName, QueueOverrides, RunAccepted, RunId, RunSpec, SessionId, Timestamp, Usage,
    };

    use super::*;
    use crate::view::{RunStateView, RunSummaryView, RunView, SessionView};

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
        let listed = infos(conversation_list::listed(sessions, runs), folder.map(Path::new));
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
