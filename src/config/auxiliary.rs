//! Model chains for auxiliary jobs.

use hermod_actors::model::ModelRef;
use serde::Deserialize;

use super::{
    error::SettingError,
    sections::Config,
    values::{Flag, ModelChain},
};

/// An auxiliary job: model calls beside those that answer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryJob {
    /// Compacting a conversation that has become too long.
    Compression,
    /// Describing images to a model that takes none.
    Vision,
    /// Reading web pages.
    WebExtract,
    /// Searching earlier conversations.
    SessionSearch,
    /// Naming a conversation.
    Title,
    /// Extracting what to write to memory.
    Memory,
}

impl AuxiliaryJob {
    /// All jobs.
    pub const ALL: [Self; 6] =
        [Self::Compression, Self::Vision, Self::WebExtract, Self::SessionSearch, Self::Title, Self::Memory];

    /// The job's name in the configuration.
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

/// The section `auxiliary`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuxiliarySections {
    /// Chain for [`AuxiliaryJob::Compression`].
    pub compression: AuxiliarySection,
    /// Chain for [`AuxiliaryJob::Vision`].
    pub vision: AuxiliarySection,
    /// Chain for [`AuxiliaryJob::WebExtract`].
    pub web_extract: AuxiliarySection,
    /// Chain for [`AuxiliaryJob::SessionSearch`].
    pub session_search: AuxiliarySection,
    /// Chain for [`AuxiliaryJob::Title`].
    pub title: AuxiliarySection,
    /// Chain for [`AuxiliaryJob::Memory`].
    pub memory: AuxiliarySection,
}

/// The section `auxiliary.NAME`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuxiliarySection {
    /// The models of the job, the preferred first.
    pub chain: ModelChain,
    /// Whether the run's models follow them.
    pub main: Flag,
}

impl AuxiliarySections {
    /// The section of this job.
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

/// The models for this job beside a run with the models `main`, each once.
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

/// Reports jobs without any model.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for work in AuxiliaryJob::ALL {
        let (section, key) = (config.auxiliary.of(work), format!("auxiliary.{}.main", work.name()));
        if let (true, false, Some(setting)) =
            (section.chain.0.is_empty(), section.main.0, config.settings.get(&key))
        {
            let reason = format!(
                "and auxiliary.{}.chain is empty, so no model is called; name a model there",
                work.name()
            );
            errors.push(SettingError::value(&key, setting, reason));
        }
    }
}
