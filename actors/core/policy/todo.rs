//! The tool `todo`: its definition, the arguments of a call, the change of the session's list, and the list as text.
//! Pure; `turn/todo.rs` records the change.

use std::{collections::BTreeSet, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{BadArguments, MAX_RESULT_BYTES, TodoItem, TodoList, TodoStatus, ToolSpec};

/// The name of the tool with which a model keeps its list of things to do.
pub const TODO: &str = "todo";

/// Most items of a list.
const MAX_ITEMS: usize = 64;
/// Most characters of an item's content.
const MAX_ITEM_CHARS: usize = 500;
/// Most characters of an item's id.
const MAX_ID_CHARS: usize = 64;

const DESCRIPTION: &str = "Your list of what is to be done in this conversation. Without `todos` it returns the list; with \
                           `todos` it changes it. The list outlives everything: keep it up to date in tasks of several \
                           steps, with at most one item `in_progress`. Returns {todos, summary}.";

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TodoRequest {
    /// Return the list.
    Read,
    /// Replace the list.
    Replace(Vec<TodoEdit>),
    /// Change items by their ids; append the new ones.
    Merge(Vec<TodoEdit>),
}

/// An item in the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoEdit {
    id: String,
    content: Option<String>,
    status: Option<TodoStatus>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TodoArguments {
    todos: Option<Vec<Value>>,
    merge: Option<bool>,
}

/// The definition of the tool for the model.
pub fn tool_spec() -> ToolSpec {
    let item = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {
            "id": {"type": "string", "description": "Your name for the item, of no other one."},
            "content": {
                "type": "string", "maxLength": MAX_ITEM_CHARS,
                "description": "What is to be done. With `merge` it may be left out of an item that is there."
            },
            "status": {"enum": ["pending", "in_progress", "completed", "cancelled"]}
        }
    });
    let parameters = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "todos": {
                "type": "array", "maxItems": MAX_ITEMS, "items": item,
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

/// Parses and checks the arguments, as far as that is possible without the list.
pub fn parse_todo(arguments: &Value) -> Result<TodoRequest, BadArguments> {
    let TodoArguments { todos, merge } = TodoArguments::deserialize(arguments).map_err(|error| {
        BadArguments::new(None, error.to_string(), "send `todos` and `merge`, or nothing to see the list")
    })?;
    let Some(todos) = todos else { return Ok(TodoRequest::Read) };
    check_count(todos.len())?;
    let changes: Vec<_> =
        todos.iter().enumerate().map(|(n, item)| parse_change(n, item)).collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    if let Some((n, change)) = changes.iter().enumerate().find(|(_, change)| !ids.insert(&change.id)) {
        let error = format!("the id `{}` is there twice", change.id);
        return Err(BadArguments::new(
            Some(&format!("todos[{n}].id")),
            error,
            "give each item an id of its own",
        ));
    }
    Ok(if merge.unwrap_or(false) { TodoRequest::Merge(changes) } else { TodoRequest::Replace(changes) })
}

fn parse_change(n: usize, item: &Value) -> Result<TodoEdit, BadArguments> {
    let change = TodoEdit::deserialize(item).map_err(|error| {
        BadArguments::new(Some(&format!("todos[{n}]")), error.to_string(), "send {id, content, status}")
    })?;
    let texts =
        [("id", Some(&change.id), MAX_ID_CHARS), ("content", change.content.as_ref(), MAX_ITEM_CHARS)];
    for (name, text, longest) in texts {
        let Some(text) = text else { continue };
        let (field, length) = (format!("todos[{n}].{name}"), text.chars().count());
        if text.trim().is_empty() {
            return Err(BadArguments::new(Some(&field), "it is empty", "say what it is"));
        }
        if length > longest {
            let error = format!("it has {length} characters, over the limit of {longest}");
            return Err(BadArguments::new(Some(&field), error, "say it shorter"));
        }
    }
    Ok(change)
}

impl TodoRequest {
    /// The list after this call, or the error.
    pub fn apply(self, list: &Arc<TodoList>) -> Result<Arc<TodoList>, BadArguments> {
        let (mut items, changes) = match self {
            Self::Read => return Ok(Arc::clone(list)),
            Self::Replace(changes) => (Vec::new(), changes),
            Self::Merge(changes) => (list.0.clone(), changes),
        };
        for (n, change) in changes.into_iter().enumerate() {
            match items.iter_mut().find(|item: &&mut TodoItem| item.id == change.id) {
                Some(item) => change.apply_to(item),
                None => items.push(change.into_item(n)?),
            }
        }
        check_count(items.len())?;
        let list = TodoList(items);
        let bytes = list_json(&list).len();
        if bytes > MAX_RESULT_BYTES {
            let error = format!("the list would have {bytes} bytes, over the limit of {MAX_RESULT_BYTES}");
            let hint = "say it shorter, or leave out what is done";
            return Err(BadArguments::new(Some("todos"), error, hint));
        }
        Ok(Arc::new(list))
    }
}

impl TodoEdit {
    fn apply_to(self, item: &mut TodoItem) {
        if let Some(content) = self.content {
            item.content = content;
        }
        item.status = self.status.unwrap_or(item.status);
    }

    /// The edit as a new item; `n` is its index in the call.
    fn into_item(self, n: usize) -> Result<TodoItem, BadArguments> {
        let Self { id, content, status } = self;
        let Some(content) = content else {
            let error = format!("the item `{id}` is new and has none");
            let field = format!("todos[{n}].content");
            return Err(BadArguments::new(Some(&field), error, "say what is to be done"));
        };
        Ok(TodoItem { id, content, status: status.unwrap_or_default() })
    }
}

fn check_count(items: usize) -> Result<(), BadArguments> {
    if items <= MAX_ITEMS {
        return Ok(());
    }
    let error = format!("{items} items are over the limit of {MAX_ITEMS}");
    Err(BadArguments::new(Some("todos"), error, "join items, or leave out what is done"))
}

/// The result for the model: `{todos, summary}`.
pub(crate) fn list_json(list: &TodoList) -> String {
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

/// The list as text, one item per line; `None` if it is empty.
pub(crate) fn format_list(list: &TodoList) -> Option<String> {
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

#[cfg(test)]
#[path = "todo_tests.rs"]
mod tests;
