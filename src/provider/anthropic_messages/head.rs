use std::{borrow::Cow, sync::Arc};

use hermod_actors::{model::ToolSpec, port::Head};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    encode::NAME,
    write::{is_blank, write_json},
};
use crate::provider::names::{self, wire_name};

/// Words of a schema that the vendor does not take at its top.
const CHOICES: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// `"tools":[…],"system":[…],"messages":[`: tools by name, none of the two if there is none. The last of them carries the
/// marker.
pub(super) fn head(system: &str, tools: &[ToolSpec], marker: &str) -> Head {
    let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 128);
    let has_system = !is_blank(system);
    let mut sorted: Vec<&ToolSpec> = tools.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some((last, others)) = sorted.split_last() {
        out.extend_from_slice(br#""tools":["#);
        for tool in others {
            write_json(&mut out, &WireTool::of(tool));
            out.push(b',');
        }
        write_json(&mut out, &WireTool::of(last));
        if !has_system {
            mark(&mut out, marker);
        }
        out.extend_from_slice(b"],");
    }
    if has_system {
        out.extend_from_slice(br#""system":[{"type":"text","text":"#);
        write_json(&mut out, system);
        out.push(b'}');
        mark(&mut out, marker);
        out.extend_from_slice(b"],");
    }
    out.extend_from_slice(br#""messages":["#);
    Head { bytes: out.into(), names: Arc::new(names::changed(tools, NAME)) }
}

/// Puts the marker into the object that was written last.
fn mark(out: &mut Vec<u8>, marker: &str) {
    let brace = out.pop();
    out.extend_from_slice(marker.as_bytes());
    out.extend(brace);
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

impl<'a> WireTool<'a> {
    fn of(ToolSpec { name, description, parameters }: &'a ToolSpec) -> Self {
        Self { name: wire_name(name, NAME), description, input_schema: schema(parameters) }
    }
}

/// A schema as the vendor takes it: of an object, without a choice at its top. What it no longer says is still judged
/// when a call comes.
fn schema(parameters: &Value) -> Cow<'_, Value> {
    let no_fields = Map::new();
    let fields = parameters.as_object().unwrap_or(&no_fields);
    let is_object = fields.get("type").and_then(Value::as_str) == Some("object");
    if is_object && !CHOICES.iter().any(|choice| fields.contains_key(*choice)) {
        return Cow::Borrowed(parameters);
    }
    let mut fields = fields.clone();
    fields.insert("type".into(), "object".into());
    let choices: Vec<Value> = CHOICES.iter().filter_map(|choice| fields.shift_remove(*choice)).collect();
    for branch in choices.iter().filter_map(Value::as_array).flatten() {
        let properties = branch.get("properties").and_then(Value::as_object);
        let all = fields.entry("properties").or_insert_with(|| Map::new().into());
        for (name, property) in properties.into_iter().flatten() {
            if let Some(all) = all.as_object_mut() {
                all.entry(name.as_str()).or_insert_with(|| property.clone());
            }
        }
    }
    Cow::Owned(Value::Object(fields))
}
