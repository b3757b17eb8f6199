//! Parsing and checks of `tools` and `tool_choice` in `codex_responses` requests.

use std::collections::HashSet;

use super::{item_path, refuse, refuse_value};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape},
        openai::is_function_name,
    },
};

const FUNCTION: ObjectShape = ObjectShape {
    required: "type name",
    optional: "description parameters strict defer_loading allowed_callers output_schema",
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
    let tools = request.objects("tools", "an array of objects", item_path)?;
    let mut names = HashSet::new();
    for tool in &tools {
        let BorrowedText(kind) = tool.text("type")?;
        if kind != "function" {
            if HOSTED_PREFIXES.iter().any(|hosted| kind.starts_with(hosted)) {
                continue;
            }
            return Err(refuse_value(&tool.path("type"), &kind, &[&["function"], HOSTED_PREFIXES].concat()));
        }
        let name = check_function(tool)?;
        if !names.insert(name.clone()) {
            let message = format!("Two tools are named '{}'.", name.0);
            return Err(refuse(&tool.path("name"), "invalid_value", message));
        }
    }
    Ok(tools)
}

fn check_function<'a>(tool: &JsonFields<'a>) -> Result<BorrowedText<'a>, RequestRefusal> {
    tool.check(&FUNCTION)?;
    let name = tool.text("name")?;
    if !is_function_name(&name.0) {
        let param = tool.path("name");
        let message = format!(
            "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]{{1,64}}$'."
        );
        return Err(refuse(&param, "invalid_value", message));
    }
    if let Some(schema) = tool.object("parameters", "an object")? {
        let kind = schema.get("type");
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
        return Err(refuse(&schema.path, "invalid_function_parameters", message));
    }
    Ok(name)
}

/// True if `tool_choice` allows calls.
pub(super) fn may_call(request: &JsonFields<'_>) -> Result<bool, RequestRefusal> {
    let Some(choice) = request.get("tool_choice") else { return Ok(true) };
    if choice.get().starts_with('{') {
        return Ok(true);
    }
    let BorrowedText(choice) = request.text("tool_choice")?;
    match choice.as_ref() {
        "none" => Ok(false),
        "auto" | "required" => Ok(true),
        other => Err(refuse_value("tool_choice", other, &["none", "auto", "required"])),
    }
}
