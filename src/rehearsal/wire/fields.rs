//! On-demand parsing and checks of JSON objects.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::rehearsal::BorrowedText;

/// The fields of a JSON object, each parsed on demand. `null` counts as absent.
#[derive(Debug, Default)]
pub(super) struct JsonFields<'a>(Vec<(BorrowedText<'a>, &'a RawValue)>);

/// The fields that an object may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectShape {
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldProblem {
    pub(super) field: String,
    pub(super) kind: FieldProblemKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldProblemKind {
    Missing,
    Unknown,
    /// The value is not of this type.
    Type(&'static str),
}

/// A text, or a list of values.
#[derive(Debug)]
pub(super) enum TextOrList<'a> {
    Text(BorrowedText<'a>),
    List(Vec<&'a RawValue>),
}

impl<'a> JsonFields<'a> {
    /// The fields of `raw`; `None` if it is no object.
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// An object with one field.
    pub(super) fn single(name: &'a str, value: &'a RawValue) -> Self {
        Self(vec![(BorrowedText(name.into()), value)])
    }

    /// All fields, in the object's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.0.as_ref(), *value))
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.iter().find(|(found, value)| *found == name && value.get() != "null")?;
        Some(value)
    }

    /// The field parsed as `T`; `expected` is the type's name for error messages.
    pub(super) fn read<T: Deserialize<'a>>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Option<T>, FieldProblem> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let problem = |_| FieldProblem { field: name.into(), kind: FieldProblemKind::Type(expected) };
        serde_json::from_str(raw.get()).map(Some).map_err(problem)
    }

    /// A required field, parsed as `T`.
    pub(super) fn require<T: Deserialize<'a>>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<T, FieldProblem> {
        let missing = || FieldProblem { field: name.into(), kind: FieldProblemKind::Missing };
        self.read(name, expected)?.ok_or_else(missing)
    }

    /// A required text.
    pub(super) fn text(&self, name: &str) -> Result<BorrowedText<'a>, FieldProblem> {
        self.require(name, "string")
    }

    /// An optional text or list.
    pub(super) fn text_or_list(&self, name: &str) -> Result<Option<TextOrList<'a>>, FieldProblem> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let problem = || FieldProblem { field: name.into(), kind: FieldProblemKind::Type("string or array") };
        text_or_list(raw).map(Some).ok_or_else(problem)
    }

    /// Checks that all required fields are present, and no unknown ones.
    pub(super) fn check(&self, shape: &ObjectShape) -> Result<(), FieldProblem> {
        let missing = shape.required.iter().find(|name| self.get(name).is_none());
        if let Some(name) = missing {
            return Err(FieldProblem { field: (*name).into(), kind: FieldProblemKind::Missing });
        }
        let known = |name: &str| shape.required.contains(&name) || shape.optional.contains(&name);
        match self.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => Err(FieldProblem { field: name.into(), kind: FieldProblemKind::Unknown }),
        }
    }
}

/// Parses a text or a list; `None` if `raw` is neither.
pub(super) fn text_or_list(raw: &RawValue) -> Option<TextOrList<'_>> {
    if raw.get().starts_with('"') {
        return serde_json::from_str(raw.get()).ok().map(TextOrList::Text);
    }
    serde_json::from_str(raw.get()).ok().map(TextOrList::List)
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(BorrowedText<'de>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Entries).map(JsonFields)
    }
}
