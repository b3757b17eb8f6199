//! What the configuration comes to, and how it explains what is wrong with it.

mod accounts;
mod agents;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use hermod::{
    config::{Config, ConfigErrors, ConfigFile, EMBEDDED, SettingOrigin, StoreDurability},
    provider::WIRES,
};
use proptest::prelude::*;

const SECRET: &str = "sk-live-1234";

fn variables(set: &[(&str, &str)]) -> BTreeMap<String, String> {
    set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads `text` as the file `hermod.toml`.
fn load(text: &str, set: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    Config::load(&[ConfigFile { path: "hermod.toml".into(), text: text.to_owned() }], &variables(set))
}

/// The values of some keys, each with where it comes from.
#[track_caller]
fn check(text: &str, set: &[(&str, &str)], expect: &[(&str, &str, &str)]) {
    let config = load(text, set).unwrap_or_else(|errors| panic!("{errors}"));
    for (key, value, origin) in expect {
        let setting = &config.settings[*key];
        assert_eq!(
            (setting.value.to_string().as_str(), setting.origin.to_string().as_str()),
            (*value, *origin)
        );
    }
}

/// All mistakes, each with these parts; none shows a secret.
#[track_caller]
fn check_wrong(text: &str, set: &[(&str, &str)], expect: &[&[&str]]) {
    let errors = load(text, set).expect_err("it has mistakes");
    assert_eq!(errors.0.len(), expect.len(), "{errors}");
    for (error, parts) in errors.0.iter().zip(expect) {
        let shown = error.to_string();
        assert!(parts.iter().all(|part| shown.contains(part)), "{shown}\nlacks one of {parts:?}");
        assert!(!format!("{shown} {error:?}").contains(SECRET), "{shown}");
    }
}

/// The lines of the embedded file that hold a key or head a section, each with the one above it.
fn embedded_lines() -> Vec<(&'static str, &'static str)> {
    let lines: Vec<_> = EMBEDDED.lines().collect();
    let pairs = lines.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn a_file_with_more_than_anybody_writes_is_refused_at_once() {
    let unknown = |count: usize| (0..count).map(|n| format!("key{n} = 1")).collect::<Vec<_>>().join("\n");
    check_wrong(
        &unknown(60_000),
        &[],
        &[&["hermod.toml: it has 60000 settings, and at most 10000 are read"]],
    );
    let told = load(&unknown(9_000), &[]).expect_err("it has mistakes");
    assert_eq!(told.0.len(), 100);
    let wrong: Vec<_> = (0..3_000).map(|n| format!("[models.m{n}]\nwindow = \"x\"")).collect();
    assert!(load(&wrong.join("\n"), &[]).expect_err("it has mistakes").0.len() <= 100);
    let deep = [
        format!("a={}", "[".repeat(100_000)),
        format!("{}a=1", "a.".repeat(200_000)),
        "a={a=".repeat(50_000),
    ];
    for text in deep {
        assert_eq!(load(&text, &[]).expect_err("it is too deep").0.len(), 1);
    }
    let lines = "\n".repeat(500_000) + "model = 7";
    check_wrong(&lines, &[], &[&["hermod.toml:500001: "]]);
}

#[test]
fn without_a_word_the_defaults_hold() {
    check(
        "",
        &[],
        &[("agent.max_turns", "90", "default"), ("agents.defaults.timeout", "\"10m\"", "default")],
    );
    let config = load("", &[]).unwrap();
    assert_eq!((config.agent.max_turns.0, config.model.0), (90, None));
    assert_eq!(config.agents.defaults.timeout.0, Some(Duration::from_mins(10)));
    assert_eq!(config.store.durability, StoreDurability::Strict);
    assert_eq!(config.store.reserve.0, 64 << 20);
    assert!(config.fallback_providers.0.is_empty() && config.providers.is_empty());
}

#[test]
fn the_embedded_file_has_the_keys_of_the_struct_each_with_a_comment() {
    let config = load("", &[]).unwrap();
    assert!(config.settings.values().all(|setting| setting.origin == SettingOrigin::Default));
    // A value that no key takes: whoever does not complain does not read it. An unread key does not load at all.
    for key in config.settings.keys() {
        check_wrong(&format!("{key} = [0.5]"), &[], &[&["hermod.toml:1: ", key, " = [0.5]: must be"]]);
    }
    let keys = embedded_lines().into_iter().filter(|(_, line)| !line.starts_with('['));
    let commented =
        keys.map(|(above, line)| assert!(above.starts_with("# "), "{line} has no comment")).count();
    assert_eq!(commented, config.settings.len());
}

#[test]
fn the_section_that_the_embedded_file_describes_is_one() {
    let lines = EMBEDDED.lines().skip_while(|line| *line != "# [providers.NAME]");
    let lines = lines.map_while(|line| line.strip_prefix("# ")).map(|line| line.replace("NAME", "acme"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let config = load(&text, &[]).unwrap();
    let acme = &config.providers["acme"];
    assert!(
        acme.base_url.is_some() && acme.wire.is_some() && acme.credential.is_some() && acme.model.is_some()
    );
    assert!(acme.api_mode.is_some());
    let shared = config.settings.keys().filter_map(|key| key.strip_prefix("provider_defaults."));
    for field in shared.chain(["base_url", "wire", "api_mode", "credential", "model"]) {
        let wrong = format!("[providers.openai]\n{field} = 0.5");
        check_wrong(&wrong, &[], &[&["hermod.toml:2: providers.openai.", field, ": must be"]]);
    }
}

#[test]
fn the_embedded_file_describes_all_that_can_be_said_of_a_model() {
    let lines = EMBEDDED.lines().skip_while(|line| *line != "# [models.\"NAME\"]");
    let lines: Vec<_> = lines.map_while(|line| line.strip_prefix("# ")).collect();
    let config = load(&lines.join("\n"), &[]).unwrap();
    let model = &config.models["NAME"];
    assert!(model.window.is_some() && model.max_output.is_some() && model.images.is_some());
    assert!(model.thinking.is_some() && model.thinking_levels.is_some() && model.thinking_level.is_some());
    assert!(model.first_event.is_some() && model.gap.is_some() && model.call.is_some());
    let price = model.price.unwrap();
    assert!(price.input.is_some() && price.output.is_some() && price.up_to.is_some());
    assert!(price.cache_read.is_some() && price.cache_write.is_some() && price.cache_write_1h.is_some());
    for line in &lines[1..] {
        let (field, _) = line.split_once(" = ").unwrap();
        let wrong = format!("[models.\"a/b.1\"]\n{field} = {{}}");
        let expect = format!("hermod.toml:2: models.\"a/b.1\".{field}");
        check_wrong(&wrong, &[], &[&[&expect, "must be"]]);
    }
}

#[test]
fn what_is_said_of_models_is_read_strictly() {
    let wrong = |text: &str, parts: &[&str]| check_wrong(text, &[], &[parts]);
    let of = |said: &str| format!("[models.\"a/b-1.5\"]\n{said}");
    wrong(&of("windw = 5"), &["hermod.toml:2: there is no key `models.\"a/b-1.5\".windw`", ".window`?"]);
    wrong(&of("price.inptu = 5"), &["did you mean `models.\"a/b-1.5\".price.input`?"]);
    wrong(&of("price = 5"), &["`models.\"a/b-1.5\".price` is a section"]);
    wrong("models = 5", &["`models` is a section"]);
    wrong("models.a = 5", &["`models.a` is a section"]);
    wrong(&of("thinking = \"much\""), &["must be one of \"none\", \"effort\", \"budget\", \"adaptive\""]);
    wrong(&of("thinking_levels = [\"xhigh\"]"), &["must be a list of \"off\", \"minimal\""]);
    wrong("agent.thinking = \"on\"", &["must be one of \"off\"", "leave it empty"]);
    wrong(
        &of("first_event = \"0s\""),
        &["models.\"a/b-1.5\".first_event", "must be a duration longer than 0"],
    );
    wrong(&of("gap = 5"), &["models.\"a/b-1.5\".gap", "must be a duration longer than 0"]);
    wrong(&of("call = \"2years\""), &["models.\"a/b-1.5\".call", "must not be longer than 365days"]);
    wrong(&of("call_timeout = \"1h\""), &["there is no key `models.\"a/b-1.5\".call_timeout`"]);
    wrong(&of("images = \"yes\""), &["must be true or false, without quotes"]);
    for price in ["-1", "\"3\"", "0.0001", "1e-9", "nan", "true"] {
        let text = of(&format!("price.output = 1\nprice.input = {price}"));
        wrong(&text, &["price.input = ", "must be dollars per million tokens, from 0"]);
    }
    wrong(
        &of("price.input = 1"),
        &["hermod.toml:2: models.\"a/b-1.5\".price.output: it is missing; a price needs both"],
    );
    for name in ["\"\"", "\"a b\"", "\"a*b\"", "\"*\"", "'a\"b'", "'a\\b'", "\"ü\""] {
        wrong(
            &format!("[models.{name}]\nwindow = 5\nimages = true"),
            &["is no name of a model; write the name"],
        );
    }
    check_wrong(
        "",
        &[("HERMOD_MODELS__GPT_5__WINDOW", "5")],
        &[&["HERMOD_MODELS__GPT_5__WINDOW: what is known of a model cannot be set in the environment"]],
    );
    let fine = "[models.\"a*\"]\n[models.m]\nprice = { input = 0, output = 0.075 }\nthinking_level = \"\"";
    check(fine, &[], &[("models.m.price.output", "0.075", "hermod.toml:3")]);
    let twice = |wire: &str, api_mode: &str| {
        load(&format!("[providers.openai]\nwire = \"{wire}\"\napi_mode = \"{api_mode}\""), &[])
    };
    for (a, b) in WIRES.iter().flat_map(|a| WIRES.iter().map(move |b| (a.name, b.name))) {
        let error = twice(a, b).err().map(|errors| errors.to_string());
        assert_eq!(error.is_some(), a != b, "{error:?}");
        assert!(error.is_none_or(|error| error.contains("both mean the same; leave one out")));
    }
}

#[test]
fn files_stand_over_defaults_and_variables_over_files() {
    let text = "[agent]\nmax_turns = 20\nmax_tokens = 100";
    let set = [
        ("HERMOD_AGENT__MAX_TURNS", "30"),
        ("PATH", "/bin"),
        ("HERMOD_HOME", "/h"),
        ("HERMOD_LOG", "debug"),
        ("HERMOD_RECORDINGS", "/r"),
    ];
    check(
        text,
        &set,
        &[
            ("agent.max_turns", "30", "HERMOD_AGENT__MAX_TURNS"),
            ("agent.max_tokens", "100", "hermod.toml:3"),
            ("tools.calls", "64", "default"),
        ],
    );
    let file = |path: &str, text: &str| ConfigFile { path: path.into(), text: text.to_owned() };
    let both = [file("a", text), file("b", "agent.max_turns = 21")];
    let config = Config::load(&both, &variables(&[])).unwrap();
    assert_eq!((config.agent.max_turns.0, config.agent.max_tokens.0), (21, 100));
    assert_eq!(config.files, [Path::new("a"), Path::new("b")]);
}

#[test]
fn variables_have_the_type_of_their_key() {
    let acme = "[providers.my-acme]\nbase_url = \"http://a\"";
    check(
        acme,
        &[("HERMOD_PROVIDERS__MY_ACME__CALLS", "2"), ("HERMOD_MODEL", "7")],
        &[
            ("providers.my-acme.calls", "2", "HERMOD_PROVIDERS__MY_ACME__CALLS"),
            ("model", "\"7\"", "HERMOD_MODEL"),
        ],
    );
    for list in ["a/b,c/d/e", r#"["a/b", "c/d/e"]"#, " a/b , c/d/e "] {
        check(
            "",
            &[("HERMOD_FALLBACK_PROVIDERS", list)],
            &[("fallback_providers", r#"["a/b","c/d/e"]"#, "HERMOD_FALLBACK_PROVIDERS")],
        );
    }
    check("", &[("HERMOD_AGENT__MAX_TURNS", "")], &[("agent.max_turns", "90", "default")]);
    let new = ("HERMOD_PROVIDERS__NEW__BASE_URL", "http://n");
    check("", &[new], &[("providers.new.base_url", "\"http://n\"", new.0)]);
    check_wrong(
        "",
        &[("HERMOD_AGENT__MAX_TURNS", "many")],
        &[&["HERMOD_AGENT__MAX_TURNS: agent.max_turns = \"many\": must be a whole number from 1"]],
    );
    let willing = ("HERMOD_RETRY__FALLBACK_ON_REFUSAL", "true");
    check("", &[willing], &[("retry.fallback_on_refusal", "true", willing.0)]);
    check_wrong("", &[(willing.0, "yes")], &[&[willing.0, "= \"yes\": must be true or false"]]);
    check_wrong(
        "",
        &[("HERMOD_FALLBACK_PROVIDERS", "[a")],
        &[&["HERMOD_FALLBACK_PROVIDERS", "must be a list"]],
    );
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_the_nearest_known_one() {
    let unknown = |text: &str, line: usize, key: &str, nearest: &str| {
        let place = format!("hermod.toml:{line}: there is no key `{key}`; ");
        check_wrong(text, &[], &[&[&place, nearest]]);
    };
    unknown("\n[agent]\nmax_turn = 5", 3, "agent.max_turn", "did you mean `agent.max_turns`?");
    unknown("[agents]\nmax_turns = 5", 2, "agents.max_turns", "`agent.max_turns`");
    unknown("timeout = \"5m\"", 1, "timeout", "timeout`?");
    unknown("modle = \"x\"", 1, "modle", "did you mean `model`?");
    unknown(
        "[retry.attempts]\nrate_limit = 2",
        2,
        "retry.attempts.rate_limit",
        "`retry.attempts.rate_limited`",
    );
    unknown("[provider.acme]\nmodel = \"x\"", 2, "provider.acme.model", "`providers.acme.model`");
    unknown("[providers.acme]\nbase_ur = \"x\"", 2, "providers.acme.base_ur", "`providers.acme.base_url`");
    unknown("[providers.acme]\napi_key = \"sk-live-1234\"", 2, "providers.acme.api_key", "acme.credential`");
    unknown("\"agent.max_turns\" = 5", 1, "\"agent.max_turns\"", "`agent.max_turns`");
    unknown("[zzz]", 1, "zzz", "`hermod config show --effective` lists all");
    unknown("[agent.max_turns]\nx = 1", 2, "agent.max_turns.x", "`agent.max_turns`");
}

#[test]
fn an_unknown_variable_is_named_with_the_nearest_known_one() {
    let unknown = |name: &str, nearest: &str| {
        let place = format!("{name}: there is no such variable; ");
        check_wrong("", &[(name, SECRET)], &[&[&place, nearest]]);
    };
    unknown("HERMOD_AGENT__MAX_TURN", "did you mean `HERMOD_AGENT__MAX_TURNS`?");
    unknown("HERMOD_AGENT_MAX_TURNS", "`HERMOD_AGENT__MAX_TURNS`");
    unknown("HERMOD_HOEM", "`HERMOD_HOME`");
    unknown("HERMOD_PROVIDERS__ACME__API_KEY", "`HERMOD_PROVIDERS__ACME__CREDENTIAL`");
    unknown("HERMOD_AGENT", "lists all");
    unknown("HERMOD_", "lists all");
}

#[test]
fn a_wrong_value_is_named_with_the_remedy() {
    let wrong = |key: &str, value: &str, remedy: &str| {
        let shown = value.replace('\'', "\"");
        check_wrong(
            &format!("{key} = {shown}"),
            &[],
            &[&[&format!("hermod.toml:1: {key} = {shown}: "), remedy]],
        );
    };
    for value in ["0", "-1", "'5'", "4294967296", "1.5", "true", "[]"] {
        wrong("agent.max_turns", value, "must be a whole number from 1 to 4294967295, without quotes");
    }
    for value in ["10", "'10'", "'0s'", "'soon'", "''", "['1s']"] {
        wrong("retry.deadline", value, "must be a duration longer than 0 in quotes, like \"500ms\"");
    }
    wrong("agents.defaults.timeout", "'never'", "or \"none\"");
    wrong("agents.defaults.timeout", "'2years'", "must not be longer than 365days");
    wrong("provider_defaults.call_timeout", "'500000000000years'", "must not be longer than 365days");
    wrong("store.durability", "'sometimes'", "\"strict\" or \"relaxed\"");
    wrong("store.reserve", "64", "must be a size in quotes");
    wrong("store.reserve", "'64MB'", "\"64MiB\"");
    wrong("store.reserve", "'-1MiB'", "must be a size in quotes");
    wrong("store.reserve", "'99999999999TiB'", "must be a size in quotes");
    wrong("model", "5", "must be a text in quotes");
    wrong("fallback_providers", "'a/b'", "must be a list");
    wrong("fallback_providers", "['gpt']", "`gpt` is not `provider/model`");
    wrong("ollama.address", "'localhost'", "must be HOST:PORT");
    wrong("ollama.address", "'localhost:http'", "must be HOST:PORT");
    wrong("providers.a.wire", "'soap'", "there are: chat_completions");
    wrong("providers.a.base_url", "'ftp://x'", "neither http nor https; give it as `https://host/v1`");
    wrong("providers.a.base_url", "'x'", "give it as");
    wrong("retry.longest_pause", "'1ms'", "must not be shorter than retry.first_pause");
    wrong("tools.shell.timeout", "'2h'", "must not be longer than 1h");
    wrong("prompt.context_bytes", "1000001", "must not be larger than 1000000");
    wrong("skills.paths", "['skills']", "must be a list of absolute paths, like [\"/srv/skills\"]");
    check_wrong("agent = 5", &[], &[&["hermod.toml:1: `agent` is a section; write `[agent]`"]]);
    check_wrong("providers.acme = 5", &[], &[&["`providers.acme` is a section"]]);
    check_wrong("[[providers]]\nx = 1", &[], &[&["`providers` is a section"]]);
}

#[test]
fn a_provider_needs_a_name_and_an_endpoint() {
    check_wrong(
        "[providers.acme]\nmodel = \"m\"",
        &[],
        &[&[
            "hermod.toml:2: providers.acme.base_url: it is missing",
            "openai, openrouter, anthropic, ollama",
        ]],
    );
    check_wrong("[providers.acme]", &[], &[&["hermod.toml:1: providers.acme.base_url: it is missing"]]);
    for name in ["Acme", "a__b", "-a", "ä", "\"a b\""] {
        let text = format!("[providers.{name}]\nbase_url = \"http://a\"\ncalls = 2");
        check_wrong(&text.replace("ä", "\"ä\""), &[], &[&["is no name for a provider"]]);
    }
    load("[providers.openai]", &[]).unwrap();
}

#[test]
fn what_is_no_toml_is_shown_its_place() {
    check_wrong("model = \"a\"\n[agent\n", &[], &[&["hermod.toml:2:", "this is no TOML"]]);
    check_wrong("ä = \"ü\" x", &[], &[&["hermod.toml:1:"]]);
    check_wrong("agent.max_turns = ", &[], &[&["hermod.toml:1:19: "]]);
    check_wrong("\0", &[], &[&["hermod.toml:1:2: "]]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "modle = \"x\"\n[agent]\nmax_turns = 0\nmax_tokens = \"x\"\n[store]\ndurability = 5";
    check_wrong(
        text,
        &[("HERMOD_MODLE", "x")],
        &[
            &["hermod.toml:1", "`modle`"],
            &["hermod.toml:3", "agent.max_turns"],
            &["hermod.toml:4", "agent.max_tokens"],
            &["hermod.toml:6", "store.durability"],
            &["HERMOD_MODLE"],
        ],
    );
    let all = load(text, &[]).unwrap_err().to_string();
    assert!(all.starts_with("4 mistakes in the configuration:\n  hermod.toml:1: "), "{all}");
}

#[test]
fn the_file_is_found_and_has_to_be_readable() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for folder in ["xdg/hermod", "home/.config/hermod", "folder"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("named.toml"), "agent.max_turns = 1").unwrap();
    fs::write(at("xdg/hermod/hermod.toml"), "agent.max_turns = 2").unwrap();
    fs::write(at("home/.config/hermod/hermod.toml"), "agent.max_turns = 3").unwrap();
    fs::write(at("binary"), [0xff, 0xfe]).unwrap();
    let check = |set: &[(&str, &str)], expect: Result<u32, &str>| {
        let set: BTreeMap<_, _> = set.iter().map(|(name, path)| ((*name).to_owned(), at(path))).collect();
        match (Config::read(&set), expect) {
            (Ok(config), Ok(turns)) => assert_eq!(config.agent.max_turns.0, turns, "{set:?}"),
            (Err(errors), Err(part)) => {
                let text = errors.to_string();
                assert!(text.contains(part) && text.contains("point HERMOD_CONFIG to another one"), "{text}");
            }
            (got, expect) => panic!("{set:?}: expected {expect:?}, got {got:?}"),
        }
    };
    let (named, xdg, home) = (("HERMOD_CONFIG", "named.toml"), ("XDG_CONFIG_HOME", "xdg"), ("HOME", "home"));
    check(&[named, xdg, home], Ok(1));
    check(&[xdg, home], Ok(2));
    check(&[home], Ok(3));
    check(&[("HOME", "nowhere")], Ok(90));
    check(&[], Ok(90));
    check(&[("HERMOD_CONFIG", "nowhere.toml")], Err("nowhere.toml: No such file"));
    check(&[("HERMOD_CONFIG", "folder")], Err("it is a folder, and only regular files are read"));
    check(&[("HERMOD_CONFIG", "binary")], Err("UTF-8"));
}

/// Keys in any order, known and unknown, as values, sections and parts of names, with any value.
fn any_text() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "agent",
        "agent.max_turns",
        "agent.max_turns.x",
        "providers",
        "providers.a",
        "providers.a.model",
        "providers.a.base_url",
        "providers.\"a.b\".model",
        "providers.a.b.c",
        "model",
        "retry.attempts",
        "\"\"",
        "ä",
        "fallback_providers",
    ]);
    let value = prop::sample::select(vec![
        "5",
        "-1",
        "\"x\"",
        "\"https://h\"",
        "{}",
        "{ model = \"m\" }",
        "[]",
        "[[1], { x = 1979-05-27 }]",
        "inf",
        "true",
        "0xffffffffffffffff",
        "1979-05-27",
        "9223372036854775808",
        "'",
    ]);
    let line = (key, value, any::<bool>()).prop_map(|(key, value, head)| {
        if head { format!("[{key}]\n") } else { format!("{key} = {value}\n") }
    });
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn no_text_is_too_wrong_to_be_told_so(text in any_text(), variable in "HERMOD_[A-Z_]{0,20}", value in ".{0,10}") {
        let set = [(variable.as_str(), value.as_str()), ("HERMOD_PROVIDERS__A__CALLS", value.as_str())];
        if let Err(errors) = load(&text, &set) {
            prop_assert!(!errors.0.is_empty() && !errors.to_string().is_empty());
        }
    }
}
