//! Schemas of OpenAI's form: of fields that take only some values, and of the answers, which are made as JSON.

use serde_json::{Value, json};
use utoipa::openapi::{
    RefOr, Schema,
    schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, SchemaType, Type},
};

use crate::view::schema::text;

fn nullable(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Array(vec![kind, Type::Null]))
}

fn names(names: &[&str]) -> ObjectBuilder {
    let names = names.iter().map(|name| Value::from(*name)).chain([Value::Null]);
    nullable(Type::String).enum_values(Some(names))
}

/// A field that asks for nothing: absent, null, false or empty.
pub(super) fn absent() -> RefOr<Schema> {
    let empty = [json!(null), json!(false), json!([]), json!({}), json!("")];
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).enum_values(Some(empty)).into()
}

pub(super) fn null() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Null).into()
}

pub(super) fn one() -> RefOr<Schema> {
    nullable(Type::Integer).enum_values(Some([json!(1), json!(null)])).into()
}

pub(super) fn tool_choice() -> RefOr<Schema> {
    let empty = [json!("auto"), json!("none"), json!(null), json!(false), json!([]), json!({}), json!("")];
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).enum_values(Some(empty)).into()
}

/// `{"type": "text"}`, or nothing.
pub(super) fn text_format() -> RefOr<Schema> {
    let text = ObjectBuilder::new().property("type", text().enum_values(Some(["text"]))).required("type");
    Schema::from(AnyOfBuilder::new().item(text).item(absent())).into()
}

pub(super) fn modalities() -> RefOr<Schema> {
    let texts = ArrayBuilder::new().items(text().enum_values(Some(["text"])));
    Schema::from(AnyOfBuilder::new().item(texts).item(null())).into()
}

pub(super) fn effort() -> RefOr<Schema> {
    names(&["none", "off", "minimal", "low", "medium", "high", "xhigh", "max"]).into()
}

pub(super) fn chat_role() -> RefOr<Schema> {
    text().enum_values(Some(["system", "developer", "user", "assistant", "tool"])).into()
}

pub(super) fn chat_part() -> RefOr<Schema> {
    text().enum_values(Some(["text", "refusal", "image_url"])).into()
}

/// What an item is; a message if it says nothing.
pub(super) fn item_type() -> RefOr<Schema> {
    names(&["message", "reasoning"]).into()
}

pub(super) fn response_part() -> RefOr<Schema> {
    text().enum_values(Some(["input_text", "output_text", "text", "refusal", "input_image"])).into()
}

pub(super) fn response_role() -> RefOr<Schema> {
    names(&["system", "developer", "user", "assistant"]).into()
}

/// The answers and errors, with their names.
pub(in crate::service) fn schemas() -> [(&'static str, Value); 5] {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let optional_text = json!({ "type": ["string", "null"] });
    let message = object(&[("role", json!({ "const": "assistant" })), ("content", text.clone())]);
    let reason = json!({ "enum": ["stop", "content_filter"] });
    let choice = object(&[("index", count.clone()), ("message", message), ("finish_reason", reason)]);
    let usage = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| (name, count.clone()));
    let completion = object(&[
        ("id", json!({ "type": "string", "pattern": "^chatcmpl-" })),
        ("object", json!({ "const": "chat.completion" })),
        ("created", count.clone()),
        ("model", text.clone()),
        ("choices", json!({ "type": "array", "items": choice, "minItems": 1, "maxItems": 1 })),
        ("usage", object(&usage)),
    ]);
    let statuses = ["queued", "in_progress", "completed", "incomplete", "cancelled", "failed"];
    let response = object(&[
        ("id", json!({ "type": "string", "pattern": "^resp_" })),
        ("object", json!({ "const": "response" })),
        ("created_at", count.clone()),
        ("status", json!({ "enum": statuses })),
        ("model", text.clone()),
        ("output", json!({ "type": "array", "items": { "type": "object" }, "maxItems": 1 })),
        ("error", json!({ "type": ["object", "null"] })),
        ("incomplete_details", json!({ "type": ["object", "null"] })),
        ("usage", json!({ "type": ["object", "null"] })),
    ]);
    let model = object(&[
        ("id", text.clone()),
        ("object", json!({ "const": "model" })),
        ("created", count),
        ("owned_by", text.clone()),
    ]);
    let models = object(&[
        ("object", json!({ "const": "list" })),
        ("data", json!({ "type": "array", "items": { "$ref": "#/components/schemas/ModelObject" } })),
    ]);
    let error = object(&[
        ("message", text.clone()),
        ("type", text),
        ("param", optional_text.clone()),
        ("code", optional_text),
    ]);
    [
        ("ChatCompletion", completion),
        ("Response", response),
        ("ModelObject", model),
        ("ModelList", models),
        ("ApiError", object(&[("error", error)])),
    ]
}

/// An object that has all of these.
fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}
