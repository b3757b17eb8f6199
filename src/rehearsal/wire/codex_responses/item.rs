//! Parsing and checks of single input items of `codex_responses` requests. The items as a whole are checked in
//! `history.rs`.

use serde_json::value::RawValue;

use super::{refuse, refuse_field, refuse_value};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape, TextOrList, text_or_list},
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

const MESSAGE: ObjectShape =
    ObjectShape { required: &["role", "content"], optional: &["type", "id", "status", "phase"] };
const CALL: ObjectShape = ObjectShape {
    required: &["type", "call_id", "name", "arguments"],
    optional: &["id", "status", "caller", "namespace"],
};
const OUTPUT: ObjectShape = ObjectShape {
    required: &["type", "call_id", "output"],
    optional: &["id", "status", "caller", "name", "namespace"],
};
const REASONING: ObjectShape = ObjectShape {
    required: &["type", "summary"],
    optional: &["id", "content", "encrypted_content", "status"],
};
const SUMMARY: ObjectShape = ObjectShape { required: &["type", "text"], optional: &[] };

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
    /// Parses the item at `place`; reasoning must be sealed for `model`.
    pub(super) fn read(raw: &'a RawValue, place: &str, model: &str) -> Result<Self, RequestRefusal> {
        let fields = JsonFields::of(raw).ok_or_else(|| {
            refuse(place, "invalid_type", format!("Invalid type for '{place}': expected an input item."))
        })?;
        let kind = fields
            .read::<BorrowedText<'_>>("type", "a string")
            .map_err(|problem| refuse_field(place, &problem))?;
        let kind = kind.as_ref().map_or("message", |BorrowedText(kind)| kind.as_ref());
        if HOSTED_TYPES.contains(&kind) {
            return Ok(Self::Hosted);
        }
        let check = |shape| fields.check(shape).map_err(|problem| refuse_field(place, &problem));
        match kind {
            "message" => {
                check(&MESSAGE)?;
                message(&fields, place)
            }
            "function_call" => {
                check(&CALL)?;
                call(&fields, place)
            }
            "function_call_output" => {
                check(&OUTPUT)?;
                output(&fields, place)
            }
            "reasoning" => {
                check(&REASONING)?;
                reasoning(&fields, place, model)
            }
            "item_reference" => {
                let id = fields.text("id").map_err(|problem| refuse_field(place, &problem))?;
                Err(not_stored(&id.0))
            }
            other => Err(refuse_value(&format!("{place}.type"), other, TYPES)),
        }
    }
}

fn message<'a>(fields: &JsonFields<'a>, place: &str) -> Result<InputItem<'a>, RequestRefusal> {
    let BorrowedText(name) = fields.text("role").map_err(|problem| refuse_field(place, &problem))?;
    let role = match name.as_ref() {
        "system" | "developer" => ItemRole::Instructions,
        "user" => ItemRole::User,
        "assistant" => ItemRole::Assistant,
        other => {
            let roles = ["assistant", "system", "developer", "user"];
            return Err(refuse_value(&format!("{place}.role"), other, &roles));
        }
    };
    check_id(fields, place, "msg")?;
    let supported: &[_] = if role == ItemRole::Assistant {
        &["output_text", "refusal"]
    } else {
        &["input_text", "input_image", "input_file"]
    };
    let content = content(fields, place, "content", supported)?;
    Ok(InputItem::Message(role, content))
}

fn call<'a>(fields: &JsonFields<'a>, place: &str) -> Result<InputItem<'a>, RequestRefusal> {
    let text = |name| fields.text(name).map_err(|problem| refuse_field(place, &problem));
    check_id(fields, place, "fc")?;
    let BorrowedText(name) = text("name")?;
    if !is_function_name(&name) {
        let param = format!("{place}.name");
        let message = format!(
            "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]+$', with 1 to 64 characters."
        );
        return Err(refuse(&param, "invalid_value", message));
    }
    text("arguments")?;
    call_id(fields, place).map(InputItem::Call)
}

fn output<'a>(fields: &JsonFields<'a>, place: &str) -> Result<InputItem<'a>, RequestRefusal> {
    let id = call_id(fields, place)?;
    let content = content(fields, place, "output", &["input_text", "input_image", "input_file"])?;
    Ok(InputItem::Output(id, content))
}

fn reasoning<'a>(fields: &JsonFields<'a>, place: &str, model: &str) -> Result<InputItem<'a>, RequestRefusal> {
    check_id(fields, place, "rs")?;
    let refuse_it = |problem| refuse_field(place, &problem);
    let summary =
        fields.require::<Vec<JsonFields<'_>>>("summary", "an array of objects").map_err(refuse_it)?;
    for (index, part) in summary.iter().enumerate() {
        let place = format!("{place}.summary[{index}]");
        part.check(&SUMMARY).map_err(|problem| refuse_field(&place, &problem))?;
    }
    let id = fields.read::<BorrowedText<'_>>("id", "a string").map_err(refuse_it)?;
    let sealed = fields.read::<BorrowedText<'_>>("encrypted_content", "a string").map_err(refuse_it)?;
    let Some(BorrowedText(sealed)) = sealed else {
        return Err(not_stored(id.as_ref().map_or(place, |BorrowedText(id)| id.as_ref())));
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

fn check_id(fields: &JsonFields<'_>, place: &str, start: &str) -> Result<(), RequestRefusal> {
    let id =
        fields.read::<BorrowedText<'_>>("id", "a string").map_err(|problem| refuse_field(place, &problem))?;
    let Some(BorrowedText(id)) = id else { return Ok(()) };
    let param = format!("{place}.id");
    if !id.starts_with(start) {
        let message = format!("Invalid '{param}': '{id}'. Expected an ID that begins with '{start}'.");
        return Err(refuse(&param, "invalid_id_prefix", message));
    }
    check_length(&param, &id)
}

fn call_id<'a>(fields: &JsonFields<'a>, place: &str) -> Result<BorrowedText<'a>, RequestRefusal> {
    let id = fields.text("call_id").map_err(|problem| refuse_field(place, &problem))?;
    let param = format!("{place}.call_id");
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

/// The content in the field `name` of the item at `place`: a string, or a list of parts of the `supported` types.
fn content<'a>(
    fields: &JsonFields<'a>,
    place: &str,
    name: &str,
    supported: &[&str],
) -> Result<&'a RawValue, RequestRefusal> {
    let raw = fields.require::<&RawValue>(name, "a string or an array");
    let raw = raw.map_err(|problem| refuse_field(place, &problem))?;
    let place = format!("{place}.{name}");
    match text_or_list(raw) {
        Some(TextOrList::Text(_)) => {}
        Some(TextOrList::List(parts)) => {
            for (index, part) in parts.into_iter().enumerate() {
                check_part(part, &format!("{place}[{index}]"), supported)?;
            }
        }
        None => {
            let message = format!("Invalid type for '{place}': expected a string or an array of parts.");
            return Err(refuse(&place, "invalid_type", message));
        }
    }
    Ok(raw)
}

fn check_part(raw: &RawValue, place: &str, supported: &[&str]) -> Result<(), RequestRefusal> {
    let fields = JsonFields::of(raw).ok_or_else(|| {
        refuse(place, "invalid_type", format!("Invalid type for '{place}': expected an object."))
    })?;
    let refuse_it = |problem| refuse_field(place, &problem);
    let BorrowedText(kind) = fields.text("type").map_err(refuse_it)?;
    if !supported.contains(&kind.as_ref()) {
        return Err(refuse_value(place, &kind, supported));
    }
    let (field, optional): (_, &[_]) = match kind.as_ref() {
        "refusal" => ("refusal", &[]),
        "output_text" => ("text", &["annotations", "logprobs"]),
        "input_text" => ("text", &[]),
        "input_file" => ("type", &["file_data", "file_id", "file_url", "filename", "detail"]),
        _ => ("type", &["image_url", "file_id", "detail"]),
    };
    for (name, _) in fields.iter() {
        if name != "type" && name != field && !optional.contains(&name) {
            let param = format!("{place}.{name}");
            let message = format!("Unknown parameter: '{param}'.");
            return Err(refuse(&param, "unknown_parameter", message));
        }
    }
    fields.text(field).map_err(refuse_it)?;
    if kind != "input_image" || fields.get("file_id").is_some() {
        return Ok(());
    }
    let BorrowedText(url) = fields.text("image_url").map_err(refuse_it)?;
    image::check_url(&url).map_err(|problem| refuse_image(&format!("{place}.image_url"), &problem))
}
