//! The `anthropic_messages` wire format: `POST /v1/messages`. Here are the wordings of refusals and the checks that its
//! modules share.

mod block;
mod cache;
mod request;
mod tools;
mod turn;
mod write;

pub use request::read;
pub use write::{error, models, write};

use std::fmt::Display;

use serde_json::value::RawValue;

use super::{
    Format, RequestRefusal,
    fields::{FieldProblem, JsonFields},
    is_word,
};
use crate::rehearsal::BorrowedText;

/// The format `anthropic_messages`.
pub const FORMAT: Format =
    Format { path: "/v1/messages", header: Some("anthropic-version"), read, write, error, models };

fn refuse(path: impl Display, problem: impl Display) -> RequestRefusal {
    RequestRefusal::bad_request(None, format!("{path}: {problem}"))
}

/// Refuses the field with this path.
fn refuse_field(path: &str, problem: FieldProblem) -> RequestRefusal {
    match problem {
        FieldProblem::Missing => refuse(path, "Field required"),
        FieldProblem::Unknown => refuse(path, "Extra inputs are not permitted"),
        FieldProblem::Type(expected) => refuse(path, format!("Input should be a valid {expected}")),
    }
}

/// Refuses a `type` that is not one of `expected`.
fn refuse_tag(path: impl Display, tag: &str, expected: &[&str]) -> RequestRefusal {
    let expected = expected.join("', '");
    let problem =
        format!("Input tag '{tag}' found using 'type' does not match any of the expected tags: '{expected}'");
    refuse(path, problem)
}

/// The fields of the object at `path`.
fn object(raw: &RawValue, path: impl Into<String>) -> Result<JsonFields<'_>, RequestRefusal> {
    JsonFields::of(raw, path, "dictionary", refuse_field)
}

/// The name of a tool in the field `name`.
fn tool_name<'a>(fields: &JsonFields<'a>) -> Result<BorrowedText<'a>, RequestRefusal> {
    let name = fields.text("name")?;
    if !is_word(&name.0) || name.0.len() > 128 {
        let problem = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'";
        return Err(refuse(fields.path("name"), problem));
    }
    Ok(name)
}
