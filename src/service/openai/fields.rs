//! Fields that several requests have, and those that ask for what the service cannot do. A field that only tunes sampling
//! is ignored; one that would change what the client gets is refused.

use hermod_actors::model::ThinkingLevel;
use serde_json::Value;

use super::error::ApiError;
use crate::service::fields::thinking_level;

/// Refuses a field unless it is left out, `null`, `false`, or empty.
pub(super) fn refuse(field: &str, value: Option<&Value>, reason: &str) -> Result<(), ApiError> {
    let is_absent = match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Bool(true) | Value::Number(_)) => false,
    };
    if is_absent { Ok(()) } else { Err(ApiError::field(field, reason)) }
}

/// Refuses tools of the client: they would have to be run by it, in the middle of a run.
pub(super) fn refuse_tools(field: &str, value: Option<&Value>) -> Result<(), ApiError> {
    refuse(field, value, "the agent has its own tools and runs them itself; leave the client's tools out")
}

/// Refuses a choice of a tool; without tools of the client, `auto` and `none` ask for nothing.
pub(super) fn refuse_tool_choice(field: &str, value: Option<&Value>) -> Result<(), ApiError> {
    match value {
        Some(Value::String(choice)) if choice == "auto" || choice == "none" => Ok(()),
        value => refuse(field, value, "there is no tool of the client to be chosen; leave it out"),
    }
}

/// Refuses a form of the answer other than text.
pub(super) fn refuse_format(field: &str, value: Option<&Value>) -> Result<(), ApiError> {
    let kind = value.and_then(|format| format.get("type"));
    if kind.and_then(Value::as_str) == Some("text") {
        return Ok(());
    }
    refuse(field, value, "the answer is text; ask for another form in the task, and leave this out")
}

/// The thinking level of an effort.
pub(super) fn thinking(field: &str, effort: Option<&str>) -> Result<Option<ThinkingLevel>, ApiError> {
    let level = match effort {
        None => return Ok(None),
        Some("none") => ThinkingLevel::Off,
        Some(name) => thinking_level(name).ok_or_else(|| {
            let reason = format!("`{name}` is no effort; use none, minimal, low, medium or high");
            ApiError::field(field, reason)
        })?,
    };
    Ok(Some(level))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_field_that_asks_for_something_is_refused() {
        let check = |value: Value, is_refused: bool| {
            let refused = refuse_tools("tools", Some(&value));
            assert_eq!(refused.is_err(), is_refused, "{value}");
            if let Err(error) = refused {
                assert!(error.message().starts_with("tools: ") && error.body()["error"]["param"] == "tools");
            }
        };
        let absent = [json!(null), json!([]), json!({}), json!(""), json!(false)];
        absent.into_iter().for_each(|value| check(value, false));
        let asked = [json!([{ "type": "function" }]), json!(1), json!(true), json!("x")];
        asked.into_iter().for_each(|value| check(value, true));
        assert!(refuse_tools("tools", None).is_ok());
    }

    #[test]
    fn the_only_form_of_an_answer_is_text() {
        let check = |value: Value, is_refused: bool| {
            assert_eq!(refuse_format("response_format", Some(&value)).is_err(), is_refused, "{value}");
        };
        check(json!({ "type": "text" }), false);
        check(json!(null), false);
        check(json!({ "type": "json_object" }), true);
        check(json!({ "type": "json_schema", "json_schema": {} }), true);
    }

    #[test]
    fn efforts_are_thinking_levels() {
        let check = |effort: &str, expect: Option<ThinkingLevel>| {
            assert_eq!(thinking("reasoning_effort", Some(effort)).ok().flatten(), expect, "{effort}");
        };
        check("none", Some(ThinkingLevel::Off));
        check("minimal", Some(ThinkingLevel::Minimal));
        check("medium", Some(ThinkingLevel::Medium));
        check("xhigh", Some(ThinkingLevel::High));
        check("much", None);
        assert_eq!(thinking("reasoning_effort", None), Ok(None));
    }
}
