//! Lenient deserialization of fields whose JSON types differ between vendors.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

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
    // checked above: whole, and exact in both types
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
        from.deserialize_any(LooseValueVisitor)
    }
}

struct LooseValueVisitor;

impl<'de> Visitor<'de> for LooseValueVisitor {
    type Value = LooseValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E: de::Error>(self) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Absent)
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LooseValue<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element::<Value>()? {
            list.push(value);
        }
        Ok(LooseValue::Other(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LooseValue<'de>, A::Error> {
        let mut object = Map::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            object.insert(key, value);
        }
        Ok(LooseValue::Other(Value::Object(object)))
    }
}

/// An object or a list that vendors also send as null or omit. A type that `T` does not accept counts as absent.
#[derive(Debug, Clone)]
pub(super) struct LooseOption<T>(pub(super) Option<T>);

impl<T> Default for LooseOption<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LooseOption<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct LooseOptionVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for LooseOptionVisitor<T> {
            type Value = LooseOption<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, a list or null")
            }

            fn visit_unit<E: de::Error>(self) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<LooseOption<T>, E> {
                Ok(LooseOption(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LooseOption<T>, A::Error> {
                let mut is_object_wanted = false;
                let list = ListDeserializer { list: &mut seq, is_object_wanted: &mut is_object_wanted };
                let value = match T::deserialize(list) {
                    Err(_) if is_object_wanted => None,
                    value => Some(value?),
                };
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LooseOption(value))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LooseOption<T>, A::Error> {
                let mut begun = false;
                let watched = TrackedMap { map: &mut map, begun: &mut begun };
                match T::deserialize(de::value::MapAccessDeserializer::new(watched)) {
                    Ok(value) => Ok(LooseOption(Some(value))),
                    Err(error) if begun => Err(error),
                    // `T` does not accept an object.
                    Err(_) => {
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        Ok(LooseOption(None))
                    }
                }
            }
        }

        from.deserialize_any(LooseOptionVisitor(std::marker::PhantomData))
    }
}

/// Deserializes a list, but no struct: serde would assign the values to its fields in their order.
struct ListDeserializer<'a, A> {
    list: &'a mut A,
    is_object_wanted: &'a mut bool,
}

impl<'de, A: SeqAccess<'de>> Deserializer<'de> for ListDeserializer<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_seq(self.list)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, A::Error> {
        *self.is_object_wanted = true;
        Err(de::Error::invalid_type(de::Unexpected::Seq, &name))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A map that records whether a key was read.
struct TrackedMap<'a, A> {
    map: &'a mut A,
    begun: &'a mut bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for TrackedMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        *self.begun = true;
        self.map.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
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
        let read = |json: &str| serde_json::from_str::<LooseOption<Counts>>(json).unwrap().0;
        assert_eq!(read(r#"{"read": 1, "written": 2}"#), Some(Counts { read: 1, written: 2 }));
        for absent in ["null", "\"text\"", "true", "1", "-1", "1.5", "[]", "[1, 2]", "[1, 2, 3]", "[[1], {}]"]
        {
            assert_eq!(read(absent), None, "{absent}");
        }
        let list = serde_json::from_str::<LooseOption<Vec<u64>>>("[1, 2]").unwrap().0;
        assert_eq!(list, Some(vec![1, 2]));
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
