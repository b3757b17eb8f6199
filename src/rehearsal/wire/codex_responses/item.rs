//! Parsing and checks of single input items of `codex_responses` requests. The items as a whole are checked in
//! `history.rs`.

use serde_json::value::RawValue;

use super::{item_path, refuse, refuse_field, refuse_value};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{FieldProblem, JsonFields, ObjectShape, TextOrList, text_or_list},
        image,
        openai::{is_function_name, refuse_image},
        seal,
    },
};

/// Maximum length of an id.
const MAX_ID_CHARS: usize = 64;

/// One item of `input`, checked on its own.
#[derive(Debug)]
pub(super) enum InputItem<'a> {
    /// A message.
    Message(ItemRole, &'a RawValue),
    /// A function call, with its `call_id`.
    Call(BorrowedText<'a>),
    /// The output of a call, with its `call_id`.
    Output(BorrowedText<'a>, &'a RawValue),
    /// Reasoning, with its id if it has one.
    Reasoning(Option<BorrowedText<'a>>),
    /// An item of a tool that the vendor runs.
    Hosted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemRole {
    Instructions,
    User,
    Assistant,
}

const MESSAGE: ObjectShape = ObjectShape { required: "role content", optional: "type id status phase" };
const CALL: ObjectShape =
    ObjectShape { required: "type call_id name arguments", optional: "id status caller namespace" };
const OUTPUT: ObjectShape =
    ObjectShape { required: "type call_id output", optional: "id status caller name namespace" };
const REASONING: ObjectShape =
    ObjectShape { required: "type summary", optional: "id content encrypted_content status" };
const SUMMARY: ObjectShape = ObjectShape { required: "type text", optional: "" };

/// The parts of a message from the client, and of an output.
const INPUT_PARTS: [&str; 3] = ["input_text", "input_image", "input_file"];
const TYPES: &[&str] = &["message", "function_call", "function_call_output", "reasoning", "item_reference"];

/// Item types of the vendor's own tools; their fields are not checked.
const HOSTED_TYPES: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "compaction",
];

impl<'a> InputItem<'a> {
    /// Parses the item at `path`; reasoning must be sealed for `model`.
    pub(super) fn read(raw: &'a RawValue, path: String, model: &str) -> Result<Self, RequestRefusal> {
        let fields = JsonFields::of(raw, path, "an input item", refuse_field)?;
        let kind = fields.read::<BorrowedText<'_>>("type", "a string")?;
        let kind = kind.as_ref().map_or("message", |BorrowedText(kind)| kind.as_ref());
        if HOSTED_TYPES.contains(&kind) {
            return Ok(Self::Hosted);
        }
        match kind {
            "message" => message(&fields),
            "function_call" => call(&fields),
            "function_call_output" => output(&fields),
            "reasoning" => reasoning(&fields, model),
            "item_reference" => Err(not_stored(&fields.text("id")?.0)),
            other => Err(refuse_value(&fields.path("type"), other, TYPES)),
        }
    }
}

fn message<'a>(fields: &JsonFields<'a>) -> Result<InputItem<'a>, RequestRefusal> {
    fields.check(&MESSAGE)?;
    let role = match fields.text("role")?.0.as_ref() {
        "system" | "developer" => ItemRole::Instructions,
        "user" => ItemRole::User,
        "assistant" => ItemRole::Assistant,
        other => {
            let roles = ["assistant", "system", "developer", "user"];
            return Err(refuse_value(&fields.path("role"), other, &roles));
        }
    };
    check_id(fields, "msg")?;
    let supported: &[_] =
        if role == ItemRole::Assistant { &["output_text", "refusal"] } else { &INPUT_PARTS };
    Ok(InputItem::Message(role, content(fields, "content", supported)?))
}

fn call<'a>(fields: &JsonFields<'a>) -> Result<InputItem<'a>, RequestRefusal> {
    fields.check(&CALL)?;
    check_id(fields, "fc")?;
    if !is_function_name(&fields.text("name")?.0) {
        let param = fields.path("name");
        let message = format!(
            "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]+$', with 1 to 64 characters."
        );
        return Err(refuse(&param, "invalid_value", message));
    }
    fields.text("arguments")?;
    call_id(fields).map(InputItem::Call)
}

fn output<'a>(fields: &JsonFields<'a>) -> Result<InputItem<'a>, RequestRefusal> {
    fields.check(&OUTPUT)?;
    Ok(InputItem::Output(call_id(fields)?, content(fields, "output", &INPUT_PARTS)?))
}

fn reasoning<'a>(fields: &JsonFields<'a>, model: &str) -> Result<InputItem<'a>, RequestRefusal> {
    fields.check(&REASONING)?;
    check_id(fields, "rs")?;
    for part in fields.objects("summary", "an array of objects", item_path)? {
        part.check(&SUMMARY)?;
    }
    let id = fields.read::<BorrowedText<'_>>("id", "a string")?;
    let Some(BorrowedText(sealed)) = fields.read("encrypted_content", "a string")? else {
        return Err(not_stored(id.as_ref().map_or(&fields.path, |BorrowedText(id)| id.as_ref())));
    };
    if seal::open(model, &sealed).is_some() {
        return Ok(InputItem::Reasoning(id));
    }
    let start: String = sealed.chars().take(4).collect();
    let message = format!(
        "The encrypted content {start}... could not be verified. Reason: Encrypted content could not be decrypted or \
         parsed."
    );
    Err(RequestRefusal::bad_request(None, message).with_code("invalid_encrypted_content"))
}

/// Refuses a reference to an item, because no items are stored.
fn not_stored(id: &str) -> RequestRefusal {
    let message = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` \
         set to true, or remove this item from your input."
    );
    RequestRefusal { param: Some("input".into()), ..RequestRefusal::new(404, message) }
}

fn check_id(fields: &JsonFields<'_>, start: &str) -> Result<(), RequestRefusal> {
    let Some(BorrowedText(id)) = fields.read("id", "a string")? else { return Ok(()) };
    let param = fields.path("id");
    if !id.starts_with(start) {
        let message = format!("Invalid '{param}': '{id}'. Expected an ID that begins with '{start}'.");
        return Err(refuse(&param, "invalid_id_prefix", message));
    }
    check_length(&param, &id)
}

fn call_id<'a>(fields: &JsonFields<'a>) -> Result<BorrowedText<'a>, RequestRefusal> {
    let id = fields.text("call_id")?;
    let param = fields.path("call_id");
    if id.0.is_empty() {
        let message = format!(
            "Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead."
        );
        return Err(refuse(&param, "empty_string", message));
    }
    check_length(&param, &id.0)?;
    Ok(id)
}

fn check_length(param: &str, id: &str) -> Result<(), RequestRefusal> {
    let length = id.chars().count();
    if length <= MAX_ID_CHARS {
        return Ok(());
    }
    let message = format!(
        "Invalid '{param}': string too long. Expected a string with maximum length {MAX_ID_CHARS}, but got a string with length \
         {length} instead."
    );
    Err(refuse(param, "string_above_max_length", message))
}

/// The content in the field `name`: a string, or a list of parts of the `supported` types.
fn content<'a>(
    fields: &JsonFields<'a>,
    name: &str,
    supported: &[&str],
) -> Result<&'a RawValue, RequestRefusal> {
    let raw = fields.require::<&RawValue>(name, "a string or an array")?;
    let path = fields.path(name);
    match text_or_list(raw) {
        Some(TextOrList::Text(_)) => {}
        Some(TextOrList::List(parts)) => {
            for (index, part) in parts.into_iter().enumerate() {
                check_part(part, item_path(&path, index), supported)?;
            }
        }
        None => return Err(refuse_field(&path, FieldProblem::Type("a string or an array of parts"))),
    }
    Ok(raw)
}

fn check_part(raw: &RawValue, path: String, supported: &[&str]) -> Result<(), RequestRefusal> {
    let fields = JsonFields::of(raw, path, "an object", refuse_field)?;
    let BorrowedText(kind) = fields.text("type")?;
    if !supported.contains(&kind.as_ref()) {
        return Err(refuse_value(&fields.path, &kind, supported));
    }
    let (required, optional) = match kind.as_ref() {
        "refusal" => ("type refusal", ""),
        "output_text" => ("type text", "annotations logprobs"),
        "input_text" => ("type text", ""),
        "input_file" => ("type", "file_data file_id file_url filename detail"),
        _ => ("type", "image_url file_id detail"),
    };
    fields.check(&ObjectShape { required, optional })?;
    required.split_ascii_whitespace().try_for_each(|name| fields.text(name).map(drop))?;
    if kind != "input_image" || fields.get("file_id").is_some() {
        return Ok(());
    }
    let BorrowedText(url) = fields.text("image_url")?;
    image::check_url(&url).map_err(|problem| refuse_image(&fields.path("image_url"), &problem))
}
