//! The body of `POST /v1/responses`, and the conversation that it brings.

use hermod_actors::model::ThinkingLevel;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    content::{Content, unknown_part},
    conversation::{ClientConversation, ClientMessage, Speaker},
    error::ApiError,
    fields::{refuse, refuse_format, refuse_tool_choice, refuse_tools, thinking},
    schema,
};

/// A task, as a text or as messages of which the last is the user's. Other fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct ResponseBody {
    pub(super) model: Option<String>,
    input: Option<ResponseInput>,
    pub(super) instructions: Option<String>,
    pub(super) previous_response_id: Option<String>,
    pub(super) store: Option<bool>,
    pub(super) stream: Option<bool>,
    pub(super) background: Option<bool>,
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Value>,
    reasoning: Option<Reasoning>,
    text: Option<TextOptions>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    tools: Option<Value>,
    /// There are no tools of the client.
    #[schema(schema_with = schema::tool_choice)]
    tool_choice: Option<Value>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    conversation: Option<Value>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    prompt: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct Reasoning {
    #[schema(schema_with = schema::effort)]
    effort: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct TextOptions {
    #[schema(schema_with = schema::text_format)]
    format: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "this is neither a text nor a list of items")]
enum ResponseInput {
    Text(String),
    Items(Vec<InputItem>),
}

#[derive(Debug, Deserialize, ToSchema)]
struct InputItem {
    /// Absent for a message.
    #[serde(rename = "type")]
    #[schema(schema_with = schema::item_type)]
    kind: Option<String>,
    #[schema(schema_with = schema::response_role)]
    role: Option<String>,
    content: Option<InputContent>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "this is neither a text nor a list of parts")]
enum InputContent {
    Text(String),
    Parts(Vec<InputPart>),
}

#[derive(Debug, Deserialize, ToSchema)]
struct InputPart {
    #[serde(rename = "type")]
    #[schema(schema_with = schema::response_part)]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<String>,
}

impl ResponseBody {
    /// Refuses what would change the meaning of the request and is not there.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        refuse_tools("tools", self.tools.as_ref())?;
        refuse_tool_choice("tool_choice", self.tool_choice.as_ref())?;
        refuse_format("text.format", self.text.as_ref().and_then(|text| text.format.as_ref()))?;
        let conversation = "conversations are not kept under ids of their own; use previous_response_id";
        refuse("conversation", self.conversation.as_ref(), conversation)?;
        refuse("prompt", self.prompt.as_ref(), "there are no stored prompts; give input and instructions")?;
        if self.background == Some(true) && self.store == Some(false) {
            let reason =
                "a response in the background is fetched later, so it must be stored; leave store out";
            return Err(ApiError::field("store", reason));
        }
        Ok(())
    }

    pub(super) fn thinking(&self) -> Result<Option<ThinkingLevel>, ApiError> {
        thinking(
            "reasoning.effort",
            self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()),
        )
    }

    /// The conversation, whose last message is the user's.
    pub(super) fn conversation(&self) -> Result<ClientConversation, ApiError> {
        let mut conversation = ClientConversation::default();
        conversation.push_system(self.instructions.as_deref().unwrap_or_default());
        match &self.input {
            None => {}
            Some(ResponseInput::Text(text)) => {
                let content = Content::text(text.as_str());
                conversation.push(ClientMessage { speaker: Speaker::User, content });
            }
            Some(ResponseInput::Items(items)) => {
                for (n, item) in items.iter().enumerate() {
                    item.add_to(&mut conversation, &format!("input[{n}]"))?;
                }
            }
        }
        if conversation.input().trim().is_empty() {
            let reason =
                "does not end with a text of the role `user`; give the user's task as its end, in words";
            return Err(ApiError::field("input", reason));
        }
        Ok(conversation)
    }
}

impl InputItem {
    fn add_to(&self, conversation: &mut ClientConversation, field: &str) -> Result<(), ApiError> {
        match self.kind.as_deref() {
            None | Some("message") => {}
            // What an earlier answer was thought up from; no part of what was said.
            Some("reasoning") => return Ok(()),
            Some(kind) => {
                let reason = format!(
                    "`{kind}` cannot be taken: the agent runs its own tools, and only messages are read; leave the item out"
                );
                return Err(ApiError::field(format!("{field}.type"), reason));
            }
        }
        let role = self.role.as_deref().unwrap_or_default();
        let content = match &self.content {
            None => Content::default(),
            Some(content) => content.read(role == "user", &format!("{field}.content"))?,
        };
        let speaker = match role {
            "system" | "developer" => {
                conversation.push_system(&content.text);
                return Ok(());
            }
            "user" => Speaker::User,
            "assistant" => Speaker::Assistant { calls: Vec::new() },
            role => {
                let reason = format!("`{role}` is not known; use system, developer, user or assistant");
                return Err(ApiError::field(format!("{field}.role"), reason));
            }
        };
        conversation.push(ClientMessage { speaker, content });
        Ok(())
    }
}

impl InputContent {
    fn read(&self, has_images: bool, field: &str) -> Result<Content, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(Content::text(text.as_str())),
            Self::Parts(parts) => parts,
        };
        let mut content = Content::default();
        for (n, part) in parts.iter().enumerate() {
            let field = format!("{field}[{n}]");
            match (part.kind.as_str(), &part.image_url) {
                ("input_text" | "output_text" | "text", _) => {
                    content.push_text(part.text.as_deref().unwrap_or_default());
                }
                ("refusal", _) => content.push_text(part.refusal.as_deref().unwrap_or_default()),
                ("input_image", Some(url)) if has_images => {
                    content.push_image(url, &format!("{field}.image_url"))?;
                }
                ("input_image", None) if has_images => {
                    let reason = "is missing; files are not kept, so give a `data:` URL";
                    return Err(ApiError::field(format!("{field}.image_url"), reason));
                }
                (kind, _) => {
                    let known = if has_images {
                        "`input_text`, or `input_image` with a `data:` URL"
                    } else {
                        "`input_text` or `output_text`; only users show pictures"
                    };
                    return Err(unknown_part(&field, kind, known));
                }
            }
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(fields: Value) -> ResponseBody {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn what_changes_the_meaning_is_refused() {
        let check = |fields: Value, refused: Option<&str>| {
            let checked = body(fields.clone()).check();
            let param = checked.err().map(|error| error.body()["error"]["param"].clone());
            assert_eq!(param.as_ref().and_then(Value::as_str), refused, "{fields}");
        };
        check(
            json!({ "include": ["x"], "temperature": 1, "max_output_tokens": 5, "truncation": "auto" }),
            None,
        );
        check(json!({ "tools": [], "tool_choice": "auto", "text": { "format": { "type": "text" } } }), None);
        check(json!({ "text": { "verbosity": "low" }, "conversation": null, "store": false }), None);
        check(json!({ "tools": [{ "type": "web_search" }] }), Some("tools"));
        check(json!({ "text": { "format": { "type": "json_object" } } }), Some("text.format"));
        check(json!({ "conversation": "conv_1" }), Some("conversation"));
        check(json!({ "prompt": { "id": "p" } }), Some("prompt"));
        check(json!({ "background": true, "store": false }), Some("store"));
        check(json!({ "background": true }), None);
    }

    #[test]
    fn items_are_a_conversation() {
        let conversation = body(json!({ "instructions": "i", "input": [
            { "role": "developer", "content": "d" },
            { "role": "user", "content": "a" },
            { "type": "reasoning", "id": "rs_1", "summary": [] },
            { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
              "content": [{ "type": "output_text", "text": "b", "annotations": [] }] },
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "c" },
                { "type": "input_image", "detail": "auto",
                  "image_url": "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=" },
            ] },
        ] }))
        .conversation()
        .unwrap();
        assert_eq!(conversation.system().as_deref(), Some("i\n\nd"));
        assert_eq!((&*conversation.input(), conversation.images().len()), ("c", 1));
        assert_eq!(conversation.history().len(), 2);
        assert_eq!(body(json!({ "input": "a" })).conversation().unwrap().input(), "a");
    }

    #[test]
    fn an_error_names_the_field() {
        let check = |input: Value, field: &str, part: &str| {
            let error = body(json!({ "input": input })).conversation().unwrap_err();
            assert_eq!(error.body()["error"]["param"], field, "{error:?}");
            assert!(error.message().contains(part), "{error:?}");
        };
        let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
        check(json!(null), "input", "the user's task");
        check(json!(""), "input", "in words");
        check(json!([{ "role": "assistant", "content": "a" }]), "input", "`user`");
        check(
            json!([{ "type": "function_call_output", "call_id": "1", "output": "x" }]),
            "input[0].type",
            "own tools",
        );
        check(json!([{ "type": "item_reference", "id": "1" }]), "input[0].type", "`item_reference`");
        check(json!([{ "role": "robot", "content": "a" }]), "input[0].role", "`robot`");
        check(user(json!({ "type": "input_file" })), "input[0].content[0].type", "`input_file`");
        check(
            user(json!({ "type": "input_image", "file_id": "f" })),
            "input[0].content[0].image_url",
            "`data:` URL",
        );
        check(
            user(json!({ "type": "input_image", "image_url": "https://x.example/a.png" })),
            "input[0].content[0].image_url",
            "not fetched",
        );
    }
}
