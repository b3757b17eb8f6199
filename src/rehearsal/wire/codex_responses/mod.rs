//! The `codex_responses` wire format: `POST /v1/responses` of OpenAI, without stored responses. Here are the wordings
//! of refusals that its modules share.

mod history;
mod item;
mod request;
mod tools;
mod write;

pub use request::read;
pub use write::write;

use super::{Format, RequestRefusal, fields::FieldProblem, openai};

/// The format `codex_responses`.
pub const FORMAT: Format =
    Format { path: "/v1/responses", header: None, read, write, error: openai::error, models: openai::models };

/// Refuses the value of `param`.
fn refuse(param: &str, code: &'static str, message: impl Into<String>) -> RequestRefusal {
    RequestRefusal::bad_request(Some(param), message).with_code(code)
}

/// Refuses a value that is not in `supported`.
fn refuse_value(param: &str, value: &str, supported: &[&str]) -> RequestRefusal {
    let supported = supported.join("', '");
    let message = format!("Invalid value: '{value}'. Supported values are: '{supported}'.");
    refuse(param, "invalid_value", message)
}

/// Refuses the field with this path.
fn refuse_field(param: &str, problem: FieldProblem) -> RequestRefusal {
    let (code, message) = match problem {
        FieldProblem::Missing => {
            ("missing_required_parameter", format!("Missing required parameter: '{param}'."))
        }
        FieldProblem::Unknown => ("unknown_parameter", format!("Unknown parameter: '{param}'.")),
        FieldProblem::Type(expected) => {
            ("invalid_type", format!("Invalid type for '{param}': expected {expected}."))
        }
    };
    refuse(param, code, message)
}

/// The path of an item of a list.
fn item_path(list: &str, index: usize) -> String {
    format!("{list}[{index}]")
}
