//! The arguments of the tool `memory`, their checks, and the entries of the file after the edit. No I/O: `files.rs`
//! reads and writes, `tool/memory.rs` is the tool.

use hermod_actors::model::Hash;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Target,
    entries::{MemoryEntries, first_hidden, has_mark},
};

/// The kind of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// `content` becomes an entry.
    Add,
    /// `content` comes in the place of the one entry that has `old_text` in it.
    Replace,
    /// The one entry that has `old_text` in it goes.
    Remove,
}

/// The arguments of a call of the tool `memory`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// `add` an entry, `replace` one, or `remove` one.
    pub action: Action,
    /// `memory`: what you have learned about the work; `user`: what you know of the user.
    pub target: Target,
    /// The new entry, for `add` and `replace`: short, and in itself understandable.
    #[serde(default)]
    pub content: Option<String>,
    /// A text that only one entry has, for `replace` and `remove`.
    #[serde(default)]
    pub old_text: Option<String>,
}

/// Why an edit cannot be made; an answer to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct EditError {
    /// The argument of the tool call.
    pub field: &'static str,
    /// The problem. It begins with the argument's name.
    pub error: String,
    /// The remedy.
    pub hint: String,
}

/// The hashes of what an edit changes, written before the edit: a repeated attempt finds out what an earlier one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditIntent {
    /// The entry that is removed; `None` for `add`.
    old: Option<Hash>,
    /// The entry that is added; `None` for `remove`.
    new: Option<Hash>,
}

/// The outcome of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditResult {
    /// The file already has the wanted content.
    Unchanged,
    /// The new entries, and the intent to write before them.
    Changed(MemoryEntries, EditIntent),
}

impl Order {
    /// Checks the arguments alone, independently of the entries.
    pub fn check(&self) -> Result<(), EditError> {
        let (content, old_text) = (self.content.as_deref(), self.old_text.as_deref());
        match self.action {
            Action::Add | Action::Replace => check_content(content.unwrap_or_default())?,
            Action::Remove if content.is_some() => {
                let error = "is not for `remove`".into();
                return Err(edit_error("content", error, "name the entry with `old_text`"));
            }
            Action::Remove => {}
        }
        let has_old = old_text.is_some_and(|text| !text.trim().is_empty());
        match self.action {
            Action::Add if old_text.is_some() => {
                Err(edit_error("old_text", "is not for `add`".into(), "leave it out, or `replace`"))
            }
            Action::Replace | Action::Remove if !has_old => {
                let hint = "give a text that only the entry in question has";
                Err(edit_error("old_text", "is missing or empty".into(), hint))
            }
            Action::Add | Action::Replace | Action::Remove => Ok(()),
        }
    }

    fn content(&self) -> &str {
        self.content.as_deref().unwrap_or_default().trim()
    }
}

fn check_content(content: &str) -> Result<(), EditError> {
    if content.trim().is_empty() {
        return Err(edit_error("content", "is missing or empty".into(), "give the entry"));
    }
    if has_mark(content) {
        let error = "has a line `§`, which stands between two entries".into();
        return Err(edit_error("content", error, "add several entries one by one"));
    }
    let Some((position, c)) = first_hidden(content.trim()) else { return Ok(()) };
    let error = format!("has U+{:04X} as character {position}, which is invisible", u32::from(c));
    let hint = "leave it out; of control characters only newline and tab may be there";
    Err(edit_error("content", error, hint))
}

/// Applies arguments that passed [`Order::check`].
/// Depends only on its arguments: the entries, the intent of an earlier attempt of the same call, and the limit in
/// characters.
pub fn decide(
    arguments: &Order,
    entries: &MemoryEntries,
    earlier_intent: Option<EditIntent>,
    limit: usize,
) -> Result<EditResult, EditError> {
    let new = arguments.content();
    let old = match (arguments.action, earlier_intent) {
        (Action::Add, _) => None,
        (Action::Replace | Action::Remove, Some(EditIntent { old: Some(removed), .. })) => {
            match entries.all().iter().find(|entry| hash(entry) == removed) {
                Some(old) => Some(old.as_str()),
                None if arguments.action == Action::Remove || entries.contains(new) => {
                    return Ok(EditResult::Unchanged);
                }
                None => return Err(changed_meanwhile()),
            }
        }
        (Action::Replace | Action::Remove, _) => {
            let text = arguments.old_text.as_deref().unwrap_or_default();
            match find_one(entries, text)? {
                Some(old) => Some(old),
                None if arguments.action == Action::Replace && entries.contains(new) => {
                    return Ok(EditResult::Unchanged);
                }
                None => {
                    let error = "is in none of the entries".into();
                    return Err(edit_error("old_text", error, "copy it from one of them"));
                }
            }
        }
    };
    let mut edited = entries.clone();
    match (arguments.action, old) {
        (Action::Replace, Some(old)) => edited.replace(old, new),
        (Action::Remove, Some(old)) => edited.remove(old),
        (Action::Add | Action::Replace | Action::Remove, _) => edited.push(new),
    }
    if edited == *entries {
        return Ok(EditResult::Unchanged);
    }
    let (used, before) = (edited.chars(), entries.chars());
    // A file that a person made longer than the limit may still become shorter.
    if used > limit && used >= before {
        let excess = used - limit;
        let error = format!("would make the file {used} characters long, {excess} over its limit of {limit}");
        let hint = "make room first: `replace` or `remove` entries, or say it shorter";
        return Err(edit_error("content", error, hint));
    }
    let new = (arguments.action != Action::Remove).then(|| hash(new));
    Ok(EditResult::Changed(edited, EditIntent { old: old.map(hash), new }))
}

/// The only entry that contains this text; an entry that equals it has precedence.
fn find_one<'e>(entries: &'e MemoryEntries, text: &str) -> Result<Option<&'e str>, EditError> {
    if let Some(equal) = entries.all().iter().find(|entry| *entry == text.trim()) {
        return Ok(Some(equal));
    }
    let found: Vec<_> = entries.all().iter().filter(|entry| entry.contains(text)).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [..] => {
            let error = format!("is in {} of the entries", found.len());
            Err(edit_error("old_text", error, "take more of the entry, or all of it"))
        }
    }
}

fn changed_meanwhile() -> EditError {
    let error = "names an entry that was changed from outside after an interrupted attempt of this call, which may have \
                 been made"
        .into();
    edit_error("old_text", error, "look at the entries and do what is missing")
}

fn hash(entry: &str) -> Hash {
    Hash::of(entry.as_bytes())
}

fn edit_error(field: &'static str, problem: String, hint: &str) -> EditError {
    EditError { field, error: format!("`{field}` {problem}"), hint: hint.into() }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
