//! What the conversation has changed in the workspace, and how the last edit is taken back.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use hermod_actors::model::{Body, CallId, CallStatus, Record, SessionId};
use hermod_chat::{ChatEvent, PageKind};
use serde_json::Value;
use tokio::{process::Command, task::spawn_blocking};

use super::requests::answer;
use crate::{
    cli::shared_owner::SharedOwner,
    control::{ControlRequest, ControlResponse},
    files::read_regular_text,
    host::{HostError, StoreClient},
};

/// The tool whose edits can be taken back.
const EDIT_TOOL: &str = "edit_file";
/// Runs of a conversation that are searched for edits.
const MAX_RUNS: usize = 1_000;
/// Bytes of a file whose edit is taken back.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Bytes of a diff that are shown.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// The changes of the workspace since its last commit. Nothing of its configuration is executed.
pub(super) async fn diff(workspace: &Path) -> Result<ChatEvent, String> {
    let tracked =
        git(workspace, &["diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--"]).await?;
    let new = git(workspace, &["ls-files", "--others", "--exclude-standard"]).await?;
    let new = new.lines().fold(String::new(), |all, name| all + "new file: " + name + "\n");
    let mut text = new + &tracked;
    if text.is_empty() {
        return Ok(super::files::notice("nothing has changed since the last commit"));
    }
    if text.len() > MAX_DIFF_BYTES {
        let mut end = MAX_DIFF_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let left_out = text.len() - end;
        text.truncate(end);
        text.extend(["\n[", &left_out.to_string(), " bytes left out]"]);
    }
    Ok(ChatEvent::Page { title: "Changes since the last commit".to_owned(), text, kind: PageKind::Diff })
}

async fn git(workspace: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager"])
        .args(arguments)
        .current_dir(workspace)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("`git` cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    if reason.contains("bad revision 'HEAD'") {
        return Err(format!("the repository in {} has no commit yet to compare with", workspace.display()));
    }
    let reason = reason.lines().next().unwrap_or("it gives no reason");
    Err(format!("`git diff` fails in {}: {reason}", workspace.display()))
}

/// Edits that were taken back, which are not taken back again.
pub(super) type UndoneEdits = Arc<Mutex<BTreeSet<CallId>>>;

/// An edit of a file that a model has made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileEdit {
    call: CallId,
    workspace: String,
    path: String,
    /// The replaced texts and the new ones, in the order of their replacement.
    replaced: Vec<(String, String)>,
}

/// Takes back the last edit of a file that was not taken back before.
pub(super) async fn undo(
    owner: &SharedOwner,
    session: Option<SessionId>,
    undone: UndoneEdits,
) -> Result<ChatEvent, String> {
    let nothing = "this conversation has no edit to take back";
    let request =
        ControlRequest::SessionsShow { session: session.ok_or(nothing)?.to_string(), max: MAX_RUNS };
    let ControlResponse::Session(mut detail) = answer(owner, &request).await? else {
        return Err("another answer came".to_owned());
    };
    detail.runs.sort_by_key(|run| std::cmp::Reverse((run.accepted_at, run.id)));
    let client = StoreClient::of_state(owner.state().to_owned());
    for run in &detail.runs {
        let mut edits = EditReader::default();
        let read = client.run_records(run.id, |_, record| {
            record.iter().for_each(|record| edits.take(record));
            Ok::<_, HostError>(())
        });
        read.await.map_err(|error| error.to_string())?;
        let known = undone.lock().map_or_else(|_| BTreeSet::new(), |undone| undone.clone());
        let Some(edit) = edits.made.into_iter().rev().find(|edit| !known.contains(&edit.call)) else {
            continue;
        };
        let call = edit.call;
        let event = spawn_blocking(move || take_back(&edit)).await.map_err(|error| error.to_string())??;
        if let Ok(mut undone) = undone.lock() {
            undone.insert(call);
        }
        return Ok(event);
    }
    Err(nothing.to_owned())
}

/// Collects the edits of a run.
#[derive(Debug, Default)]
struct EditReader {
    workspace: String,
    requested: BTreeMap<CallId, String>,
    made: Vec<FileEdit>,
}

impl EditReader {
    fn take(&mut self, record: &Record) {
        if let Body::RunAccepted(accepted) = &record.body {
            self.workspace.clone_from(&accepted.spec.workspace);
        } else if let Body::ModelAnswered(answered) = &record.body {
            let edits = (1..).zip(&answered.message.calls).filter(|(_, call)| call.name == EDIT_TOOL);
            let call = |n| CallId { n, ..answered.call };
            self.requested.extend(edits.map(|(n, requested)| (call(n), requested.arguments.clone())));
        } else if let Body::CallEnded(ended) = &record.body
            && let Some(arguments) = self.requested.remove(&ended.call)
            && ended.end.status == CallStatus::Ok
        {
            let arguments: Value = serde_json::from_str(&arguments).unwrap_or_default();
            let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
            let edits = arguments["edits"].as_array().map(Vec::as_slice).unwrap_or_default();
            self.made.push(FileEdit {
                call: ended.call,
                workspace: self.workspace.clone(),
                path: text(&arguments, "path"),
                replaced: edits.iter().map(|edit| (text(edit, "old"), text(edit, "new"))).collect(),
            });
        }
    }
}

/// Replaces the new texts by the old ones in the file.
fn take_back(edit: &FileEdit) -> Result<ChatEvent, String> {
    let shown = |error: std::io::Error| format!("{}: {error}", edit.path);
    let workspace = std::fs::canonicalize(&edit.workspace).map_err(shown)?;
    let path = std::fs::canonicalize(workspace.join(&edit.path)).map_err(shown)?;
    if !path.starts_with(&workspace) {
        return Err(format!("{}: it lies outside of {}", edit.path, workspace.display()));
    }
    let content = read_regular_text(&path, MAX_FILE_BYTES).map_err(shown)?;
    let restored = reversed(&content, &edit.replaced).map_err(|reason| format!("{}: {reason}", edit.path))?;
    std::fs::write(&path, restored).map_err(shown)?;
    let mut text = String::new();
    for (old, new) in edit.replaced.iter().rev() {
        new.lines().for_each(|line| text.extend(["-", line, "\n"]));
        old.lines().for_each(|line| text.extend(["+", line, "\n"]));
    }
    let title = format!("Taken back in {}; the model is not told", edit.path);
    Ok(ChatEvent::Page { title, text, kind: PageKind::Diff })
}

/// The content before the edits; the error says why it is not known.
fn reversed(content: &str, replaced: &[(String, String)]) -> Result<String, String> {
    let mut content = content.to_owned();
    for (old, new) in replaced.iter().rev() {
        if new.is_empty() {
            return Err("the edit has removed a text, and where that stood is not known".to_owned());
        }
        let count = content.matches(new.as_str()).count();
        if count != 1 {
            let first = new.lines().next().unwrap_or_default();
            return Err(format!("`{first}` occurs {count} times now, so the edit cannot be taken back"));
        }
        content = content.replacen(new.as_str(), old, 1);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_taken_back_in_reverse_order() {
        let check = |content: &str, replaced: &[(&str, &str)], expect: Result<&str, &str>| {
            let replaced: Vec<(String, String)> =
                replaced.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect();
            match (reversed(content, &replaced), expect) {
                (Ok(content), Ok(expect)) => assert_eq!(content, expect),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (other, _) => panic!("{other:?}"),
            }
        };
        check("a 2 c", &[("1", "2")], Ok("a 1 c"));
        check("xyz", &[("a", "x"), ("xb", "xy")], Ok("abz"));
        check("a 2 2", &[("1", "2")], Err("occurs 2 times"));
        check("a 3", &[("1", "2")], Err("occurs 0 times"));
        check("a", &[("1", "")], Err("has removed a text"));
    }

    #[test]
    fn a_file_outside_of_the_workspace_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("work"), folder.path().join("outside.txt"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, "new").unwrap();
        let edit = FileEdit {
            call: CallId { run: hermod_actors::model::RunId::from_bits(1), iteration: 1, n: 1 },
            workspace: inside.display().to_string(),
            path: "../outside.txt".to_owned(),
            replaced: vec![("old".to_owned(), "new".to_owned())],
        };
        assert!(take_back(&edit).unwrap_err().contains("outside of"));
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "new");
        std::fs::write(inside.join("a.txt"), "a new b").unwrap();
        let edit = FileEdit { path: "a.txt".to_owned(), ..edit };
        take_back(&edit).unwrap();
        assert_eq!(std::fs::read_to_string(inside.join("a.txt")).unwrap(), "a old b");
    }
}
