//! Models for work beside the runs.

use hermod_actors::model::ModelRef;
use serde::Deserialize;

use super::{
    error::SettingError,
    sections::Config,
    values::{Flag, ModelChain},
};

/// Work beside a run that a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryJob {
    /// Shortening a conversation that has become too long.
    Compression,
    /// Describing pictures to a model that sees none.
    Vision,
    /// Reading web pages.
    WebExtract,
    /// Searching earlier conversations.
    SessionSearch,
    /// Naming a conversation.
    Title,
    /// Keeping what is worth remembering.
    Memory,
}

impl AuxiliaryJob {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Compression, Self::Vision, Self::WebExtract, Self::SessionSearch, Self::Title, Self::Memory];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compression => "compression",
            Self::Vision => "vision",
            Self::WebExtract => "web_extract",
            Self::SessionSearch => "session_search",
            Self::Title => "title",
            Self::Memory => "memory",
        }
    }
}

/// `auxiliary`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuxiliarySections {
    /// See [`AuxiliaryJob::Compression`].
    pub compression: AuxiliarySection,
    /// See [`AuxiliaryJob::Vision`].
    pub vision: AuxiliarySection,
    /// See [`AuxiliaryJob::WebExtract`].
    pub web_extract: AuxiliarySection,
    /// See [`AuxiliaryJob::SessionSearch`].
    pub session_search: AuxiliarySection,
    /// See [`AuxiliaryJob::Title`].
    pub title: AuxiliarySection,
    /// See [`AuxiliaryJob::Memory`].
    pub memory: AuxiliarySection,
}

/// `auxiliary.NAME`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuxiliarySection {
    /// The models, the first on top.
    pub chain: ModelChain,
    /// Whether those of the run stand behind them.
    pub main: Flag,
}

impl AuxiliarySections {
    /// What is said of this work.
    pub const fn of(&self, work: AuxiliaryJob) -> &AuxiliarySection {
        match work {
            AuxiliaryJob::Compression => &self.compression,
            AuxiliaryJob::Vision => &self.vision,
            AuxiliaryJob::WebExtract => &self.web_extract,
            AuxiliaryJob::SessionSearch => &self.session_search,
            AuxiliaryJob::Title => &self.title,
            AuxiliaryJob::Memory => &self.memory,
        }
    }
}

/// The models to ask for this work beside a run with these models, each once.
pub fn auxiliary_chain(config: &Config, work: AuxiliaryJob, main: &[ModelRef]) -> Vec<ModelRef> {
    let section = config.auxiliary.of(work);
    let behind = if section.main.0 { main } else { &[] };
    let mut chain: Vec<ModelRef> = Vec::new();
    for link in section.chain.0.iter().chain(behind) {
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    chain
}

/// Tells of work for which nobody would be asked.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for work in AuxiliaryJob::ALL {
        let (section, key) = (config.auxiliary.of(work), format!("auxiliary.{}.main", work.name()));
        if let (true, false, Some(setting)) =
            (section.chain.0.is_empty(), section.main.0, config.settings.get(&key))
        {
            let reason = format!(
                "and auxiliary.{}.chain is empty, so nobody is asked; name a model there",
                work.name()
            );
            errors.push(SettingError::value(&key, setting, reason));
        }
    }
}
