//! The section of a model and its prices, in the embedded table and in the user's file; and the parser of the embedded
//! table. `model_catalogue.rs` chooses the sections that apply to a model.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    error::{ConfigErrors, SettingError},
    values::{
        Flag, PositiveCount, PositiveDuration, ThinkingLevelName, ThinkingLevelNames, ThinkingStyleName,
        TokenPrice,
    },
};

/// The embedded table of models.
pub const EMBEDDED_MODELS: &str = include_str!("../../config/models.toml");

/// The section `models.NAME`. As JSON, durations are milliseconds. An absent value is unknown or comes from another entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSection {
    /// Context window of one call, in tokens.
    pub window: Option<PositiveCount>,
    /// Output limit of one call, in tokens.
    pub max_output: Option<PositiveCount>,
    /// How requests set the thinking level.
    pub thinking: Option<ThinkingStyleName>,
    /// The levels that the model accepts; absent means any.
    pub thinking_levels: Option<ThinkingLevelNames>,
    /// The level if neither the run nor the agent sets one.
    pub thinking_level: Option<ThinkingLevelName>,
    /// Whether the model takes images.
    pub images: Option<Flag>,
    /// Time limit until the answer begins; absent means the provider's.
    #[serde(rename(serialize = "first_event_ms"))]
    pub first_event: Option<PositiveDuration>,
    /// Time limit between two pieces of the answer; absent means the provider's.
    #[serde(rename(serialize = "gap_ms"))]
    pub gap: Option<PositiveDuration>,
    /// Time limit of the whole call; absent means the provider's.
    #[serde(rename(serialize = "call_ms"))]
    pub call: Option<PositiveDuration>,
    /// Prices of the model.
    pub price: Option<PriceSection>,
}

/// The section `models.NAME.price`. As JSON, prices are dollars per million tokens. It is taken as a whole, never merged from two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSection {
    /// Price of input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<TokenPrice>,
    /// Price of output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<TokenPrice>,
    /// Price of input read from the vendor's cache; absent means `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<TokenPrice>,
    /// Price of input written to the vendor's cache; absent means `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<TokenPrice>,
    /// Price of input written to the cache for an hour; absent means `cache_write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<TokenPrice>,
    /// The prices hold for calls with at most this many input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<PositiveCount>,
}

/// Parses the embedded table.
pub(super) fn embedded() -> Result<BTreeMap<String, ModelSection>, ConfigErrors> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        models: BTreeMap<String, ModelSection>,
    }
    let table: Result<Table, _> = toml::from_str(EMBEDDED_MODELS);
    table.map(|table| table.models).map_err(|error| {
        SettingError::not_toml(Path::new("config/models.toml").into(), EMBEDDED_MODELS, &error).into()
    })
}
