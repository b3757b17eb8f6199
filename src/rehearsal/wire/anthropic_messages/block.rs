use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{cache::Ttl, is_word, refuse, refuse_field};
use crate::rehearsal::{
    Id,
    wire::{
        Refusal,
        fields::{Fields, Shape, TextOrList, text_or_list},
        image::{self, NoImage},
        seal,
    },
};

/// One block of a message, of the system prompt or of a result. It was checked on its own.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) at: At,
    pub(super) kind: Kind,
    pub(super) fields: Fields<'a>,
    /// Of a result: its content.
    pub(super) parts: Vec<Block<'a>>,
    pub(super) marker: Option<Ttl>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Image,
    Document,
    SearchResult,
    Thinking,
    RedactedThinking,
    ToolUse,
    ToolResult,
    /// Of a tool that the vendor runs.
    Hosted,
}

/// Who holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Holder {
    User,
    Assistant,
    #[serde(skip)]
    System,
    #[serde(skip)]
    Result,
}

/// Where a block stands: `messages.1.content.0`, `system.0`, and its parts below.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    /// `None`: in the system prompt.
    pub(super) message: Option<usize>,
    pub(super) block: usize,
    pub(super) part: Option<usize>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            None => write!(f, "system.{}", self.block)?,
            Some(message) => write!(f, "messages.{message}.content.{}", self.block)?,
        }
        self.part.map_or(Ok(()), |part| write!(f, ".tool_result.content.{part}"))
    }
}

struct Spec {
    name: &'static str,
    kind: Kind,
    holders: &'static [Holder],
    shape: Shape,
}

const fn spec(
    name: &'static str,
    kind: Kind,
    holders: &'static [Holder],
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Spec {
    Spec { name, kind, holders, shape: Shape { required, optional } }
}

const SPECS: &[Spec] = {
    use Holder::{Assistant, Result, System, User};
    &[
        spec(
            "text",
            Kind::Text,
            &[User, Assistant, System, Result],
            &["type", "text"],
            &["cache_control", "citations"],
        ),
        spec("image", Kind::Image, &[User, Result], &["type", "source"], &["cache_control"]),
        spec(
            "document",
            Kind::Document,
            &[User, Result],
            &["type", "source"],
            &["cache_control", "citations", "context", "title"],
        ),
        spec(
            "search_result",
            Kind::SearchResult,
            &[User, Result],
            &["type", "source", "title", "content"],
            &["cache_control", "citations"],
        ),
        spec("thinking", Kind::Thinking, &[Assistant], &["type", "thinking", "signature"], &[]),
        spec("redacted_thinking", Kind::RedactedThinking, &[Assistant], &["type", "data"], &[]),
        spec(
            "tool_use",
            Kind::ToolUse,
            &[Assistant],
            &["type", "id", "name", "input"],
            &["cache_control", "caller"],
        ),
        spec(
            "tool_result",
            Kind::ToolResult,
            &[User],
            &["type", "tool_use_id"],
            &["content", "is_error", "cache_control"],
        ),
    ]
};

/// What the vendor's own tools leave in an assistant message; their fields are not looked at.
const HOSTED: &[&str] = &[
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

impl<'a> Block<'a> {
    /// A text that was not written as a block.
    pub(super) fn plain(at: At, text: &'a RawValue) -> Self {
        let fields = Fields::one("text", text);
        Self { at, kind: Kind::Text, fields, parts: Vec::new(), marker: None }
    }

    /// The field, if it is a text.
    pub(super) fn text(&self, name: &str) -> Option<Id<'a>> {
        self.fields.text(name).ok()
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(self.kind, Kind::Thinking | Kind::RedactedThinking)
    }

    /// Reads a block of `holder` and checks it; thoughts must be those of `model`.
    pub(super) fn read(raw: &'a RawValue, at: At, holder: Holder, model: &str) -> Result<Self, Refusal> {
        let fields = Fields::of(raw).ok_or_else(|| refuse(at, "Input should be a valid dictionary"))?;
        let Id(name) = fields.text("type").map_err(|problem| refuse_field(at, &problem))?;
        if holder == Holder::Assistant && HOSTED.contains(&name.as_ref()) {
            let marker = Ttl::of(&fields, at)?;
            return Ok(Self { at, kind: Kind::Hosted, fields, parts: Vec::new(), marker });
        }
        let spec = SPECS.iter().find(|spec| spec.name == name && spec.holders.contains(&holder));
        let Some(spec) = spec else {
            let may = SPECS.iter().filter(|spec| spec.holders.contains(&holder)).map(|spec| spec.name);
            let may = may.collect::<Vec<_>>().join("', '");
            let problem = format!(
                "Input tag '{name}' found using 'type' does not match any of the expected tags: '{may}'"
            );
            return Err(refuse(at, problem));
        };
        let place = format!("{at}.{}", spec.name);
        fields.check(&spec.shape).map_err(|problem| refuse_field(&place, &problem))?;
        let marker = Ttl::of(&fields, &place)?;
        let mut block = Self { at, kind: spec.kind, fields, parts: Vec::new(), marker };
        block.check(&place, model)?;
        Ok(block)
    }

    fn check(&mut self, place: &str, model: &str) -> Result<(), Refusal> {
        let text = |name| self.fields.text(name).map_err(|problem| refuse_field(place, &problem));
        match self.kind {
            Kind::Text => check_text(&text("text")?.0),
            Kind::Image => self.check_image(place),
            Kind::Document | Kind::SearchResult | Kind::Hosted => Ok(()),
            Kind::Thinking => {
                let (Id(thinking), Id(signature)) = (text("thinking")?, text("signature")?);
                let thought = seal::open(model, &signature);
                // A vendor that was asked to leave the thoughts out gives the signature alone.
                let fits = |thought: String| thinking.is_empty() || thinking == thought;
                if thought.is_some_and(fits) {
                    return Ok(());
                }
                Err(refuse(self.at, "Invalid `signature` in `thinking` block"))
            }
            Kind::RedactedThinking => {
                let thought = seal::open(model, &text("data")?.0);
                let problem = || refuse(self.at, "Invalid `data` in `redacted_thinking` block");
                thought.map(drop).ok_or_else(problem)
            }
            Kind::ToolUse => {
                check_id(place, "id", &text("id")?.0)?;
                let Id(name) = text("name")?;
                if !is_word(&name) || name.len() > 128 {
                    let problem = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'";
                    return Err(refuse(format_args!("{place}.name"), problem));
                }
                let input = self.fields.need::<Fields<'_>>("input", "dictionary");
                input.map(drop).map_err(|problem| refuse_field(place, &problem))
            }
            Kind::ToolResult => {
                check_id(place, "tool_use_id", &text("tool_use_id")?.0)?;
                self.read_parts(place, model)
            }
        }
    }

    fn read_parts(&mut self, place: &str, model: &str) -> Result<(), Refusal> {
        let refuse_it = |problem| refuse_field(place, &problem);
        let content = self.fields.text_or_list("content").map_err(refuse_it)?;
        let is_error = self.fields.read::<bool>("is_error", "boolean").map_err(refuse_it)?;
        let empty = match content {
            None => true,
            Some(TextOrList::Text(Id(text))) => text.is_empty(),
            Some(TextOrList::List(list)) => {
                for (part, raw) in list.into_iter().enumerate() {
                    let at = At { part: Some(part), ..self.at };
                    self.parts.push(Block::read(raw, at, Holder::Result, model)?);
                }
                self.parts.is_empty()
            }
        };
        if empty && is_error == Some(true) {
            return Err(refuse(place, "content cannot be empty if `is_error` is true"));
        }
        Ok(())
    }

    fn check_image(&self, place: &str) -> Result<(), Refusal> {
        let place = format!("{place}.source");
        let source = self.fields.need::<Fields<'_>>("source", "dictionary");
        let source = source.map_err(|problem| refuse_field(place.trim_end_matches(".source"), &problem))?;
        let text = |name| source.text(name).map_err(|problem| refuse_field(&place, &problem));
        let Id(kind) = text("type")?;
        match kind.as_ref() {
            "base64" => {
                let (Id(media_type), Id(data)) = (text("media_type")?, text("data")?);
                image::check(&media_type, &data).map_err(|problem| refuse_image(&place, &problem))
            }
            "url" => text("url").map(drop),
            "file" => text("file_id").map(drop),
            other => {
                let problem = format!(
                    "Input tag '{other}' found using 'type' does not match any of the expected tags: 'base64', \
                     'file', 'url'"
                );
                Err(refuse(place, problem))
            }
        }
    }
}

fn check_text(text: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(refuse("messages", "text content blocks must be non-empty"));
    }
    if text.trim().is_empty() {
        return Err(refuse("messages", "text content blocks must contain non-whitespace text"));
    }
    Ok(())
}

fn check_id(place: &str, field: &str, id: &str) -> Result<(), Refusal> {
    if is_word(id) {
        return Ok(());
    }
    Err(refuse(format_args!("{place}.{field}"), "String should match pattern '^[a-zA-Z0-9_-]+$'"))
}

fn refuse_image(place: &str, problem: &NoImage) -> Refusal {
    match problem {
        NoImage::Kind(_) => refuse(
            format_args!("{place}.base64.media_type"),
            "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
        ),
        NoImage::Base64 | NoImage::Url => refuse(format_args!("{place}.base64.data"), "invalid base64 data"),
        NoImage::Unreadable => refuse(place, "Could not process image"),
        NoImage::Other { said, is } => refuse(
            format_args!("{place}.base64.data"),
            format!(
                "The image was specified using the {said} media type, but the image appears to be a {is} image"
            ),
        ),
    }
}

/// The blocks of a content; a string is one text.
pub(super) fn blocks<'a>(
    content: &'a RawValue,
    message: Option<usize>,
    holder: Holder,
    model: &str,
) -> Result<Vec<Block<'a>>, Refusal> {
    let at = |block| At { message, block, part: None };
    match text_or_list(content) {
        Some(TextOrList::Text(Id(text))) if text.is_empty() => Ok(Vec::new()),
        Some(TextOrList::Text(Id(text))) => {
            check_text(&text)?;
            Ok(vec![Block::plain(at(0), content)])
        }
        Some(TextOrList::List(list)) => {
            let blocks = list.into_iter().enumerate();
            blocks.map(|(index, raw)| Block::read(raw, at(index), holder, model)).collect()
        }
        None => {
            let place = message.map_or("system".into(), |message| format!("messages.{message}.content"));
            Err(refuse(place, "Input should be a valid string or list"))
        }
    }
}
