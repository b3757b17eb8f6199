//! The tool `edit_file`: replaces texts in a file of the workspace. `replace.rs` writes the file, and `intents.rs`
//! makes a repetition after a crash safe.

use std::io::Read;

use hermod_actors::{
    model::{Access, CallEnd, EffectClass, Hash},
    port::{ArtifactName, BadArguments},
};
use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Settings,
    blocking::{CancelCheck, FileWorkError, try_blocking},
    intents,
    paths::{ToolWorkspace, WorkspacePath, declared_path},
    replace::replace,
    typed_tool::{ToolContext, TypedTool},
};

/// Limit of a file to edit, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Limits of the work in one call.
struct EditLimits {
    /// Bytes searched by all edits together, the whole file for each.
    searched_bytes: usize,
    /// Size of the file between two edits, in bytes.
    content_bytes: usize,
}

const EDIT_LIMITS: EditLimits = EditLimits { searched_bytes: 4 << 30, content_bytes: 32 << 20 };

/// Replaces texts in a file, all of them or none, atomically.
///
/// Idempotent by an intent with the content's hashes before and after, durable before the file changes. A repetition
/// after a crash recognizes its own result and keeps it.
#[derive(Debug)]
pub(super) struct EditFile;

/// What to change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace or absolute inside it.
    path: String,
    /// The replacements, made one after the other.
    #[schemars(length(min = 1, max = 1_000))]
    edits: Vec<Edit>,
}

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// The text to replace, exactly as it stands in the file, with enough around it to occur only once.
    old: String,
    /// The text to put in its place; empty to delete it.
    new: String,
}

/// The hashes of a file's content before and after an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct EditIntent {
    before: Hash,
    after: Hash,
}

impl TypedTool for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replaces texts in a file of the workspace. Each `old` must occur exactly once; \
        if one does not, nothing is changed.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Arguments;

    fn check(arguments: &Arguments) -> Result<(), BadArguments> {
        let empty = arguments.edits.iter().position(|edit| edit.old.is_empty());
        empty.map_or(Ok(()), |n| {
            Err(edit_error(n, "is empty", "give the text to replace; `write_file` writes a whole file"))
        })
    }

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::writes(declared_path(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        let intent = match intents::read_earlier_intent(&context.artifacts).await {
            Ok(intent) => intent,
            Err(error) => return intents::intent_not_written("edit", &error),
        };
        let workspace = context.tool_workspace();
        let preparation =
            try_blocking(&context.cancel, move |cancel| prepare(&workspace, &arguments, intent, cancel));
        let prepared = match preparation.await {
            Ok(EditPlan::AlreadyMade(reply_text)) => return CallEnd::ok(reply_text),
            Ok(EditPlan::Pending(change)) => change,
            Err(end) => return end,
        };
        if let Err(error) = intents::write_intent(&context.artifacts, &prepared.intent).await {
            return intents::intent_not_written("edit", &error);
        }
        let attempt = context.artifacts.name();
        let write = try_blocking(&context.cancel, move |cancel| prepared.write(attempt, cancel));
        write.await.map_or_else(|end| end, CallEnd::ok)
    }
}

/// The result of the first half of a run, which reads the file and changes nothing.
enum EditPlan {
    /// The content is already there: an earlier attempt made it, or nothing changes.
    AlreadyMade(String),
    Pending(FileChange),
}

/// A change whose edits all fit.
struct FileChange {
    path: WorkspacePath,
    content: Vec<u8>,
    intent: EditIntent,
    reply: String,
}

fn prepare(
    workspace: &ToolWorkspace,
    arguments: &Arguments,
    earlier_intent: Option<EditIntent>,
    cancel: &CancelCheck,
) -> Result<EditPlan, FileWorkError> {
    let path = workspace.resolve("path", &arguments.path)?;
    cancel.check()?;
    let before = read(&path)?;
    let hash = Hash::of(&before);
    let (name, count) = (path.display(), arguments.edits.len());
    let reply_text = |length: usize| {
        let what = if count == 1 { "1 text".into() } else { format!("{count} texts") };
        format!("replaced {what} in {name}, which has {length} bytes now")
    };
    match earlier_intent {
        Some(intent) if intent.after == hash => return Ok(EditPlan::AlreadyMade(reply_text(before.len()))),
        Some(intent) if intent.before != hash => {
            let what = "was changed from outside after an interrupted attempt of this edit, which may have been \
                        made";
            return Err(path.refuse(what, "read the file again and edit what is missing").into());
        }
        Some(_) | None => {}
    }
    let mut content = before;
    for (n, edit) in arguments.edits.iter().enumerate() {
        cancel.check()?;
        EDIT_LIMITS.check(n, content.len())?;
        apply(n, edit, &mut content)?;
    }
    let (intent, reply_text) =
        (EditIntent { before: hash, after: Hash::of(&content) }, reply_text(content.len()));
    if intent.after == intent.before {
        return Ok(EditPlan::AlreadyMade(format!("nothing to change: {name} stays as it is")));
    }
    Ok(EditPlan::Pending(FileChange { path, content, intent, reply: reply_text }))
}

impl FileChange {
    fn write(self, attempt: ArtifactName, cancel: &CancelCheck) -> Result<String, FileWorkError> {
        if Hash::of(&read(&self.path)?) != self.intent.before {
            let what = "was changed from outside in the meantime; nothing was edited";
            return Err(self.path.refuse(what, "read it again").into());
        }
        replace(&self.path, &self.content, attempt, cancel)?;
        Ok(self.reply)
    }
}

fn read(path: &WorkspacePath) -> Result<Vec<u8>, FileWorkError> {
    let (file, _) = path.open_file()?;
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(|error| path.io_error(error))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let what = format!("has more than {MAX_FILE_BYTES} bytes, too many to be edited here");
        return Err(path.refuse(&what, "use `shell`").into());
    }
    Ok(content)
}

const FEWER_EDITS_HINT: &str = "nothing was changed: make fewer edits in one call";

impl EditLimits {
    /// Refuses the edit with this index if the work until then exceeds a limit. Each edit is counted with the file's
    /// present size.
    fn check(&self, index: usize, content_bytes: usize) -> Result<(), BadArguments> {
        let searched_bytes = content_bytes.saturating_mul(index + 1);
        if searched_bytes > self.searched_bytes || content_bytes > self.content_bytes {
            return Err(edit_error(index, "comes after more work than one call may take", FEWER_EDITS_HINT));
        }
        Ok(())
    }
}

fn apply(index: usize, Edit { old, new }: &Edit, content: &mut Vec<u8>) -> Result<(), BadArguments> {
    let Some(start) = memmem::find(content, old.as_bytes()) else {
        return Err(not_found(index, content, old));
    };
    if memmem::find(&content[start + 1..], old.as_bytes()).is_some() {
        let count = memmem::find_iter(content, old.as_bytes()).count().max(2);
        let what = format!("occurs {count} times in the file");
        return Err(edit_error(index, &what, "take more of the text around it, so that it occurs once"));
    }
    content.splice(start..start + old.len(), new.bytes());
    Ok(())
}

fn not_found(n: usize, content: &[u8], old: &str) -> BadArguments {
    let what =
        if n == 0 { "is not in the file" } else { "is not in the file as the edits before it leave it" };
    let with_cr = old.replace('\n', "\r\n");
    let hint = if with_cr != old && memmem::find(content, with_cr.as_bytes()).is_some() {
        "the lines of this file end with \\r\\n: give `old` and `new` so, too"
    } else {
        "read the file and copy the text exactly, with its spaces and line ends"
    };
    edit_error(n, what, hint)
}

fn edit_error(n: usize, what: &str, hint: &str) -> BadArguments {
    let field = format!("edits[{n}].old");
    BadArguments { error: format!("`{field}` {what}"), field: Some(field), hint: hint.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_one_call_is_limited() {
        let limits = EditLimits { searched_bytes: 1_000, content_bytes: 400 };
        let check = |index, content_bytes, is_allowed: bool| {
            let checked = limits.check(index, content_bytes);
            assert_eq!(checked.is_ok(), is_allowed, "edit {index} of {content_bytes} bytes");
            if let Err(bad) = checked {
                assert_eq!(bad.field, Some(format!("edits[{index}].old")));
                assert!(bad.hint.contains("fewer edits"), "{}", bad.hint);
            }
        };
        check(0, 0, true);
        check(0, 400, true);
        check(0, 401, false);
        check(9, 100, true);
        check(10, 100, false);
        check(usize::MAX - 1, usize::MAX, false);
    }
}
