//! Lenient deserialization: fields whose JSON types differ between vendors, and the token counts of a reported usage.
//! Also here: the test whether a text is a JSON object.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::{Value, value::RawValue};

/// The largest whole number up to which a JSON number is exact: 2^53.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A field whose type differs between vendors. Texts are borrowed where the JSON allows; no type is refused.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum LooseValue<'a> {
    /// Absent or null.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    /// Any other JSON value.
    Other(Value),
}

impl LooseValue<'_> {
    /// The text; empty for any other type.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Absent | Self::Other(_) => "",
        }
    }

    /// The text itself, or another value as JSON.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Text(text) => text.into_owned(),
            Self::Other(value) => value.to_string(),
        }
    }

    /// The field as a JSON value; null if it is absent.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Absent => Value::Null,
            Self::Text(text) => Value::String(text.into_owned()),
            Self::Other(value) => value,
        }
    }

    /// A count: a non-negative number, also one in a string.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Absent => None,
            Self::Text(text) => text.trim().parse().ok(),
            Self::Other(value) => count(value),
        }
    }
}

/// Reads the token counts of a reported usage, and records an invalid one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountReader {
    /// A field was negative, fractional, too large, or not a number.
    pub(super) is_invalid: bool,
}

impl CountReader {
    /// The count; `None` if the field is absent or invalid.
    pub(super) fn read(&mut self, field: &LooseValue<'_>) -> Option<u64> {
        let count = match field {
            LooseValue::Absent => return None,
            LooseValue::Text(text) => text.trim().parse().ok(),
            LooseValue::Other(value) => exact_count(value),
        };
        self.is_invalid |= count.is_none();
        count
    }
}

/// A whole number; some vendors write it with a decimal point.
fn exact_count(value: &Value) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // checked first: whole, and exact in both types
    let whole = |n: f64| ((0.0..=MAX_EXACT_INTEGER).contains(&n) && n.fract() == 0.0).then_some(n as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// A non-negative number of a parsed JSON value. A fraction is cut off.
pub(super) fn count(value: &Value) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates, and counts are whole
    value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
}

impl<'de: 'a, 'a> Deserialize<'de> for LooseValue<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

        let json = <&RawValue>::deserialize(from)?.get();
        let value = match json.as_bytes().first() {
            Some(b'n') => Ok(Self::Absent),
            Some(b'"') => serde_json::from_str(json).map(|Text(text)| Self::Text(text)),
            Some(_) | None => serde_json::from_str(json).map(Self::Other),
        };
        value.map_err(D::Error::custom)
    }
}

/// An object that vendors also send as null or omit. Any other type counts as absent.
#[derive(Debug, Clone, Default)]
pub(super) struct LooseObject<T>(pub(super) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LooseObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_if_begins(from, '{').map(Self)
    }
}

/// A list that vendors also send as null or omit. Any other type counts as absent.
#[derive(Debug, Clone, Default)]
pub(super) struct LooseList<T>(pub(super) Option<Vec<T>>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LooseList<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_if_begins(from, '[').map(Self)
    }
}

/// The value if its JSON begins with `bracket`.
fn read_if_begins<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    bracket: char,
) -> Result<Option<T>, D::Error> {
    let json = <&RawValue>::deserialize(from)?.get();
    let value = json.starts_with(bracket).then(|| serde_json::from_str(json));
    value.transpose().map_err(D::Error::custom)
}

/// True if `text` is a JSON object. Only an object is accepted as arguments by every vendor's template.
pub(super) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Counts {
        read: u64,
        written: u64,
    }

    #[test]
    fn what_is_no_object_is_absent() {
        let read = |json: &str| serde_json::from_str::<LooseObject<Counts>>(json).unwrap().0;
        assert_eq!(read(r#"{"read": 1, "written": 2}"#), Some(Counts { read: 1, written: 2 }));
        for absent in ["null", "\"text\"", "true", "1", "-1", "1.5", "[]", "[1, 2]", "[1, 2, 3]", "[[1], {}]"]
        {
            assert_eq!(read(absent), None, "{absent}");
        }
        let list = |json: &str| serde_json::from_str::<LooseList<u64>>(json).unwrap().0;
        assert_eq!(list("[1, 2]"), Some(vec![1, 2]));
        for absent in ["null", "{}", "\"text\"", "1"] {
            assert_eq!(list(absent), None, "{absent}");
        }
    }

    /// Reads a count as a vendor writes it: the result, and whether it is invalid.
    #[track_caller]
    fn check(json: &str, count: Option<u64>, is_invalid: bool) {
        let mut counts = CountReader::default();
        let field: LooseValue<'_> = serde_json::from_str(json).unwrap();
        assert_eq!((counts.read(&field), counts.is_invalid), (count, is_invalid), "{json}");
    }

    #[test]
    fn a_count_is_a_whole_number_that_is_not_negative() {
        check("null", None, false);
        for (json, count) in [("0", 0), ("12", 12), ("12.0", 12), ("\" 12 \"", 12), ("1e3", 1_000)] {
            check(json, Some(count), false);
        }
        check("18446744073709551615", Some(u64::MAX), false);
        for json in
            ["-1", "-1.0", "1.5", "1e30", "18446744073709551616", "true", "\"many\"", "\"\"", "[]", "{}"]
        {
            check(json, None, true);
        }
    }
}
