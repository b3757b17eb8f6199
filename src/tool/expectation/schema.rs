//! A JSON schema that a file has to match. References within the schema are replaced by what they refer to, so that the
//! work of a match is bounded: a schema comes from outside, and one that refers to itself could be matched for ever.

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use super::shown;

/// Most values of a schema whose references are replaced. Data such as that of `enum` counts too: each copy is compared.
const MAX_VALUES: usize = 5_000;
/// Most bytes of its texts.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Most levels of such a schema.
const MAX_DEPTH: usize = 100;
/// Most different patterns, and most bytes of the compiled form of one and of its cache: a short pattern may need megabytes.
const MAX_PATTERNS: usize = 128;
const MAX_PATTERN_BYTES: usize = 2 << 20;
/// Most steps of a match, counted as the values of the schema times those of the file.
const MAX_STEPS: usize = 200_000_000;
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
/// Keywords for which the schemas beside and below them are matched once more, on each level.
const REPEATED: &[&str] = &["unevaluatedProperties", "unevaluatedItems"];
/// How often a schema counts for each `REPEATED` keyword above it.
const REPEATED_WEIGHT: usize = 3;

/// A schema that can be matched with bounded work.
#[derive(Debug)]
pub(super) struct FileSchema {
    validator: Validator,
    /// Values that are looked at for each value of a file.
    values: usize,
}

impl FileSchema {
    /// Compiles the schema, or says why it cannot be one.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let mut expansion = Expansion { root: schema, values: 0, text_bytes: 0, patterns: BTreeSet::new() };
        let expanded = expansion.schema(schema, Place { depth: 0, weight: 1 })?;
        let patterns =
            PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().with_pattern_options(patterns);
        let validator = options.build(&expanded).map_err(|error| {
            format!("the schema is not valid: {}", shown(&error.to_string(), MAX_ERROR_CHARS))
        })?;
        Ok(Self { validator, values: expansion.values })
    }

    /// Matches a value that consists of this many values; the error names the first differences.
    pub(super) fn check(&self, value: &Value, values: usize) -> Result<(), String> {
        if self.values.saturating_mul(values) > MAX_STEPS {
            let own = self.values;
            return Err(format!(
                "it has {values} values and its schema {own}, which is too much to match; make one of them smaller"
            ));
        }
        let errors = self.validator.iter_errors(value).take(MAX_ERRORS).map(|error| {
            let (place, error) = (error.instance_path().to_string(), error.to_string());
            let place = if place.is_empty() { "the whole" } else { &place };
            format!("{}: {}", shown(place, MAX_ERROR_CHARS), shown(&error, MAX_ERROR_CHARS))
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
    /// Bytes of their texts and names.
    text_bytes: usize,
    patterns: BTreeSet<&'a str>,
}

/// Where a value is in the schema.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: usize,
    /// How often it counts.
    weight: usize,
}

impl Place {
    const fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl<'a> Expansion<'a> {
    fn count(&mut self, text: &str, place: Place) -> Result<(), String> {
        self.values = self.values.saturating_add(place.weight);
        self.text_bytes += text.len();
        if self.values > MAX_VALUES || self.text_bytes > MAX_TEXT_BYTES || place.depth > MAX_DEPTH {
            return Err(
                "the schema refers to itself, or is too large; write a smaller one, without recursion".into(),
            );
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &'a str) -> Result<(), String> {
        self.patterns.insert(pattern);
        if self.patterns.len() > MAX_PATTERNS {
            return Err(format!(
                "the schema has more than {MAX_PATTERNS} different patterns; leave some out"
            ));
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value, place: Place) -> Result<Value, String> {
        self.count(schema.as_str().unwrap_or_default(), place)?;
        match schema {
            Value::Object(fields) => self.object(fields, place),
            // Keywords such as `allOf` have a list of schemas.
            Value::Array(items) => items
                .iter()
                .map(|item| self.schema(item, place.below()))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(schema.clone()),
        }
    }

    /// Counts data, which is copied as it is.
    fn data(&mut self, data: &'a Value, place: Place) -> Result<(), String> {
        self.count(data.as_str().unwrap_or_default(), place)?;
        match data {
            Value::Array(items) => items.iter().try_for_each(|item| self.data(item, place.below())),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                self.text_bytes += name.len();
                self.data(value, place.below())
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn object(&mut self, fields: &'a Map<String, Value>, place: Place) -> Result<Value, String> {
        let mut expanded = Map::new();
        let mut referred = None;
        let is_repeated = REPEATED.iter().any(|name| fields.contains_key(*name));
        let weight = if is_repeated { place.weight.saturating_mul(REPEATED_WEIGHT) } else { place.weight };
        let below = Place { weight, ..place.below() };
        for (name, value) in fields {
            self.text_bytes += name.len();
            match (name.as_str(), value) {
                (name, _) if DYNAMIC.contains(&name) => {
                    return Err(format!("the schema has `{name}`; write out what it refers to"));
                }
                ("$ref", Value::String(target)) => {
                    let target = self.find(target)?;
                    referred = Some(self.schema(target, below)?);
                }
                (name, Value::Object(map)) if MAPS.contains(&name) => {
                    // Copies replace all that refers to definitions.
                    if name != "$defs" && name != "definitions" {
                        if name == "patternProperties" {
                            map.keys().try_for_each(|pattern| self.pattern(pattern))?;
                        }
                        expanded.insert(name.to_owned(), self.map(map, below)?);
                    }
                }
                (name, _) if DATA.contains(&name) => {
                    self.data(value, below)?;
                    expanded.insert(name.to_owned(), value.clone());
                }
                (name, _) => {
                    if let ("pattern", Value::String(pattern)) = (name, value) {
                        self.pattern(pattern)?;
                    }
                    expanded.insert(name.to_owned(), self.schema(value, below)?);
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
    fn map(&mut self, map: &'a Map<String, Value>, place: Place) -> Result<Value, String> {
        self.count("", place)?;
        let fields = map.iter().map(|(name, schema)| {
            self.text_bytes += name.len();
            Ok((name.clone(), self.schema(schema, place.below())?))
        });
        fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
    }

    fn find(&self, target: &str) -> Result<&'a Value, String> {
        let pointer = target.strip_prefix('#');
        pointer.and_then(|pointer| self.root.pointer(pointer)).ok_or_else(|| {
            let target = shown(target, MAX_ERROR_CHARS);
            format!("the schema refers to `{target}`, which is not in it; write out what it refers to")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // a test may look at the clock

    use serde_json::json;

    use super::*;

    /// Checks what becomes of a value by a schema: nothing, or an error that has a part.
    #[track_caller]
    fn check(schema: &Value, value: &Value, expect: Result<(), &str>) {
        match (FileSchema::new(schema).and_then(|schema| schema.check(value, 1)), expect) {
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

    /// Checks that a schema is refused, or compiled, at once. With a copy of the data or of the pattern for each reference,
    /// or with each level compiled several times, these took gigabytes, or for ever.
    #[track_caller]
    fn check_cost(schema: &Value, expect: Result<(), &str>) {
        let started = std::time::Instant::now();
        let compiled = FileSchema::new(schema).map(drop);
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        match (compiled, expect) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (compiled, expect) => panic!("expected {expect:?}, got {compiled:?}"),
        }
    }

    #[test]
    fn copies_of_data_texts_and_patterns_are_bounded() {
        let own = "refers to itself, or is too large";
        let copies = |definition: Value| {
            let fields: Map<String, Value> =
                (0..1_000).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/d"}))).collect();
            json!({"$defs": {"d": definition}, "properties": fields})
        };
        check_cost(&copies(json!({"enum": vec![1; 15_000]})), Err(own));
        check_cost(&copies(json!({"const": {"a": vec![1; 15_000]}})), Err(own));
        check_cost(&copies(json!({"description": "x".repeat(30_000)})), Err(own));
        check_cost(&copies(json!({"pattern": "^\\w{1,20}$"})), Ok(()));
        let patterns = |count: usize| {
            let fields = (0..count).map(|n| (format!("p{n}"), json!({"pattern": format!("\\w{{1{n}}}")})));
            json!({"properties": fields.collect::<Map<_, _>>()})
        };
        check_cost(&patterns(1_000), Err("more than 128 different patterns"));
        let keys: Map<String, Value> = (0..1_000).map(|n| (format!("\\w{{1{n}}}"), json!(true))).collect();
        check_cost(&json!({"patternProperties": keys}), Err("more than 128 different patterns"));
        check_cost(&json!({"pattern": "(\\w{1000}){1000}"}), Err("the schema is not valid"));
    }

    #[test]
    fn nested_schemas_are_compiled_and_matched_at_once() {
        let (object, list) = (
            (0..30).fold(json!({}), |inner, _| json!({ "a": inner })),
            (0..30).fold(json!([]), |inner, _| json!([inner])),
        );
        let check = |wrap: fn(Value) -> Value| {
            let nest = |levels| (0..levels).fold(json!({"maxProperties": 0}), |inner, _| wrap(inner));
            // What is nested too deeply is refused: its match would take for ever.
            let levels = if FileSchema::new(&nest(30)).is_ok() { 30 } else { 4 };
            check_cost(&nest(levels), Ok(()));
            let schema = FileSchema::new(&nest(levels)).unwrap();
            let started = std::time::Instant::now();
            let (Ok(()) | Err(_)) = schema.check(&object, 31);
            let (Ok(()) | Err(_)) = schema.check(&list, 31);
            assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
            levels
        };
        assert_eq!(check(|inner| json!({"allOf": [inner], "unevaluatedProperties": false})), 4);
        assert_eq!(check(|inner| json!({"anyOf": [inner, {"minItems": 1}], "unevaluatedItems": false})), 4);
        assert_eq!(check(|inner| json!({"oneOf": [inner, true], "unevaluatedItems": {"minimum": 1}})), 4);
        assert_eq!(check(|inner| json!({"unevaluatedItems": inner})), 4);
        assert_eq!(check(|inner| json!({"anyOf": [inner, {"minItems": 1}]})), 30);
        assert_eq!(check(|inner| json!({"if": inner, "then": {"minimum": 1}, "else": false})), 30);
        assert_eq!(check(|inner| json!({"not": inner})), 30);
        assert_eq!(check(|inner| json!({"contains": inner, "minContains": 2, "prefixItems": [true]})), 30);
        assert_eq!(
            check(|inner| {
                json!({"properties": {"a": inner}, "patternProperties": {"b": true}, "additionalProperties": false})
            }),
            30
        );
        assert_eq!(
            check(|inner| json!({"patternProperties": {"a": inner}, "additionalProperties": false})),
            30
        );
        assert_eq!(check(|inner| json!({"dependentSchemas": {"a": inner}, "propertyNames": true})), 30);
        assert_eq!(check(|inner| json!({"prefixItems": [true], "items": inner})), 30);
    }

    #[test]
    fn the_steps_of_a_match_are_bounded() {
        let schema = FileSchema::new(&json!({"items": {"enum": vec![1; 4_000]}})).unwrap();
        assert!(schema.check(&json!([1]), 10_000).is_ok());
        let error = schema.check(&json!([1]), 100_000).unwrap_err();
        assert!(error.contains("it has 100000 values and its schema 400"), "{error}");
    }
}
