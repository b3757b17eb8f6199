//! Writes a conversation to a Markdown file, as `hermod show --format markdown` shows each of its runs.

use std::path::Path;

use hermod_actors::model::SessionId;
use hermod_chat::ChatEvent;
use tokio::task::spawn_blocking;

use super::{files::notice, requests::answer};
use crate::{
    cli::{shared_owner::SharedOwner, show},
    control::{ControlRequest, ControlResponse},
    host::StoreClient,
};

/// Runs of a conversation that are exported.
const MAX_RUNS: usize = 10_000;

/// Writes the file; a file that exists is not replaced.
pub(super) async fn export(
    owner: &SharedOwner,
    session: Option<SessionId>,
    (workspace, file): (&Path, Option<String>),
) -> Result<ChatEvent, String> {
    let session = session.ok_or("this conversation is empty")?.to_string();
    let request = ControlRequest::SessionsShow { session: session.clone(), max: MAX_RUNS };
    let ControlResponse::Session(mut detail) = answer(owner, &request).await? else {
        return Err("another answer came".to_owned());
    };
    detail.runs.sort_by_key(|run| (run.accepted_at, run.id));
    let client = StoreClient::of_state(owner.state().to_owned());
    let mut text = String::new();
    for run in &detail.runs {
        let run = show::markdown_of(run.id, &client).await.map_err(|error| error.text)?;
        text.push_str(&run);
        text.push('\n');
    }
    let path = workspace.join(file.unwrap_or_else(|| format!("conversation-{session}.md")));
    let shown = path.display().to_string();
    let written = spawn_blocking(move || {
        use std::io::Write as _;
        std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()))
    })
    .await
    .map_err(|error| error.to_string())?;
    written.map_err(|error| format!("{shown}: {error}"))?;
    Ok(notice(format!("the conversation is in {shown}")))
}
