//! The resolved configuration of a run, and references to models (`provider/model`). The state of a run under way is in
//! `turn/`.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    AgentName, Amounts, AuxiliaryChain, CompactionPolicy, Delegation, Expectation, Hash, InDoubtPolicy, Lane,
    ModelProfile, ModelRow, RetryPolicy, ThinkingLevel, ThinkingRequest, ThinkingStyle,
};

/// A model of a chain: `provider/model`. The fields are private so that every value can be parsed from its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelRef {
    provider: Arc<str>,
    model: Arc<str>,
}

/// A name that cannot be part of `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefError {
    /// The provider's name is empty.
    #[error("the name of the provider of model `{0}` is empty; give `provider/model`")]
    NoProvider(String),
    /// The provider's name has a slash, which would end it.
    #[error("the provider's name `{0}` contains `/`; give a name without it")]
    Slash(String),
    /// The model's name is empty.
    #[error("the name of the model of provider `{0}` is empty; give the model's name")]
    NoModel(String),
}

impl ModelRef {
    /// Checks the names: none may be empty, and the provider's must not contain a slash.
    pub fn new(provider: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Result<Self, ModelRefError> {
        let (provider, model) = (provider.into(), model.into());
        if provider.is_empty() {
            return Err(ModelRefError::NoProvider(model.to_string()));
        }
        if provider.contains('/') {
            return Err(ModelRefError::Slash(provider.to_string()));
        }
        if model.is_empty() {
            return Err(ModelRefError::NoModel(provider.to_string()));
        }
        Ok(Self { provider, model })
    }

    /// The configured provider's name; contains no slash.
    pub const fn provider(&self) -> &Arc<str> {
        &self.provider
    }

    /// The model, as the provider names it; may contain slashes.
    pub const fn model(&self) -> &Arc<str> {
        &self.model
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl FromStr for ModelRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('/')
            .and_then(|(provider, model)| Self::new(provider, model).ok())
            .ok_or_else(|| format!("`{text}` is not `provider/model`"))
    }
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The limits of the run's account.
    #[serde(default)]
    pub budget: Amounts,
    /// Limit of active time after which the run is `budget_exhausted`, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Limit of active time after which the run is `timed_out`, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Maximum output tokens of one call.
    pub max_tokens: u64,
    /// The retry policy of model calls.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub retry: RetryPolicy,
}

/// The configuration of a run, resolved when it was accepted: later changes of the configuration do not affect it.
///
/// Endpoints of providers and settings of tools belong to the process that executes the run, so the spec does not
/// contain them. The spec contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The agent whose configuration it was made of; it decides the policy, sandbox and memory of the run too.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub agent: AgentName,
    /// The models of the run, in order of preference; not empty.
    pub chain: Vec<ModelRef>,
    /// Profiles of the models, in the same order; a model without an entry has no known properties.
    #[serde(rename = "traits", default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ModelProfile>,
    /// The thinking level of the run; if absent, each model's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// The lane in which it needs a place, if that has a limit.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub lane: Lane,
    /// The working directory of its tools.
    pub workspace: String,
    /// The key under which its tools keep state; runs with the same key share that state.
    #[serde(rename = "isolation_key", alias = "task")]
    pub isolation_key: String,
    /// The names of its tools, sorted.
    pub tools: Vec<String>,
    /// Bytes of the tool specifications in each request, as JSON.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub schema_bytes: u64,
    /// The limits of the run.
    pub limits: Limits,
    /// The caller's system message for this run only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The policy for calls in doubt.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub in_doubt: InDoubtPolicy,
    /// The compaction of its view; absent for none.
    #[serde(rename = "compression", skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Arc<CompactionPolicy>>,
    /// The models that give its session a title once it has completed; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<AuxiliaryChain>>,
    /// The models that describe pictures for those of the chain that see none; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vision: Option<Arc<AuxiliaryChain>>,
    /// The models that look for facts to remember before a summary is made; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Arc<AuxiliaryChain>>,
    /// Its rights to delegate; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Delegation>,
    /// Whether the run is warned of loops, and ended. Runs of versions without the guard have none.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub loop_guard: bool,
    /// What must hold before it completes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expects: Vec<Expectation>,
    /// Whether an answer is due: a model that answers `NO_REPLY` is called once more. Runs of earlier versions have no
    /// such rule.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub must_answer: bool,
    /// Hash of the rehearsal script that replaces the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Hash>,
    /// The names of the targets that get its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliver_to: Vec<String>,
}

impl RunSpec {
    /// A spec of this chain and working directory, with neither tools nor limits. Its loop guard is on, and an answer is
    /// due.
    pub fn new(chain: Vec<ModelRef>, workspace: impl Into<String>) -> Self {
        Self {
            agent: AgentName::default(),
            chain,
            profiles: Vec::new(),
            thinking: None,
            lane: Lane::default(),
            workspace: workspace.into(),
            isolation_key: "default".into(),
            tools: Vec::new(),
            schema_bytes: 0,
            limits: Limits::default(),
            system: None,
            in_doubt: InDoubtPolicy::default(),
            compaction: None,
            title: None,
            vision: None,
            memory: None,
            delegation: None,
            loop_guard: true,
            expects: Vec::new(),
            must_answer: true,
            script: None,
            deliver_to: Vec::new(),
        }
    }

    /// The chains of its asides, with the profiles of their models.
    fn auxiliary_chains(&self) -> impl Iterator<Item = (&[ModelRef], &[ModelProfile])> {
        let summaries = self.compaction.iter().map(|policy| (&*policy.chain, &*policy.profiles));
        let others = self.title.iter().chain(&self.vision).chain(&self.memory);
        summaries.chain(others.map(|job| (&*job.chain, &*job.profiles)))
    }

    /// The models that are called only for asides. May name one twice.
    pub fn auxiliary_models(&self) -> impl Iterator<Item = &ModelRef> {
        let chains = self.auxiliary_chains().flat_map(|(chain, _)| chain);
        chains.filter(|link| !self.chain.contains(link))
    }

    /// The profile of a model of the chain or of an aside; empty if unknown.
    pub fn profile_of(&self, model: &ModelRef) -> ModelProfile {
        let of = |chain: &[ModelRef], profiles: &[ModelProfile]| {
            let at = chain.iter().position(|link| link == model)?;
            Some(profiles.get(at).copied().unwrap_or_default())
        };
        let auxiliary = || self.auxiliary_chains().find_map(|(chain, profiles)| of(chain, profiles));
        of(&self.chain, &self.profiles).or_else(auxiliary).unwrap_or_default()
    }

    /// All models that the run may call, without duplicates.
    pub fn models(&self) -> Vec<ModelRef> {
        let models = self.chain.iter().chain(self.auxiliary_chains().flat_map(|(chain, _)| chain));
        models.fold(Vec::new(), |mut models, model| {
            if !models.contains(model) {
                models.push(model.clone());
            }
            models
        })
    }

    /// Merges what earlier runs have observed about the models. A window that is already set stays; a window from a
    /// refusal takes precedence over the provider's list of models.
    pub fn apply_model_rows(&mut self, rows: &[ModelRow]) {
        self.update_profiles(rows, |profile, row| {
            profile.density = row.density.or(profile.density);
            let listed = row.listed.map(|listed| listed.limits).unwrap_or_default();
            profile.window = profile.window.or(row.window).or(listed.window);
            profile.max_output = profile.max_output.or(listed.max_output);
        });
    }

    /// Merges limits that providers have just listed, and keeps them in the profiles; the store gets them when the run
    /// ends.
    pub fn apply_listed_limits(&mut self, rows: &[ModelRow]) {
        self.apply_model_rows(rows);
        self.update_profiles(rows, |profile, row| profile.listed_limits = row.listed);
    }

    fn update_profiles(&mut self, rows: &[ModelRow], change: impl Fn(&mut ModelProfile, &ModelRow)) {
        update_profiles(&self.chain, &mut self.profiles, rows, &change);
        if let Some(policy) = &mut self.compaction
            && rows.iter().any(|row| policy.chain.contains(&row.model))
        {
            let CompactionPolicy { chain, profiles, .. } = Arc::make_mut(policy);
            update_profiles(chain, profiles, rows, &change);
        }
        for job in self.title.iter_mut().chain(&mut self.vision).chain(&mut self.memory) {
            if rows.iter().any(|row| job.chain.contains(&row.model)) {
                let AuxiliaryChain { chain, profiles } = Arc::make_mut(job);
                update_profiles(chain, profiles, rows, &change);
            }
        }
    }

    /// The first model of the chain without a known price.
    pub fn first_unpriced(&self) -> Option<&ModelRef> {
        self.chain.iter().find(|model| self.profile_of(model).price.is_none())
    }

    /// The thinking level of a model of the chain: the run's, otherwise the model's default.
    pub fn thinking_level_of(&self, model: &ModelRef) -> Option<ThinkingLevel> {
        self.thinking.or_else(|| self.profile_of(model).default_level)
    }

    /// The thinking request for a model; `None` without a level, or if the model does not support it.
    pub fn thinking_request_of(&self, model: &ModelRef) -> Option<ThinkingRequest> {
        self.profile_of(model).thinking_request(self.thinking_level_of(model)?)
    }

    /// The models of the chain with a requested level that they do not support.
    pub fn models_without_thinking_control(&self) -> impl Iterator<Item = (&ModelRef, ThinkingLevel)> {
        self.chain.iter().filter_map(|model| {
            let level = self.thinking_level_of(model)?;
            let profile = self.profile_of(model);
            // A model without thinking control already satisfies the level `off`.
            let is_off = level == ThinkingLevel::Off && profile.thinking_style == Some(ThinkingStyle::None);
            (profile.thinking_request(level).is_none() && !is_off).then_some((model, level))
        })
    }
}

fn update_profiles(
    chain: &[ModelRef],
    profiles: &mut Vec<ModelProfile>,
    rows: &[ModelRow],
    change: impl Fn(&mut ModelProfile, &ModelRow),
) {
    for (at, model) in chain.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.model == *model) else { continue };
        if profiles.len() <= at {
            profiles.resize(at + 1, ModelProfile::default());
        }
        change(&mut profiles[at], row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_as_its_text_can_be_read() {
        let check = |provider: &str, model: &str, expect: Result<&str, ModelRefError>| {
            let made = ModelRef::new(provider, model);
            assert_eq!(made.clone().map(|made| made.to_string()), expect.map(str::to_owned));
            if let Ok(made) = made {
                assert_eq!(made.to_string().parse(), Ok(made));
            }
        };
        check("p", "m", Ok("p/m"));
        check("p", "vendor/m", Ok("p/vendor/m"));
        check("p", "/", Ok("p//"));
        check("p", "", Err(ModelRefError::NoModel("p".into())));
        check("", "m", Err(ModelRefError::NoProvider("m".into())));
        check("p/q", "m", Err(ModelRefError::Slash("p/q".into())));
        for text in ["", "/", "p", "p/", "/m"] {
            assert_eq!(text.parse::<ModelRef>(), Err(format!("`{text}` is not `provider/model`")));
        }
    }

    #[test]
    fn a_level_is_the_runs_else_the_models_and_is_told_where_it_can_be() {
        let spec = |traits: ModelProfile, thinking| RunSpec {
            profiles: vec![traits],
            thinking,
            ..RunSpec::new(vec!["p/m".parse().unwrap()], "/w")
        };
        let check = |style, level, thinking, told, untold| {
            let spec = spec(
                ModelProfile { thinking_style: style, default_level: level, ..ModelProfile::default() },
                thinking,
            );
            let model = &spec.chain[0];
            assert_eq!(spec.thinking_request_of(model).map(|request| request.level), told);
            assert_eq!(spec.models_without_thinking_control().map(|(_, level)| level).next(), untold);
        };
        let (effort, none) = (Some(ThinkingStyle::Effort), Some(ThinkingStyle::None));
        let (high, low, off) =
            (Some(ThinkingLevel::High), Some(ThinkingLevel::Low), Some(ThinkingLevel::Off));
        check(effort, None, None, None, None);
        check(effort, low, None, low, None);
        check(effort, low, high, high, None);
        check(none, None, high, None, high);
        check(None, low, None, None, low);
        check(none, None, off, None, None);
        check(None, None, off, None, off);
    }
}
