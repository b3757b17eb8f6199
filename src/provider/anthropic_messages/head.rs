//! The head of an `anthropic_messages` request: the tools and the system prompt. `body.rs` writes the fields before it.

use std::borrow::Cow;

use hermod_actors::{model::ToolSpec, port::EncodedHead};
use serde::Serialize;
use serde_json::Value;

use super::write::is_blank;
use crate::provider::{
    names::{MAX_NAME_CHARS, wire_name},
    schema::object_schema,
    wire::{encoded_head, write_json, write_tools},
};

/// The end of the last object of a list, and of the list.
const OBJECT_END: &[u8] = b"}],";

/// `"tools":[…],"system":[…],"messages":[`: tools sorted by name; an empty tool list or system prompt is omitted. The
/// prompt carries the cache marker, or the last tool if there is no prompt.
pub(super) fn head(system: &str, tools: &[ToolSpec], marker: &str) -> EncodedHead {
    let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 128);
    let has_system = !is_blank(system);
    write_tools(&mut out, tools, WireTool::of);
    if !has_system && !tools.is_empty() {
        insert_marker(&mut out, marker);
    }
    if has_system {
        out.extend_from_slice(br#""system":[{"type":"text","text":"#);
        write_json(&mut out, system);
        out.extend_from_slice(OBJECT_END);
        insert_marker(&mut out, marker);
    }
    out.extend_from_slice(br#""messages":["#);
    encoded_head(out, tools)
}

/// Inserts the marker into the last written object, whose list has ended.
fn insert_marker(out: &mut Vec<u8>, marker: &str) {
    out.truncate(out.len() - OBJECT_END.len());
    out.extend_from_slice(marker.as_bytes());
    out.extend_from_slice(OBJECT_END);
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
