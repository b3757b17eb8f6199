//! What the conversation has changed in the workspace, and how the last edit is taken back.

use std::{path::Path, process::Stdio};

use hermod_actors::model::SessionId;
use hermod_chat::{ChatEvent, PageKind};
use tokio::process::Command;

/// Bytes of a diff that are shown.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// The changes of the workspace since its last commit. Nothing of its configuration is executed.
pub(super) async fn diff(workspace: &Path) -> Result<ChatEvent, String> {
    let tracked = git(workspace, &["diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--"]).await?;
    let new = git(workspace, &["ls-files", "--others", "--exclude-standard"]).await?;
    let new: String = new.lines().map(|name| format!("new file: {name}\n")).collect();
    let mut text = format!("{new}{tracked}");
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
        text.push_str(&format!("\n[{left_out} bytes left out]"));
    }
    Ok(ChatEvent::Page { title: "Changes since the last commit".to_owned(), text, kind: PageKind::Diff })
}

async fn git(workspace: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager"])
        .args(arguments)
        .current_dir(workspace)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("`git` cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    let reason = reason.lines().next().unwrap_or("it gives no reason");
    Err(format!("`git diff` fails in {}: {reason}", workspace.display()))
}

/// Takes back the last edit of a file.
pub(super) async fn undo(_: &Path, _: Option<SessionId>, _: &Path) -> Result<ChatEvent, String> {
    Err("an edit cannot be taken back yet; /diff shows what has changed, and `git checkout -p` takes back parts".to_owned())
}
