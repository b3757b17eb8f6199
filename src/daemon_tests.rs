use super::*;
use crate::provider::Deadlines;

#[test]
fn the_state_directory_follows_the_environment() {
    let check = |set: &[(&str, &str)], expect: Option<&str>| {
        let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(state_dir(&set).ok(), expect.map(PathBuf::from));
    };
    let (home, xdg, own) = (("HOME", "/h"), ("XDG_STATE_HOME", "/x"), ("HERMOD_HOME", "/o"));
    check(&[home, xdg, own], Some("/o"));
    check(&[home, xdg], Some("/x/hermod"));
    check(&[home, ("XDG_STATE_HOME", "")], Some("/h/.local/state/hermod"));
    check(&[], None);
}

#[test]
fn the_defaults_are_those_of_the_library() {
    let config = Config::load(&[], &Variables::new()).unwrap();
    assert_eq!(retry(&config.retry), RetryPolicy::default());
    assert_eq!(breakers(&config.breaker), BreakerPolicy::default());
    assert_eq!(config.provider_defaults.deadlines(), Deadlines::default());
    assert_eq!(config.tools.shell.timeout.0, tool::Settings::default().shell_timeout);
    let limits = spec(&config, Vec::new(), None, Path::new("/w")).limits;
    assert_eq!((limits.budget.iterations, limits.timeout_ms), (Some(90), Some(600_000)));
}

#[test]
fn a_spec_has_what_is_known_of_each_of_its_models() {
    let set = Variables::from([("HERMOD_AGENT__THINKING".to_owned(), "low".to_owned())]);
    let config = Config::load(&[], &set).unwrap();
    let link = |model: &str| ModelRef { provider: "p".into(), model: model.into() };
    let spec = |chain: &[ModelRef]| spec(&config, chain.to_vec(), None, Path::new("/w"));
    let (known, unknown) = (link("vendor/claude-sonnet-4.5"), link("nobody's"));
    let both = spec(&[unknown.clone(), known.clone()]);
    assert_eq!(both.traits_of(&unknown), ModelTraits::default());
    assert_eq!(both.traits_of(&known).max_output, Some(64_000));
    assert_eq!(both.thinking.map(hermod_actors::model::Thinking::name), Some("low"));
    assert!(spec(&[unknown]).traits.is_empty());
}

#[test]
fn the_prompt_ends_with_place_and_day() {
    let prompt = compose("Be.\n", Path::new("/w"), Timestamp(1_700_000_000_123));
    assert_eq!(prompt, "Be.\n\nWorkspace: /w\nDate: 2023-11-14\n");
}

#[test]
fn a_script_is_kept_under_its_hash() {
    let state = tempfile::tempdir().unwrap();
    let json = br#"{"name":"t","scripts":[{"steps":[{"say":"hi"}]}]}"#;
    let script = Script::parse(json).unwrap();
    let (hash, model) = keep_script(state.path(), json, &script).unwrap();
    assert_eq!(fs::read(script_path(state.path(), hash)).unwrap(), json);
    assert_eq!(model.to_string(), format!("rehearsal-{}/t", &hash.to_string()[..8]));
    assert_eq!(keep_script(state.path(), json, &script).unwrap(), (hash, model));
}
