use super::*;

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
fn a_script_is_kept_under_its_hash() {
    let state = tempfile::tempdir().unwrap();
    let json = br#"{"name":"t","scripts":[{"steps":[{"say":"hi"}]}]}"#;
    let script = Script::parse(json).unwrap();
    let (hash, model) = store_script(state.path(), json, &script).unwrap();
    assert_eq!(fs::read(script_path(state.path(), hash)).unwrap(), json);
    assert_eq!(model.to_string(), format!("rehearsal-{}/t", &hash.to_string()[..8]));
    assert_eq!(store_script(state.path(), json, &script).unwrap(), (hash, model));
}
