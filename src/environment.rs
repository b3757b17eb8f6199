//! Which model providers there are, configured or found by their keys, and which model of them is meant. Pure: settings
//! and variables in, values out.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use hermod_actors::model::ModelRef;

use crate::{
    account::Account,
    config::{Config, OLLAMA, ProviderDefaults, ProviderSection, VENDORS, Vendor, resolve},
    provider::{ProviderConfig, WIRES},
    secret::{Missing, Reference},
};

/// The variables of a process.
pub type Variables = BTreeMap<String, String>;

/// Who says that a provider is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A section of the configuration.
    Config,
    /// A variable.
    Environment,
    /// It answers on this machine.
    Local,
}

impl Source {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Environment => "environment",
            Self::Local => "local",
        }
    }
}

/// A provider that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name.
    pub name: Arc<str>,
    /// Who says so.
    pub source: Source,
    /// Its base URL.
    pub base_url: String,
    /// Its wire format.
    pub wire: &'static str,
    /// Where its keys are, if it asks for any, and what each may use up.
    pub account: Account,
    /// The model, if none is named; `Err` says why there is none.
    pub model: Result<Arc<str>, String>,
    /// How many calls, and how long.
    pub limits: ProviderDefaults,
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
        "no model provider is configured; there are four ways to get one:\n  \
        1. put a key into the environment: {keys}\n  \
        2. describe an endpoint in a section [providers.NAME] of the configuration\n  \
        3. start a local Ollama (looked for at ollama.address, 127.0.0.1:11434 unless configured)\n  \
        4. try it without a model: --rehearse plays a scripted one"
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
    /// Its key is not where the configuration says.
    #[error("provider `{name}` has no credential: {missing}")]
    Credential {
        /// The provider.
        name: String,
        /// Where it should be, and the remedy.
        missing: Missing,
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

/// The configured providers, then those whose variables are set, the preferred first.
pub fn found(config: &Config, variables: &Variables) -> Vec<Found> {
    let vendors: Vec<Found> =
        VENDORS.iter().filter_map(|vendor| of_vendor(vendor, config, variables)).collect();
    let sections = config.providers_in_order();
    let mut all: Vec<Found> =
        sections.into_iter().map(|(name, section)| of_section(name, section, config, variables)).collect();
    for vendor in vendors {
        if named(&all, &vendor.name).is_none() {
            all.push(vendor);
        }
    }
    all
}

fn set<'a>(variables: &'a Variables, key: &str) -> Option<&'a str> {
    variables.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// A vendor whose variables are set.
fn of_vendor(vendor: &Vendor, config: &Config, variables: &Variables) -> Option<Found> {
    let key = set(variables, vendor.key).map(|_| Reference::Variable(vendor.key.to_owned()));
    let moved = vendor.base_url_key.and_then(|key| set(variables, key));
    if key.is_none() && moved.is_none() {
        return None;
    }
    let (wire, base_url) = resolve(None, vendor.wire, moved.unwrap_or(vendor.base_url));
    Some(Found {
        name: vendor.name.into(),
        source: Source::Environment,
        base_url,
        wire,
        account: Account { credentials: key.into_iter().collect(), ..Account::default() },
        model: Ok(vendor.model.into()),
        limits: config.provider_defaults,
    })
}

/// A configured provider: what its section does not say is the vendor's of that name. A vendor's key goes to no base URL
/// but the vendor's.
fn of_section(name: &str, section: &ProviderSection, config: &Config, variables: &Variables) -> Found {
    let own_url = section.base_url.as_ref().map(|url| url.0.clone());
    let vendor = VENDORS.iter().find(|vendor| vendor.name == name);
    let moved = vendor.and_then(|vendor| vendor.base_url_key).and_then(|key| set(variables, key));
    let usual_key = vendor
        .filter(|vendor| own_url.is_none() && (moved.is_none() || set(variables, vendor.key).is_some()))
        .map(|vendor| Reference::Variable(vendor.key.to_owned()));
    let usual_url = || match (moved, vendor, &config.ollama.address.0) {
        (Some(moved), _, _) => moved.to_owned(),
        (None, Some(vendor), _) => vendor.base_url.to_owned(),
        (None, None, Some(address)) => format!("http://{address}/v1"),
        (None, None, None) => "http://127.0.0.1:11434/v1".to_owned(),
    };
    let model = section.model.as_ref().and_then(|model| model.0.clone());
    let model = model.or_else(|| vendor.filter(|_| own_url.is_none()).map(|vendor| vendor.model.into()));
    let said = section.wire.or(section.api_mode).map(|wire| wire.0);
    let url = own_url.unwrap_or_else(usual_url);
    let (wire, base_url) = resolve(said, vendor.and_then(|vendor| vendor.wire), &url);
    Found {
        name: name.into(),
        source: Source::Config,
        base_url,
        wire,
        account: Account::of_section(section, usual_key),
        model: model.ok_or_else(|| {
            format!("it has no default model; name one with --model, or set providers.{name}.model")
        }),
        limits: config.provider_defaults.under(section),
    }
}

fn named<'a>(found: &'a [Found], name: &str) -> Option<&'a Found> {
    found.iter().find(|found| *found.name == *name)
}

/// The model to ask. `provider/model` is split at its first slash only if that provider is configured.
pub fn choose(found: &[Found], wanted: Wanted<'_>) -> Result<ModelRef, NoModel> {
    let split = wanted.model.and_then(|model| model.split_once('/'));
    let (provider, model) = match (wanted.provider, split) {
        (None, Some((name, rest))) if !rest.is_empty() && named(found, name).is_some() => {
            (named(found, name), Some(rest))
        }
        (None, _) => (found.first(), wanted.model),
        (Some(name), _) => (Some(named(found, name).ok_or_else(|| unknown(found, name))?), wanted.model),
    };
    let provider = provider.ok_or_else(no_provider)?;
    speaks(provider)?;
    let model = match model {
        Some(model) => model.into(),
        None => provider
            .model
            .clone()
            .map_err(|reason| NoModel::NoDefault { name: provider.name.to_string(), reason })?,
    };
    Ok(ModelRef { provider: Arc::clone(&provider.name), model })
}

/// The model to ask, and those behind it: their providers have to be there.
pub fn chain(found: &[Found], first: ModelRef, fallbacks: &[ModelRef]) -> Result<Vec<ModelRef>, NoModel> {
    let mut chain = vec![first];
    for link in fallbacks {
        speaks(named(found, &link.provider).ok_or_else(|| unknown(found, &link.provider))?)?;
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    Ok(chain)
}

fn speaks(provider: &Found) -> Result<(), NoModel> {
    if WIRES.iter().any(|wire| wire.name == provider.wire) {
        return Ok(());
    }
    let known = WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", ");
    Err(NoModel::Wire { name: provider.name.to_string(), wire: provider.wire, known })
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
        None if name == OLLAMA => "; start it, or set ollama.address to where it listens".to_owned(),
        None => {
            let vendors = VENDORS.iter().map(|vendor| format!("{} ({})", vendor.name, vendor.key));
            let vendors = vendors.collect::<Vec<_>>().join(", ");
            format!(
                "; describe it in a section [providers.{name}], or use one that is known: {vendors}, {OLLAMA}"
            )
        }
    };
    NoModel::Unknown { name: name.to_owned(), known, remedy }
}

impl Found {
    /// What its adapter is made of. Only here its keys are looked at. What has to be kept of them is kept below `state`.
    pub fn config(&self, variables: &Variables, state: &Path) -> Result<ProviderConfig, NoModel> {
        let credentials = self.account.credentials(&self.name, variables, state);
        Ok(ProviderConfig {
            name: self.name.to_string(),
            base_url: self.base_url.clone(),
            wire: self.wire.to_owned(),
            credentials: credentials
                .map_err(|missing| NoModel::Credential { name: self.name.to_string(), missing })?,
            pool: self.account.pool,
            limits: self.account.limits,
            cache: self.limits.cache.0,
            deadlines: self.limits.deadlines(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::File, provider::Cache};

    fn variables(set: &[(&str, &str)]) -> Variables {
        set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn configured(text: &str, set: &[(&str, &str)]) -> Vec<Found> {
        let file = File { path: "hermod.toml".into(), text: text.to_owned() };
        let variables = variables(set);
        found(&Config::load(&[file], &variables).unwrap(), &variables)
    }

    /// The model that is chosen, or a part of the error.
    #[track_caller]
    fn check(set: &[(&str, &str)], wanted: Wanted<'_>, expect: Result<&str, &str>) {
        check_in("", set, wanted, expect);
    }

    /// Likewise, with a configuration.
    #[track_caller]
    fn check_in(config: &str, set: &[(&str, &str)], wanted: Wanted<'_>, expect: Result<&str, &str>) {
        match (choose(&configured(config, set), wanted), expect) {
            (Ok(model), Ok(expect)) => assert_eq!(model.to_string(), expect),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    const OPENAI: (&str, &str) = ("OPENAI_API_KEY", "sk-1");
    const OPENROUTER: (&str, &str) = ("OPENROUTER_API_KEY", "sk-2");
    const ANTHROPIC: (&str, &str) = ("ANTHROPIC_API_KEY", "sk-3");
    const HERE: &str = "http://127.0.0.1:8000/v1";

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
        let here = ("OPENAI_BASE_URL", HERE);
        let without_key = configured("", &[here]);
        assert_eq!(without_key[0].base_url, here.1);
        assert!(without_key[0].account.credentials.is_empty());
        assert_eq!(configured("", &[here, OPENAI])[0].base_url, here.1);
    }

    #[test]
    fn a_model_is_split_only_at_a_configured_provider() {
        check(&[OPENAI, OPENROUTER], model("openrouter/x/y"), Ok("openrouter/x/y"));
        check(&[OPENROUTER], model("openai/gpt-5"), Ok("openrouter/openai/gpt-5"));
        check(&[OPENAI], model("o"), Ok("openai/o"));
        check(&[OPENAI], model("openai/"), Ok("openai/openai/"));
        let both = Wanted { provider: Some("openrouter"), model: Some("openai/gpt-5") };
        check(&[OPENAI, OPENROUTER], both, Ok("openrouter/openai/gpt-5"));
        let acme = "[providers.acme]\nbase_url = \"http://127.0.0.1:8000/v1\"";
        check_in(acme, &[OPENAI], model("acme/openai/x"), Ok("acme/openai/x"));
        check(&[OPENAI], model("acme/openai/x"), Ok("openai/acme/openai/x"));
    }

    #[test]
    fn what_is_configured_comes_first_and_in_the_order_of_the_file() {
        let two = "[providers.zeta]\nbase_url = \"http://z\"\nmodel = \"m\"\n[providers.acme]\nbase_url = \"http://a\"";
        check_in(two, &[OPENAI], Wanted::default(), Ok("zeta/m"));
        check_in(two, &[OPENAI], provider("acme"), Err("set providers.acme.model"));
        let names = |found: Vec<Found>| found.iter().map(|found| found.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(configured(two, &[OPENAI])), ["zeta", "acme", "openai"]);
        let only_variable = ("HERMOD_PROVIDERS__BETA__BASE_URL", "http://b");
        assert_eq!(names(configured(two, &[only_variable])), ["zeta", "acme", "beta"]);
    }

    #[test]
    fn a_section_changes_of_a_vendor_what_it_says() {
        let check =
            |section: &str, set: &[(&str, &str)], url: &str, key: Option<&str>, model: Option<&str>| {
                let all = configured(&format!("[providers.openai]\n{section}"), set);
                let openai = &all[0];
                assert_eq!((openai.base_url.as_str(), openai.source), (url, Source::Config), "{section}");
                let keys: Vec<_> = openai.account.credentials.iter().map(ToString::to_string).collect();
                assert_eq!(keys, key.into_iter().collect::<Vec<_>>(), "{section}");
                assert_eq!(openai.model.as_deref().ok(), model, "{section}");
                assert_eq!(all.iter().filter(|found| &*found.name == "openai").count(), 1);
            };
        let (vendor, key) = ("https://api.openai.com/v1", Some("env:OPENAI_API_KEY"));
        check("", &[], vendor, key, Some("gpt-5-mini"));
        check("model = \"o\"", &[OPENAI], vendor, key, Some("o"));
        check("credential = \"env:MINE\"", &[OPENAI], vendor, Some("env:MINE"), Some("gpt-5-mini"));
        check("", &[("OPENAI_BASE_URL", HERE)], HERE, None, Some("gpt-5-mini"));
        check("", &[("OPENAI_BASE_URL", HERE), OPENAI], HERE, key, Some("gpt-5-mini"));
        // The vendor's key is not sent to somebody else.
        check("base_url = \"http://127.0.0.1:8000/v1\"", &[OPENAI], HERE, None, None);
    }

    #[test]
    fn the_wire_format_is_said_or_the_vendors_or_told_by_the_base_url() {
        let check = |section: &str, set: &[(&str, &str)], expect: (&str, &str)| {
            let all = configured(section, set);
            assert_eq!((all[0].wire, all[0].base_url.as_str()), expect, "{section}");
        };
        let (chat, anthropic, responses) = ("chat_completions", "anthropic_messages", "codex_responses");
        let (here, acme) = ("http://127.0.0.1:8000/v1", "[providers.acme]\nbase_url = ");
        check("", &[OPENAI], (responses, "https://api.openai.com/v1"));
        check("", &[("OPENAI_BASE_URL", here)], (chat, here));
        check("", &[ANTHROPIC], (anthropic, "https://api.anthropic.com/v1"));
        check("[providers.anthropic]\nmodel = \"m\"", &[], (anthropic, "https://api.anthropic.com/v1"));
        check(&format!("[providers.anthropic]\nbase_url = {here:?}"), &[], (anthropic, here));
        check(&format!("[providers.openai]\nbase_url = {here:?}"), &[], (chat, here));
        check(&format!("{acme}{here:?}"), &[], (chat, here));
        check(&format!("{acme}\"{here}/responses\""), &[], (responses, here));
        check(
            &format!("{acme}\"https://api.anthropic.com\""),
            &[],
            (anthropic, "https://api.anthropic.com/v1"),
        );
        check("", &[("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/responses")], (responses, here));
        for key in ["wire", "api_mode", "api_mode = \"chat_completions\"\nwire"] {
            let said = format!("[providers.anthropic]\n{key} = \"chat_completions\"");
            check(&said, &[], (chat, "https://api.anthropic.com/v1"));
        }
    }

    #[test]
    fn how_long_is_cached_is_the_providers_else_the_default() {
        let check = |text: &str, expect: Cache| {
            let all = configured(text, &[OPENAI]);
            assert_eq!(
                all[0].config(&variables(&[OPENAI]), std::path::Path::new("/none")).unwrap().cache,
                expect,
                "{text}"
            );
        };
        check("", Cache::Short);
        check("[provider_defaults]\ncache = \"1h\"", Cache::Long);
        check("[provider_defaults]\ncache = \"1h\"\n[providers.openai]\ncache = \"off\"", Cache::Off);
    }

    #[test]
    fn a_chain_is_made_of_providers_that_are_there() {
        let check = |set: &[(&str, &str)], fallbacks: &[&str], expect: Result<&[&str], &str>| {
            let found = configured("", set);
            let first = choose(&found, Wanted::default()).unwrap();
            let fallbacks: Vec<ModelRef> = fallbacks.iter().map(|link| link.parse().unwrap()).collect();
            match (chain(&found, first, &fallbacks), expect) {
                (Ok(chain), Ok(expect)) => {
                    assert_eq!(chain.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, expect) => panic!("expected {expect:?}, got {got:?}"),
            }
        };
        check(&[OPENAI], &[], Ok(&["openai/gpt-5-mini"]));
        check(
            &[OPENAI, OPENROUTER],
            &["openai/gpt-5-mini", "openrouter/x/y"],
            Ok(&["openai/gpt-5-mini", "openrouter/x/y"]),
        );
        check(&[OPENAI], &["openrouter/x/y"], Err("set OPENROUTER_API_KEY"));
        check(&[OPENAI, ANTHROPIC], &["anthropic/x"], Ok(&["openai/gpt-5-mini", "anthropic/x"]));
    }

    #[test]
    fn what_is_not_there_says_how_to_get_it() {
        check(&[], Wanted::default(), Err("--rehearse"));
        check(&[], Wanted::default(), Err("OPENAI_API_KEY, OPENROUTER_API_KEY, ANTHROPIC_API_KEY"));
        check(&[], model("gpt-5"), Err("local Ollama"));
        check(&[OPENAI], provider("openrouter"), Err("configured are: openai; set OPENROUTER_API_KEY"));
        check(&[OPENAI], provider("acme"), Err("section [providers.acme], or use one that is known: openai"));
        check(&[], provider("acme"), Err("configured are: none"));
    }

    #[test]
    fn a_key_is_enough_to_speak_to_its_vendor() {
        check(&[ANTHROPIC], Wanted::default(), Ok("anthropic/claude-sonnet-5-5"));
        check(&[ANTHROPIC, OPENAI], Wanted::default(), Ok("openai/gpt-5-mini"));
        check(&[ANTHROPIC, OPENAI], provider("anthropic"), Ok("anthropic/claude-sonnet-5-5"));
    }

    #[test]
    fn a_wire_format_that_is_not_spoken_is_refused_only_when_used() {
        let mut found = configured("", &[OPENAI, ANTHROPIC]);
        found[1].wire = "soap";
        let first = choose(&found, Wanted::default()).unwrap();
        assert_eq!(first.to_string(), "openai/gpt-5-mini");
        let link = "anthropic/x".parse().unwrap();
        for refused in
            [choose(&found, provider("anthropic")).map(drop), chain(&found, first, &[link]).map(drop)]
        {
            assert!(
                refused
                    .unwrap_err()
                    .to_string()
                    .contains("`anthropic` speaks soap, which this version does not")
            );
        }
    }

    #[test]
    fn keys_are_looked_at_only_when_used_and_do_not_show() {
        let all = configured("[providers.openai]", &[]);
        let state = Path::new("/state");
        let error = all[0].config(&variables(&[]), state).unwrap_err().to_string();
        assert_eq!(
            error,
            "provider `openai` has no credential: env:OPENAI_API_KEY: the variable is not set; export OPENAI_API_KEY"
        );
        let made = all[0].config(&variables(&[OPENAI]), state).unwrap();
        assert!(made.credentials.len() == 1 && !format!("{all:?} {made:?}").contains("sk-1"));
    }
}
