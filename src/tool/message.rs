//! The tool `message`, as far as it takes files along: a call with files captures them as artifacts, and the session writes
//! the message with the end of the call. A call without files is answered by the session itself.

use std::{
    fmt,
    future::ready,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use hermod_actors::{
    message::{AttachmentLimits, MessageRequest, check_message, tool_spec},
    model::{Access, Attachment, CallEnd, CallStatus, EffectClass, Intent, OutboxMessage, ToolSpec},
    port::{BadArguments, Invocation, PreparedCall, Tool},
};
use serde_json::{Value, json};

use super::paths::{WorkspacePath, declared_path, resolve_outside_state};
use crate::files::off_thread;

/// The argument with the paths.
const FIELD: &str = "attachments";
/// Most characters of a name for the receiver.
const MAX_NAME_CHARS: usize = 100;

/// The tool `message`.
pub struct MessageTool {
    spec: ToolSpec,
    /// Their names, each with what models read of it.
    targets: Vec<(String, String)>,
    /// Without them no file goes.
    files: Option<AttachmentLimits>,
    /// The state directory, of which nothing is sent.
    state: PathBuf,
}

impl MessageTool {
    /// The tool for these targets.
    pub fn new(targets: Vec<(String, String)>, files: Option<AttachmentLimits>, state: &Path) -> Self {
        Self { spec: tool_spec(&targets, files.as_ref()), targets, files, state: state.to_owned() }
    }
}

impl fmt::Debug for MessageTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageTool").finish_non_exhaustive()
    }
}

impl Tool for MessageTool {
    fn is_answered_by_session(&self) -> bool {
        true
    }

    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &Value, workspace: &str) -> Result<PreparedCall, BadArguments> {
        let request = check_message(arguments, &self.targets, self.files.as_ref())?;
        let Some(limits) = self.files.filter(|_| !request.attachments.is_empty()) else {
            // Never called: the session answers without a task.
            let end = CallEnd::error(CallStatus::Error, "it is not run as a tool", None, "try another way");
            return Ok(PreparedCall::new(EffectClass::Once, |_| ready(end)));
        };
        let mut paths = Vec::new();
        for path in &request.attachments {
            paths.push(resolve_outside_state(Some(&self.state), workspace, FIELD, path)?);
        }
        let reads = request.attachments.iter().map(|path| declared_path(workspace, path).into());
        let access = Access::Paths { reads: reads.collect(), writes: Vec::new() };
        // Nothing is sent before the end of the call is written, so it may be repeated until then.
        let intent = Intent { access, ..EffectClass::Idempotent.into() };
        let work = move |invocation: Invocation| async move {
            capture(&request, paths, limits, &invocation).await.unwrap_or_else(CallEnd::from)
        };
        Ok(PreparedCall::new(intent, work))
    }
}

/// Keeps the files as artifacts. Either all are kept, or nothing is sent.
async fn capture(
    request: &MessageRequest,
    paths: Vec<WorkspacePath>,
    limits: AttachmentLimits,
    invocation: &Invocation,
) -> Result<CallEnd, BadArguments> {
    let (mut attachments, mut total) = (Vec::new(), 0);
    for (index, path) in (0..).zip(paths) {
        if invocation.cancel.is_cancelled() {
            let hint = "nothing was sent";
            return Ok(CallEnd::error(CallStatus::Stopped, "it was stopped", None, hint));
        }
        let name = safe_name(&path.absolute());
        let left = limits.total_bytes - total;
        let read = off_thread(move || Ok(read(&path, limits.bytes, left))).await;
        let bytes = read.map_err(|error| unreadable(&name, &error.to_string()))??;
        total += bytes.len() as u64;
        let artifact = invocation.artifacts.for_file(index).write(bytes).await;
        let artifact = artifact.map_err(|error| unreadable(&name, &error.to_string()))?;
        attachments.push(Attachment { name: name.into(), artifact });
    }
    let files: Vec<Value> =
        attachments.iter().map(|file| json!({ "name": file.name, "bytes": file.artifact.bytes })).collect();
    let result = json!({
        "id": OutboxMessage::id_of_call(invocation.call), "target": request.target,
        "state": "queued for delivery", "attachments": files,
    });
    Ok(CallEnd { attachments: Arc::new(attachments), ..CallEnd::ok(result.to_string()) })
}

fn unreadable(name: &str, why: &str) -> BadArguments {
    BadArguments::new(
        Some(FIELD),
        format!("`{name}` cannot be kept: {why}"),
        "nothing was sent; try again later",
    )
}

/// The whole file, if it has at most `max` bytes, and not more than `left` of those for all files.
fn read(path: &WorkspacePath, max: u64, left: u64) -> Result<Bytes, BadArguments> {
    let (file, stat) = path.open_file()?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let (most, what) = match left < max {
        true => (left, "is too large together with the other files: at most"),
        false => (max, "is too large: a file may have at most"),
    };
    let too_large = |size: u64| {
        let what =
            format!("{what} {most} bytes are left, and it has {size}").replace("may have at most", "at most");
        path.refuse(&what, "nothing was sent; send less, or say where the file is")
    };
    if size > most {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let read = file.take(most + 1).read_to_end(&mut bytes).map_err(|error| path.io_error(error))?;
    if read as u64 > most {
        return Err(too_large(read as u64));
    }
    Ok(bytes.into())
}

/// A name for the receiver: that of the file, without what could mean something to a file system, a header or a terminal.
fn safe_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let safe = |letter: char| match letter {
        letter if letter.is_alphanumeric() || "-_.+ ".contains(letter) => letter,
        _ => '_',
    };
    let name: Vec<char> = name.chars().map(safe).collect();
    // The end has the extension.
    let name: String = name[name.len().saturating_sub(MAX_NAME_CHARS)..].iter().collect();
    let name = name.trim_matches([' ', '.']).to_owned();
    if name.is_empty() { "file".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_wherever_it_is_used() {
        let check = |path: &str, expect: &str| assert_eq!(safe_name(Path::new(path)), expect, "{path:?}");
        check("/w/report 1.pdf", "report 1.pdf");
        check("/w/Größe.txt", "Größe.txt");
        check("/w/a\r\nb\"c;.txt", "a__b_c_.txt");
        check("/w/.env", "env");
        check("/w/...", "file");
        check("/w/\u{202e}gpj.exe", "_gpj.exe");
        let long = format!("/w/{}.tar.gz", "x".repeat(200));
        assert_eq!(safe_name(Path::new(&long)).chars().count(), MAX_NAME_CHARS);
        assert!(safe_name(Path::new(&long)).ends_with(".tar.gz"));
    }

    #[test]
    fn a_file_within_the_limits_is_read_and_no_other() {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::write(workspace.path().join("a"), "12345").unwrap();
        std::fs::create_dir(workspace.path().join("d")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", workspace.path().join("link")).unwrap();
        let root = workspace.path().display().to_string();
        let check = |name: &str, max: u64, left: u64, expect: Result<&str, &str>| {
            let bytes =
                resolve_outside_state(None, &root, FIELD, name).and_then(|path| read(&path, max, left));
            match (bytes, expect) {
                (Ok(bytes), Ok(expect)) => assert_eq!(bytes, expect.as_bytes()),
                (Err(bad), Err(part)) => {
                    assert!(bad.error.contains(part), "{}", bad.error);
                    assert_eq!(bad.field.as_deref(), Some(FIELD));
                }
                (bytes, expect) => panic!("{name}: {bytes:?} {expect:?}"),
            }
        };
        check("a", 5, 5, Ok("12345"));
        check("a", 4, 5, Err("is too large"));
        check("a", 5, 4, Err("together with the other files"));
        check("none", 5, 5, Err("does not exist"));
        check("d", 5, 5, Err("is a folder"));
        check("../x", 5, 5, Err("leads out of the workspace"));
        check("link", 5, 5, Err("leads out of the workspace"));
    }
}
