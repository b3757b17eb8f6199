//! Model providers: one file per wire format, each pure (bytes in, values out), and one that talks HTTP.

pub mod chat_completions;
mod excerpt;
pub mod failure;
mod http;
mod pieces;
pub mod sse;
mod wire;

pub use self::http::{ConfigError, Deadlines, HttpProvider, ProviderConfig, check_base_url};
pub use wire::{Decoder, Progress, WireFormat};

/// A wire format, as configuration names it.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Its name.
    pub name: &'static str,
    /// Makes it, in the dialect that the host (as in the base URL) speaks.
    pub make: fn(host: &str) -> Box<dyn WireFormat>,
}

/// All wire formats: a new one is a file and a line here.
pub const WIRES: &[Wire] = &[Wire {
    name: "chat_completions",
    make: |host| Box::new(chat_completions::ChatCompletions::of_host(host)),
}];
