//! The one place that talks HTTP. Everything it carries is read and written by a wire format.

mod client;
mod config;
mod endpoint;
mod form;
mod model_list;

pub use config::{Deadlines, ProviderConfig, ProviderConfigError, check_base_url};
pub use endpoint::HttpProvider;
pub use form::{FormClient, FormError, FormResponse};
