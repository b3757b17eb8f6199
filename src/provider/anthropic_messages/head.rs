//! The start of an `anthropic_messages` request: tools and the system prompt.

use std::{borrow::Cow, sync::Arc};

use hermod_actors::{model::ToolSpec, port::EncodedHead};
use serde::Serialize;
use serde_json::Value;

use super::{encode::MAX_NAME_CHARS, write::is_blank};
use crate::provider::{
    names::{self, wire_name},
    schema::object_schema,
    wire::write_json,
};

/// `"tools":[…],"system":[…],"messages":[`: tools sorted by name; an empty tool list or system prompt is omitted. The
/// last tool or the prompt carries the cache marker.
pub(super) fn head(system: &str, tools: &[ToolSpec], marker: &str) -> EncodedHead {
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
            insert_marker(&mut out, marker);
        }
        out.extend_from_slice(b"],");
    }
    if has_system {
        out.extend_from_slice(br#""system":[{"type":"text","text":"#);
        write_json(&mut out, system);
        out.push(b'}');
        insert_marker(&mut out, marker);
        out.extend_from_slice(b"],");
    }
    out.extend_from_slice(br#""messages":["#);
    EncodedHead {
        bytes: out.into(),
        renamed_tools: Arc::new(names::changed_names(tools, MAX_NAME_CHARS)),
        has_tools: !tools.is_empty(),
    }
}

/// Inserts the marker into the last written object.
fn insert_marker(out: &mut Vec<u8>, marker: &str) {
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
        Self { name: wire_name(name, MAX_NAME_CHARS), description, input_schema: object_schema(parameters) }
    }
}
