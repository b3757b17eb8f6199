//! `todo`: from the arguments of a call to the session's next list, or to what is wrong with them.

use std::{collections::BTreeSet, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};

use super::delegation::Misorder;
use crate::model::{MAX_OUTPUT, TodoItem, TodoList, TodoStatus, ToolSpec};

/// The name of the tool by which a model keeps the list of what it means to do.
pub const TODO: &str = "todo";

/// Items of a list.
const MOST: usize = 64;
/// Characters of an item.
const LONGEST: usize = 500;
/// Characters of its id.
const LONGEST_ID: usize = 64;

const DESCRIPTION: &str = "Your list of what is to be done in this conversation. Without `todos` it returns the list; with \
                           `todos` it changes it. The list outlives everything: keep it up to date in tasks of several \
                           steps, with at most one item `in_progress`. Returns {todos, summary}.";

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To see the list.
    Read,
    /// Another list.
    Replace(Vec<Change>),
    /// The list with changes; what is new comes behind it.
    Merge(Vec<Change>),
}

/// An item as a call names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    id: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    status: Option<TodoStatus>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    todos: Option<Vec<Value>>,
    #[serde(default)]
    merge: Option<bool>,
}

/// The tool, as the model sees it.
pub(crate) fn tool_spec() -> ToolSpec {
    let item = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {
            "id": {"type": "string", "description": "Your name for the item, of no other one."},
            "content": {
                "type": "string", "maxLength": LONGEST,
                "description": "What is to be done. With `merge` it may be left out of an item that is there."
            },
            "status": {"enum": ["pending", "in_progress", "completed", "cancelled"]}
        }
    });
    let parameters = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "todos": {
                "type": "array", "maxItems": MOST, "items": item,
                "description": "The items in their order; leave it out to see the list."
            },
            "merge": {
                "type": "boolean",
                "description": "true: changes the items with these ids and adds the others. false, the default: these are the \
                                whole list."
            }
        }
    });
    ToolSpec { name: TODO.into(), description: DESCRIPTION.into(), parameters }
}

/// What a call with these arguments asks for, or why that is not acceptable, whatever the list is.
pub(crate) fn wish(arguments: &Value) -> Result<Wish, Misorder> {
    let Arguments { todos, merge } = Arguments::deserialize(arguments).map_err(|error| {
        bad(None, error.to_string(), "send `todos` and `merge`, or nothing to see the list")
    })?;
    let Some(todos) = todos else { return Ok(Wish::Read) };
    in_number(todos.len())?;
    let changes: Vec<_> = todos.iter().enumerate().map(change).collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    if let Some((n, change)) = changes.iter().enumerate().find(|(_, change)| !ids.insert(&change.id)) {
        let error = format!("the id `{}` is there twice", change.id);
        return Err(bad(Some(format!("todos[{n}].id")), error, "give each item an id of its own"));
    }
    Ok(if merge.unwrap_or(false) { Wish::Merge(changes) } else { Wish::Replace(changes) })
}

fn change((n, item): (usize, &Value)) -> Result<Change, Misorder> {
    let change = Change::deserialize(item)
        .map_err(|error| bad(Some(format!("todos[{n}]")), error.to_string(), "send {id, content, status}"))?;
    let texts = [("id", Some(&change.id), LONGEST_ID), ("content", change.content.as_ref(), LONGEST)];
    for (name, text, longest) in texts {
        let Some(text) = text else { continue };
        let (field, length) = (Some(format!("todos[{n}].{name}")), text.chars().count());
        if text.trim().is_empty() {
            return Err(bad(field, "it is empty".into(), "say what it is"));
        }
        if length > longest {
            let error = format!("it has {length} characters, over the limit of {longest}");
            return Err(bad(field, error, "say it shorter"));
        }
    }
    Ok(change)
}

impl Wish {
    /// The list that it makes of this one, or why it makes none.
    pub(crate) fn of(self, list: &Arc<TodoList>) -> Result<Arc<TodoList>, Misorder> {
        let (mut items, changes) = match self {
            Self::Read => return Ok(Arc::clone(list)),
            Self::Replace(changes) => (Vec::new(), changes),
            Self::Merge(changes) => (list.0.clone(), changes),
        };
        for (n, change) in changes.into_iter().enumerate() {
            match items.iter_mut().find(|item: &&mut TodoItem| item.id == change.id) {
                Some(item) => change.alter(item),
                None => items.push(change.item(n)?),
            }
        }
        in_number(items.len())?;
        let list = TodoList(items);
        let bytes = told(&list).len();
        if bytes > MAX_OUTPUT {
            let error = format!("the list would have {bytes} bytes, over the limit of {MAX_OUTPUT}");
            return Err(bad(Some("todos".into()), error, "say it shorter, or leave out what is done"));
        }
        Ok(Arc::new(list))
    }
}

impl Change {
    fn alter(self, item: &mut TodoItem) {
        if let Some(content) = self.content {
            item.content = content;
        }
        item.status = self.status.unwrap_or(item.status);
    }

    /// The item as a new one, named as the `n`th of its call.
    fn item(self, n: usize) -> Result<TodoItem, Misorder> {
        let Self { id, content, status } = self;
        let Some(content) = content else {
            let error = format!("the item `{id}` is new and has none");
            return Err(bad(Some(format!("todos[{n}].content")), error, "say what is to be done"));
        };
        Ok(TodoItem { id, content, status: status.unwrap_or_default() })
    }
}

fn in_number(items: usize) -> Result<(), Misorder> {
    if items <= MOST {
        return Ok(());
    }
    let error = format!("{items} items are over the limit of {MOST}");
    Err(bad(Some("todos".into()), error, "join items, or leave out what is done"))
}

/// What the model reads of its list: `{todos, summary}`.
pub(crate) fn told(list: &TodoList) -> String {
    let count = |status| list.0.iter().filter(|item| item.status == status).count();
    let summary = json!({
        "total": list.0.len(),
        "pending": count(TodoStatus::Pending),
        "in_progress": count(TodoStatus::InProgress),
        "completed": count(TodoStatus::Completed),
        "cancelled": count(TodoStatus::Cancelled),
    });
    json!({"todos": list, "summary": summary}).to_string()
}

/// The list as text, an item a line; `None` if it is empty.
pub(crate) fn lines(list: &TodoList) -> Option<String> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = |item: &TodoItem| {
        let mark = match item.status {
            TodoStatus::Pending => ' ',
            TodoStatus::InProgress => '~',
            TodoStatus::Completed => 'x',
            TodoStatus::Cancelled => '-',
        };
        format!("- [{mark}] {}: {}", words(&item.id), words(&item.content))
    };
    let lines: Vec<_> = list.0.iter().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn bad(field: Option<String>, error: String, hint: &str) -> Misorder {
    Misorder { field, error, hint: hint.into() }
}

#[cfg(test)]
#[path = "todo_tests.rs"]
mod tests;
