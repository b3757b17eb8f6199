//! JSON schemas of tool arguments: derives them, repairs and validates arguments by them, and words the errors for a
//! model.

use std::sync::OnceLock;

use hermod_actors::port::BadArguments;
use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
    paths::{Location, LocationSegment},
};
use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::excerpt::first_chars;

/// Longer values are truncated in messages.
const MAX_VALUE_CHARS: usize = 80;
/// Longer unknown names, in bytes, get no suggestion: the comparison's memory grows with the product of both lengths.
const MAX_COMPARED_BYTES: usize = 64;
/// Most validation errors among which the one to report is chosen.
const MAX_ERRORS: usize = 1_000;
/// Similarity (0 to 1) below which a known name is not suggested.
const MIN_SIMILARITY: f64 = 0.5;

/// Validates the arguments of one tool by the same schema that the model gets.
#[derive(Debug)]
pub struct ArgumentSchema {
    schema: Value,
    /// Compiled at the first call: most tools are never called in most processes.
    validator: OnceLock<Validator>,
}

impl ArgumentSchema {
    /// The schema of `T`: a struct with doc comments, which become the descriptions, and `deny_unknown_fields`.
    pub fn of<T: JsonSchema>() -> Self {
        Self { schema: schema_of::<T>(), validator: OnceLock::new() }
    }

    /// The JSON schema: an object, without `$ref`, `$schema` and titles.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Parses arguments. An optional field that is null counts as absent, `2.0` as 2.
    pub fn parse<T: DeserializeOwned>(&self, arguments: &Value) -> Result<T, BadArguments> {
        let mut arguments = arguments.clone();
        repair(&self.schema, &mut arguments);
        if let Some(error) = self.first_error(&arguments) {
            return Err(self.explain(&error));
        }
        serde_json::from_value(arguments).map_err(|error| BadArguments {
            field: None,
            error: format!("the arguments cannot be read: {error}"),
            hint: "follow the tool's schema".into(),
        })
    }

    /// An unknown name takes precedence: it is often the reason why another field is missing.
    fn first_error<'a>(&'a self, arguments: &'a Value) -> Option<ValidationError<'a>> {
        let compile = || jsonschema::validator_for(&self.schema).expect("schemars makes valid schemas");
        let validator = self.validator.get_or_init(compile);
        validator.iter_errors(arguments).take(MAX_ERRORS).min_by_key(|error| match unknown_field(error) {
            Some(_) => 0,
            None => 1,
        })
    }

    fn explain(&self, error: &ValidationError<'_>) -> BadArguments {
        let path = error.instance_path();
        let at = |field: Option<String>, error: String, hint: String| BadArguments { field, error, hint };
        let value = first_chars(&error.instance().to_string(), MAX_VALUE_CHARS).into_owned();
        if let Some(name) = unknown_field(error) {
            let known = self.known_fields(path);
            let hint = match nearest(name, &known) {
                _ if known.is_empty() => "leave it out; there are no fields".into(),
                Some(nearest) => format!("use `{nearest}`; the fields are {}", known.join(", ")),
                None => format!("leave it out; the fields are {}", known.join(", ")),
            };
            let name = first_chars(name, MAX_VALUE_CHARS);
            return at(Some(join_path(path, &name)), format!("unknown field `{name}`"), hint);
        }
        if let ValidationErrorKind::Required { property } = error.kind() {
            let name = property.as_str().unwrap_or_default();
            let description = self.description(path, name);
            let (error, hint) = (format!("missing field `{name}`"), format!("give it: {description}"));
            return at(Some(join_path(path, name)), error, hint);
        }
        let field = format_path(path);
        let named = field.as_deref().map_or("the arguments are".into(), |field| format!("`{field}` is"));
        if let ValidationErrorKind::Type { kind } = error.kind() {
            let expected = expected_type(kind);
            let hint = format!("give {} as {expected}", if field.is_some() { "it" } else { "them" });
            return at(field, format!("{named} {value}, expected {expected}"), hint);
        }
        let choices = self.subschema(path).map(choices).unwrap_or_default();
        if !choices.is_empty() {
            let hint = format!("give one of {}", choices.join(", "));
            return at(field, format!("{named} {value}, which is none of what it can be"), hint);
        }
        let error = error.to_string();
        let error = first_chars(&error, MAX_VALUE_CHARS);
        at(field, format!("{named} not acceptable: {error}"), "give a value that the schema allows".into())
    }

    /// The subschema for the value at `path`.
    fn subschema(&self, path: &Location) -> Option<&Value> {
        path.iter().try_fold(&self.schema, |schema, segment| match segment {
            LocationSegment::Property(name) => schema.get("properties")?.get(&*name),
            LocationSegment::Index(_) => schema.get("items"),
        })
    }

    fn known_fields(&self, path: &Location) -> Vec<&str> {
        let properties = self.subschema(path).and_then(|schema| schema.get("properties")?.as_object());
        properties.into_iter().flat_map(|fields| fields.keys().map(String::as_str)).collect()
    }

    fn description(&self, path: &Location, name: &str) -> &str {
        let field = self.subschema(path).and_then(|schema| schema.get("properties")?.get(name));
        field.and_then(|field| field.get("description")?.as_str()).unwrap_or("the schema tells what it is")
    }
}

/// The allowed texts of a value, if the schema enumerates them.
fn choices(schema: &Value) -> Vec<&str> {
    let items = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    // Values with descriptions are separate `const` schemas.
    let described = items("oneOf").filter_map(|one| one.get("const"));
    let values = items("enum").chain(described).filter_map(Value::as_str);
    values.chain(items("anyOf").flat_map(choices)).collect()
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let plain = RecursiveTransform(simplify as fn(&mut Schema));
    let mut schema = settings.with_transform(plain).into_generator().into_root_schema_for::<T>();
    schema.remove("description");
    schema.to_value()
}

/// Removes details that a model does not need. `null` is not offered, though accepted.
fn simplify(schema: &mut Schema) {
    for noise in ["title", "format"] {
        schema.remove(noise);
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    // Some vendors, and the check for unknown fields, need `properties` even if it is empty.
    if schema.get("type").is_some_and(|kind| kind == "object") && schema.get("properties").is_none() {
        schema.insert("properties".into(), Value::Object(serde_json::Map::new()));
    }
    let Some(Value::Array(types)) = schema.get("type") else { return };
    let mut types: Vec<_> = types.iter().filter(|kind| *kind != "null").cloned().collect();
    if types.len() == 1 {
        schema.insert("type".into(), types.remove(0));
    }
}

/// Drops nulls of optional fields, and turns `2.0` into 2 for integers.
fn repair(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            fields.retain(|name, value| !value.is_null() || required.iter().any(|field| field == name));
            fields.iter_mut().for_each(|(name, value)| repair(&schema["properties"][name.as_str()], value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| repair(&schema["items"], item)),
        Value::Number(number) if schema["type"] == "integer" && number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0);
            if let Some(whole) = whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unknown_field<'a>(error: &'a ValidationError<'_>) -> Option<&'a str> {
    if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
        return unexpected.first().map(String::as_str);
    }
    None
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let likeness = |other: &str| {
        if name.contains(other) || other.contains(name) {
            return 1.0;
        }
        strsim::normalized_damerau_levenshtein(name, other)
    };
    let best = known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= MIN_SIMILARITY).then_some(best)
}

fn expected_type(kind: &TypeKind) -> String {
    let name = |kind: &str| match kind {
        "integer" => "a whole number".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "an object".to_owned(),
        other => format!("a {other}"),
    };
    match kind {
        TypeKind::Single(kind) => name(&kind.to_string()),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| name(&kind.to_string())).collect::<Vec<_>>().join(" or ")
        }
    }
}

/// A path like `edits[2].old`; `None` for the root.
fn format_path(path: &Location) -> Option<String> {
    let text = path.iter().fold(String::new(), |text, segment| match segment {
        LocationSegment::Property(name) if text.is_empty() => name.into_owned(),
        LocationSegment::Property(name) => format!("{text}.{name}"),
        LocationSegment::Index(index) => format!("{text}[{index}]"),
    });
    (!text.is_empty()).then_some(text)
}

fn join_path(path: &Location, name: &str) -> String {
    format_path(path).map_or_else(|| name.to_owned(), |path| format!("{path}.{name}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Not for the model.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Edit {
        /// Text to replace.
        old: String,
        /// Its replacement.
        new: Option<String>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        /// The file to edit.
        path: String,
        /// How often.
        #[schemars(range(min = 1, max = 8))]
        limit: Option<u32>,
        /// The edits.
        #[serde(default)]
        edits: Vec<Edit>,
    }

    fn check(arguments: &Value, field: Option<&str>, error: &str, hint: &str) {
        let bad = ArgumentSchema::of::<Arguments>().parse::<Arguments>(arguments).unwrap_err();
        assert_eq!((bad.field.as_deref(), &*bad.error, &*bad.hint), (field, error, hint));
    }

    #[test]
    fn the_schema_is_plain() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"description": "The file to edit.", "type": "string"},
                "limit": {"description": "How often.", "type": "integer", "minimum": 1, "maximum": 8},
                "edits": {"description": "The edits.", "type": "array", "items": {
                    "description": "Not for the model.",
                    "type": "object",
                    "properties": {
                        "old": {"description": "Text to replace.", "type": "string"},
                        "new": {"description": "Its replacement.", "type": "string"},
                    },
                    "additionalProperties": false,
                    "required": ["old"],
                }},
            },
            "additionalProperties": false,
            "required": ["path"],
        });
        assert_eq!(ArgumentSchema::of::<Arguments>().schema(), &schema);
    }

    #[test]
    fn good_arguments_are_read() {
        let good = json!({"path": "a", "limit": null, "edits": [{"old": "x", "new": null}]});
        let parsed: Arguments = ArgumentSchema::of::<Arguments>().parse(&good).unwrap();
        let float: Arguments =
            ArgumentSchema::of::<Arguments>().parse(&json!({"path": "a", "limit": 2.0})).unwrap();
        assert_eq!(float.limit, Some(2));
        let edits = vec![Edit { old: "x".into(), new: None }];
        assert_eq!(parsed, Arguments { path: "a".into(), limit: None, edits });
    }

    #[test]
    fn bad_arguments_are_named() {
        let known = "the fields are path, limit, edits";
        check(&json!({"pth": "a"}), Some("pth"), "unknown field `pth`", &format!("use `path`; {known}"));
        let colour = json!({"path": "a", "colour": 1});
        check(&colour, Some("colour"), "unknown field `colour`", &format!("leave it out; {known}"));
        check(&json!({}), Some("path"), "missing field `path`", "give it: The file to edit.");
        check(
            &json!({"path": null}),
            Some("path"),
            "`path` is null, expected a string",
            "give it as a string",
        );
        check(
            &json!({"path": "a", "limit": "3"}),
            Some("limit"),
            "`limit` is \"3\", expected a whole number",
            "give it as a whole number",
        );
        check(
            &json!({"path": "a", "limit": 9}),
            Some("limit"),
            "`limit` is not acceptable: 9 is greater than the maximum of 8",
            "give a value that the schema allows",
        );
        check(&json!("rm"), None, "the arguments are \"rm\", expected an object", "give them as an object");
    }

    #[test]
    fn where_few_values_are_allowed_they_are_named() {
        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum Plain {
            Add,
            TakeAway,
        }

        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum Described {
            /// One more.
            Add,
            /// One less.
            Remove,
        }

        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        struct Change {
            plain: Option<Plain>,
            described: Option<Described>,
        }

        let check = |arguments: Value, error: &str, hint: &str| {
            let bad = ArgumentSchema::of::<Change>().parse::<Change>(&arguments).unwrap_err();
            assert_eq!((&*bad.error, &*bad.hint), (error, hint));
        };
        let told = "which is none of what it can be";
        check(json!({"plain": "zap"}), &format!("`plain` is \"zap\", {told}"), "give one of add, take_away");
        check(json!({"described": 5}), &format!("`described` is 5, {told}"), "give one of add, remove");
    }

    #[test]
    fn a_nested_field_is_named_by_its_path() {
        let edits = |edit: Value| json!({"path": "a", "edits": [{"old": "x"}, edit]});
        check(&edits(json!({})), Some("edits[1].old"), "missing field `old`", "give it: Text to replace.");
        check(
            &edits(json!({"old": "x", "nw": "y"})),
            Some("edits[1].nw"),
            "unknown field `nw`",
            "use `new`; the fields are old, new",
        );
        check(
            &edits(json!({"old": 5})),
            Some("edits[1].old"),
            "`edits[1].old` is 5, expected a string",
            "give it as a string",
        );
    }
}
