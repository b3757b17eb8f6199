//! The sessions of the store as ACP lists them.

use std::path::Path;

use agent_client_protocol::v1::schema::{ListSessionsResponse, SessionInfo};

use super::agent::KEY_PREFIX;
use crate::{cli::shared_owner::SharedOwner, clock::rfc3339, host::HostError, view::ConversationView};

/// The newest sessions, those with the latest runs first; with `folder` only those that work there.
pub(super) async fn list(
    owner: &SharedOwner,
    folder: Option<&Path>,
) -> Result<ListSessionsResponse, HostError> {
    Ok(ListSessionsResponse::new(infos(owner.conversations().await?.conversations, folder)))
}

/// Sessions whose folder is not known are left out.
fn infos(listed: Vec<ConversationView>, folder: Option<&Path>) -> Vec<SessionInfo> {
    let info = |conversation: ConversationView| {
        let title = conversation.title().to_owned();
        let ConversationView { session, workspace, last_run_at, .. } = conversation;
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
    use hermod_actors::model::{SessionId, SessionRow, Timestamp};

    use super::*;
    use crate::view::SessionView;

    fn conversation(id: u128, key: &str, title: Option<&str>, workspace: Option<&str>) -> ConversationView {
        let row = SessionRow::new(SessionId::from_bits(id), key, Timestamp(0));
        ConversationView {
            session: SessionView { title: title.map(Into::into), ..SessionView::new(&row, None) },
            task: "first".to_owned(),
            workspace: workspace.map(Into::into),
            last_run_at: Timestamp(0),
        }
    }

    #[track_caller]
    fn check(folder: Option<&str>, expect: &[(&str, &str, &str)]) {
        let listed = vec![
            conversation(1, "acp-1", None, Some("/w")),
            conversation(2, "mine", Some("Titled"), Some("/v")),
            conversation(3, "unreadable", None, None),
        ];
        let got: Vec<(String, String, String)> = infos(listed, folder.map(Path::new))
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
    fn sessions_are_named_by_key_or_id() {
        let other = SessionId::from_bits(2).to_string();
        let (first, second) = (("acp-1", "/w", "first"), (other.as_str(), "/v", "Titled"));
        check(None, &[first, second]);
        check(Some("/v"), &[second]);
        check(Some("/"), &[]);
    }
}
