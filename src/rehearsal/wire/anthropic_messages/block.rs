//! Parsing and checks of single content blocks of `anthropic_messages` requests. The order of blocks and messages is
//! checked in `turn.rs`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{cache::Ttl, object, refuse, refuse_field, refuse_tag, tool_name};
use crate::rehearsal::{
    BorrowedText,
    wire::{
        RequestRefusal,
        fields::{JsonFields, ObjectShape, TextOrList, text_or_list},
        image::{self, ImageError},
        is_word, seal,
    },
};

/// One block of a message, of the system prompt or of a result, checked on its own.
#[derive(Debug)]
pub(super) struct RequestBlock<'a> {
    /// The path: `messages.1.content.0` or `system.0`, with the part of a result appended.
    pub(super) at: String,
    pub(super) kind: BlockKind,
    pub(super) fields: JsonFields<'a>,
    /// The content blocks of a result.
    pub(super) parts: Vec<RequestBlock<'a>>,
    pub(super) marker: Option<Ttl>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Image,
    Document,
    SearchResult,
    Thinking,
    RedactedThinking,
    ToolUse,
    ToolResult,
    /// A block of a tool that the vendor runs.
    Hosted,
}

/// The container of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BlockOwner {
    User,
    Assistant,
    #[serde(skip)]
    System,
    #[serde(skip)]
    Result,
}

/// The `type` of a block, its kind, its possible owners, and the fields that it must and may have.
type BlockSpec = (&'static str, BlockKind, &'static [BlockOwner], &'static str, &'static str);

const SPECS: &[BlockSpec] = {
    use BlockKind::{Document, Image, RedactedThinking, SearchResult, Text, Thinking, ToolResult, ToolUse};
    use BlockOwner::{Assistant, Result, System, User};
    const EVERY: &[BlockOwner] = &[User, Assistant, System, Result];
    const GIVEN: &[BlockOwner] = &[User, Result];
    &[
        ("text", Text, EVERY, "type text", "cache_control citations"),
        ("image", Image, GIVEN, "type source", "cache_control"),
        ("document", Document, GIVEN, "type source", "cache_control citations context title"),
        ("search_result", SearchResult, GIVEN, "type source title content", "cache_control citations"),
        ("thinking", Thinking, &[Assistant], "type thinking signature", ""),
        ("redacted_thinking", RedactedThinking, &[Assistant], "type data", ""),
        ("tool_use", ToolUse, &[Assistant], "type id name input", "cache_control caller"),
        ("tool_result", ToolResult, &[User], "type tool_use_id", "content is_error cache_control"),
    ]
};

/// Block types of the vendor's own tools in an assistant message; their fields are not checked.
const HOSTED_TYPES: &[&str] = &[
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
];

impl<'a> RequestBlock<'a> {
    /// A text that was not written as a block.
    pub(super) fn plain(at: String, text: &'a RawValue) -> Self {
        let fields = JsonFields::single("text", text, at.clone(), refuse_field);
        Self { at, kind: BlockKind::Text, fields, parts: Vec::new(), marker: None }
    }

    /// The field, if it is a text.
    pub(super) fn text(&self, name: &str) -> Option<BorrowedText<'a>> {
        self.fields.text(name).ok()
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(self.kind, BlockKind::Thinking | BlockKind::RedactedThinking)
    }

    /// Parses a block of `owner`; reasoning must be sealed for `model`.
    pub(super) fn read(
        raw: &'a RawValue,
        at: String,
        owner: BlockOwner,
        model: &str,
    ) -> Result<Self, RequestRefusal> {
        let mut fields = object(raw, at.clone())?;
        let BorrowedText(name) = fields.text("type")?;
        if owner == BlockOwner::Assistant && HOSTED_TYPES.contains(&name.as_ref()) {
            let marker = Ttl::of(&fields)?;
            return Ok(Self { at, kind: BlockKind::Hosted, fields, parts: Vec::new(), marker });
        }
        let allowed = SPECS.iter().filter(|(_, _, owners, ..)| owners.contains(&owner));
        let spec = allowed.clone().find(|(tag, ..)| *tag == name);
        let Some((tag, kind, _, required, optional)) = spec else {
            let allowed = allowed.map(|(tag, ..)| *tag);
            return Err(refuse_tag(at, &name, &allowed.collect::<Vec<_>>()));
        };
        fields = fields.at(format!("{at}.{tag}"));
        fields.check(&ObjectShape { required, optional })?;
        let marker = Ttl::of(&fields)?;
        let mut block = Self { at, kind: *kind, fields, parts: Vec::new(), marker };
        block.check(model)?;
        Ok(block)
    }

    fn check(&mut self, model: &str) -> Result<(), RequestRefusal> {
        let fields = &self.fields;
        match self.kind {
            BlockKind::Text => check_text(&fields.text("text")?.0),
            BlockKind::Image => check_image(&fields.require_object("source", "dictionary")?),
            BlockKind::Document | BlockKind::SearchResult | BlockKind::Hosted => Ok(()),
            BlockKind::Thinking => {
                let (BorrowedText(thinking), BorrowedText(signature)) =
                    (fields.text("thinking")?, fields.text("signature")?);
                let thought = seal::open(model, &signature);
                // If the client asked for no reasoning text, the block has only the signature.
                let fits = |thought: String| thinking.is_empty() || thinking == thought;
                if thought.is_some_and(fits) {
                    return Ok(());
                }
                Err(refuse(&self.at, "Invalid `signature` in `thinking` block"))
            }
            BlockKind::RedactedThinking => {
                let thought = seal::open(model, &fields.text("data")?.0);
                let problem = || refuse(&self.at, "Invalid `data` in `redacted_thinking` block");
                thought.map(drop).ok_or_else(problem)
            }
            BlockKind::ToolUse => {
                check_id(fields, "id")?;
                tool_name(fields)?;
                fields.require_object("input", "dictionary").map(drop)
            }
            BlockKind::ToolResult => {
                check_id(fields, "tool_use_id")?;
                self.read_parts(model)
            }
        }
    }

    fn read_parts(&mut self, model: &str) -> Result<(), RequestRefusal> {
        let content = self.fields.text_or_list("content")?;
        let is_error = self.fields.read::<bool>("is_error", "boolean")?;
        let is_empty = match content {
            None => true,
            Some(TextOrList::Text(BorrowedText(text))) => text.is_empty(),
            Some(TextOrList::List(list)) => {
                for (part, raw) in list.into_iter().enumerate() {
                    let at = format!("{}.tool_result.content.{part}", self.at);
                    self.parts.push(RequestBlock::read(raw, at, BlockOwner::Result, model)?);
                }
                self.parts.is_empty()
            }
        };
        if is_empty && is_error == Some(true) {
            return Err(refuse(&self.fields.path, "content cannot be empty if `is_error` is true"));
        }
        Ok(())
    }
}

fn check_image(source: &JsonFields<'_>) -> Result<(), RequestRefusal> {
    let BorrowedText(kind) = source.text("type")?;
    match kind.as_ref() {
        "base64" => {
            let (BorrowedText(media_type), BorrowedText(data)) =
                (source.text("media_type")?, source.text("data")?);
            image::check(&media_type, &data).map_err(|problem| refuse_image(&source.path, &problem))
        }
        "url" => source.text("url").map(drop),
        "file" => source.text("file_id").map(drop),
        other => Err(refuse_tag(&source.path, other, &["base64", "file", "url"])),
    }
}

fn check_text(text: &str) -> Result<(), RequestRefusal> {
    if text.is_empty() {
        return Err(refuse("messages", "text content blocks must be non-empty"));
    }
    if text.trim().is_empty() {
        return Err(refuse("messages", "text content blocks must contain non-whitespace text"));
    }
    Ok(())
}

fn check_id(fields: &JsonFields<'_>, field: &str) -> Result<(), RequestRefusal> {
    if is_word(&fields.text(field)?.0) {
        return Ok(());
    }
    Err(refuse(fields.path(field), "String should match pattern '^[a-zA-Z0-9_-]+$'"))
}

fn refuse_image(path: &str, problem: &ImageError) -> RequestRefusal {
    match problem {
        ImageError::UnsupportedType(_) => refuse(
            format_args!("{path}.base64.media_type"),
            "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
        ),
        ImageError::Base64 | ImageError::Url => {
            refuse(format_args!("{path}.base64.data"), "invalid base64 data")
        }
        ImageError::Unreadable => refuse(path, "Could not process image"),
        ImageError::TypeMismatch { declared, found } => refuse(
            format_args!("{path}.base64.data"),
            format!(
                "The image was specified using the {declared} media type, but the image appears to be a {found} image"
            ),
        ),
    }
}

/// The blocks of the content at `path`; a string is one text block.
pub(super) fn blocks<'a>(
    content: &'a RawValue,
    path: &str,
    owner: BlockOwner,
    model: &str,
) -> Result<Vec<RequestBlock<'a>>, RequestRefusal> {
    let at = |block: usize| format!("{path}.{block}");
    match text_or_list(content) {
        Some(TextOrList::Text(BorrowedText(text))) if text.is_empty() => Ok(Vec::new()),
        Some(TextOrList::Text(BorrowedText(text))) => {
            check_text(&text)?;
            Ok(vec![RequestBlock::plain(at(0), content)])
        }
        Some(TextOrList::List(list)) => {
            let blocks = list.into_iter().enumerate();
            blocks.map(|(index, raw)| RequestBlock::read(raw, at(index), owner, model)).collect()
        }
        None => Err(refuse(path, "Input should be a valid string or list")),
    }
}
