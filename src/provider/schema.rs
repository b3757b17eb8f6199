//! Converts the schemas of offered tools to the form that all vendors accept.

use std::{borrow::Cow, iter};

use serde_json::{Map, Value};

/// Keywords that vendors refuse at the top of a schema; the properties of their branches are merged into the schema.
const CHOICE_KEYWORDS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Other keywords that vendors refuse at the top of a schema.
const REMOVED_KEYWORDS: [&str; 2] = ["enum", "not"];
/// The maximum number of schemas visited from one branch by following references, which may be cyclic.
const MAX_REFERENCES: usize = 8;

/// A schema that every vendor accepts: an object with properties at the top, without choices. The removed constraints
/// are still checked when a call comes. Nested schemas stay unchanged.
pub(super) fn object_schema(parameters: &Value) -> Cow<'_, Value> {
    let no_fields = Map::new();
    let fields = parameters.as_object().unwrap_or(&no_fields);
    let is_object = fields.get("type").and_then(Value::as_str) == Some("object")
        && fields.get("properties").is_some_and(Value::is_object);
    if is_object && !CHOICE_KEYWORDS.iter().chain(&REMOVED_KEYWORDS).any(|word| fields.contains_key(*word)) {
        return Cow::Borrowed(parameters);
    }
    let mut fields = fields.clone();
    fields.insert("type".into(), "object".into());
    for word in REMOVED_KEYWORDS {
        fields.shift_remove(word);
    }
    let choices: Vec<Value> =
        CHOICE_KEYWORDS.iter().filter_map(|choice| fields.shift_remove(*choice)).collect();
    let entry = fields.entry("properties").or_insert(Value::Null);
    let mut properties = entry.as_object_mut().map(std::mem::take).unwrap_or_default();
    for branch in choices.iter().filter_map(Value::as_array).flatten() {
        for (name, property) in branch_properties(parameters, branch) {
            properties.entry(name).or_insert_with(|| property.clone());
        }
    }
    *entry = Value::Object(properties);
    Cow::Owned(Value::Object(fields))
}

/// The properties of a branch and of the schemas that it references within `root`.
fn branch_properties<'a>(
    root: &'a Value,
    branch: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let referenced = move |branch: &&'a Value| {
        let pointer = branch.get("$ref")?.as_str()?.strip_prefix('#')?;
        root.pointer(pointer)
    };
    let branches = iter::successors(Some(branch), referenced).take(MAX_REFERENCES);
    branches.filter_map(|branch| branch.get("properties")?.as_object()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    #[allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise
    fn a_schema_is_made_fit_at_its_top_only() {
        let check = |parameters: Value, expected: Value| {
            let found = object_schema(&parameters);
            assert_eq!(*found, expected, "{parameters}");
            assert_eq!(matches!(found, Cow::Borrowed(_)), parameters == expected, "{parameters}");
        };
        let none = || json!({"type": "object", "properties": {}});
        for bare in [
            none(),
            json!(null),
            json!(true),
            json!({}),
            json!({"type": "object"}),
            json!({"type": "dict", "properties": null}),
            json!({"type": ["object", "null"], "properties": []}),
            json!({"type": "object", "properties": {}, "not": {"required": ["x"]}, "enum": [{}]}),
            json!({"oneOf": "no", "allOf": [true, null, {"$ref": 7}]}),
        ] {
            check(bare, none());
        }
        let below =
            json!({"x": {"anyOf": [{"type": "dict"}, {"not": {}}], "enum": [1]}, "y": {"type": "object"}});
        let nested = json!({"type": "object", "properties": below, "required": ["x"]});
        check(nested.clone(), nested);
        let defs = json!({
            "A/B": {"properties": {"x": {"const": 2}, "y": {"$ref": "#/$defs/C"}}},
            "C": {"$ref": "#/$defs/A~1B", "properties": {"z": {}}},
            "D": {"$ref": "#/$defs/D"},
        });
        let branches = json!([
            {"properties": {"x": {"const": 1}}},
            {"$ref": "#/$defs/C"},
            {"$ref": "#/$defs/D"},
            {"$ref": "#/$defs/E"},
            {"$ref": "https://acme.example/schema"},
        ]);
        let properties = json!({"z": {}, "x": {"const": 1}, "y": {"$ref": "#/$defs/C"}});
        for choice in CHOICE_KEYWORDS {
            check(
                json!({"$defs": defs, choice: branches}),
                json!({"$defs": defs, "type": "object", "properties": properties}),
            );
        }
    }
}
