//! The only module that does HTTP. Wire formats encode every request and decode every response.

mod client;
mod config;
mod endpoint;
mod form;
mod model_list;

pub use config::{Deadlines, ProviderConfig, ProviderConfigError, check_base_url};
pub use endpoint::HttpProvider;
pub use form::{FormClient, FormError, FormResponse};
