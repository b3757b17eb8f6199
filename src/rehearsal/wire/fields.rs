//! Parses the fields of JSON objects on demand, and checks which are present. A format words the refusals.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::RequestRefusal;
use crate::rehearsal::BorrowedText;

/// The fields of a JSON object in a request, each parsed on demand. `null` counts as absent.
#[derive(Debug)]
pub(super) struct JsonFields<'a> {
    fields: RawFields<'a>,
    /// The path of the object, for refusals; empty for the request itself.
    pub(super) path: String,
    refuse: FieldRefusal,
}

/// The refusal of the field with this path, in the terms of a format.
pub(super) type FieldRefusal = fn(&str, FieldProblem) -> RequestRefusal;

type RawFields<'a> = BTreeMap<BorrowedText<'a>, &'a RawValue>;

/// The fields that an object may have. Each text is a list of names, separated by blanks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectShape {
    pub(super) required: &'static str,
    pub(super) optional: &'static str,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldProblem {
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
    /// The fields of the object at `path`; `expected` is its type's name for the refusal of anything else.
    pub(super) fn of(
        raw: &'a RawValue,
        path: impl Into<String>,
        expected: &'static str,
        refuse: FieldRefusal,
    ) -> Result<Self, RequestRefusal> {
        let path = path.into();
        match serde_json::from_str(raw.get()) {
            Ok(fields) => Ok(Self { fields, path, refuse }),
            Err(_) => Err(refuse(&path, FieldProblem::Type(expected))),
        }
    }

    /// An object at `path` with one field.
    pub(super) fn single(
        name: &'a str,
        value: &'a RawValue,
        path: impl Into<String>,
        refuse: FieldRefusal,
    ) -> Self {
        let fields = RawFields::from([(BorrowedText(name.into()), value)]);
        Self { fields, path: path.into(), refuse }
    }

    /// The same object; refusals name it by another path.
    pub(super) fn at(self, path: impl Into<String>) -> Self {
        Self { path: path.into(), ..self }
    }

    /// The path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}", self.path)
    }

    fn refused(&self, name: &str, problem: FieldProblem) -> RequestRefusal {
        (self.refuse)(&self.path(name), problem)
    }

    /// All fields, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.fields.iter().map(|(name, value)| (name.0.as_ref(), *value))
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
    ) -> Result<Option<T>, RequestRefusal> {
        let value = self.get(name).map(|raw| serde_json::from_str(raw.get()));
        value.transpose().map_err(|_| self.refused(name, FieldProblem::Type(expected)))
    }

    /// A required field, parsed as `T`.
    pub(super) fn require<T: Deserialize<'a>>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<T, RequestRefusal> {
        self.read(name, expected)?.ok_or_else(|| self.refused(name, FieldProblem::Missing))
    }

    /// A required text.
    pub(super) fn text(&self, name: &str) -> Result<BorrowedText<'a>, RequestRefusal> {
        self.require(name, "string")
    }

    /// An object.
    pub(super) fn object(&self, name: &str, expected: &'static str) -> Result<Option<Self>, RequestRefusal> {
        let path = || self.path(name);
        self.get(name).map(|raw| Self::of(raw, path(), expected, self.refuse)).transpose()
    }

    /// A required object.
    pub(super) fn require_object(&self, name: &str, expected: &'static str) -> Result<Self, RequestRefusal> {
        self.object(name, expected)?.ok_or_else(|| self.refused(name, FieldProblem::Missing))
    }

    /// A list of objects; `item_path` makes the path of an item from that of the list.
    pub(super) fn objects(
        &self,
        name: &str,
        expected: &'static str,
        item_path: fn(&str, usize) -> String,
    ) -> Result<Vec<Self>, RequestRefusal> {
        let list = self.read::<Vec<RawFields<'_>>>(name, expected)?.unwrap_or_default();
        let path = self.path(name);
        let objects = list.into_iter().enumerate();
        let object = |(n, fields)| Self { fields, path: item_path(&path, n), refuse: self.refuse };
        Ok(objects.map(object).collect())
    }

    /// An optional text or list.
    pub(super) fn text_or_list(&self, name: &str) -> Result<Option<TextOrList<'a>>, RequestRefusal> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let problem = || self.refused(name, FieldProblem::Type("string or array"));
        text_or_list(raw).map(Some).ok_or_else(problem)
    }

    /// Checks that all required fields are present, and no unknown ones.
    pub(super) fn check(&self, shape: &ObjectShape) -> Result<(), RequestRefusal> {
        let mut required = shape.required.split_ascii_whitespace();
        if let Some(name) = required.find(|name| self.get(name).is_none()) {
            return Err(self.refused(name, FieldProblem::Missing));
        }
        let names = shape.required.split_ascii_whitespace().chain(shape.optional.split_ascii_whitespace());
        let known = |name: &str| names.clone().any(|known| known == name);
        match self.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => Err(self.refused(name, FieldProblem::Unknown)),
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
