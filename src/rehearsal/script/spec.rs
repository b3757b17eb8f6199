//! The JSON form of a script. The doc comments of its types are the descriptions in the script's JSON schema.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// A whole script.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `name` and `scripts`")]
#[schemars(title = "A script of Hermod's rehearsal model")]
pub(super) struct ScriptSpec {
    /// The model calls itself `rehearsal/<name>`.
    pub(super) name: String,
    /// The first one whose `when` fits the user's text plays.
    #[schemars(length(min = 1))]
    pub(super) scripts: Vec<PartSpec>,
    /// Patterns (as in `when`) of user texts that do not begin the script again: nudges and prompts to continue.
    #[serde(default)]
    pub(super) nudges: Vec<String>,
    /// Bytes of text or arguments in one delta, for steps that do not say; without it each is sent whole.
    #[schemars(range(min = 1))]
    pub(super) chunk: Option<usize>,
    /// Time before the first byte, for steps that do not say.
    pub(super) delay: Option<Span>,
    /// Time between two events, for steps that do not say.
    pub(super) chunk_delay: Option<Span>,
}

/// What is played for one kind of user text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `steps`")]
pub(super) struct PartSpec {
    /// A part of the user's text, or `/a regular expression/`; without it every text fits.
    pub(super) when: Option<String>,
    /// The answers, in order.
    #[schemars(length(min = 1))]
    pub(super) steps: Vec<StepSpec>,
}

/// One answer: a text, calls of tools, or both.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `say` or `call`")]
pub(super) struct StepSpec {
    /// The text, with templates.
    pub(super) say: Option<String>,
    /// Tools to call, all in this one answer.
    #[schemars(length(min = 1))]
    pub(super) call: Option<Vec<CallSpec>>,
    /// What is thought before, with templates; sent to clients that ask for it.
    pub(super) think: Option<String>,
    /// Bytes of text or arguments in one delta.
    #[schemars(range(min = 1))]
    pub(super) chunk: Option<usize>,
    /// Time before the first byte.
    pub(super) delay: Option<Span>,
    /// Time between two events.
    pub(super) chunk_delay: Option<Span>,
    /// Tokens to report instead of the estimate.
    pub(super) usage: Option<UsageSpec>,
    /// Why the answer ends, if not for the plain reason.
    pub(super) finish: Option<FinishSpec>,
    /// What goes wrong.
    pub(super) fault: Option<FaultSpec>,
    /// How many answers in a row are this step.
    pub(super) repeat: Option<Times>,
}

/// One call of a tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `tool`")]
pub(super) struct CallSpec {
    /// The tool's name.
    pub(super) tool: String,
    /// The arguments, with templates in their strings; a string is sent as it is, even if it is no JSON.
    #[serde(default = "no_arguments")]
    pub(super) arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Tokens to report; what is not given is estimated.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object of token counts")]
#[allow(clippy::struct_field_names)] // the names are those of `model::Usage`
pub(crate) struct UsageSpec {
    /// Tokens read, cached ones included.
    pub(crate) input_tokens: Option<u64>,
    /// Tokens written.
    pub(crate) output_tokens: Option<u64>,
    /// Of the tokens read, those from the cache.
    pub(crate) cached_tokens: Option<u64>,
    /// Of the tokens read, those that were written to the cache.
    pub(crate) cache_write_tokens: Option<u64>,
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FinishSpec {
    /// All was said.
    Stop,
    /// The results of calls are awaited.
    ToolCalls,
    /// The limit of the output was reached.
    Length,
    /// The vendor refused.
    Refused,
}

/// What goes wrong: exactly one of `status`, `cut_after` and `stall`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `status`, `cut_after` or `stall`")]
pub(super) struct FaultSpec {
    /// An HTTP status from 400 to 599 instead of the answer.
    #[schemars(range(min = 400, max = 599))]
    pub(super) status: Option<u16>,
    /// Headers of that response.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Its body; without one, an error object of the wire format.
    pub(super) body: Option<String>,
    /// The connection breaks after so many events.
    pub(super) cut_after: Option<usize>,
    /// How the stream breaks: `reset` (default) or `clean`, an end without the end mark.
    pub(super) cut: Option<Cut>,
    /// Silence of this length.
    pub(super) stall: Option<Span>,
    /// The events before the silence; 0 without it.
    pub(super) stall_after: Option<usize>,
    /// How many attempts of the same request meet it; 1 without it.
    pub(super) times: Option<Times>,
}

/// How a cut stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The connection is broken in the middle of the body.
    #[default]
    Reset,
    /// The body ends as if it were whole.
    Clean,
}

/// A length of time, written `200ms` or `1m 30s`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

/// A number from 1; `None` for `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as \"200ms\" or \"1m 30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                let span = humantime::parse_duration(text);
                span.map(Span).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A length of time such as \"200ms\" or \"1m 30s\".",
            "pattern": "^\\s*([0-9]+\\s*[a-zA-Z]+\\s*)+$|^0$",
        })
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Times;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1, or \"forever\"")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Times, E> {
                if n == 0 {
                    return Err(E::invalid_value(de::Unexpected::Unsigned(n), &self));
                }
                Ok(Times(Some(n)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Times, E> {
                if text != "forever" {
                    return Err(E::invalid_value(de::Unexpected::Str(text), &self));
                }
                Ok(Times(None))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Times {
    fn schema_name() -> Cow<'static, str> {
        "Times".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number from 1, or \"forever\".",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "forever" }],
        })
    }
}
