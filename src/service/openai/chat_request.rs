//! The body of `POST /v1/chat/completions`, and the conversation that it brings.

use hermod_actors::model::{ThinkingLevel, ToolCall};
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

/// A conversation whose last message is the user's. Other fields, which tune how a model samples, are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct ChatBody {
    /// The name of an agent; `default` if it is absent.
    pub(super) model: Option<String>,
    /// The conversation. The task is in the last messages, which are the user's.
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    /// Whether to answer by server-sent events.
    #[serde(default)]
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The thinking level.
    #[schema(schema_with = schema::effort)]
    reasoning_effort: Option<String>,
    /// A run has one answer.
    #[schema(schema_with = schema::one)]
    n: Option<Value>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    tools: Option<Value>,
    /// There are no tools of the client.
    #[schema(schema_with = schema::tool_choice)]
    tool_choice: Option<Value>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    functions: Option<Value>,
    /// There are no tools of the client.
    #[schema(schema_with = schema::tool_choice)]
    function_call: Option<Value>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    logprobs: Option<Value>,
    /// Only text.
    #[schema(schema_with = schema::text_format)]
    response_format: Option<Value>,
    /// Only text.
    #[schema(schema_with = schema::modalities)]
    modalities: Option<Vec<String>>,
    /// Not supported: absent or empty.
    #[schema(schema_with = schema::absent)]
    audio: Option<Value>,
    /// Not supported: absent.
    #[schema(schema_with = schema::null)]
    web_search_options: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ChatMessage {
    #[schema(schema_with = schema::chat_role)]
    role: String,
    content: Option<ChatContent>,
    tool_calls: Option<Vec<ChatCall>>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "this is neither a text nor a list of parts")]
enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

#[derive(Debug, Deserialize, ToSchema)]
struct ChatPart {
    #[serde(rename = "type")]
    #[schema(schema_with = schema::chat_part)]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ImageUrl {
    url: String,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ChatCall {
    id: Option<String>,
    function: Option<ChatFunction>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ChatFunction {
    name: String,
    arguments: Option<String>,
}

impl ChatBody {
    /// Refuses what would change the meaning of the request and is not there.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        refuse_tools("tools", self.tools.as_ref())?;
        refuse_tools("functions", self.functions.as_ref())?;
        refuse_tool_choice("tool_choice", self.tool_choice.as_ref())?;
        refuse_tool_choice("function_call", self.function_call.as_ref())?;
        refuse_format("response_format", self.response_format.as_ref())?;
        refuse("logprobs", self.logprobs.as_ref(), "an agent's answer has no probabilities; leave it out")?;
        refuse("audio", self.audio.as_ref(), "the answer is text; leave it out")?;
        let search = "whether the agent searches the web is its configuration; leave it out";
        // An empty object asks for a search too.
        let options = self.web_search_options.as_ref().filter(|options| !options.is_null());
        if options.is_some() {
            return Err(ApiError::field("web_search_options", search));
        }
        if let Some(n) = self.n.as_ref().filter(|n| !n.is_null() && n.as_u64() != Some(1)) {
            return Err(ApiError::field(
                "n",
                format!("`{n}` answers cannot be given; a run has 1, so leave it out"),
            ));
        }
        let other = self
            .modalities
            .iter()
            .flatten()
            .position(|modality| modality != "text")
            .zip(self.modalities.as_ref());
        if let Some((n, modalities)) = other {
            let reason = format!("`{}` cannot be given; the answer is text", modalities[n]);
            return Err(ApiError::field(format!("modalities[{n}]"), reason));
        }
        Ok(())
    }

    /// True if the last chunk of a stream has the usage.
    pub(super) fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    pub(super) fn thinking(&self) -> Result<Option<ThinkingLevel>, ApiError> {
        thinking("reasoning_effort", self.reasoning_effort.as_deref())
    }

    /// The conversation, whose last message is the user's.
    pub(super) fn conversation(&self) -> Result<ClientConversation, ApiError> {
        let mut conversation = ClientConversation::default();
        for (n, message) in self.messages.iter().enumerate() {
            message.add_to(&mut conversation, &format!("messages[{n}]"))?;
        }
        if conversation.input().trim().is_empty() {
            let reason =
                "the last message is no text of the role `user`; end the list with the user's task, in words";
            return Err(ApiError::field("messages", reason));
        }
        Ok(conversation)
    }
}

impl ChatMessage {
    fn add_to(&self, conversation: &mut ClientConversation, field: &str) -> Result<(), ApiError> {
        let is_user = self.role == "user";
        let content = match &self.content {
            None => Content::default(),
            Some(content) => content.read(is_user, &format!("{field}.content"))?,
        };
        let speaker = match self.role.as_str() {
            "system" | "developer" => {
                conversation.push_system(&content.text);
                return Ok(());
            }
            "user" => Speaker::User,
            "assistant" => Speaker::Assistant { calls: self.calls() },
            "tool" => Speaker::Tool { call: self.tool_call_id.clone().unwrap_or_default() },
            role => {
                let reason = format!("`{role}` is not known; use system, developer, user, assistant or tool");
                return Err(ApiError::field(format!("{field}.role"), reason));
            }
        };
        conversation.push(ClientMessage { speaker, content });
        Ok(())
    }

    /// The tool calls; those of other kinds than functions have no place in a history.
    fn calls(&self) -> Vec<ToolCall> {
        let calls = self.tool_calls.iter().flatten().filter_map(|call| {
            let function = call.function.as_ref()?;
            Some(ToolCall {
                id: call.id.clone().unwrap_or_default(),
                name: function.name.clone(),
                arguments: function.arguments.clone().unwrap_or_default(),
            })
        });
        calls.collect()
    }
}

impl ChatContent {
    fn read(&self, has_images: bool, field: &str) -> Result<Content, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(Content::text(text.as_str())),
            Self::Parts(parts) => parts,
        };
        let mut content = Content::default();
        for (n, part) in parts.iter().enumerate() {
            let field = format!("{field}[{n}]");
            match (part.kind.as_str(), &part.image_url) {
                ("text", _) => content.push_text(part.text.as_deref().unwrap_or_default()),
                ("refusal", _) => content.push_text(part.refusal.as_deref().unwrap_or_default()),
                ("image_url", Some(image)) if has_images => {
                    content.push_image(&image.url, &format!("{field}.image_url.url"))?;
                }
                (kind, _) => {
                    let known = if has_images {
                        "`text`, or `image_url` with a `data:` URL"
                    } else {
                        "`text`; only users show pictures"
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

    fn body(mut fields: Value) -> ChatBody {
        fields.as_object_mut().unwrap().entry("messages").or_insert_with(|| json!([]));
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn what_tunes_is_ignored_and_what_changes_the_meaning_is_refused() {
        let check = |fields: Value, refused: Option<&str>| {
            let checked = body(fields.clone()).check();
            let param = checked.err().map(|error| error.body()["error"]["param"].clone());
            assert_eq!(param.as_ref().and_then(Value::as_str), refused, "{fields}");
        };
        check(
            json!({ "temperature": 0.5, "top_p": 1, "max_tokens": 5, "stop": ["x"], "seed": 1, "new": {} }),
            None,
        );
        check(json!({ "n": 1, "tools": [], "logprobs": false, "modalities": ["text"], "audio": null }), None);
        check(json!({ "response_format": { "type": "text" }, "tool_choice": "auto", "n": null }), None);
        check(json!({ "n": 2 }), Some("n"));
        check(json!({ "tools": [{ "type": "function" }] }), Some("tools"));
        check(json!({ "functions": [{ "name": "f" }] }), Some("functions"));
        check(json!({ "tool_choice": "required" }), Some("tool_choice"));
        check(json!({ "logprobs": true }), Some("logprobs"));
        check(json!({ "response_format": { "type": "json_object" } }), Some("response_format"));
        check(json!({ "modalities": ["text", "audio"] }), Some("modalities[1]"));
        check(json!({ "audio": { "voice": "x" } }), Some("audio"));
        check(json!({ "web_search_options": {} }), Some("web_search_options"));
    }

    #[test]
    fn messages_are_a_conversation() {
        let call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let conversation = body(json!({ "messages": [
            { "role": "system", "content": "s" },
            { "role": "user", "content": "a" },
            { "role": "developer", "content": [{ "type": "text", "text": "d" }] },
            { "role": "assistant", "content": null, "refusal": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "1", "content": "r" },
            { "role": "assistant", "content": "b", "annotations": [] },
            { "role": "user", "content": [
                { "type": "text", "text": "c" },
                { "type": "image_url", "image_url": {
                    "url": "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=", "detail": "low",
                } },
            ] },
        ] }))
        .conversation()
        .unwrap();
        assert_eq!(conversation.system().as_deref(), Some("s\n\nd"));
        assert_eq!((&*conversation.input(), conversation.images().len()), ("c", 1));
        assert_eq!(conversation.history().len(), 4);
    }

    #[test]
    fn an_error_names_the_field() {
        let check = |messages: Value, field: &str, part: &str| {
            let error = body(json!({ "messages": messages })).conversation().unwrap_err();
            assert_eq!(error.body()["error"]["param"], field, "{error:?}");
            assert!(error.message().contains(part), "{error:?}");
        };
        let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
        check(json!([]), "messages", "end the list with");
        check(json!([{ "role": "user", "content": " " }]), "messages", "in words");
        check(
            json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]),
            "messages",
            "user",
        );
        check(json!([{ "role": "function", "content": "a" }]), "messages[0].role", "`function`");
        check(user(json!({ "type": "input_audio" })), "messages[0].content[0].type", "`input_audio`");
        check(
            user(json!({ "type": "image_url", "image_url": { "url": "https://x.example/a.png" } })),
            "messages[0].content[0].image_url.url",
            "`https://x.example/a.png`",
        );
    }
}
