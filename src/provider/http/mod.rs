//! The one place that talks HTTP. Everything it carries is read and written by a wire format.

mod client;
mod config;
mod endpoint;
mod form;
mod model_list;

pub use config::{ConfigError, Deadlines, ProviderConfig, check_base_url};
pub use endpoint::HttpProvider;
pub use form::{Forms, NotPosted, Reply};
