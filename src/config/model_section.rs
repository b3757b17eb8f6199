//! What can be said of a model, in the program's table and in the user's file alike.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    error::{ConfigErrors, SettingError},
    values::{
        Flag, PositiveCount, PositiveDuration, ThinkingLevelName, ThinkingLevelNames, ThinkingStyleName,
        TokenPrice,
    },
};

/// The program's table.
pub const EMBEDDED_MODELS: &str = include_str!("../../config/models.toml");

/// `models.NAME`: what is absent is not known, or is what another entry says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSection {
    /// Tokens that it can read and write in one call.
    pub window: Option<PositiveCount>,
    /// Tokens that it can write in one call.
    pub max_output: Option<PositiveCount>,
    /// How it is told how much to think.
    pub thinking: Option<ThinkingStyleName>,
    /// The levels that it can be told; any if absent.
    pub thinking_levels: Option<ThinkingLevelNames>,
    /// How much it is to think if neither run nor agent says.
    pub thinking_level: Option<ThinkingLevelName>,
    /// Whether it sees pictures.
    pub images: Option<Flag>,
    /// Until its answer begins; as its provider's if absent, like the two that follow.
    pub first_event: Option<PositiveDuration>,
    /// Between two pieces of its answer.
    pub gap: Option<PositiveDuration>,
    /// Its whole call.
    pub call: Option<PositiveDuration>,
    /// What it costs.
    pub price: Option<PriceSection>,
}

/// `models.NAME.price`: taken as a whole, never in parts from two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSection {
    /// Of what is read.
    pub input: Option<TokenPrice>,
    /// Of what is written.
    pub output: Option<TokenPrice>,
    /// Of what is read from the vendor's cache; as `input` if absent.
    pub cache_read: Option<TokenPrice>,
    /// Of what is written to the vendor's cache; as `input` if absent.
    pub cache_write: Option<TokenPrice>,
    /// Of what is written to it to stay for an hour; as `cache_write` if absent.
    pub cache_write_1h: Option<TokenPrice>,
    /// Tokens that a call may read for these prices to hold.
    pub up_to: Option<PositiveCount>,
}

impl PriceSection {
    /// What no price can be without, and whether it is there.
    pub(super) fn needed(&self) -> [(&'static str, bool); 2] {
        [("input", self.input.is_some()), ("output", self.output.is_some())]
    }
}

/// The table that comes with the program.
pub(super) fn embedded() -> Result<BTreeMap<String, ModelSection>, ConfigErrors> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        models: BTreeMap<String, ModelSection>,
    }
    let table: Result<Table, _> = toml::from_str(EMBEDDED_MODELS);
    table.map(|table| table.models).map_err(|error| {
        let path = Path::new("config/models.toml").into();
        ConfigErrors::from(SettingError::NotToml {
            path,
            line: 0,
            column: 0,
            reason: error.message().to_owned(),
        })
    })
}
