//! Parses messages in the form of `chat_completions` and of `hermod run --json`, for `hermod wire encode` and for
//! `hermod run --history`.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hermod_actors::model::{
    Artifact, AssistantMessage, Hash, Image, ImageFormat, Message, MessageContent, OpaqueState, ToolCall,
};
use serde::Deserialize;

use super::parse_json;

/// Images by the hash of their bytes.
#[derive(Debug, Default)]
pub(super) struct ImagesByHash(pub(super) BTreeMap<String, Bytes>);

impl ImagesByHash {
    /// Stores an image; `None` if its format is unknown.
    fn insert(&mut self, bytes: Vec<u8>) -> Option<Image> {
        let format = ImageFormat::of_bytes(&bytes)?;
        let handle = Hash::of(&bytes).to_string();
        let artifact = Artifact { handle: handle.clone(), bytes: bytes.len() as u64, sha256: None };
        self.0.insert(handle, bytes.into());
        Some(Image::new(format, artifact))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// A message of any role.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fields {
    role: Role,
    #[serde(default)]
    content: Option<ContentJson>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Call>,
    #[serde(default)]
    opaque: Option<Arc<OpaqueState>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// A note of the runtime after the content.
    #[serde(default)]
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, or a list of parts `text` and `image_url`")]
enum ContentJson {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
    ImageUrl { image_url: Url },
}

#[derive(Debug, Deserialize)]
struct Url {
    url: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: String,
    #[serde(default, rename = "type")]
    _type: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    arguments: String,
}

/// The messages. If `system` is empty, a first message of the role `system` becomes that prompt. The error names the
/// field.
pub(super) fn read(
    system: &mut String,
    fields: Vec<Fields>,
    by_hash: &mut ImagesByHash,
) -> Result<Vec<Message>, String> {
    let mut messages = Vec::with_capacity(fields.len());
    let mut open = Vec::new();
    for (n, mut fields) in fields.into_iter().enumerate() {
        let field = |name: &str| format!("messages[{n}].{name}");
        check_fields(&fields, &field)?;
        if fields.role != Role::Tool {
            check_answered(&open)?;
        }
        let (text, images) = read_content(fields.content.take(), &field, by_hash)?;
        if !images.is_empty() && !matches!(fields.role, Role::User | Role::Tool) {
            return Err(format!("{}: only users and tools show pictures", field("content")));
        }
        match fields.role {
            Role::System if n == 0 && system.is_empty() => {
                *system = text;
                continue;
            }
            Role::System => {
                let reason = "a system prompt is the first message or the field `system`; leave it out here";
                return Err(format!("{}: {reason}", field("role")));
            }
            Role::User => {}
            Role::Assistant => open = unanswered_calls(n, &fields.tool_calls)?,
            Role::Tool => {
                let call = fields.tool_call_id.as_deref().unwrap_or_default();
                let answered = open.iter().position(|open| open.id == call).ok_or_else(|| {
                    let reason =
                        "the assistant message before asks for no such call, or it has its result already";
                    format!("{}: \"{call}\": {reason}", field("tool_call_id"))
                })?;
                fields.name.get_or_insert(open.remove(answered).name);
            }
        }
        messages.push(fields.into_message(text, images));
    }
    check_answered(&open)?;
    Ok(messages)
}

/// Parses a conversation from outside: a JSON array in the form of `messages` of `hermod run --json`. Flaws such as
/// calls without results are accepted, because the runtime repairs a history. The error names the field.
pub(in crate::cli) fn history(json: &[u8]) -> Result<Vec<Message>, String> {
    let fields: Vec<Fields> = parse_json(json)?;
    fields.into_iter().enumerate().map(|(n, fields)| history_message(n, fields)).collect()
}

fn history_message(n: usize, mut fields: Fields) -> Result<Message, String> {
    let field = |name: &str| format!("[{n}].{name}");
    check_fields(&fields, &field)?;
    let (text, images) = read_content(fields.content.take(), &field, &mut ImagesByHash::default())?;
    if !images.is_empty() {
        return Err(format!("{}: a history takes no pictures; leave them out", field("content")));
    }
    Ok(fields.into_message(text, images))
}

impl Fields {
    /// The message with this content; fields that its role lacks are lost.
    fn into_message(self, text: String, images: Vec<Image>) -> Message {
        let content = MessageContent {
            text: text.as_str().into(),
            images: images.into(),
            note: self.note.map(Into::into),
        };
        match self.role {
            Role::System => Message::System(text.into()),
            Role::User => Message::User(content),
            Role::Assistant => Message::Assistant(Arc::new(AssistantMessage {
                text,
                reasoning: self.reasoning.unwrap_or_default(),
                calls: self.tool_calls.into_iter().map(Call::read).collect(),
                opaque: self.opaque,
            })),
            Role::Tool => Message::Tool {
                call: self.tool_call_id.unwrap_or_default().into(),
                name: self.name.unwrap_or_default().into(),
                content,
            },
        }
    }
}

impl Call {
    fn read(self) -> ToolCall {
        ToolCall { id: self.id, name: self.function.name, arguments: self.function.arguments }
    }
}

/// Rejects fields that the role does not have, because they would be lost.
fn check_fields(fields: &Fields, field: &impl Fn(&str) -> String) -> Result<(), String> {
    let assistant = fields.role == Role::Assistant;
    let tool = fields.role == Role::Tool;
    let rules = [
        ("reasoning", fields.reasoning.is_some(), assistant),
        ("tool_calls", !fields.tool_calls.is_empty(), assistant),
        ("opaque", fields.opaque.is_some(), assistant),
        ("tool_call_id", fields.tool_call_id.is_some(), tool),
        ("name", fields.name.is_some(), tool),
        ("note", fields.note.is_some(), tool || fields.role == Role::User),
    ];
    match rules.into_iter().find(|(_, is_present, is_allowed)| *is_present && !*is_allowed) {
        Some((name, ..)) => Err(format!("{}: a message of this role has none; leave it out", field(name))),
        None => Ok(()),
    }
}

fn read_content(
    content: Option<ContentJson>,
    field: &impl Fn(&str) -> String,
    by_hash: &mut ImagesByHash,
) -> Result<(String, Vec<Image>), String> {
    let parts = match content {
        None => return Ok(Default::default()),
        Some(ContentJson::Text(text)) => return Ok((text, Vec::new())),
        Some(ContentJson::Parts(parts)) => parts,
    };
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (n, part) in parts.into_iter().enumerate() {
        match part {
            Part::Text { text } => texts.push(text),
            Part::ImageUrl { image_url: Url { url } } => {
                let image = base64_of(&url).and_then(|bytes| by_hash.insert(bytes));
                images.push(image.ok_or_else(|| {
                    let reason = "give `data:image/png;base64,…` with a PNG, JPEG, GIF or WebP in it";
                    let start: String = url.chars().take(40).collect();
                    format!("{}: \"{start}\": {reason}", field(&format!("content[{n}].image_url.url")))
                })?);
            }
        }
    }
    Ok((texts.join("\n\n"), images))
}

fn base64_of(url: &str) -> Option<Vec<u8>> {
    let (media, data) = url.strip_prefix("data:image/")?.split_once(',')?;
    STANDARD.decode(data).ok().filter(|_| media.ends_with(";base64"))
}

/// A call of an assistant message that needs a result.
#[derive(Debug)]
struct UnansweredCall {
    /// The field of its id.
    field: String,
    id: String,
    name: String,
}

/// The calls of the assistant message with this number.
fn unanswered_calls(message: usize, calls: &[Call]) -> Result<Vec<UnansweredCall>, String> {
    let mut open: Vec<UnansweredCall> = Vec::with_capacity(calls.len());
    for (n, Call { id, function, .. }) in calls.iter().enumerate() {
        let field = format!("messages[{message}].tool_calls[{n}].id");
        if id.is_empty() || open.iter().any(|call| call.id == *id) {
            return Err(format!("{field}: \"{id}\": each call needs an id of its own"));
        }
        open.push(UnansweredCall { field, id: id.clone(), name: function.name.clone() });
    }
    Ok(open)
}

fn check_answered(open: &[UnansweredCall]) -> Result<(), String> {
    let Some(UnansweredCall { field, id, .. }) = open.first() else { return Ok(()) };
    let reason = "no message of the role `tool` that follows has its result; add one";
    Err(format!("{field}: \"{id}\": {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::wire::encode::ParsedConversation;

    fn parse(messages: Value) -> Result<ParsedConversation, String> {
        let file = json!({ "model": "m", "max_tokens": 9, "messages": messages });
        ParsedConversation::parse(file.to_string().as_bytes())
    }

    #[track_caller]
    fn check_wrong(messages: Value, field: &str, part: &str) {
        let error = parse(messages).unwrap_err();
        assert!(error.starts_with(&format!("{field}: ")) && error.contains(part), "{error}");
    }

    fn asks(ids: &[&str]) -> Value {
        let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
        json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
    }

    fn result(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": "r" })
    }

    const PIXEL: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

    #[test]
    fn all_roles_are_read() {
        let picture = json!({ "type": "image_url", "image_url": { "url": PIXEL } });
        let opaque = json!({ "origin": { "provider": "p", "wire": "w", "model": "m" }, "parts": [1] });
        let read = parse(json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": [{ "type": "text", "text": "u" }, picture] },
            asks(&["a", "b"]),
            result("b"),
            { "role": "tool", "tool_call_id": "a", "name": "g", "content": [picture], "note": "n" },
            { "role": "assistant", "content": "said", "reasoning": "thought", "opaque": opaque },
        ]))
        .unwrap();
        assert_eq!((read.file.system.as_str(), read.messages.len(), read.images.0.len()), ("s", 5, 1));
        let [Message::User(user), _, Message::Tool { name: first, .. }, second, Message::Assistant(said)] =
            &read.messages[..]
        else {
            panic!("{:?}", read.messages)
        };
        assert_eq!((&*user.text, user.images.len(), &**first), ("u", 1, "f"));
        let Message::Tool { name, content, .. } = second else { panic!("{second:?}") };
        assert_eq!((&**name, content.images.len(), content.note.as_deref()), ("g", 1, Some("n")));
        assert_eq!((&*said.text, &*said.reasoning), ("said", "thought"));
        assert_eq!(said.opaque.as_ref().unwrap().parts(), [json!(1)]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let user = |content: Value| json!([{ "role": "user", "content": content }]);
        check_wrong(json!([{ "role": "robot" }]), "messages[0].role", "robot");
        check_wrong(json!([{ "role": "user", "said": 1 }]), "messages[0].said", "unknown field");
        check_wrong(user(json!(1)), "messages[0].content", "a list of parts");
        check_wrong(json!([{ "role": "user", "reasoning": "r" }]), "messages[0].reasoning", "leave it out");
        check_wrong(json!([asks(&["a"]), { "role": "user" }]), "messages[0].tool_calls[0].id", "\"a\"");
        check_wrong(json!([asks(&["a", "b"]), result("a")]), "messages[0].tool_calls[1].id", "\"b\"");
        check_wrong(json!([asks(&["a", "a"])]), "messages[0].tool_calls[1].id", "of its own");
        check_wrong(json!([asks(&["a"]), result("x")]), "messages[1].tool_call_id", "\"x\"");
        check_wrong(json!([asks(&["a"]), result("a"), result("a")]), "messages[2].tool_call_id", "already");
        check_wrong(json!([{ "role": "user" }, { "role": "system" }]), "messages[1].role", "`system`");
        for url in ["https://example.org/a.png", "data:image/png;base64,!", "data:image/png;base64,QQ=="] {
            let part = json!({ "type": "image_url", "image_url": { "url": url } });
            check_wrong(user(json!([part])), "messages[0].content[0].image_url.url", url);
        }
        let picture = json!([{ "type": "image_url", "image_url": { "url": PIXEL } }]);
        check_wrong(
            json!([{ "role": "assistant", "content": picture }]),
            "messages[0].content",
            "only users",
        );
    }

    #[test]
    fn the_request_around_them_is_checked_too() {
        let check = |file: Value, field: &str| {
            let error = ParsedConversation::parse(file.to_string().as_bytes()).unwrap_err();
            assert!(error.starts_with(&format!("{field}: ")), "{error}");
        };
        let with = |name: &str, value: Value| {
            let mut file = json!({ "model": "m", "max_tokens": 9, "messages": [] });
            file[name] = value;
            file
        };
        check(with("max_tokens", json!(0)), "max_tokens");
        check(with("max_tokens", json!("9")), "max_tokens");
        check(with("thinking", json!({ "level": "much", "style": "effort" })), "thinking.level");
        check(with("tools", json!([{ "type": "web", "function": { "name": "f" } }])), "tools[0].type");
        let tool = json!({ "type": "function", "function": { "name": "f" } });
        check(with("tools", json!([tool, tool])), "tools[1].function.name");
        check(with("other", json!(1)), "other");
    }
}
