//! View of a message of a conversation and its tool calls, in the form of `chat_completions`.

use hermod_actors::model::{Image, Message, MessageContent, ToolCall};
use serde::Serialize;
use utoipa::ToSchema;

use super::schema::ImageInfo;

/// A message in the form of `chat_completions`, with the reasoning beside the text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct MessageView {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// The call that the message answers; absent unless `role` is `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The name of that call's tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text.
    pub content: String,
    /// What the model thought; absent if it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls of an answer; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallView>,
    /// The images that belong to the text; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ImageInfo>)]
    pub images: Vec<Image>,
}

/// A tool call of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCallView {
    /// The vendor's id of the call.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called.
    pub function: FunctionView,
}

/// The tool of a call with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FunctionView {
    /// The name of the tool.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
}

impl From<&Message> for MessageView {
    fn from(message: &Message) -> Self {
        match message {
            Message::System(text) => Self { role: "system", content: text.to_string(), ..Self::default() },
            Message::User(content) => Self::with_content("user", content),
            Message::Assistant(answer) => Self {
                role: "assistant",
                content: answer.text.clone(),
                reasoning: answer.reasoning.clone(),
                tool_calls: answer.calls.iter().map(ToolCallView::from).collect(),
                ..Self::default()
            },
            Message::Tool { call, name, content } => Self {
                tool_call_id: Some(call.to_string()),
                name: Some(name.to_string()),
                ..Self::with_content("tool", content)
            },
        }
    }
}

impl MessageView {
    fn with_content(role: &'static str, content: &MessageContent) -> Self {
        let (text, images) = (content.text_with_note().to_string(), content.images.to_vec());
        Self { role, content: text, images, ..Self::default() }
    }
}

impl From<&ToolCall> for ToolCallView {
    fn from(call: &ToolCall) -> Self {
        let function = FunctionView { name: call.name.clone(), arguments: call.arguments.clone() };
        Self { id: call.id.clone(), kind: "function", function }
    }
}
