//! The `anthropic_messages` wire format: `POST /v1/messages`.

mod block;
mod cache;
mod request;
mod tools;
mod turn;
mod write;

pub use request::read;
pub use write::{error, models, write};

use std::fmt::Display;

use super::{
    Format, RequestRefusal,
    fields::{FieldProblem, FieldProblemKind},
};

/// The format `anthropic_messages`.
pub const FORMAT: Format =
    Format { path: "/v1/messages", header: Some("anthropic-version"), read, write, error, models };

fn refuse(place: impl Display, problem: impl Display) -> RequestRefusal {
    RequestRefusal::bad_request(None, format!("{place}: {problem}"))
}

/// Refuses a field of the object at `place`, which is empty for the request itself.
fn refuse_field(place: impl Display, problem: &FieldProblem) -> RequestRefusal {
    let place = place.to_string();
    let dot = if place.is_empty() { "" } else { "." };
    let place = format!("{place}{dot}{}", problem.field);
    match problem.kind {
        FieldProblemKind::Missing => refuse(place, "Field required"),
        FieldProblemKind::Unknown => refuse(place, "Extra inputs are not permitted"),
        FieldProblemKind::Type(expected) => refuse(place, format!("Input should be a valid {expected}")),
    }
}

/// True if the text has only the characters of tool names and call ids.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
