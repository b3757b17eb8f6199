//! Fields of requests whose JSON has several forms, and those that several doors have. The schema of each says what its code
//! takes.

use std::{
    borrow::Cow,
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use hermod_actors::model::{Amounts, ThinkingLevel};
use regex_lite::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{AnyOfBuilder, ObjectBuilder, Type},
    },
};

use crate::{
    access::TokenEntry,
    host::{BudgetLimits, parse_count, parse_dollars, parse_duration},
    view::schema::text,
};

/// Most characters of an idempotency key.
const MAX_KEY_CHARS: usize = 256;
/// A text of a duration: whole numbers with their units.
const DURATION_PATTERN: &str = "^[1-9][0-9]{0,8}(ms|s|m|h|d)( ?[1-9][0-9]{0,8}(ms|s|m|h|d)){0,4}$";
/// Seconds of a duration that is a number.
const MIN_SECONDS: f64 = 0.001;
const MAX_SECONDS: f64 = 1e9;
/// Dollars of a limit that is a number. The smallest amount is a nano-dollar.
const MIN_DOLLARS: f64 = 1e-9;
const MAX_DOLLARS: f64 = 1e9;
/// The largest number of a limit: each whole number up to it is exact in any program.
const MAX_COUNT: u64 = 1 << 53;

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
        match Value::deserialize(from)? {
            Value::Number(seconds) => {
                let seconds =
                    seconds.as_f64().filter(|seconds| (MIN_SECONDS..=MAX_SECONDS).contains(seconds));
                seconds.map(|seconds| Self(Duration::from_secs_f64(seconds))).ok_or_else(|| {
                    D::Error::custom(format!(
                        "must be {MIN_SECONDS} to {MAX_SECONDS} seconds, or a text like \"90s\""
                    ))
                })
            }
            Value::String(text) => {
                let duration = is_duration(&text).then(|| parse_duration(&text)).and_then(Result::ok);
                duration.map(Self).ok_or_else(|| {
                    D::Error::custom(format!(
                        "`{text}` is no duration; write it like 90s or 10m, with ms, s, m, h or d"
                    ))
                })
            }
            other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(D::Error::custom(format!("`{other}` is no duration; write it like \"90s\"")))
            }
        }
    }
}

fn is_duration(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(DURATION_PATTERN).ok());
    PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

impl PartialSchema for DurationField {
    fn schema() -> RefOr<Schema> {
        let seconds = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(MIN_SECONDS))
            .maximum(Some(MAX_SECONDS));
        let forms = AnyOfBuilder::new().item(text().pattern(Some(DURATION_PATTERN))).item(seconds);
        Schema::from(forms.description(Some("A text such as `90s` or `1h 30m`, or a number of seconds")))
            .into()
    }
}

impl ToSchema for DurationField {
    fn name() -> Cow<'static, str> {
        "Duration".into()
    }
}

/// A duration of a query, which is always a text.
pub(super) enum DurationText {}

impl PartialSchema for DurationText {
    fn schema() -> RefOr<Schema> {
        text().pattern(Some(DURATION_PATTERN)).into()
    }
}

impl ToSchema for DurationText {}

/// A limit of what is counted: a number from 1, or a text such as `50k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountField(u64);

const COUNT_PATTERN: &str = "^0{0,9}[1-9][0-9]{0,8}[kKmM]?$";

impl<'de> Deserialize<'de> for CountField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let count = match &value {
            Value::Number(number) => whole(number).filter(|count| (1..=MAX_COUNT).contains(count)),
            Value::String(text) => parse_count(text).ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        count.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "`{value}` must be a whole number from 1, such as 20, or a text like \"50k\" or \"2m\""
            ))
        })
    }
}

/// A number without a fraction, however it is written.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "within the range of exact numbers"
)]
fn whole(number: &serde_json::Number) -> Option<u64> {
    let is_whole = |n: &f64| n.fract() == 0.0 && (0.0..=MAX_COUNT as f64).contains(n);
    number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|n| n as u64))
}

impl PartialSchema for CountField {
    fn schema() -> RefOr<Schema> {
        let number =
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX_COUNT));
        let forms = AnyOfBuilder::new().item(number).item(text().pattern(Some(COUNT_PATTERN)));
        Schema::from(forms.description(Some("A whole number from 1, or a text such as `50k` or `2m`"))).into()
    }
}

impl ToSchema for CountField {
    fn name() -> Cow<'static, str> {
        "Count".into()
    }
}

/// A limit of money: a number of dollars, or the same as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DollarsField(u64);

const DOLLARS_PATTERN: &str = "^([1-9][0-9]{0,8}([.][0-9]{0,9})?|0[.][0-9]{0,8}[1-9])$";

impl<'de> Deserialize<'de> for DollarsField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let is_in_range = |usd: &f64| (MIN_DOLLARS..=MAX_DOLLARS).contains(usd);
        let amount = match &value {
            // A large or small number is not written with an exponent.
            Value::Number(number) => {
                number.as_f64().filter(is_in_range).and_then(|usd| parse_dollars(&format!("{usd:.9}")).ok())
            }
            Value::String(text) => parse_dollars(text).ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        amount.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "`{value}` must be dollars above 0 with at most nine decimals, like 0.50"
            ))
        })
    }
}

impl PartialSchema for DollarsField {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(MIN_DOLLARS))
            .maximum(Some(MAX_DOLLARS));
        let forms = AnyOfBuilder::new().item(number).item(text().pattern(Some(DOLLARS_PATTERN)));
        Schema::from(forms.description(Some("Dollars, or the same as a text"))).into()
    }
}

impl ToSchema for DollarsField {
    fn name() -> Cow<'static, str> {
        "Dollars".into()
    }
}

/// Limits of a run. What is left out is not limited by them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BudgetLimits)]
pub(super) struct LimitFields {
    /// Model calls with their tool calls.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = CountField, required = false)]
    iterations: Option<CountField>,
    /// Tokens read and written.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = CountField, required = false)]
    tokens: Option<CountField>,
    /// Tool calls started.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = CountField, required = false)]
    tool_calls: Option<CountField>,
    /// Money.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = DollarsField, required = false)]
    usd: Option<DollarsField>,
    /// Active time.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = DurationField, required = false)]
    wall: Option<DurationField>,
}

/// A field that is left out rather than `null`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Limits of a budget: an object such as `{"iterations": 20, "usd": 0.5, "wall": "10m"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BudgetField(pub(super) BudgetLimits);

impl<'de> Deserialize<'de> for BudgetField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = Option::<LimitFields>::deserialize(from)?.unwrap_or_default();
        let count = |field: Option<CountField>| field.map(|count| count.0);
        let amounts = Amounts {
            iterations: count(fields.iterations),
            tokens: count(fields.tokens),
            tool_calls: count(fields.tool_calls),
            usd: fields.usd.map(|dollars| dollars.0),
            ..Amounts::default()
        };
        Ok(Self(BudgetLimits { amounts, wall: fields.wall.map(|wall| wall.0) }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Whether the schema allows a value. Parts with names of their own are added.
    fn is_valid<T: ToSchema>(value: &Value) -> bool {
        let mut parts = Vec::new();
        T::schemas(&mut parts);
        let mut schema = serde_json::to_value(T::schema()).unwrap();
        for (name, part) in parts {
            schema["components"]["schemas"][name] = serde_json::to_value(part).unwrap();
        }
        jsonschema::is_valid(&schema, value)
    }

    #[test]
    fn durations_are_texts_or_seconds() {
        let check = |value: Value, expect: Result<u64, &str>| {
            assert_eq!(is_valid::<DurationField>(&value), expect.is_ok(), "{value}");
            let read = serde_json::from_value::<DurationField>(value.clone());
            match (read, expect) {
                (Ok(read), Ok(seconds)) => assert_eq!(read.0, Duration::from_secs(seconds)),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (read, expect) => panic!("{value}: expected {expect:?}, got {read:?}"),
            }
        };
        check(json!("10m"), Ok(600));
        check(json!(30), Ok(30));
        check(json!(30.0), Ok(30));
        check(json!("1h 30m"), Ok(5400));
        for number in [json!(0), json!(-1), json!(1e10)] {
            check(number, Err("must be 0.001 to 1000000000 seconds"));
        }
        for text in ["soon", "0s", "10", "10 m", "5us", ""] {
            check(json!(text), Err("write it like 90s"));
        }
        check(json!(true), Err("`true` is no duration"));
    }

    #[test]
    fn a_budget_is_an_object_of_limits() {
        let check = |value: Value, expect: Result<&str, &str>| {
            assert_eq!(is_valid::<LimitFields>(&value), expect.is_ok(), "{value}");
            let read = serde_json::from_value::<BudgetField>(value.clone());
            match (read, expect) {
                (Ok(read), Ok(text)) => assert_eq!(read.0, text.parse().unwrap(), "{value}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (read, expect) => panic!("{value}: expected {expect:?}, got {read:?}"),
            }
        };
        check(json!({ "iterations": 5, "tokens": "50k" }), Ok("iterations=5,tokens=50k"));
        check(json!({ "tokens": 14_256_840_969_956.0 }), Ok("tokens=14256840969956"));
        check(json!({ "iterations": 5.0, "usd": 0.5, "wall": "10m" }), Ok("iterations=5,usd=0.5,wall=10m"));
        check(json!({ "usd": 1e-9, "wall": 60 }), Ok("usd=0.000000001,wall=1m"));
        check(json!({ "usd": "0.25" }), Ok("usd=0.25"));
        for usd in [json!(1e12), json!(-1), json!(0), json!(1e-10), json!("1e3"), json!(null)] {
            check(json!({ "usd": usd }), Err("must be dollars above 0"));
        }
        for count in [json!(0), json!(1.5), json!(-1), json!(1_u64 << 54), json!("5,usd=1"), json!(null)] {
            check(json!({ "iterations": count }), Err("must be a whole number from 1"));
        }
        check(json!({ "children": 5 }), Err("unknown field `children`"));
        check(json!(5), Err("invalid type"));
        check(json!("iterations=5"), Err("invalid type"));
        assert_eq!(serde_json::from_value::<BudgetField>(json!({})).unwrap(), BudgetField::default());
    }
}
