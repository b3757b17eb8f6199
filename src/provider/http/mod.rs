//! The only module with an HTTP client: model calls, lists of models, and forms that fetch keys. Wire formats encode
//! the requests of model calls and decode their responses.

mod client;
mod config;
mod endpoint;
mod form;
mod model_list;

pub use config::{Deadlines, ProviderConfig, ProviderConfigError, check_base_url};
pub use endpoint::HttpProvider;
pub use form::{FormClient, FormResponse};
