use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    AccountId, Amounts, CompactionPolicy, Delegation, Hash, InDoubtPolicy, ModelProfile, ModelRow,
    OutcomeDetail, ParentRef, RetryPolicy, RunId, Seq, SessionId, ThinkingLevel, ThinkingRequest,
    ThinkingStyle, Timestamp, Usage, ids::from_text,
};

/// One link of a chain: `provider/model`. The fields are private so that every value can be read back from its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// Refuses an empty name, and a provider's name with a slash.
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

impl Serialize for ModelRef {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

/// What a run may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The limits of the run's account.
    #[serde(default)]
    pub budget: Amounts,
    /// Active time after which the run is `budget_exhausted`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Active time after which the run is `timed_out`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Output tokens of one call.
    pub max_tokens: u64,
    /// How often a failed model call is tried again.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_default")]
    pub retry: RetryPolicy,
}

/// What a run was given, resolved when it was accepted: a configuration changed later does not touch it. Where its
/// providers are and what its tools are set to is the affair of the process that runs it. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Which models may be asked, in order; never empty.
    pub chain: Vec<ModelRef>,
    /// What is known of each of them, in the same order; nothing of those for which there is no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "traits")]
    pub profiles: Vec<ModelProfile>,
    /// How much they are to think; their own choice if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// The folder in which its tools work.
    pub workspace: String,
    /// The isolation key of its tools.
    #[serde(rename = "isolation_key", alias = "task")]
    pub isolation_key: String,
    /// The tools it may call, sorted.
    pub tools: Vec<String>,
    /// The bytes of what every request says of them, as JSON.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schema_bytes: u64,
    /// What it may use up.
    pub limits: Limits,
    /// The caller's system message, for this run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// What is done about calls of which nobody knows what became.
    #[serde(default, skip_serializing_if = "InDoubtPolicy::is_default")]
    pub in_doubt: InDoubtPolicy,
    /// How its view is kept short; it is not, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "compression")]
    pub compaction: Option<Arc<CompactionPolicy>>,
    /// What it may delegate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Delegation>,
    /// The rehearsal script it runs against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Hash>,
}

// serde wants a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RunSpec {
    /// The models that are only asked beside the run.
    pub fn auxiliary_models(&self) -> impl Iterator<Item = &ModelRef> {
        let chain = self.compaction.iter().flat_map(|compression| &compression.chain);
        chain.filter(|link| !self.chain.contains(link))
    }

    /// What is known of a model of the chain.
    pub fn profile_of(&self, model: &ModelRef) -> ModelProfile {
        let of = |chain: &[ModelRef], traits: &[ModelProfile]| {
            let at = chain.iter().position(|link| link == model)?;
            Some(traits.get(at).copied().unwrap_or_default())
        };
        let aside = || self.compaction.as_ref().and_then(|aside| of(&aside.chain, &aside.profiles));
        of(&self.chain, &self.profiles).or_else(aside).unwrap_or_default()
    }

    /// All models that it may ask, each once.
    pub fn models(&self) -> Vec<ModelRef> {
        let aside = self.compaction.as_ref().map_or(&[][..], |aside| &aside.chain);
        let models = self.chain.iter().chain(aside);
        models.fold(Vec::new(), |mut models, model| {
            if !models.contains(model) {
                models.push(model.clone());
            }
            models
        })
    }

    /// Takes in what earlier runs have found out about its models. A window that is named already stays; what a provider has
    /// named in a refusal stands over what its list of models tells.
    pub fn apply_model_rows(&mut self, rows: &[ModelRow]) {
        self.update_profiles(rows, |traits, row| {
            traits.density = row.density.or(traits.density);
            let listed = row.listed.map(|listed| listed.limits).unwrap_or_default();
            traits.window = traits.window.or(row.window).or(listed.window);
            traits.max_output = traits.max_output.or(listed.max_output);
        });
    }

    /// Takes in what providers have just listed, which the store is told when the run ends.
    pub fn apply_listed_limits(&mut self, rows: &[ModelRow]) {
        self.apply_model_rows(rows);
        self.update_profiles(rows, |traits, row| traits.listed_limits = row.listed);
    }

    fn update_profiles(&mut self, rows: &[ModelRow], change: impl Fn(&mut ModelProfile, &ModelRow)) {
        update_profiles((&self.chain, &mut self.profiles), rows, &change);
        if let Some(aside) = &mut self.compaction
            && rows.iter().any(|row| aside.chain.contains(&row.model))
        {
            let CompactionPolicy { chain, profiles: traits, .. } = Arc::make_mut(aside);
            update_profiles((chain, traits), rows, &change);
        }
    }

    /// The first model of the chain whose price is not known.
    pub fn first_unpriced(&self) -> Option<&ModelRef> {
        self.chain.iter().find(|model| self.profile_of(model).price.is_none())
    }

    /// How much a model of the chain is to think: what the run says, else the model's own entry.
    pub fn thinking_level_of(&self, model: &ModelRef) -> Option<ThinkingLevel> {
        self.thinking.or_else(|| self.profile_of(model).default_level)
    }

    /// How it is told; `None` if nothing is said, or if it cannot be told.
    pub fn thinking_request_of(&self, model: &ModelRef) -> Option<ThinkingRequest> {
        self.profile_of(model).thinking_request(self.thinking_level_of(model)?)
    }

    /// The models of the chain that are to think so much, and cannot be told.
    pub fn models_without_thinking_control(&self) -> impl Iterator<Item = (&ModelRef, ThinkingLevel)> {
        self.chain.iter().filter_map(|model| {
            let level = self.thinking_level_of(model)?;
            let traits = self.profile_of(model);
            // Who cannot think does not think as it is.
            let is_so = level == ThinkingLevel::Off && traits.thinking_style == Some(ThinkingStyle::None);
            (traits.thinking_request(level).is_none() && !is_so).then_some((model, level))
        })
    }
}

fn update_profiles(
    (chain, traits): (&[ModelRef], &mut Vec<ModelProfile>),
    rows: &[ModelRow],
    change: impl Fn(&mut ModelProfile, &ModelRow),
) {
    for (at, model) in chain.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.model == *model) else { continue };
        if traits.len() <= at {
            traits.resize(at + 1, ModelProfile::default());
        }
        change(&mut traits[at], row);
    }
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Accepted; an earlier run of its session goes first.
    Queued,
    /// Under way.
    Running,
    /// Waits for a person.
    Parked,
    /// Has its outcome.
    Ended,
}

/// The index row of a run, written when it is accepted, begins and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Its session.
    pub session: SessionId,
    /// Its account.
    pub account: AccountId,
    /// Where it is.
    pub state: RunState,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<OutcomeDetail>,
    /// Iterations up to this row's writing.
    pub iterations: u32,
    /// Usage up to this row's writing.
    pub usage: Usage,
    /// Whose task it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// Which of its legs this is: the first is 1, and each budget that was added to an exhausted run began another.
    #[serde(default = "first_leg", skip_serializing_if = "is_first_leg")]
    pub leg: u32,
    /// The sequence of the record that accepted it.
    pub first: Seq,
    /// The sequence of the record that wrote this row; of an ended run, its terminal record.
    pub last: Seq,
}

const fn first_leg() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
const fn is_first_leg(leg: &u32) -> bool {
    *leg == 1
}

/// The index row of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// The caller's key; no two sessions have the same.
    pub key: Arc<str>,
    /// When it was opened.
    pub opened_at: Timestamp,
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
            chain: vec!["p/m".parse().unwrap()],
            profiles: vec![traits],
            thinking,
            workspace: "/w".into(),
            isolation_key: "t".into(),
            tools: Vec::new(),
            schema_bytes: 0,
            limits: Limits::default(),
            system: None,
            in_doubt: InDoubtPolicy::default(),
            compaction: None,
            delegation: None,
            script: None,
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
