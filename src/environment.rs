//! Which model providers the environment offers, and which model of them is meant. Pure: variables in, values out.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::model::ModelRef;

use crate::{
    provider::{Deadlines, ProviderConfig, WIRES},
    secret::Secret,
};

/// The variables of a process.
pub type Variables = BTreeMap<String, String>;

/// A vendor that is found by its key.
#[derive(Debug)]
pub struct Vendor {
    /// The provider's name.
    pub name: &'static str,
    /// The variable with the key.
    pub key: &'static str,
    /// The variable that moves it to another base URL, if it has one; alone, it stands for an endpoint without a key.
    pub base_url_key: Option<&'static str>,
    /// The base URL.
    pub base_url: &'static str,
    /// The wire format, a name of [`WIRES`].
    pub wire: &'static str,
    /// The model, if none is named.
    pub model: &'static str,
}

/// All vendors, the preferred first: a new one is a line here.
pub const VENDORS: &[Vendor] = &[
    Vendor {
        name: "openai",
        key: "OPENAI_API_KEY",
        base_url_key: Some("OPENAI_BASE_URL"),
        base_url: "https://api.openai.com/v1",
        wire: "chat_completions",
        model: "gpt-5-mini",
    },
    Vendor {
        name: "openrouter",
        key: "OPENROUTER_API_KEY",
        base_url_key: None,
        base_url: "https://openrouter.ai/api/v1",
        wire: "chat_completions",
        model: "openrouter/auto",
    },
    Vendor {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        base_url_key: None,
        base_url: "https://api.anthropic.com/v1",
        wire: "anthropic_messages",
        model: "claude-sonnet-4-5",
    },
];

/// The name of a local Ollama among the providers.
pub const OLLAMA: &str = "ollama";

/// A provider that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name.
    pub name: Arc<str>,
    /// Its base URL.
    pub base_url: String,
    /// Its wire format.
    pub wire: &'static str,
    /// Its key.
    pub credential: Option<Secret>,
    /// The model, if none is named; `Err` says why there is none.
    pub model: Result<Arc<str>, String>,
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// A provider's name.
    pub provider: Option<&'a str>,
    /// A model, or `provider/model`.
    pub model: Option<&'a str>,
}

/// Why no model can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    /// Nothing is configured.
    #[error(
        "no model provider is configured; there are three ways to get one:\n  \
        1. put a key into the environment: {keys}\n  \
        2. start a local Ollama (looked for at 127.0.0.1:11434)\n  \
        3. try it without a model: --rehearse plays a scripted one"
    )]
    NoProvider {
        /// The variables that are looked for.
        keys: String,
    },
    /// The name is not among the configured ones.
    #[error("there is no provider `{name}` here; configured are: {known}{remedy}")]
    Unknown {
        /// The name.
        name: String,
        /// The configured ones.
        known: String,
        /// The variable that would configure it, if it is a known vendor.
        remedy: String,
    },
    /// It is configured, and cannot be spoken to.
    #[error(
        "provider `{name}` speaks {wire}, which this version does not; there are: {known}. \
        Set the key of another provider, or choose one with --provider"
    )]
    Wire {
        /// The provider.
        name: String,
        /// Its wire format.
        wire: &'static str,
        /// The wire formats that there are.
        known: String,
    },
    /// The provider has no model to take when none is named.
    #[error("provider `{name}`: {reason}")]
    NoDefault {
        /// The provider.
        name: String,
        /// Why, and the remedy.
        reason: String,
    },
}

/// The providers whose variables are set, the preferred first.
pub fn found(variables: &Variables) -> Vec<Found> {
    let set = |key: &str| variables.get(key).map(|value| value.trim()).filter(|value| !value.is_empty());
    let vendor = |vendor: &Vendor| {
        let key = set(vendor.key);
        let moved = vendor.base_url_key.and_then(set);
        (key.is_some() || moved.is_some()).then(|| Found {
            name: vendor.name.into(),
            base_url: moved.unwrap_or(vendor.base_url).to_owned(),
            wire: vendor.wire,
            credential: key.map(Secret::new),
            model: Ok(vendor.model.into()),
        })
    };
    VENDORS.iter().filter_map(vendor).collect()
}

/// The model to ask. `provider/model` is split at its first slash only if that provider is configured.
pub fn choose(found: &[Found], wanted: Wanted<'_>) -> Result<ModelRef, NoModel> {
    let named = |name: &str| found.iter().find(|found| *found.name == *name);
    let split = wanted.model.and_then(|model| model.split_once('/'));
    let (provider, model) = match (wanted.provider, split) {
        (None, Some((name, rest))) if !rest.is_empty() && named(name).is_some() => (named(name), Some(rest)),
        (None, _) => (found.first(), wanted.model),
        (Some(name), _) => (Some(named(name).ok_or_else(|| unknown(found, name))?), wanted.model),
    };
    let provider = provider.ok_or_else(no_provider)?;
    if WIRES.iter().all(|wire| wire.name != provider.wire) {
        let known = WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", ");
        return Err(NoModel::Wire { name: provider.name.to_string(), wire: provider.wire, known });
    }
    let model = match model {
        Some(model) => model.into(),
        None => provider
            .model
            .clone()
            .map_err(|reason| NoModel::NoDefault { name: provider.name.to_string(), reason })?,
    };
    Ok(ModelRef { provider: Arc::clone(&provider.name), model })
}

fn no_provider() -> NoModel {
    NoModel::NoProvider { keys: VENDORS.iter().map(|vendor| vendor.key).collect::<Vec<_>>().join(", ") }
}

/// The error for a provider that is not among those found.
pub fn unknown(found: &[Found], name: &str) -> NoModel {
    let vendor = VENDORS.iter().find(|vendor| vendor.name == name);
    let known = match found {
        [] => "none".to_owned(),
        found => found.iter().map(|found| &*found.name).collect::<Vec<_>>().join(", "),
    };
    let remedy = match vendor {
        Some(vendor) => format!("; set {} to have it", vendor.key),
        None if name == OLLAMA => "; start it, it is looked for at 127.0.0.1:11434".to_owned(),
        None => {
            let vendors = VENDORS.iter().map(|vendor| format!("{} ({})", vendor.name, vendor.key));
            format!("; known are: {}, {OLLAMA}", vendors.collect::<Vec<_>>().join(", "))
        }
    };
    NoModel::Unknown { name: name.to_owned(), known, remedy }
}

impl Found {
    /// What its adapter is made of.
    pub fn config(&self) -> ProviderConfig {
        ProviderConfig {
            name: self.name.to_string(),
            base_url: self.base_url.clone(),
            wire: self.wire.to_owned(),
            credential: self.credential.clone(),
            deadlines: Deadlines::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> Variables {
        set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The model that is chosen, or a part of the error.
    #[track_caller]
    fn check(set: &[(&str, &str)], wanted: Wanted<'_>, expect: Result<&str, &str>) {
        match (choose(&found(&variables(set)), wanted), expect) {
            (Ok(model), Ok(expect)) => assert_eq!(model.to_string(), expect),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    const OPENAI: (&str, &str) = ("OPENAI_API_KEY", "sk-1");
    const OPENROUTER: (&str, &str) = ("OPENROUTER_API_KEY", "sk-2");
    const ANTHROPIC: (&str, &str) = ("ANTHROPIC_API_KEY", "sk-3");

    fn model(model: &str) -> Wanted<'_> {
        Wanted { provider: None, model: Some(model) }
    }

    fn provider(provider: &str) -> Wanted<'_> {
        Wanted { provider: Some(provider), model: None }
    }

    #[test]
    fn a_key_in_the_environment_is_enough() {
        check(&[OPENAI], Wanted::default(), Ok("openai/gpt-5-mini"));
        check(&[OPENROUTER], Wanted::default(), Ok("openrouter/openrouter/auto"));
        check(&[OPENROUTER, OPENAI], Wanted::default(), Ok("openai/gpt-5-mini"));
        check(&[("OPENAI_API_KEY", " "), OPENROUTER], Wanted::default(), Ok("openrouter/openrouter/auto"));
    }

    #[test]
    fn a_base_url_alone_is_an_endpoint_without_a_key() {
        let here = ("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1");
        let without_key = found(&variables(&[here]));
        assert_eq!(without_key[0].base_url, here.1);
        assert!(without_key[0].credential.is_none());
        assert_eq!(found(&variables(&[here, OPENAI]))[0].base_url, here.1);
    }

    #[test]
    fn a_model_is_split_only_at_a_configured_provider() {
        check(&[OPENAI, OPENROUTER], model("openrouter/x/y"), Ok("openrouter/x/y"));
        check(&[OPENROUTER], model("openai/gpt-5"), Ok("openrouter/openai/gpt-5"));
        check(&[OPENAI], model("o"), Ok("openai/o"));
        check(&[OPENAI], model("openai/"), Ok("openai/openai/"));
        let both = Wanted { provider: Some("openrouter"), model: Some("openai/gpt-5") };
        check(&[OPENAI, OPENROUTER], both, Ok("openrouter/openai/gpt-5"));
    }

    #[test]
    fn what_is_not_there_says_how_to_get_it() {
        check(&[], Wanted::default(), Err("--rehearse"));
        check(&[], Wanted::default(), Err("OPENAI_API_KEY, OPENROUTER_API_KEY, ANTHROPIC_API_KEY"));
        check(&[], model("gpt-5"), Err("local Ollama"));
        check(&[OPENAI], provider("openrouter"), Err("configured are: openai; set OPENROUTER_API_KEY"));
        check(&[OPENAI], provider("acme"), Err("known are: openai (OPENAI_API_KEY)"));
        check(&[], provider("acme"), Err("configured are: none"));
    }

    #[test]
    fn a_wire_format_that_is_not_spoken_is_refused_only_when_used() {
        check(&[ANTHROPIC], Wanted::default(), Err("speaks anthropic_messages"));
        check(&[ANTHROPIC, OPENAI], Wanted::default(), Ok("openai/gpt-5-mini"));
        check(&[ANTHROPIC, OPENAI], provider("anthropic"), Err("speaks anthropic_messages"));
    }

    #[test]
    fn keys_do_not_show() {
        assert!(!format!("{:?}", found(&variables(&[OPENAI]))).contains("sk-1"));
    }
}
