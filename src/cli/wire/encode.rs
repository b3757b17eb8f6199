//! `hermod wire encode`: parses a conversation file (model, limits and tools; `message.rs` parses its messages), and
//! prints its request in a wire format.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum, builder::PossibleValue};
use hermod_actors::{
    model::{
        AnswerOrigin, CallId, CredentialId, Message, ModelDeadlines, RunId, SessionId, ThinkingRequest,
        ToolSpec,
    },
    port::{MessageBuffer, ModelRequest, ToolChoice},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    FormatArgs, file_error,
    message::{self, ImagesByHash},
    parse_json, read,
};
use crate::{
    cli::{CliError, output::print_escaped},
    host::Identifier,
    provider::{CacheTtl, Dialect, EncodeTarget, WireFormat, encode_images},
};

/// Print the request that a conversation makes
#[derive(Debug, Args)]
pub(super) struct EncodeArgs {
    #[command(flatten)]
    format: FormatArgs,
    /// The provider that is asked: what it made that is opaque is sent back to it
    #[arg(long, value_name = "NAME", default_value = "wire")]
    provider: Identifier,
    /// The model that is asked [default: that of the file]
    #[arg(long, value_name = "NAME")]
    model: Option<Identifier>,
    /// The provider's host, which decides the dialect
    #[arg(long, default_value = "")]
    host: String,
    /// For how long the vendor is to cache how requests begin
    #[arg(long, value_enum, default_value_t)]
    cache: CacheTtl,
    /// The conversation, as docs/wire.md says; `-` is standard input
    file: PathBuf,
}

/// The names are those of the configuration.
impl ValueEnum for CacheTtl {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Off, Self::Short, Self::Long]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Off => "off",
            Self::Short => "5m",
            Self::Long => "1h",
        }))
    }
}

/// A request, independent of any wire format.
#[derive(Debug)]
pub(super) struct ParsedConversation {
    /// The file, whose messages are taken out, with the system prompt that may be the first of them.
    pub(super) file: ConversationFile,
    pub(super) messages: Vec<Message>,
    pub(super) images: ImagesByHash,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConversationFile {
    model: Arc<str>,
    max_tokens: u64,
    #[serde(default)]
    thinking: Option<ThinkingRequest>,
    /// Whether the model accepts images.
    #[serde(default = "default_images")]
    images: bool,
    #[serde(default)]
    pub(super) system: String,
    #[serde(default)]
    tools: Vec<Tool>,
    messages: Vec<message::Fields>,
}

const fn default_images() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    #[serde(rename = "type")]
    _type: Function,
    #[serde(with = "Spec")]
    function: ToolSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Function {
    Function,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "ToolSpec", deny_unknown_fields)]
struct Spec {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default = "default_parameters")]
    parameters: Value,
}

fn default_parameters() -> Value {
    serde_json::json!({ "type": "object", "properties": {} })
}

impl ParsedConversation {
    /// Parses a file's text; the error names the field.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let mut file: ConversationFile = parse_json(json)?;
        if file.max_tokens == 0 {
            return Err("max_tokens: 0 leaves no room for an answer; give 1 or more".to_owned());
        }
        let mut names = BTreeSet::new();
        for (n, Tool { function: ToolSpec { name, .. }, .. }) in file.tools.iter().enumerate() {
            if name.is_empty() || !names.insert(name) {
                return Err(format!(
                    "tools[{n}].function.name: \"{name}\": each tool needs a name of its own"
                ));
            }
        }
        let (fields, mut images) = (std::mem::take(&mut file.messages), ImagesByHash::default());
        let messages = message::read(&mut file.system, fields, &mut images)?;
        Ok(Self { file, messages, images })
    }
}

/// Encodes the conversation and prints the request.
pub(super) fn execute(args: &EncodeArgs) -> Result<(), CliError> {
    let wire = args.format.wire(&Dialect { host: args.host.clone(), cache: args.cache });
    let mut conversation =
        ParsedConversation::parse(&read(&args.file)?).map_err(|error| file_error(&args.file, error))?;
    if let Some(model) = &args.model {
        conversation.file.model = (**model).into();
    }
    let body = body(&*wire, conversation, args);
    print_escaped(&String::from_utf8_lossy(&body))
}

/// The body of the request as sent.
fn body(wire: &dyn WireFormat, conversation: ParsedConversation, args: &EncodeArgs) -> Vec<u8> {
    let ParsedConversation { file, messages, images } = conversation;
    let origin = AnswerOrigin {
        provider: (*args.provider).into(),
        wire: args.format.format.name.into(),
        model: Arc::clone(&file.model),
    };
    let encoder = wire.encoder(EncodeTarget { origin: Arc::new(origin), has_vision: file.images });
    let mut segments = MessageBuffer::default();
    encoder.messages(&messages, &mut segments);
    let tools: Vec<ToolSpec> = file.tools.into_iter().map(|tool| tool.function).collect();
    let mut request = ModelRequest {
        call: CallId { run: RunId::from_bits(0), iteration: 1, n: 0 },
        session: SessionId::from_bits(0),
        model: file.model,
        credential: CredentialId::default(),
        max_tokens: file.max_tokens,
        thinking: file.thinking,
        deadlines: ModelDeadlines::default(),
        head: encoder.head(&file.system, &tools),
        tool_choice: ToolChoice::Auto,
        messages: segments,
        images: images.0,
    };
    encode_images(&mut request);
    wire.body(request).concat()
}
