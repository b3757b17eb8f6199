//! The HTTP client of the program: model calls, lists of models, forms that fetch keys, and uploads: spans of traces, and
//! deliveries to webhooks. Wire formats encode the
//! requests of model calls and decode their responses. Only the discovery of a local Ollama (`src/ollama.rs`) does
//! without it.

mod api;
mod client;
mod config;
mod endpoint;
mod form;
mod model_list;
mod upload;

pub use api::{ApiClient, ApiResponse, CallLimits, FormBody};
pub use config::{Deadlines, ProviderConfig, ProviderConfigError, check_base_url};
pub use endpoint::HttpProvider;
pub use form::{FormClient, FormResponse};
pub use upload::{UploadClient, UploadResponse};
