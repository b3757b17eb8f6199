//! Templates of a call's arguments: compilation and rendering.

use serde_json::Value;

use super::template::{Template, TemplateError, ValueSource};
use crate::rehearsal::ScriptTurn;

/// The arguments of a call: JSON whose strings are templates.
#[derive(Debug, Clone)]
pub(crate) enum ArgumentsTemplate {
    /// A text. If it is the whole arguments, it is sent as it is, not as a JSON string.
    Text(Template),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// Any other value.
    Plain(Value),
}

impl ArgumentsTemplate {
    pub(super) fn compile(value: Value) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(&text)?),
            Value::Array(items) => {
                Self::List(items.into_iter().map(Self::compile).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| Ok((name, Self::compile(value)?)));
                Self::Map(fields.collect::<Result<_, TemplateError>>()?)
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Self::Plain(plain),
        })
    }

    pub(super) fn sources(&self) -> Vec<&ValueSource> {
        match self {
            Self::Text(template) => template.sources().collect(),
            Self::List(items) => items.iter().flat_map(Self::sources).collect(),
            Self::Map(fields) => fields.iter().flat_map(|(_, value)| value.sources()).collect(),
            Self::Plain(_) => Vec::new(),
        }
    }

    /// The argument text that the model sends.
    pub(in crate::rehearsal) fn render(&self, turn: &ScriptTurn<'_, '_>) -> String {
        match self {
            Self::Text(raw) => raw.render(turn),
            Self::List(_) | Self::Map(_) | Self::Plain(_) => self.fill(turn).to_string(),
        }
    }

    fn fill(&self, turn: &ScriptTurn<'_, '_>) -> Value {
        match self {
            Self::Text(template) => template.render(turn).into(),
            Self::List(items) => items.iter().map(|item| item.fill(turn)).collect(),
            Self::Map(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), value.fill(turn))).collect()
            }
            Self::Plain(value) => value.clone(),
        }
    }
}
