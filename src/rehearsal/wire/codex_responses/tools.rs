//! Parsing and checks of `tools` and `tool_choice` in `codex_responses` requests.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::{refuse, refuse_field, refuse_value};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape},
        openai::is_function_name,
    },
};

const FUNCTION: ObjectShape = ObjectShape {
    required: &["type", "name"],
    optional: &["description", "parameters", "strict", "defer_loading", "allowed_callers", "output_schema"],
};

/// Type prefixes of the tools that the vendor runs.
const HOSTED_PREFIXES: &[&str] = &[
    "web_search",
    "file_search",
    "code_interpreter",
    "computer",
    "image_generation",
    "local_shell",
    "shell",
    "apply_patch",
    "mcp",
    "custom",
    "namespace",
    "tool_search",
    "programmatic_tool_calling",
];

/// Parses `tools`.
pub(super) fn tools<'a>(request: &JsonFields<'a>) -> Result<Vec<JsonFields<'a>>, RequestRefusal> {
    let tools = request.read::<Vec<JsonFields<'_>>>("tools", "an array of objects");
    let tools = tools.map_err(|problem| refuse_field("", &problem))?.unwrap_or_default();
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let place = format!("tools[{index}]");
        let BorrowedText(kind) = tool.text("type").map_err(|problem| refuse_field(&place, &problem))?;
        if kind != "function" {
            if HOSTED_PREFIXES.iter().any(|hosted| kind.starts_with(hosted)) {
                continue;
            }
            return Err(refuse_value(
                &format!("{place}.type"),
                &kind,
                &[&["function"], HOSTED_PREFIXES].concat(),
            ));
        }
        let name = check_function(tool, &place)?;
        if names.contains(&name) {
            let message = format!("Two tools are named '{}'.", name.0);
            return Err(refuse(&format!("{place}.name"), "invalid_value", message));
        }
        names.insert(name);
    }
    Ok(tools)
}

fn check_function<'a>(tool: &JsonFields<'a>, place: &str) -> Result<BorrowedText<'a>, RequestRefusal> {
    let refuse_it = |problem| refuse_field(place, &problem);
    tool.check(&FUNCTION).map_err(refuse_it)?;
    let name = tool.text("name").map_err(refuse_it)?;
    if !is_function_name(&name.0) {
        let param = format!("{place}.name");
        let message = format!(
            "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]{{1,64}}$'."
        );
        return Err(refuse(&param, "invalid_value", message));
    }
    if let Some(schema) = tool.read::<JsonFields<'_>>("parameters", "an object").map_err(refuse_it)? {
        let kind = schema.read::<&RawValue>("type", "a string").map_err(refuse_it)?;
        let kind = kind.map_or("None", |kind| kind.get().trim_matches('"'));
        let several =
            ["oneOf", "anyOf", "allOf", "enum", "not"].iter().find(|word| schema.get(word).is_some());
        let problem = match several {
            _ if kind != "object" => format!(
                "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
            ),
            Some(_) => {
                "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
                    .into()
            }
            None => return Ok(name),
        };
        let message = format!("Invalid schema for function '{}': {problem}", name.0);
        return Err(refuse(&format!("{place}.parameters"), "invalid_function_parameters", message));
    }
    Ok(name)
}

/// True if `tool_choice` allows calls.
pub(super) fn may_call(request: &JsonFields<'_>) -> Result<bool, RequestRefusal> {
    let Some(choice) = request.get("tool_choice") else { return Ok(true) };
    if JsonFields::of(choice).is_some() {
        return Ok(true);
    }
    let BorrowedText(choice) = request.text("tool_choice").map_err(|problem| refuse_field("", &problem))?;
    match choice.as_ref() {
        "none" => Ok(false),
        "auto" | "required" => Ok(true),
        other => Err(refuse_value("tool_choice", other, &["none", "auto", "required"])),
    }
}
