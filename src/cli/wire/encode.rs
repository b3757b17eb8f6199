//! `hermod wire encode`: prints the request of a conversation in a wire format.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use hermod_actors::{
    model::{AnswerOrigin, CallId, CredentialId, ModelDeadlines, RunId, SessionId},
    port::{MessageBuffer, ModelRequest, ToolChoice},
};

use super::{FormatArgs, conversation::ParsedConversation, file_error, read};
use crate::{
    cli::{exit::CliError, output::print_escaped},
    host::Identifier,
    provider::{self, Dialect, EncodeTarget, WireFormat, encode_images},
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
    cache: CacheArg,
    /// The conversation, as docs/wire.md says; `-` is standard input
    file: PathBuf,
}

/// The cache lifetime, with the names that the configuration uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum CacheArg {
    Off,
    #[default]
    #[value(name = "5m")]
    Short,
    #[value(name = "1h")]
    Long,
}

impl From<CacheArg> for provider::CacheTtl {
    fn from(cache: CacheArg) -> Self {
        match cache {
            CacheArg::Off => Self::Off,
            CacheArg::Short => Self::Short,
            CacheArg::Long => Self::Long,
        }
    }
}

/// Encodes the conversation and prints the request.
pub(super) fn execute(args: &EncodeArgs) -> Result<(), CliError> {
    let wire = args.format.wire(&Dialect { host: args.host.clone(), cache: args.cache.into() })?;
    let mut conversation =
        ParsedConversation::parse(&read(&args.file)?).map_err(|error| file_error(&args.file, error))?;
    if let Some(model) = &args.model {
        conversation.model = (**model).into();
    }
    let body = body(&*wire, conversation, &args.provider);
    print_escaped(&String::from_utf8_lossy(&body))
}

/// The body of the request as sent.
fn body(wire: &dyn WireFormat, conversation: ParsedConversation, provider: &str) -> Vec<u8> {
    let ParsedConversation { model, max_tokens, thinking, accepts_images, system, tools, messages, images } =
        conversation;
    let origin =
        AnswerOrigin { provider: provider.into(), wire: wire.name().into(), model: Arc::clone(&model) };
    let encoder = wire.encoder(EncodeTarget { origin: Arc::new(origin), has_vision: accepts_images });
    let mut segments = MessageBuffer::default();
    encoder.messages(&messages, &mut segments);
    let mut request = ModelRequest {
        call: CallId { run: RunId::from_bits(0), iteration: 1, n: 0 },
        session: SessionId::from_bits(0),
        model,
        credential: CredentialId::default(),
        max_tokens,
        thinking,
        deadlines: ModelDeadlines::default(),
        head: encoder.head(&system, &tools),
        tool_choice: ToolChoice::Auto,
        messages: segments,
        images: images.0,
    };
    encode_images(&mut request);
    wire.body(request).concat()
}
