//! Parsing and checks of `tools` and `tool_choice` in `anthropic_messages` requests.

use std::collections::HashSet;

use super::{cache::Ttl, refuse, refuse_tag, tool_name};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape},
        is_word,
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
    required: "name input_schema",
    optional: "type description cache_control strict defer_loading eager_input_streaming allowed_callers \
        input_examples",
};

/// Parses `tools`.
pub(super) fn tools<'a>(request: &JsonFields<'a>) -> Result<Vec<OfferedTool<'a>>, RequestRefusal> {
    let mut names = HashSet::new();
    let mut tools = Vec::new();
    for fields in request.objects("tools", "list", |list, n| format!("{list}.{n}"))? {
        let tool = tool(fields)?;
        if !names.insert(tool.name.clone()) {
            return Err(refuse("tools", "Tool names must be unique."));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(fields: JsonFields<'_>) -> Result<OfferedTool<'_>, RequestRefusal> {
    let kind = fields.read::<BorrowedText<'_>>("type", "string")?;
    let name = fields.read("name", "string")?;
    let marker = Ttl::of(&fields)?;
    let fields = match kind.as_ref().map(|BorrowedText(kind)| kind.as_ref()) {
        None | Some("custom") => {
            let path = fields.path("custom");
            let custom = fields.at(path);
            check_custom(&custom)?;
            custom
        }
        Some(kind) if is_hosted(kind) => fields,
        Some(kind) => {
            let problem = format!(
                "Input tag '{kind}' found using 'type' does not match any of the expected tags: 'custom', or a \
                 tool of the vendor with its date"
            );
            return Err(refuse(fields.path, problem));
        }
    };
    Ok(OfferedTool { name: name.or(kind).unwrap_or(BorrowedText("".into())), fields, marker })
}

/// True for the vendor's own tools: `mcp_toolset`, and types that end in the date of their version.
fn is_hosted(kind: &str) -> bool {
    let date = kind.rsplit_once('_').map(|(_, date)| date);
    kind == "mcp_toolset"
        || date.is_some_and(|date| date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_custom(tool: &JsonFields<'_>) -> Result<(), RequestRefusal> {
    tool.check(&CUSTOM)?;
    tool_name(tool)?;
    let schema = tool.require_object("input_schema", "dictionary")?;
    if schema.text("type")?.0 != "object" {
        return Err(refuse(schema.path("type"), "Input should be 'object'"));
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|word| schema.get(word).is_some()) {
        let problem = "input_schema does not support oneOf, allOf, or anyOf at the top level";
        return Err(refuse(schema.path, problem));
    }
    let allowed = |name: &str| {
        let plain = name.replace('.', "_");
        is_word(&plain) && plain.len() <= 64
    };
    let properties = schema.object("properties", "dictionary")?;
    if let Some(properties) = properties
        && properties.iter().any(|(name, _)| !allowed(name))
    {
        let problem = "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'";
        return Err(refuse(properties.path, problem));
    }
    Ok(())
}

/// Parses `tool_choice`.
pub(super) fn choice(
    request: &JsonFields<'_>,
    tools: &[OfferedTool<'_>],
) -> Result<ToolChoiceMode, RequestRefusal> {
    let Some(choice) = request.object("tool_choice", "dictionary")? else {
        return Ok(ToolChoiceMode::Free);
    };
    let BorrowedText(kind) = choice.text("type")?;
    if tools.is_empty() && kind != "none" {
        return Err(refuse("tool_choice", "may only be specified while providing `tools`"));
    }
    match kind.as_ref() {
        "auto" => Ok(ToolChoiceMode::Free),
        "any" => Ok(ToolChoiceMode::Forced),
        "none" => Ok(ToolChoiceMode::None),
        "tool" => {
            let name = choice.text("name")?;
            if tools.iter().any(|tool| tool.name == name) {
                return Ok(ToolChoiceMode::Forced);
            }
            Err(refuse("tool_choice", format_args!("Tool '{}' not found in provided tools", name.0)))
        }
        other => Err(refuse_tag("tool_choice", other, &["any", "auto", "none", "tool"])),
    }
}
