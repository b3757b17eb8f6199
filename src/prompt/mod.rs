//! The system prompt, built of layers. The most stable layers come first, so that vendors' caches retain them. Notes of
//! earlier sessions, the date and the model come last. The prompt has no other text. A new layer is a function in
//! `layers.rs`, and a line in `LAYERS`.

mod bounded_text;
mod layers;
mod project_files;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use hermod_actors::{
    model::AgentName,
    port::{PromptLayer, PromptRequest, SystemPrompt, SystemPromptBuilder, SystemPromptError},
};
use tokio::task::spawn_blocking;

use crate::{
    config::{Config, MemorySection, PromptSection, VENDORS},
    memory::folder_of,
    secret::Reference,
    tool::skills::SkillFolders,
};
use bounded_text::BoundedText;
pub(crate) use bounded_text::fence_outside_text;

/// The function that builds a layer.
enum LayerBuilder {
    /// Never fails: the layer's text contains its errors.
    Always(fn(&PromptInputs<'_>) -> BoundedText),
    /// An error of this layer fails the whole prompt.
    Fallible(fn(&PromptInputs<'_>) -> Result<BoundedText, SystemPromptError>),
}

/// All layers by name, in order.
const LAYERS: &[(&str, LayerBuilder)] = &[
    ("identity", LayerBuilder::Fallible(layers::identity)),
    ("guidance", LayerBuilder::Always(layers::guidance)),
    ("skills", LayerBuilder::Always(layers::skills)),
    ("environment", LayerBuilder::Always(layers::environment)),
    ("context", LayerBuilder::Always(project_files::build)),
    ("memory", LayerBuilder::Always(layers::memory)),
    ("user", LayerBuilder::Always(layers::user)),
    ("date", LayerBuilder::Always(layers::date)),
    ("model", LayerBuilder::Always(layers::model)),
];

/// The inputs of all layers.
#[derive(Debug)]
struct PromptInputs<'a> {
    sources: &'a PromptSources,
    request: &'a PromptRequest,
}

/// The folders of skills outside the workspace, and what their declarations of variables do not get.
pub fn skill_folders(config: &Config, state: &Path) -> SkillFolders {
    let credentials = config.secret_references().filter_map(|reference| match reference {
        Reference::Variable(name) => Some(name.clone()),
        Reference::File(_) | Reference::Command(_) => None,
    });
    let of_vendors = VENDORS.iter().map(|vendor| vendor.key.to_owned());
    SkillFolders {
        own: Some(state.join("skills")),
        further: config.skills.paths.0.clone(),
        writable: config.sandbox.write.0.clone(),
        withheld: credentials.chain(of_vendors).collect(),
        is_off: !config.skills.enabled.0,
    }
}

/// Builds the system prompts of the sessions of one state directory.
#[derive(Debug, Clone)]
pub struct LayeredPrompt(Arc<BTreeMap<AgentName, PromptSources>>);

#[derive(Debug)]
struct PromptSources {
    state: PathBuf,
    memory_folder: PathBuf,
    limits: PromptSection,
    memory: MemorySection,
    skills: SkillFolders,
}

impl LayeredPrompt {
    /// Uses the configurations of all agents and the files of this state directory.
    pub fn new(config: &Config, state: &Path) -> Self {
        let sources = |(name, config): (AgentName, &Config)| {
            let sources = PromptSources {
                memory_folder: folder_of(state, &name),
                state: state.to_owned(),
                limits: config.prompt.clone(),
                memory: config.memory,
                skills: skill_folders(config, state),
            };
            (name, sources)
        };
        Self(Arc::new(config.agents().map(sources).collect()))
    }

    /// Builds the prompt and reads its files. It fails only if the user's identity file cannot be read,
    /// or the agent is not configured.
    pub fn build_now(&self, request: &PromptRequest) -> Result<SystemPrompt, SystemPromptError> {
        let agent = &request.agent;
        let sources = self.0.get(agent).ok_or_else(|| {
            SystemPromptError::Failed(format!(
                "there is no agent `{agent}`; add the section [agents.{agent}]"
            ))
        })?;
        let inputs = PromptInputs { sources, request };
        let layer = |(name, build): &(&str, LayerBuilder)| {
            let BoundedText { text, total_bytes: original_bytes } = match build {
                LayerBuilder::Always(build) => build(&inputs),
                LayerBuilder::Fallible(build) => build(&inputs)?,
            };
            Ok(PromptLayer { name: (*name).into(), text, original_bytes })
        };
        Ok(SystemPrompt { layers: LAYERS.iter().map(layer).collect::<Result<_, _>>()? })
    }
}

impl SystemPromptBuilder for LayeredPrompt {
    fn build(&self, request: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>> {
        let prompt = self.clone();
        Box::pin(async move {
            let joined = spawn_blocking(move || prompt.build_now(&request)).await;
            joined.unwrap_or_else(|error| {
                Err(SystemPromptError::Failed(format!("what builds it failed inside: {error}")))
            })
        })
    }
}
