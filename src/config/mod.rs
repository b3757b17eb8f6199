//! The configuration: the defaults that come with the program, the user's file over them, the environment over both.
//! Pure but for `file.rs`.

mod accounts;
mod auxiliary;
mod error;
mod file;
mod keys;
mod layer;
mod load;
mod model;
mod models;
mod prompt;
mod values;
mod variables;
mod vendors;
mod wires;

pub use auxiliary::{Auxiliary, AuxiliarySection, Work, auxiliary_chain};
pub use error::{ConfigError, ConfigErrors, presentable, shown};
pub use file::UserFile;
pub use layer::{Layer, Origin, Setting};
pub use load::{EMBEDDED, File};
pub use model::{
    Agent, AgentDefaults, Agents, Attempts, Breaker, Compression, Config, Delegation, Memory, OauthSection,
    Ollama, ProviderDefaults, ProviderSection, Retention, Retry, Sessions, Shell, Store, Tools,
};
pub use models::{EMBEDDED_MODELS, ModelSection, PriceSection};
pub use prompt::{PromptSection, SkillsSection};
pub use values::{
    Address, BaseUrl, Caching, Chain, Count, Credential, Credentials, Dollars, Durability, Flag, Folders,
    InDoubt, Keep, Level, LevelSet, Limit, Model, Percent, Pool, Size, Stored, Style, Text, Wait, WireName,
};
pub use vendors::{OLLAMA, VENDORS, Vendor, is_known, vendor_at};
pub use wires::resolve;
