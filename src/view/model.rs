//! View of what one source knows of a model, with its prices.

use serde::Serialize;

use crate::config::ModelSection;

/// The known facts of one source about a model: `{model, from, …of the section}`; `null` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelView {
    /// The name, or the beginning of names.
    pub model: String,
    /// The source: `config`, `program`, `refusal` or `list`.
    pub from: &'static str,
    /// The facts.
    #[serde(flatten)]
    pub section: ModelSection,
}
