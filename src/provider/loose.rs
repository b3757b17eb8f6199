//! Lenient deserialization: fields whose JSON types differ between vendors, and the token counts of a reported usage.
//! Also here: the test whether a text is a JSON object.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::Value;

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

// Each text of a stream is read through these, so they read it once and keep no copy.

impl<'de: 'a, 'a> Deserialize<'de> for LooseValue<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = LooseValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(LooseValue::Absent)
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(LooseValue::Text(text.into()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LooseValue::Text(text.to_owned().into()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(LooseValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(object)).map(LooseValue::Other)
    }
}

/// An object that vendors also send as null or omit. Any other type counts as absent.
#[derive(Debug, Clone, Default)]
pub(super) struct LooseObject<T>(pub(super) Option<T>);

/// A list that vendors also send as null or omit. Any other type counts as absent.
#[derive(Debug, Clone, Default)]
pub(super) struct LooseList<T>(pub(super) Option<Vec<T>>);

/// Implements `Deserialize` for a type that accepts a list or an object, and takes all else as absent.
macro_rules! deserialize_loosely {
    ($loose:ident, $visit:ident, $access:ident, $whole:ident; $visit_other:ident, $other:ident, $skip:expr) => {
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for $loose<T> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct LooseVisitor<T>(PhantomData<T>);

                impl<'de, T: Deserialize<'de>> Visitor<'de> for LooseVisitor<T> {
                    type Value = $loose<T>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("any value")
                    }

                    fn $visit<A: $access<'de>>(self, value: A) -> Result<$loose<T>, A::Error> {
                        Deserialize::deserialize($whole::new(value)).map(Some).map($loose)
                    }

                    fn $visit_other<A: $other<'de>>(self, mut value: A) -> Result<$loose<T>, A::Error> {
                        while $skip(&mut value)? {}
                        Ok($loose(None))
                    }

                    fn visit_unit<E: de::Error>(self) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }

                    fn visit_bool<E: de::Error>(self, _: bool) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }

                    fn visit_u64<E: de::Error>(self, _: u64) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }

                    fn visit_i64<E: de::Error>(self, _: i64) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }

                    fn visit_f64<E: de::Error>(self, _: f64) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }

                    fn visit_str<E: de::Error>(self, _: &str) -> Result<$loose<T>, E> {
                        Ok($loose(None))
                    }
                }

                from.deserialize_any(LooseVisitor(PhantomData))
            }
        }
    };
}

deserialize_loosely!(LooseObject, visit_map, MapAccess, MapAccessDeserializer; visit_seq, SeqAccess, skip_item);
deserialize_loosely!(LooseList, visit_seq, SeqAccess, SeqAccessDeserializer; visit_map, MapAccess, skip_entry);

/// Passes over the next item of a list; false at its end.
fn skip_item<'de, A: SeqAccess<'de>>(list: &mut A) -> Result<bool, A::Error> {
    Ok(list.next_element::<IgnoredAny>()?.is_some())
}

/// Passes over the next field of an object; false at its end.
fn skip_entry<'de, A: MapAccess<'de>>(object: &mut A) -> Result<bool, A::Error> {
    Ok(object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some())
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
