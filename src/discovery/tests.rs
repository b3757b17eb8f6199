//! Tests of discovery: which providers are found, and which model is chosen.

use std::path::Path;

use hermod_actors::model::ModelRef;

use super::*;
use crate::{
    config::{Config, ConfigFile},
    provider::CacheTtl,
};

fn variables(set: &[(&str, &str)]) -> Variables {
    set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn configured(text: &str, set: &[(&str, &str)]) -> Vec<DiscoveredProvider> {
    let file = ConfigFile { path: "hermod.toml".into(), text: text.to_owned() };
    let variables = variables(set);
    discover(&Config::load(&[file], &variables).unwrap(), &variables)
}

/// Checks the chosen model, or a part of the error.
#[track_caller]
fn check(set: &[(&str, &str)], wanted: RequestedModel<'_>, expect: Result<&str, &str>) {
    check_in("", set, wanted, expect);
}

/// Checks the choice like `check`, with a configuration.
#[track_caller]
fn check_in(config: &str, set: &[(&str, &str)], wanted: RequestedModel<'_>, expect: Result<&str, &str>) {
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

fn model(model: &str) -> RequestedModel<'_> {
    RequestedModel { provider: None, model: Some(model) }
}

fn provider(provider: &str) -> RequestedModel<'_> {
    RequestedModel { provider: Some(provider), model: None }
}

#[test]
fn a_key_in_the_environment_is_enough() {
    check(&[OPENAI], RequestedModel::default(), Ok("openai/gpt-5-mini"));
    check(&[OPENROUTER], RequestedModel::default(), Ok("openrouter/openrouter/auto"));
    check(&[OPENROUTER, OPENAI], RequestedModel::default(), Ok("openai/gpt-5-mini"));
    check(
        &[("OPENAI_API_KEY", " "), OPENROUTER],
        RequestedModel::default(),
        Ok("openrouter/openrouter/auto"),
    );
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
    let both = RequestedModel { provider: Some("openrouter"), model: Some("openai/gpt-5") };
    check(&[OPENAI, OPENROUTER], both, Ok("openrouter/openai/gpt-5"));
    let acme = "[providers.acme]\nbase_url = \"http://127.0.0.1:8000/v1\"";
    check_in(acme, &[OPENAI], model("acme/openai/x"), Ok("acme/openai/x"));
    for incomplete in ["", " ", "/", "openai/", "/gpt-5", "openai//x", "openai/ "] {
        check(&[OPENAI], model(incomplete), Err("names no model"));
        let named = RequestedModel { provider: Some("openai"), model: Some(incomplete) };
        check(&[OPENAI], named, Err("names no model"));
    }
}

/// A configuration, variables, and the chosen models for three requests.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], [Result<&'a str, &'a str>; 3]);

/// The requests are `anthropic/claude-x`, `acme/m` and `m`.
#[test]
fn a_vendors_model_goes_to_the_vendor_or_to_an_endpoint_that_may_have_it() {
    let set = "set ANTHROPIC_API_KEY to have it";
    let section = "describe it in a section [providers.acme]";
    let at = |url: &str| format!("[providers.here]\nbase_url = \"{url}\"");
    let custom = "http://127.0.0.1:8000/v1";
    let [own, slash, region, proxy, lookalike] = [
        "https://api.openai.com/v1",
        "https://API.OpenAI.com/v1/?x=1",
        "https://eu.api.openai.com/v1",
        custom,
        "https://notapi.openai.com.example/v1",
    ]
    .map(at);
    let moved = ("OPENAI_BASE_URL", custom);
    let not_moved = ("OPENAI_BASE_URL", "https://api.openai.com/v1");
    let rows: &[Row<'_>] = &[
        ("", &[], [Err(set), Err("no model provider is configured"), Err("no model provider is configured")]),
        ("", &[OPENAI], [Err(set), Err(section), Ok("openai/m")]),
        ("", &[OPENAI, not_moved], [Err(set), Err(section), Ok("openai/m")]),
        ("", &[OPENAI, ANTHROPIC], [Ok("anthropic/claude-x"), Err(section), Ok("openai/m")]),
        ("", &[ANTHROPIC], [Ok("anthropic/claude-x"), Err(section), Ok("anthropic/m")]),
        (
            "",
            &[OPENROUTER],
            [Ok("openrouter/anthropic/claude-x"), Ok("openrouter/acme/m"), Ok("openrouter/m")],
        ),
        (
            "",
            &[OPENAI, OPENROUTER],
            [
                Err("set ANTHROPIC_API_KEY to have it, or ask for `openrouter/anthropic/claude-x`"),
                Err("or ask for `openrouter/acme/m`"),
                Ok("openai/m"),
            ],
        ),
        ("", &[moved], [Ok("openai/anthropic/claude-x"), Ok("openai/acme/m"), Ok("openai/m")]),
        ("", &[OPENAI, moved], [Ok("openai/anthropic/claude-x"), Ok("openai/acme/m"), Ok("openai/m")]),
        (&own, &[], [Err(set), Err(section), Ok("here/m")]),
        (&slash, &[], [Err(set), Err(section), Ok("here/m")]),
        (&region, &[], [Err(set), Err(section), Ok("here/m")]),
        (&proxy, &[], [Ok("here/anthropic/claude-x"), Ok("here/acme/m"), Ok("here/m")]),
        (&proxy, &[OPENAI], [Ok("here/anthropic/claude-x"), Ok("here/acme/m"), Ok("here/m")]),
        (&lookalike, &[], [Ok("here/anthropic/claude-x"), Ok("here/acme/m"), Ok("here/m")]),
        ("[providers.ollama]", &[], [Err(set), Ok("ollama/acme/m"), Ok("ollama/m")]),
    ];
    for (config, variables, [known, other, plain]) in rows {
        check_in(config, variables, model("anthropic/claude-x"), *known);
        check_in(config, variables, model("acme/m"), *other);
        check_in(config, variables, model("m"), *plain);
    }
}

/// Requests each known vendor where only another one is configured.
#[test]
fn a_vendor_without_its_key_is_named_with_the_variable() {
    for vendor in crate::config::VENDORS.iter().filter(|vendor| vendor.name != "openai") {
        check(
            &[OPENAI],
            model(&format!("{}/x/y", vendor.name)),
            Err(&format!("set {} to have it", vendor.key)),
        );
    }
    check(&[ANTHROPIC], model("openai/gpt-5"), Err("set OPENAI_API_KEY to have it"));
    check(&[OPENAI], model("ollama/m"), Err("set ollama.address"));
    // A named provider takes precedence.
    let said = RequestedModel { provider: Some("openai"), model: Some("anthropic/claude-x") };
    check(&[OPENAI], said, Ok("openai/anthropic/claude-x"));
}

#[test]
fn what_is_configured_comes_first_and_in_the_order_of_the_file() {
    let two =
        "[providers.zeta]\nbase_url = \"http://z\"\nmodel = \"m\"\n[providers.acme]\nbase_url = \"http://a\"";
    check_in(two, &[OPENAI], RequestedModel::default(), Ok("zeta/m"));
    check_in(two, &[OPENAI], provider("acme"), Err("set providers.acme.model"));
    let names =
        |found: Vec<DiscoveredProvider>| found.iter().map(|found| found.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(configured(two, &[OPENAI])), ["zeta", "acme", "openai"]);
    let only_variable = ("HERMOD_PROVIDERS__BETA__BASE_URL", "http://b");
    assert_eq!(names(configured(two, &[only_variable])), ["zeta", "acme", "beta"]);
}

#[test]
fn a_section_changes_of_a_vendor_what_it_says() {
    let check = |section: &str, set: &[(&str, &str)], url: &str, key: Option<&str>, model: Option<&str>| {
        let all = configured(&format!("[providers.openai]\n{section}"), set);
        let openai = &all[0];
        assert_eq!((openai.base_url.as_str(), openai.source), (url, DiscoverySource::Config), "{section}");
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
    // The vendor's key is not sent to another base URL.
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
    check(&format!("{acme}\"https://api.anthropic.com\""), &[], (anthropic, "https://api.anthropic.com/v1"));
    check("", &[("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/responses")], (responses, here));
    for key in ["wire", "api_mode", "api_mode = \"chat_completions\"\nwire"] {
        let said = format!("[providers.anthropic]\n{key} = \"chat_completions\"");
        check(&said, &[], (chat, "https://api.anthropic.com/v1"));
    }
}

#[test]
fn how_long_is_cached_is_the_providers_else_the_default() {
    let check = |text: &str, expect: CacheTtl| {
        let all = configured(text, &[OPENAI]);
        assert_eq!(all[0].config(&variables(&[OPENAI]), Path::new("/none")).unwrap().cache, expect, "{text}");
    };
    check("", CacheTtl::Short);
    check("[provider_defaults]\ncache = \"1h\"", CacheTtl::Long);
    check("[provider_defaults]\ncache = \"1h\"\n[providers.openai]\ncache = \"off\"", CacheTtl::Off);
}

#[test]
fn a_chain_is_made_of_providers_that_are_there() {
    let check = |set: &[(&str, &str)], fallbacks: &[&str], expect: Result<&[&str], &str>| {
        let found = configured("", set);
        let first = choose(&found, RequestedModel::default()).unwrap();
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
    check(&[], RequestedModel::default(), Err("--rehearse"));
    check(&[], RequestedModel::default(), Err("OPENAI_API_KEY, OPENROUTER_API_KEY, ANTHROPIC_API_KEY"));
    check(&[], model("gpt-5"), Err("local Ollama"));
    check(&[OPENAI], provider("openrouter"), Err("configured are: openai; set OPENROUTER_API_KEY"));
    check(&[OPENAI], provider("acme"), Err("section [providers.acme], or use one that is known: openai"));
    check(&[], provider("acme"), Err("configured are: none"));
}

#[test]
fn a_key_is_enough_to_speak_to_its_vendor() {
    check(&[ANTHROPIC], RequestedModel::default(), Ok("anthropic/claude-sonnet-5-5"));
    check(&[ANTHROPIC, OPENAI], RequestedModel::default(), Ok("openai/gpt-5-mini"));
    check(&[ANTHROPIC, OPENAI], provider("anthropic"), Ok("anthropic/claude-sonnet-5-5"));
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
