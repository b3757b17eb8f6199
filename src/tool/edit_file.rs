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
    blocking::{Asker, Failed, blocking_for},
    notes,
    paths::{Area, Place, declared},
    replace::replace,
    typed::{Site, Typed},
};

/// Bytes of a file that is edited here.
const MOST: u64 = 16 << 20;

/// The work that the edits of one call may make.
struct EditLimits {
    /// Bytes that all edits search, the whole file for each.
    searched_bytes: usize,
    /// Bytes of the file between two edits.
    content_bytes: usize,
}

const EDIT_LIMITS: EditLimits = EditLimits { searched_bytes: 4 << 30, content_bytes: 32 << 20 };

/// Replaces texts in a file, all of them or none, atomically.
///
/// Idempotent by a note of the content's hashes before and after, which is durable before the file changes: a
/// repetition after a crash finds its own result and leaves it.
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
struct Note {
    before: Hash,
    after: Hash,
}

impl Typed for EditFile {
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str = "Replaces texts in a file of the workspace. Each `old` must occur exactly once; \
        if one does not, nothing is changed.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Arguments;

    fn check(arguments: &Arguments) -> Result<(), BadArguments> {
        let empty = arguments.edits.iter().position(|edit| edit.old.is_empty());
        empty.map_or(Ok(()), |n| {
            Err(bad(n, "is empty", "give the text to replace; `write_file` writes a whole file"))
        })
    }

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::writes(declared(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, site: Site) -> CallEnd {
        let note = match notes::earlier(&site.shelf).await {
            Ok(note) => note,
            Err(error) => return notes::unkept("edit", &error),
        };
        let area = site.area();
        let first = blocking_for(&site.cancel, move |asker| prepare(&area, &arguments, (note, asker)));
        let prepared = match first.await {
            Ok(Prepared::Made(told)) => return CallEnd::ok(told),
            Ok(Prepared::ToMake(change)) => change,
            Err(end) => return end,
        };
        if let Err(error) = notes::keep(&site.shelf, &prepared.note).await {
            return notes::unkept("edit", &error);
        }
        let own = site.shelf.own();
        let made = blocking_for(&site.cancel, move |asker| prepared.make(own, asker));
        made.await.map_or_else(|end| end, CallEnd::ok)
    }
}

/// What an edit comes to before anything is changed.
enum Prepared {
    /// It is there: an earlier attempt made it, or there is nothing to change.
    Made(String),
    ToMake(Change),
}

/// A change of a file that was found to be possible.
struct Change {
    place: Place,
    content: Vec<u8>,
    note: Note,
    told: String,
}

fn prepare(
    area: &Area,
    arguments: &Arguments,
    (noted, asker): (Option<Note>, &Asker),
) -> Result<Prepared, Failed> {
    let place = area.resolve("path", &arguments.path)?;
    asker.still_waits()?;
    let before = read(&place)?;
    let hash = Hash::of(&before);
    let (shown, count) = (place.shown(), arguments.edits.len());
    let told = |length: usize| {
        let what = if count == 1 { "1 text".into() } else { format!("{count} texts") };
        format!("replaced {what} in {shown}, which has {length} bytes now")
    };
    match noted {
        Some(note) if note.after == hash => return Ok(Prepared::Made(told(before.len()))),
        Some(note) if note.before != hash => {
            let what = "was changed by somebody else after an interrupted attempt of this edit, which may have been \
                        made";
            return Err(place.refuse(what, "read the file again and edit what is missing").into());
        }
        Some(_) | None => {}
    }
    let mut content = before;
    for (n, edit) in arguments.edits.iter().enumerate() {
        asker.still_waits()?;
        EDIT_LIMITS.check(n, content.len())?;
        apply(n, edit, &mut content)?;
    }
    let (note, told) = (Note { before: hash, after: Hash::of(&content) }, told(content.len()));
    if note.after == note.before {
        return Ok(Prepared::Made(format!("nothing to change: {shown} stays as it is")));
    }
    Ok(Prepared::ToMake(Change { place, content, note, told }))
}

impl Change {
    fn make(self, own: ArtifactName, asker: &Asker) -> Result<String, Failed> {
        if Hash::of(&read(&self.place)?) != self.note.before {
            let what = "was changed by somebody else in the meantime; nothing was edited";
            return Err(self.place.refuse(what, "read it again").into());
        }
        replace(&self.place, &self.content, (own, asker))?;
        Ok(self.told)
    }
}

fn read(place: &Place) -> Result<Vec<u8>, Failed> {
    let (file, _) = place.open_file()?;
    let mut content = Vec::new();
    file.take(MOST + 1).read_to_end(&mut content).map_err(|error| place.failed(error))?;
    if content.len() as u64 > MOST {
        let what = format!("has more than {MOST} bytes, too many to be edited here");
        return Err(place.refuse(&what, "use `shell`").into());
    }
    Ok(content)
}

const EDIT_LESS: &str = "nothing was changed: make fewer edits in one call";

impl EditLimits {
    /// Refuses the edit with this index if it comes after more work than is allowed. All edits search files of about the same size.
    fn check(&self, index: usize, content_bytes: usize) -> Result<(), BadArguments> {
        let searched_bytes = content_bytes.saturating_mul(index + 1);
        if searched_bytes > self.searched_bytes || content_bytes > self.content_bytes {
            return Err(bad(index, "comes after more work than one call may take", EDIT_LESS));
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
        return Err(bad(index, &what, "take more of the text around it, so that it occurs once"));
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
    bad(n, what, hint)
}

fn bad(n: usize, what: &str, hint: &str) -> BadArguments {
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
