//! Model providers: one module for each wire format, pure (bytes in, values out), and what they share. Here is
//! [`WIRES`], the table of the formats; their trait is in `wire.rs`. Only the module `http` does network I/O: its
//! `endpoint.rs` sends the requests. The gates that admit calls are in `actors/provider`.

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

pub use self::http::{ApiClient, ApiResponse, CallLimits, FormBody, UploadClient, UploadResponse};
pub use self::http::{
    Deadlines, FormClient, FormResponse, HttpProvider, ProviderConfig, ProviderConfigError, check_base_url,
};
pub use credential::{Credential, FetchedKey, KeyError, KeyPlacement, KeySource};
pub use rates::rate_info;
pub(crate) use reader::parse_json_lossy;
pub(crate) use wire::DiscardDeltas;
pub use wire::{DecodeProgress, Decoder, EncodeTarget, WireFormat, encode_images};

/// A wire format and its name in the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The segments of the path below the base URL.
    pub path: &'static [&'static str],
    /// The header that carries the credential, and the prefix of its value.
    pub credential: (&'static str, &'static str),
    /// Additional headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// Builds the format in the dialect of an endpoint.
    pub make: fn(&Dialect) -> Box<dyn WireFormat>,
}

/// The endpoint's properties that select the dialect of a wire format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dialect {
    /// The host of the base URL.
    pub host: String,
    /// How long the vendor caches prompt prefixes, for vendors that cache only on request.
    pub cache: CacheTtl,
}

/// How long a vendor caches prompt prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheTtl {
    /// No caching.
    Off,
    /// Five minutes.
    #[default]
    Short,
    /// One hour.
    Long,
}

/// All wire formats. A new format is a module and an entry here.
pub const WIRES: &[Wire] = &[
    Wire {
        name: chat_completions::NAME,
        path: &["chat", "completions"],
        credential: BEARER,
        headers: &[],
        make: |dialect| Box::new(chat_completions::ChatCompletions::of(dialect)),
    },
    Wire {
        name: anthropic_messages::NAME,
        path: &["messages"],
        credential: ("x-api-key", ""),
        headers: &[("anthropic-version", "2023-06-01")],
        make: |dialect| Box::new(anthropic_messages::AnthropicMessages::of(dialect)),
    },
    Wire {
        name: codex_responses::NAME,
        path: &["responses"],
        credential: BEARER,
        headers: &[],
        make: |dialect| Box::new(codex_responses::CodexResponses::of(dialect)),
    },
];

/// The header of a bearer token, and the prefix of its value.
const BEARER: (&str, &str) = ("authorization", "Bearer ");
