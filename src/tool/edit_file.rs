//! The tool `edit_file`: replaces texts in a file of the workspace. `replace.rs` writes the file, and `intents.rs`
//! makes a repetition after a crash safe.

use std::io::Read;

use hermod_actors::{
    model::{Access, CallEnd, EffectClass, Hash},
    port::BadArguments,
};
use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Settings, intents,
    paths::{WorkspacePath, declared_path},
    replace::replace,
    typed_tool::{ToolContext, TypedTool},
};

/// Limit of a file to edit, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Limit of the bytes searched by all edits of a call together, the whole file for each.
const MAX_SEARCHED_BYTES: usize = 4 << 30;
/// Limit of the file's size between two edits, in bytes.
const MAX_CONTENT_BYTES: usize = 32 << 20;

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
        let prepare = move |intent, context: &ToolContext| prepare(&arguments, intent, context);
        intents::change(&context, "edit", prepare, FileChange::write).await
    }
}

/// A change whose edits all fit.
struct FileChange {
    path: WorkspacePath,
    content: Vec<u8>,
    /// The hash of the content that it replaces.
    before: Hash,
    reply: String,
}

/// Reads the file and makes the edits in memory. The error ends the call, also if an earlier attempt made the edits, or if
/// nothing changes.
fn prepare(
    arguments: &Arguments,
    earlier_intent: Option<EditIntent>,
    context: &ToolContext,
) -> Result<(EditIntent, FileChange), CallEnd> {
    let path = context.resolve("path", &arguments.path)?;
    context.check_stopped()?;
    let before = read(&path)?;
    let hash = Hash::of(&before);
    let (name, count) = (path.display(), arguments.edits.len());
    let reply_text = |length: usize| {
        let what = if count == 1 { "1 text".into() } else { format!("{count} texts") };
        format!("replaced {what} in {name}, which has {length} bytes now")
    };
    match earlier_intent {
        Some(intent) if intent.after == hash => return Err(CallEnd::ok(reply_text(before.len()))),
        Some(intent) if intent.before != hash => {
            let what = "was changed from outside after an interrupted attempt of this edit, which may have been \
                        made";
            return Err(path.refuse(what, "read the file again and edit what is missing").into());
        }
        Some(_) | None => {}
    }
    let mut content = before;
    for (n, edit) in arguments.edits.iter().enumerate() {
        context.check_stopped()?;
        check_work(n, content.len())?;
        apply(n, edit, &mut content)?;
    }
    let intent = EditIntent { before: hash, after: Hash::of(&content) };
    if intent.after == intent.before {
        return Err(CallEnd::ok(format!("nothing to change: {name} stays as it is")));
    }
    let reply = reply_text(content.len());
    Ok((intent, FileChange { path, content, before: hash, reply }))
}

impl FileChange {
    fn write(self, context: &ToolContext) -> Result<String, CallEnd> {
        if Hash::of(&read(&self.path)?) != self.before {
            let what = "was changed from outside in the meantime; nothing was edited";
            return Err(self.path.refuse(what, "read it again").into());
        }
        replace(&self.path, &self.content, context)?;
        Ok(self.reply)
    }
}

fn read(path: &WorkspacePath) -> Result<Vec<u8>, CallEnd> {
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

/// Refuses the edit with this index if the work until then exceeds a limit. Each edit is counted with the file's
/// present size.
fn check_work(index: usize, content_bytes: usize) -> Result<(), BadArguments> {
    let searched_bytes = content_bytes.saturating_mul(index.saturating_add(1));
    if searched_bytes > MAX_SEARCHED_BYTES || content_bytes > MAX_CONTENT_BYTES {
        return Err(edit_error(index, "comes after more work than one call may take", FEWER_EDITS_HINT));
    }
    Ok(())
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
        let check = |index, content_bytes, is_allowed: bool| {
            let checked = check_work(index, content_bytes);
            assert_eq!(checked.is_ok(), is_allowed, "edit {index} of {content_bytes} bytes");
            if let Err(bad) = checked {
                assert_eq!(bad.field, Some(format!("edits[{index}].old")));
                assert!(bad.hint.contains("fewer edits"), "{}", bad.hint);
            }
        };
        check(0, 0, true);
        check(0, MAX_CONTENT_BYTES, true);
        check(0, MAX_CONTENT_BYTES + 1, false);
        check(MAX_SEARCHED_BYTES / 100 - 1, 100, true);
        check(MAX_SEARCHED_BYTES / 100, 100, false);
        check(usize::MAX - 1, usize::MAX, false);
    }
}
