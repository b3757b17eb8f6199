//! Fields of requests whose JSON has several forms, and those that several doors have.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use hermod_actors::model::{Dimension, ThinkingLevel};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::{
    access::TokenEntry,
    host::{BudgetLimits, parse_duration},
};

/// Most characters of an idempotency key.
const MAX_KEY_CHARS: usize = 256;

/// An idempotency key as the token's own: two clients may choose the same key. The error is the rule that it breaks.
pub(super) fn own_key(token: &TokenEntry, key: &str) -> Result<Arc<str>, String> {
    let is_key = !key.trim().is_empty()
        && key.len() <= MAX_KEY_CHARS
        && key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let rule = || format!("must have 1 to {MAX_KEY_CHARS} visible ASCII characters");
    is_key.then(|| format!("{}:{key}", token.id).into()).ok_or_else(rule)
}

/// The thinking level of this name. Clients name levels above the highest one too.
pub(super) fn thinking_level(name: &str) -> Option<ThinkingLevel> {
    match name {
        "xhigh" | "max" => Some(ThinkingLevel::High),
        name => name.parse().ok(),
    }
}

/// A value that is written as a text.
pub(super) fn from_text<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

/// A duration: a text such as `30s`, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationField(pub(super) Duration);

impl<'de> Deserialize<'de> for DurationField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(from)? {
            Value::Number(seconds) => format!("{seconds}s"),
            Value::String(text) => text,
            other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(D::Error::custom(format!("`{other}` is no duration; write it like \"90s\"")));
            }
        };
        parse_duration(&text).map(Self).map_err(|error| D::Error::custom(format!("`{text}`: {error}")))
    }
}

/// Limits of a budget: an object such as `{"iterations": 20, "usd": 0.5, "wall": "10m"}`, or a text as the command line
/// takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BudgetField(pub(super) BudgetLimits);

impl<'de> Deserialize<'de> for BudgetField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(from)? {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) if fields.is_empty() => return Ok(Self::default()),
            Value::String(text) => text,
            Value::Object(fields) => as_text(&fields).map_err(D::Error::custom)?,
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
                return Err(D::Error::custom(format!("`{other}` is no object of limits")));
            }
        };
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The limits as the command line writes them.
fn as_text(fields: &Map<String, Value>) -> Result<String, String> {
    let mut items = Vec::new();
    for (name, value) in fields {
        let value = match value {
            Value::Null => continue,
            // A large or small number is not written with an exponent.
            Value::Number(number) if *name == Dimension::Usd.name() => number
                .as_f64()
                .map(|usd| format!("{usd:.9}"))
                .ok_or_else(|| format!("{name}: `{number}` is no amount"))?,
            Value::Number(number) => number.to_string(),
            Value::String(text) if !text.contains(',') => text.clone(),
            Value::String(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(format!("{name}: `{value}` is no amount"));
            }
        };
        items.push(format!("{name}={value}"));
    }
    Ok(items.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_texts_or_seconds() {
        let check = |value: Value, expect: Result<u64, &str>| {
            let read = serde_json::from_value::<DurationField>(value.clone());
            match (read, expect) {
                (Ok(read), Ok(seconds)) => assert_eq!(read.0, Duration::from_secs(seconds)),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (read, expect) => panic!("{value}: expected {expect:?}, got {read:?}"),
            }
        };
        check(json!("10m"), Ok(600));
        check(json!(30), Ok(30));
        check(json!(0), Err("longer than 0"));
        check(json!(-1), Err("`-1s`"));
        check(json!("soon"), Err("write it like 90s"));
        check(json!(true), Err("`true` is no duration"));
    }

    #[test]
    fn a_budget_is_an_object_or_a_text() {
        let check = |value: Value, expect: Result<&str, &str>| {
            let read = serde_json::from_value::<BudgetField>(value.clone());
            match (read, expect) {
                (Ok(read), Ok(text)) => assert_eq!(read.0, text.parse().unwrap(), "{value}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (read, expect) => panic!("{value}: expected {expect:?}, got {read:?}"),
            }
        };
        check(json!({ "iterations": 5, "tokens": "50k" }), Ok("iterations=5,tokens=50k"));
        check(json!({ "usd": 0.5, "wall": "10m", "tool_calls": null }), Ok("usd=0.5,wall=10m"));
        check(json!({ "usd": 1e-9 }), Ok("usd=0.000000001"));
        check(json!({ "usd": 1e12, "iterations": 1 }), Err("usd=1000000000000"));
        check(json!("iterations=5"), Ok("iterations=5"));
        check(json!({ "usd": -1 }), Err("usd=-1"));
        check(json!({ "iterations": 1.5 }), Err("iterations=1.5"));
        check(json!({ "children": 5 }), Err("`children` cannot be limited"));
        check(json!({ "iterations": "5,usd=1" }), Err("is no amount"));
        check(json!(5), Err("is no object of limits"));
        assert_eq!(serde_json::from_value::<BudgetField>(json!({})).unwrap(), BudgetField::default());
    }
}
