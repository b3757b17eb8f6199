//! `hermod doctor` on broken installations: it names what is broken, and what it proposes helps. `hermod init`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::{
    server::{response, serve},
    world::{World, object, stderr},
};

const KEY: &str = "sk-live-0123456789abcdef";

/// An endpoint that accepts one key.
fn endpoint() -> String {
    serve(|request| {
        let is_known = request.to_ascii_lowercase().contains(&format!("authorization: bearer {KEY}"));
        match is_known {
            true => response("200 OK", "application/json", r#"{"data":[{"id":"m"}]}"#),
            false => response("401 Unauthorized", "application/json", r#"{"error":{"message":"no"}}"#),
        }
    }) + "/v1"
}

/// An installation, and the variables with which hermod is started.
struct Installation {
    world: World,
    set: Vec<(String, String)>,
}

impl Installation {
    /// One in which all is well.
    fn new() -> Self {
        let world = World::new();
        let text = format!(
            "model = \"acme/m\"\n[providers.acme]\nbase_url = \"{}\"\ncredential = \"env:ACME_KEY\"\n",
            endpoint()
        );
        world.configure(&text);
        Self { world, set: vec![("ACME_KEY".to_owned(), KEY.to_owned())] }
    }

    fn config(&self) -> PathBuf {
        self.world.work().join("../hermod.toml")
    }

    fn add_to_config(&self, text: &str) {
        let before = fs::read_to_string(self.config()).unwrap();
        self.world.configure(&(before + text));
    }

    fn set(&mut self, name: &str, value: &str) {
        self.set.retain(|(known, _)| known != name);
        self.set.push((name.to_owned(), value.to_owned()));
    }

    fn doctor(&self, args: &[&str]) -> Output {
        let mut command = self.world.hermod(&[&["doctor"], args].concat());
        command.envs(self.set.iter().map(|(name, value)| (name, value))).output().unwrap()
    }

    fn findings(&self) -> Vec<Value> {
        let output = self.doctor(&["--json"]);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(!text.contains(KEY) && !stderr(&output).contains(KEY), "{text}");
        let report = object(&text);
        let has_failed = report["result"] == "fail";
        assert_eq!(output.status.code(), Some(i32::from(has_failed)), "{report:#}");
        report["checks"].as_array().unwrap().clone()
    }

    /// The finding that says `part`, which is the only failure; its remedy.
    #[track_caller]
    fn broken(&self, check: &str, part: &str) -> String {
        let findings = self.findings();
        let failed: Vec<_> = findings.iter().filter(|finding| finding["result"] == "fail").collect();
        let about: Vec<_> = failed.iter().filter(|finding| finding["check"] == check).collect();
        assert!(!about.is_empty(), "{check} has not failed: {findings:#?}");
        let value = about[0]["value"].as_str().unwrap();
        let subject = about[0]["subject"].as_str().unwrap();
        assert!(value.contains(part) || subject.contains(part), "`{part}` is not in {:#}", about[0]);
        about[0]["remedy"].as_str().unwrap().to_owned()
    }

    /// Runs the command that a remedy has between backticks.
    #[track_caller]
    fn apply(&self, remedy: &str) {
        let command = remedy.split('`').nth(1).unwrap_or_else(|| panic!("no command in: {remedy}"));
        let programs = self.world.work().join("../bin");
        fs::create_dir_all(&programs).unwrap();
        let hermod = programs.join("hermod");
        if !hermod.exists() {
            symlink(env!("CARGO_BIN_EXE_hermod"), &hermod).unwrap();
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env_clear().env("PATH", path).env("HERMOD_HOME", self.world.state());
        shell.env("HERMOD_CONFIG", self.config()).envs(self.set.iter().map(|(name, value)| (name, value)));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", stderr(&output));
    }

    #[track_caller]
    fn is_well(&self) {
        let findings = self.findings();
        let failed: Vec<_> = findings.iter().filter(|finding| finding["result"] == "fail").collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }
}

#[test]
fn a_fresh_and_a_used_installation_are_well() {
    let installation = Installation::new();
    installation.is_well();
    assert!(!installation.world.state().exists(), "a look makes no state directory");
    let script = installation.world.script(&json!([{ "say": "hi" }]));
    installation.world.ok(&["run", &script, "hi"]);
    installation.is_well();
    let left: Vec<_> = fs::read_dir(installation.world.state())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("doctor"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let page = String::from_utf8(installation.doctor(&[]).stdout).unwrap();
    for part in ["ok      configuration", "acme (env:ACME_KEY): it has listed its models", " failed"] {
        assert!(page.contains(part), "`{part}`: {page}");
    }
}

#[test]
fn it_works_while_a_process_holds_the_store() {
    let installation = Installation::new();
    let running = installation.world.started(&[]);
    installation.is_well();
    installation.world.release();
    assert!(running.end().status.success());
}

#[test]
fn a_misspelled_key() {
    let installation = Installation::new();
    installation.add_to_config("[agent]\nmax_turn = 5\n");
    installation.broken("configuration", "did you mean `agent.max_turns`?");
    let text = fs::read_to_string(installation.config()).unwrap();
    installation.world.configure(&text.replace("max_turn =", "max_turns ="));
    installation.is_well();
}

#[test]
fn a_line_that_is_no_toml() {
    let installation = Installation::new();
    let well = fs::read_to_string(installation.config()).unwrap();
    installation.add_to_config("this is not a setting\n");
    let remedy = installation.broken("configuration", "hermod.toml:5:");
    assert!(remedy.contains("take it out"), "{remedy}");
    installation.world.configure(&well);
    installation.is_well();
}

#[test]
fn a_file_that_is_named_and_missing() {
    let mut installation = Installation::new();
    fs::remove_file(installation.config()).unwrap();
    installation.set("HERMOD_CONFIG", &installation.config().display().to_string());
    installation.set("OPENAI_API_KEY", KEY);
    installation.set("OPENAI_BASE_URL", &endpoint());
    let remedy = installation.broken("configuration", "which does not exist");
    installation.apply(&remedy);
    installation.is_well();
}

#[test]
fn no_provider_at_all() {
    let mut installation = Installation::new();
    // Nothing listens there.
    installation.world.configure("[ollama]\naddress = \"127.0.0.1:1\"\n");
    let remedy = installation.broken("models", "there is no model provider");
    assert!(remedy.contains("OPENAI_API_KEY"), "{remedy}");
    installation.set("OPENAI_API_KEY", KEY);
    installation.set("OPENAI_BASE_URL", &endpoint());
    installation.is_well();
}

#[test]
fn a_key_that_is_not_set() {
    let mut installation = Installation::new();
    installation.set.clear();
    let remedy = installation.broken("secrets", "env:ACME_KEY");
    assert!(remedy.contains("set the variable ACME_KEY"), "{remedy}");
    installation.set("ACME_KEY", KEY);
    installation.is_well();
}

#[test]
fn a_key_that_is_refused() {
    let mut installation = Installation::new();
    installation.set("ACME_KEY", "sk-live-old-and-revoked");
    let remedy = installation.broken("keys", "it refuses the key (status 401)");
    assert!(remedy.contains("env:ACME_KEY"), "{remedy}");
    let offline = object(&String::from_utf8(installation.doctor(&["--offline", "--json"]).stdout).unwrap());
    assert_ne!(offline["result"], "fail", "{offline:#}");
    installation.set("ACME_KEY", KEY);
    installation.is_well();
}

#[test]
fn a_provider_that_does_not_answer() {
    let installation = Installation::new();
    let well = fs::read_to_string(installation.config()).unwrap();
    let line = well.lines().find(|line| line.starts_with("base_url")).unwrap();
    installation.world.configure(&well.replace(line, "base_url = \"http://127.0.0.1:1/v1\""));
    let remedy = installation.broken("keys", "network");
    assert!(remedy.contains("providers.acme.base_url"), "{remedy}");
    installation.world.configure(&well);
    installation.is_well();
}

#[test]
fn a_state_directory_that_others_read() {
    let installation = Installation::new();
    fs::create_dir(installation.world.state()).unwrap();
    fs::set_permissions(installation.world.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let remedy = installation.broken("state", "is open to other users (mode 755)");
    installation.apply(&remedy);
    installation.is_well();
}

#[test]
fn a_reserve_that_no_disk_has() {
    let installation = Installation::new();
    fs::create_dir(installation.world.state()).unwrap();
    fs::set_permissions(installation.world.state(), fs::Permissions::from_mode(0o700)).unwrap();
    installation.add_to_config("[store]\nreserve = \"1000TiB\"\n");
    let remedy = installation.broken("space", "runs begin only with");
    assert!(remedy.contains("store.reserve"), "{remedy}");
    let text = fs::read_to_string(installation.config()).unwrap();
    installation.world.configure(&text.replace("1000TiB", "1KiB"));
    installation.is_well();
}

#[test]
fn a_store_that_is_damaged() {
    let installation = Installation::new();
    let script = installation.world.script(&json!([{ "say": "hi" }]));
    installation.world.ok(&["run", &script, "hi"]);
    fs::write(installation.world.state().join("hermod.redb"), "no store").unwrap();
    let remedy = installation.broken("store", "cannot be used as a store");
    // The second command begins anew; the first one needs a backup.
    let (_, anew) = remedy.split_once("begin anew: ").unwrap();
    installation.apply(anew);
    installation.is_well();
}

#[test]
fn a_hook_that_may_not_be_executed() {
    let installation = Installation::new();
    let hook = installation.world.work().join("guard.sh");
    fs::write(&hook, "#!/bin/sh\nexit 0\n").unwrap();
    let line =
        format!("[hooks.guard]\non = [\"pre_tool_call\"]\ncommand = \"{} --strict\"\n", hook.display());
    installation.add_to_config(&line);
    let remedy = installation.broken("hooks", "may not be executed");
    installation.apply(&remedy);
    installation.is_well();
}

#[test]
fn a_target_whose_folder_is_missing() {
    let installation = Installation::new();
    let folder = installation.world.work().join("out/box");
    let line = format!("[targets.box]\nkind = \"folder\"\npath = \"{}\"\n", folder.display());
    installation.add_to_config(&line);
    let remedy = installation.broken("targets", "is no folder");
    installation.apply(&remedy);
    installation.is_well();
}

#[test]
fn a_limit_of_open_files_is_told() {
    let installation = Installation::new();
    let doctor = format!("ulimit -n 256; exec {} doctor --offline --json", env!("CARGO_BIN_EXE_hermod"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &doctor]).env("HERMOD_HOME", installation.world.state());
    shell.env("HERMOD_CONFIG", installation.config());
    let report = object(&String::from_utf8(shell.output().unwrap().stdout).unwrap());
    let found = report["checks"].as_array().unwrap().iter().find(|finding| finding["check"] == "open files");
    let found = found.unwrap();
    assert_eq!(
        (&found["result"], &found["value"]),
        (&json!("warn"), &json!("at most 256 files may be open at once"))
    );
}

#[test]
fn a_first_configuration_is_written_once() {
    let world = World::new();
    let config = world.work().join("../made/hermod.toml");
    let hermod = |args: &[&str], set: &[(&str, &str)]| {
        let mut command = world.hermod(args);
        command.env("HERMOD_CONFIG", &config).envs(set.iter().copied());
        command.output().unwrap()
    };
    let set: &[(&str, &str)] = &[("ANTHROPIC_API_KEY", KEY)];
    let without = hermod(&["init"], set);
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("there is no terminal to ask at; --yes"), "{}", stderr(&without));
    let made = hermod(&["init", "--yes"], set);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert!(stderr(&made).contains("`hermod doctor` examines it"), "{}", stderr(&made));
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("model = \"anthropic/") && text.contains("credential = \"env:ANTHROPIC_API_KEY\""));
    assert!(!text.contains(KEY), "{text}");
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(hermod(&["config", "check"], set).status.code(), Some(0));
    let again = hermod(&["init", "--yes"], set);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("--force replaces it"), "{}", stderr(&again));
    fs::write(&config, "broken").unwrap();
    assert_eq!(hermod(&["init", "--yes", "--force"], set).status.code(), Some(0));
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
    fs::remove_file(&config).unwrap();
    let none = hermod(&["init", "--yes"], &[("HERMOD_OLLAMA__ADDRESS", "127.0.0.1:1")]);
    assert_eq!(none.status.code(), Some(78), "{}", stderr(&none));
    assert!(!config.exists() && stderr(&none).contains("OPENAI_API_KEY"), "{}", stderr(&none));
}
