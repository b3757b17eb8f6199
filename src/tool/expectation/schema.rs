//! A JSON schema that a file has to match. References within the schema are replaced by what they refer to, so that the
//! work of a match is bounded: a schema comes from outside, and one that refers to itself could be matched for ever.

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::excerpt::first_chars;

/// Most values of a schema whose references are replaced.
const MAX_VALUES: usize = 5_000;
/// Most levels of such a schema.
const MAX_DEPTH: usize = 100;
/// Most differences that are reported.
const MAX_ERRORS: usize = 3;
/// Most characters of a reported difference.
const MAX_ERROR_CHARS: usize = 200;
/// Keywords whose value has a schema for each of its fields.
const MAPS: &[&str] = &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is data, and no schema.
const DATA: &[&str] = &["const", "enum", "default", "examples"];
/// Keywords that refer to what only a match knows.
const DYNAMIC: &[&str] = &["$dynamicRef", "$recursiveRef"];

/// A schema that can be matched with bounded work.
#[derive(Debug)]
pub(super) struct FileSchema(Validator);

impl FileSchema {
    /// Compiles the schema, or says why it cannot be one.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let mut expansion = Expansion { root: schema, values: 0 };
        let schema = expansion.schema(schema, 0)?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(&schema).map(Self).map_err(|error| {
            let error = error.to_string();
            format!("the schema is not valid: {}", first_chars(&error, MAX_ERROR_CHARS))
        })
    }

    /// Matches a value; the error names the first differences.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        let errors = self.0.iter_errors(value).take(MAX_ERRORS).map(|error| {
            let (place, error) = (error.instance_path().to_string(), error.to_string());
            let place = if place.is_empty() { "the whole" } else { &place };
            format!("{place}: {}", first_chars(&error, MAX_ERROR_CHARS))
        });
        match errors.collect::<Vec<_>>() {
            errors if errors.is_empty() => Ok(()),
            errors => Err(format!("it does not match the schema: {}", errors.join("; "))),
        }
    }
}

/// The replacement of references by copies.
struct Expansion<'a> {
    root: &'a Value,
    /// Values so far.
    values: usize,
}

impl<'a> Expansion<'a> {
    fn count(&mut self, depth: usize) -> Result<(), String> {
        self.values += 1;
        if self.values > MAX_VALUES || depth > MAX_DEPTH {
            return Err(
                "the schema refers to itself, or is too large; write a smaller one, without recursion".into(),
            );
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, String> {
        self.count(depth)?;
        match schema {
            Value::Object(fields) => self.object(fields, depth),
            // Keywords such as `allOf` have a list of schemas.
            Value::Array(items) => items
                .iter()
                .map(|item| self.schema(item, depth + 1))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(schema.clone()),
        }
    }

    fn object(&mut self, fields: &'a Map<String, Value>, depth: usize) -> Result<Value, String> {
        let mut expanded = Map::new();
        let mut referred = None;
        for (name, value) in fields {
            match (name.as_str(), value) {
                (name, _) if DYNAMIC.contains(&name) => {
                    return Err(format!("the schema has `{name}`; write out what it refers to"));
                }
                ("$ref", Value::String(target)) => {
                    let target = self.find(target)?;
                    referred = Some(self.schema(target, depth + 1)?);
                }
                (name, Value::Object(map)) if MAPS.contains(&name) => {
                    // Copies replace all that refers to definitions.
                    if name != "$defs" && name != "definitions" {
                        expanded.insert(name.to_owned(), self.map(map, depth + 1)?);
                    }
                }
                (name, _) if DATA.contains(&name) => {
                    self.count(depth)?;
                    expanded.insert(name.to_owned(), value.clone());
                }
                (name, _) => {
                    expanded.insert(name.to_owned(), self.schema(value, depth + 1)?);
                }
            }
        }
        if let Some(referred) = referred {
            match expanded.get_mut("allOf") {
                Some(Value::Array(all)) => all.push(referred),
                Some(_) | None => {
                    expanded.insert("allOf".into(), Value::Array(vec![referred]));
                }
            }
        }
        Ok(Value::Object(expanded))
    }

    /// A map from names, which may look like keywords, to schemas.
    fn map(&mut self, map: &'a Map<String, Value>, depth: usize) -> Result<Value, String> {
        self.count(depth)?;
        let fields = map.iter().map(|(name, schema)| Ok((name.clone(), self.schema(schema, depth + 1)?)));
        fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
    }

    fn find(&self, target: &str) -> Result<&'a Value, String> {
        let pointer = target.strip_prefix('#');
        pointer.and_then(|pointer| self.root.pointer(pointer)).ok_or_else(|| {
            let target = first_chars(target, MAX_ERROR_CHARS);
            format!("the schema refers to `{target}`, which is not in it; write out what it refers to")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks what becomes of a value by a schema: nothing, or an error that has a part.
    #[track_caller]
    fn check(schema: &Value, value: &Value, expect: Result<(), &str>) {
        match (FileSchema::new(schema).and_then(|schema| schema.check(value)), expect) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expect) => panic!("{schema} {value}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn differences_are_named() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        check(&schema, &json!({"n": 1}), Ok(()));
        check(&schema, &json!({}), Err("the whole: \"n\" is a required property"));
        check(&schema, &json!({"n": "x"}), Err("/n: \"x\" is not of type \"integer\""));
        check(&json!({"type": "nothing"}), &json!(1), Err("the schema is not valid"));
        check(&json!({"pattern": "(a*)*b"}), &json!("a".repeat(10_000)), Err("does not match"));
        check(&json!(true), &json!(1), Ok(()));
    }

    #[test]
    fn references_within_the_schema_are_followed() {
        let schema = json!({
            "$defs": {"name": {"type": "string", "minLength": 2}},
            "properties": {"a": {"$ref": "#/$defs/name", "maxLength": 3}, "$ref": {"$ref": "#/$defs/name"}},
            "const": {"$ref": "plain data"}
        });
        check(&schema, &json!({"$ref": "plain data"}), Ok(()));
        let named = json!({
            "$defs": {"name": {"type": "string", "minLength": 2}},
            "properties": {"a": {"$ref": "#/$defs/name", "maxLength": 3}}
        });
        check(&named, &json!({"a": "ab"}), Ok(()));
        check(&named, &json!({"a": "a"}), Err("/a: "));
        check(&named, &json!({"a": "abcd"}), Err("/a: "));
    }

    #[test]
    fn work_without_bounds_is_refused() {
        let own = "refers to itself, or is too large";
        check(&json!({"$ref": "#"}), &json!(1), Err(own));
        let tree = json!({"$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"});
        check(&tree, &json!([]), Err(own));
        let doubling = (1..30).map(|n| {
            let before = json!({ "$ref": format!("#/$defs/d{}", n - 1) });
            (format!("d{n}"), json!({ "allOf": [before.clone(), before] }))
        });
        let mut defs: Map<String, Value> = doubling.collect();
        defs.insert("d0".into(), json!({"minimum": 1}));
        check(&json!({"$defs": defs, "$ref": "#/$defs/d29"}), &json!(1), Err(own));
        check(&json!({"$ref": "https://x.example/s"}), &json!(1), Err("which is not in it"));
        check(&json!({"$dynamicRef": "#a"}), &json!(1), Err("write out what it refers to"));
    }
}
