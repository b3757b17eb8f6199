//! Auxiliary jobs, model calls beside those that answer runs: their section, their model chains, and the check that
//! each has a model.

use hermod_actors::model::ModelRef;
use serde::Deserialize;

use super::{
    error::SettingError,
    sections::Config,
    values::{Flag, ModelChain},
};

/// The job that compacts a conversation that has become too long.
pub const COMPRESSION: &str = "compression";
/// The job that names a conversation.
pub const TITLE: &str = "title";
/// The job that describes pictures for models that see none.
pub const VISION: &str = "vision";

/// The job that looks for facts to remember before a summary is made.
pub const MEMORY_FLUSH: &str = "memory";

/// The section `auxiliary.JOB`. The embedded defaults have the section of every job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuxiliarySection {
    /// The models of the job, the preferred first.
    pub chain: ModelChain,
    /// Whether the run's models follow them.
    pub main: Flag,
}

/// The models for this job beside a run with the models `main`, each once.
pub fn auxiliary_chain(config: &Config, job: &str, main: &[ModelRef]) -> Vec<ModelRef> {
    let section = config.auxiliary.get(job);
    let section_chain = section.map_or(&[][..], |section| &section.chain.0);
    let main = if section.is_none_or(|section| section.main.0) { main } else { &[] };
    let mut chain: Vec<ModelRef> = Vec::new();
    for link in section_chain.iter().chain(main) {
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    chain
}

/// Whether a model is named for this job. One that costs beyond its run is off until then.
pub fn is_named(config: &Config, job: &str) -> bool {
    config.auxiliary.get(job).is_some_and(|section| !section.chain.0.is_empty())
}

/// Reports jobs without any model.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (job, section) in &config.auxiliary {
        let key = format!("auxiliary.{job}.main");
        if let (true, false, Some(setting)) =
            (section.chain.0.is_empty(), section.main.0, config.settings.get(&key))
        {
            let reason =
                format!("and auxiliary.{job}.chain is empty, so no model is called; name a model there");
            errors.push(SettingError::value(&key, setting, reason));
        }
    }
}
