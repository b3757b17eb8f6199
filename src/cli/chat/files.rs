//! Files of the chat: the history of inputs, completion of paths, pictures, and the input in an editor.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use hermod_actors::model::ImageFormat;
use hermod_chat::{ChatEvent, Tone};
use tokio::{process::Command, task::spawn_blocking};

use crate::{
    clock,
    discovery::Variables,
    files::{read_regular, read_regular_text},
};

/// The history of inputs in the state directory: a JSON text a line.
const HISTORY_FILE: &str = "chat_history";
/// Bytes of the history; when it has more, its older half goes.
const MAX_HISTORY_BYTES: u64 = 1 << 20;
/// Bytes of one input in the history.
const MAX_ENTRY_BYTES: usize = 16 << 10;
/// Completions of a path.
const MAX_COMPLETIONS: usize = 100;
/// Entries of a folder that are looked at for completions.
const MAX_ENTRIES: usize = 20_000;
/// Bytes of a picture of the clipboard.
const MAX_PICTURE_BYTES: usize = 20 << 20;
/// Bytes of a text from an editor.
const MAX_EDITED_BYTES: u64 = 1 << 20;

/// The earlier inputs, the oldest first; none if they cannot be read.
pub(super) fn read_history(state: &Path) -> Vec<String> {
    let text = read_regular_text(&state.join(HISTORY_FILE), 2 * MAX_HISTORY_BYTES).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Adds an input to the history. It is a convenience: a failure is only logged.
pub(super) fn append_history(state: &Path, text: &str) {
    if text.len() > MAX_ENTRY_BYTES {
        return;
    }
    let path = state.join(HISTORY_FILE);
    let append = || {
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > MAX_HISTORY_BYTES) {
            let kept = read_regular_text(&path, 2 * MAX_HISTORY_BYTES)?;
            let (_, newer) = kept.as_bytes().split_at(kept.len() / 2);
            let cut = newer.iter().position(|byte| *byte == b'\n').map_or(newer.len(), |at| at + 1);
            let part = unique_path(state, "history", "part");
            crate::files::replace(&path, &part, newer.split_at(cut).1)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all(format!("{}\n", serde_json::Value::from(text)).as_bytes())
    };
    let written: std::io::Result<()> = append();
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "the input is not in the history");
    }
}

/// The paths that a path may become; folders end with a slash.
pub(super) async fn complete(workspace: PathBuf, path: String) -> Vec<String> {
    spawn_blocking(move || completions(&workspace, &path)).await.unwrap_or_default()
}

fn completions(workspace: &Path, path: &str) -> Vec<String> {
    let (folder, start) = path.rsplit_once('/').map_or(("", path), |(folder, start)| (folder, start));
    let before = if path.contains('/') { format!("{folder}/") } else { String::new() };
    let Ok(entries) = fs::read_dir(workspace.join(if before == "/" { "/" } else { folder })) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_wanted = name.starts_with(start) && (start.starts_with('.') || !name.starts_with('.'));
            let slash = if is_wanted && entry.path().is_dir() { "/" } else { "" };
            (is_wanted && !name.contains(char::is_control)).then(|| format!("{before}{name}{slash}"))
        })
        .collect();
    names.sort();
    names.truncate(MAX_COMPLETIONS);
    names
}

/// Attaches the picture in a file.
pub(super) async fn attach(workspace: &Path, file: &str) -> Result<ChatEvent, String> {
    let path = workspace.join(file);
    let read = path.clone();
    let bytes = spawn_blocking(move || read_regular(&read, MAX_PICTURE_BYTES as u64)).await;
    let bytes =
        bytes.map_err(|error| error.to_string())?.map_err(|error| format!("{}: {error}", path.display()))?;
    if ImageFormat::of_bytes(&bytes).is_none() {
        return Err(format!("{}: it is neither PNG, JPEG, GIF nor WebP; convert it", path.display()));
    }
    let name = path.file_name().map_or_else(|| file.to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(ChatEvent::Attached { name, path })
}

/// Attaches the picture of the clipboard, which the tools of the desktop give.
pub(super) async fn clipboard_picture(state: &Path, variables: &Variables) -> Result<ChatEvent, String> {
    let tools: [(&str, &[&str]); 2] = [
        ("wl-paste", &["--type", "image/png"]),
        ("xclip", &["-selection", "clipboard", "-target", "image/png", "-out"]),
    ];
    let is_wayland = variables.contains_key("WAYLAND_DISPLAY");
    let (tool, arguments) = if is_wayland { tools[0] } else { tools[1] };
    let output = Command::new(tool).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let bytes = match output {
        Ok(output) if ImageFormat::of_bytes(&output.stdout).is_some() => output.stdout,
        Ok(_) => return Err("the clipboard has no picture; /image FILE attaches one".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "the clipboard is read by `{tool}`, which is not installed; /image FILE attaches a picture"
            ));
        }
        Err(error) => {
            return Err(format!("`{tool}` cannot be started: {error}; /image FILE attaches a picture"));
        }
    };
    if bytes.len() > MAX_PICTURE_BYTES {
        return Err(format!("the picture has {} bytes; at most {MAX_PICTURE_BYTES} are sent", bytes.len()));
    }
    let path = unique_path(state, "picture", "png");
    let written = path.clone();
    let write = spawn_blocking(move || crate::files::write(&written, &bytes)).await;
    write.map_err(|error| error.to_string())?.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(ChatEvent::Attached { name: "clipboard".to_owned(), path })
}

fn unique_path(state: &Path, name: &str, extension: &str) -> PathBuf {
    let id = u64::from_le_bytes(clock::random_bytes());
    state.join(format!("chat-{name}-{id:016x}.{extension}"))
}

/// The text after its user has edited it in `$VISUAL` or `$EDITOR`.
pub(super) async fn edit(state: &Path, text: &str, variables: &Variables) -> Result<String, String> {
    let named = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| variables.get(*name).filter(|value| !value.trim().is_empty()));
    let editor = named.map_or("vi", |editor| editor.as_str());
    let path = unique_path(state, "input", "md");
    crate::files::write(&path, text.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
    // The variable may have options.
    let script = format!("exec {editor} \"$1\"");
    let status = Command::new("/bin/sh").args(["-c", &script, "sh"]).arg(&path).status().await;
    let edited = match status {
        Ok(status) if status.success() => {
            read_regular_text(&path, MAX_EDITED_BYTES).map_err(|error| error.to_string())
        }
        Ok(status) => Err(format!("`{editor}` ended with {status}; the input is as it was")),
        Err(error) => Err(format!("`{editor}` cannot be started: {error}; set EDITOR")),
    };
    if let Err(error) = crate::files::remove(&path) {
        tracing::warn!(path = %path.display(), %error, "cannot be removed");
    }
    edited.map(|text| text.trim_end_matches('\n').to_owned())
}

/// What is printed when the user leaves: the last answer, and how to come back.
pub(super) fn farewell(answer: Option<&str>, session: &str) -> String {
    let answer = answer.map_or_else(String::new, |answer| format!("{}\n\n", answer.trim_end()));
    format!("{answer}Come back with: hermod attach {session}")
}

/// A notice.
pub(super) fn notice(text: impl Into<String>) -> ChatEvent {
    ChatEvent::Notice(Tone::Quiet, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_completed_in_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["src/deep", "scripts", ".git"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("src/a.rs"), "").unwrap();
        let check =
            |path: &str, expect: &[&str]| assert_eq!(completions(folder.path(), path), expect, "{path}");
        check("s", &["scripts/", "src/"]);
        check("src/", &["src/a.rs", "src/deep/"]);
        check("", &["scripts/", "src/"]);
        check(".", &[".git/"]);
        check("none/", &[]);
        assert!(completions(folder.path(), "/et").contains(&"/etc/".to_owned()));
    }

    #[test]
    fn the_history_is_kept_and_bounded() {
        let state = tempfile::tempdir().unwrap();
        append_history(state.path(), "one\ntwo");
        append_history(state.path(), "three");
        assert_eq!(read_history(state.path()), ["one\ntwo", "three"]);
        let long = "x".repeat(MAX_ENTRY_BYTES - 100);
        for _ in 0..100 {
            append_history(state.path(), &long);
        }
        append_history(state.path(), "last");
        let length = fs::metadata(state.path().join(HISTORY_FILE)).unwrap().len();
        assert!(length <= MAX_HISTORY_BYTES + u64::try_from(MAX_ENTRY_BYTES).unwrap(), "{length}");
        assert_eq!(read_history(state.path()).last().map(String::as_str), Some("last"));
    }
}
