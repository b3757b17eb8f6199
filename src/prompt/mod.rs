//! The system prompt in layers: what changes least comes first, so that vendors' caches keep it; what is noted from session
//! to session comes last. Nothing else is in it. A new layer is a file here and a line in `LAYERS`.

mod context;
mod cut;
mod date;
mod environment;
mod fence;
mod guidance;
mod identity;
mod memory;
mod model;
mod skills;
#[cfg(test)]
mod tests;
mod user;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use hermod_actors::port::{ContextEngine, ContextError, Layer, Occasion, Prompt};
use tokio::task::spawn_blocking;

use crate::{
    config::{Config, Memory, PromptSection},
    spec,
    tool::skills::SkillFolders,
};
use cut::Cut;

/// What makes a layer.
enum Build {
    /// Whatever is wrong stands in it.
    Always(fn(&Ground<'_>) -> Cut),
    /// Without it there is no prompt.
    Fallible(fn(&Ground<'_>) -> Result<Cut, ContextError>),
}

/// Every layer by its name, in order.
const LAYERS: &[(&str, Build)] = &[
    ("identity", Build::Fallible(identity::build)),
    ("guidance", Build::Always(guidance::build)),
    ("skills", Build::Always(skills::build)),
    ("environment", Build::Always(environment::build)),
    ("context", Build::Always(context::build)),
    ("memory", Build::Always(memory::build)),
    ("user", Build::Always(user::build)),
    ("date", Build::Always(date::build)),
    ("model", Build::Always(model::build)),
];

/// What layers are made of.
#[derive(Debug)]
struct Ground<'a> {
    state: &'a Path,
    caps: &'a PromptSection,
    memory: Memory,
    skills: &'a SkillFolders,
    occasion: &'a Occasion,
}

/// The prompt of Hermod, for sessions that keep their state in one folder.
#[derive(Debug, Clone)]
pub struct LayeredPrompt(Arc<Sources>);

#[derive(Debug)]
struct Sources {
    state: PathBuf,
    caps: PromptSection,
    memory: Memory,
    skills: SkillFolders,
}

impl LayeredPrompt {
    /// By this configuration, with what is in this state directory.
    pub fn new(config: &Config, state: &Path) -> Self {
        let (state, skills) = (state.to_owned(), spec::skills(config, state));
        Self(Arc::new(Sources { state, caps: config.prompt, memory: config.memory, skills }))
    }

    /// Builds it, and reads files for that. It fails only if an identity of the user's own cannot be read.
    pub fn build(&self, occasion: &Occasion) -> Result<Prompt, ContextError> {
        let Sources { state, caps, memory, skills } = &*self.0;
        let ground = Ground { state, caps, memory: *memory, skills, occasion };
        let layer = |(name, build): &(&str, Build)| {
            let Cut { text, of } = match build {
                Build::Always(build) => build(&ground),
                Build::Fallible(build) => build(&ground)?,
            };
            Ok(Layer { name: (*name).into(), text, of })
        };
        Ok(Prompt { layers: LAYERS.iter().map(layer).collect::<Result<_, _>>()? })
    }
}

impl ContextEngine for LayeredPrompt {
    fn prompt(&self, occasion: Occasion) -> BoxFuture<'static, Result<Prompt, ContextError>> {
        let built = self.clone();
        Box::pin(async move {
            let joined = spawn_blocking(move || built.build(&occasion)).await;
            joined.unwrap_or_else(|error| Err(ContextError(format!("what builds it failed inside: {error}"))))
        })
    }
}
