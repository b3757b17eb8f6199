//! Model providers: one file per wire format, each pure (bytes in, values out), and one folder that talks HTTP.

mod announcer;
pub mod anthropic_messages;
pub mod chat_completions;
mod chunked_body;
pub mod codex_responses;
mod credential;
mod excerpt;
pub mod failure;
mod http;
mod ids;
mod loose;
mod model_list;
mod names;
mod rates;
mod reader;
mod schema;
pub mod sse;
mod think_tags;
mod wire;

pub use self::http::{
    Deadlines, FormClient, FormError, FormResponse, HttpProvider, ProviderConfig, ProviderConfigError,
    check_base_url,
};
pub use credential::{Credential, FetchedKey, KeyError, KeyPlacement, KeySource};
pub use rates::rate_info;
pub(crate) use reader::parse_json_lossy;
pub use wire::{DecodeProgress, Decoder, EncodeTarget, WireFormat, encode_images};

/// A wire format, as configuration names it.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Its name.
    pub name: &'static str,
    /// Makes it, in the dialect of an endpoint.
    pub make: fn(&Dialect) -> Box<dyn WireFormat>,
}

/// What decides the dialect of a wire format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dialect {
    /// The host, as in the base URL.
    pub host: String,
    /// For how long the vendor is to cache how requests begin, where it must be asked to.
    pub cache: CacheTtl,
}

/// For how long a vendor caches how requests begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheTtl {
    /// Not at all.
    Off,
    /// Five minutes.
    #[default]
    Short,
    /// An hour.
    Long,
}

/// All wire formats: a new one is a file and a line here.
pub const WIRES: &[Wire] = &[
    Wire {
        name: chat_completions::NAME,
        make: |dialect| Box::new(chat_completions::ChatCompletions::of(dialect)),
    },
    Wire {
        name: anthropic_messages::NAME,
        make: |dialect| Box::new(anthropic_messages::AnthropicMessages::of(dialect)),
    },
    Wire {
        name: codex_responses::NAME,
        make: |dialect| Box::new(codex_responses::CodexResponses::of(dialect)),
    },
];
