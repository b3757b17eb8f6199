//! Parsing and checks of `tools` and `tool_choice` in `anthropic_messages` requests.

use std::collections::HashSet;

use super::{cache::Ttl, is_word, refuse, refuse_field};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape},
    },
};

/// An offered tool.
#[derive(Debug)]
pub(super) struct OfferedTool<'a> {
    pub(super) name: BorrowedText<'a>,
    pub(super) fields: JsonFields<'a>,
    pub(super) marker: Option<Ttl>,
}

/// The calls that `tool_choice` allows or requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolChoiceMode {
    Free,
    Forced,
    None,
}

const CUSTOM: ObjectShape = ObjectShape {
    required: &["name", "input_schema"],
    optional: &[
        "type",
        "description",
        "cache_control",
        "strict",
        "defer_loading",
        "eager_input_streaming",
        "allowed_callers",
        "input_examples",
    ],
};

/// Parses `tools`.
pub(super) fn tools<'a>(request: &JsonFields<'a>) -> Result<Vec<OfferedTool<'a>>, RequestRefusal> {
    let list = request.read::<Vec<JsonFields<'_>>>("tools", "list");
    let list = list.map_err(|problem| refuse_field("", &problem))?.unwrap_or_default();
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(list.len());
    for (index, fields) in list.into_iter().enumerate() {
        let tool = tool(index, fields)?;
        if !names.insert(tool.name.clone()) {
            return Err(refuse("tools", "Tool names must be unique."));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(index: usize, fields: JsonFields<'_>) -> Result<OfferedTool<'_>, RequestRefusal> {
    let place = format!("tools.{index}");
    let kind = fields
        .read::<BorrowedText<'_>>("type", "string")
        .map_err(|problem| refuse_field(&place, &problem))?;
    match kind.as_ref().map(|BorrowedText(kind)| kind.as_ref()) {
        None | Some("custom") => check_custom(&format!("{place}.custom"), &fields)?,
        Some(kind) if is_hosted(kind) => {}
        Some(kind) => {
            let problem = format!(
                "Input tag '{kind}' found using 'type' does not match any of the expected tags: 'custom', or a \
                 tool of the vendor with its date"
            );
            return Err(refuse(place, problem));
        }
    }
    let name = fields.read("name", "string").map_err(|problem| refuse_field(&place, &problem))?;
    let marker = Ttl::of(&fields, &place)?;
    Ok(OfferedTool { name: name.or(kind).unwrap_or(BorrowedText("".into())), fields, marker })
}

/// True for the vendor's own tools: `mcp_toolset`, and types that end in the date of their version.
fn is_hosted(kind: &str) -> bool {
    let date = kind.rsplit_once('_').map(|(_, date)| date);
    kind == "mcp_toolset"
        || date.is_some_and(|date| date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_custom(place: &str, tool: &JsonFields<'_>) -> Result<(), RequestRefusal> {
    let refuse_it = |problem| refuse_field(place, &problem);
    tool.check(&CUSTOM).map_err(refuse_it)?;
    let BorrowedText(name) = tool.text("name").map_err(refuse_it)?;
    if !is_word(&name) || name.len() > 128 {
        let problem = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'";
        return Err(refuse(format_args!("{place}.name"), problem));
    }
    let schema = tool.require::<JsonFields<'_>>("input_schema", "dictionary").map_err(refuse_it)?;
    let place = format!("{place}.input_schema");
    let kind = schema.text("type").map_err(|problem| refuse_field(&place, &problem))?;
    if kind.0 != "object" {
        return Err(refuse(format_args!("{place}.type"), "Input should be 'object'"));
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|word| schema.get(word).is_some()) {
        return Err(refuse(place, "input_schema does not support oneOf, allOf, or anyOf at the top level"));
    }
    let properties = schema.read::<JsonFields<'_>>("properties", "dictionary");
    let properties = properties.map_err(|problem| refuse_field(&place, &problem))?.unwrap_or_default();
    let allowed = |name: &str| {
        let plain = name.replace('.', "_");
        is_word(&plain) && plain.len() <= 64
    };
    if properties.iter().any(|(name, _)| !allowed(name)) {
        let problem = "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'";
        return Err(refuse(format_args!("{place}.properties"), problem));
    }
    Ok(())
}

/// Parses `tool_choice`.
pub(super) fn choice(
    request: &JsonFields<'_>,
    tools: &[OfferedTool<'_>],
) -> Result<ToolChoiceMode, RequestRefusal> {
    let choice = request.read::<JsonFields<'_>>("tool_choice", "dictionary");
    let Some(choice) = choice.map_err(|problem| refuse_field("", &problem))? else {
        return Ok(ToolChoiceMode::Free);
    };
    let text = |name| choice.text(name).map_err(|problem| refuse_field("tool_choice", &problem));
    let BorrowedText(kind) = text("type")?;
    if tools.is_empty() && kind != "none" {
        return Err(refuse("tool_choice", "may only be specified while providing `tools`"));
    }
    match kind.as_ref() {
        "auto" => Ok(ToolChoiceMode::Free),
        "any" => Ok(ToolChoiceMode::Forced),
        "none" => Ok(ToolChoiceMode::None),
        "tool" => {
            let name = text("name")?;
            if tools.iter().any(|tool| tool.name == name) {
                return Ok(ToolChoiceMode::Forced);
            }
            Err(refuse("tool_choice", format_args!("Tool '{}' not found in provided tools", name.0)))
        }
        other => {
            let problem = format!(
                "Input tag '{other}' found using 'type' does not match any of the expected tags: 'any', 'auto', \
                 'none', 'tool'"
            );
            Err(refuse("tool_choice", problem))
        }
    }
}
