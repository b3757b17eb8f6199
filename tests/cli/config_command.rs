//! The real binary and its configuration: what a person sees of it, and that a run goes by it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use hermod::config::{Config, EMBEDDED};
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "sk-live-1234";

/// A state directory, a workspace and a configuration of their own.
struct World(TempDir);

impl World {
    /// With this configuration; `DIR` in it is the folder of it all.
    fn new(config: &str) -> Self {
        let world = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::create_dir(world.path("work")).expect("a workspace");
        let config = config.replace("DIR", world.path("").to_str().expect("UTF-8"));
        fs::write(world.path("hermod.toml"), config).expect("written");
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `hermod` in the workspace, with nothing in its environment that is not here.
    fn hermod(&self, args: &[&str], set: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(args).env_clear().env("PATH", path).env("HERMOD_HOME", self.path("state"));
        // Whether an Ollama runs on this machine is not looked at.
        command.env("HERMOD_CONFIG", self.path("hermod.toml")).env("HERMOD_OLLAMA__ADDRESS", "none");
        command.envs(set.iter().copied()).current_dir(self.path("work")).stdin(Stdio::null());
        command
    }

    /// Ends with `code`, and a text on one of its streams that has all `parts`. Nothing ever shows the secret.
    #[track_caller]
    fn check(&self, args: &[&str], set: &[(&str, &str)], (code, parts): (i32, &[&str])) -> String {
        let output: Output = self.hermod(args, set).output().expect("hermod starts");
        let stdout = String::from_utf8(output.stdout).expect("text");
        let all = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {all}");
        for part in parts {
            assert!(all.contains(part), "{args:?} lacks {part}: {all}");
        }
        assert!(!all.contains(SECRET) && !all.contains("panicked"), "{all}");
        stdout
    }

    /// The option that plays these steps.
    fn script(&self, steps: &Value) -> String {
        let path = self.path("script.json");
        fs::write(&path, json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string())
            .expect("written");
        format!("--rehearse={}", path.display())
    }

    /// The bodies of the records of a kind, of the last run.
    #[track_caller]
    fn records(&self, kind: &str) -> Vec<Value> {
        let lines = self.check(&["journal", "last"], &[], (0, &[]));
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        records.filter(|record| record["kind"] == kind).collect()
    }
}

/// A scripted model behind an endpoint, for as long as this lives.
struct Model(Child, String);

impl Model {
    fn of(world: &World, steps: &Value) -> Self {
        let script = world.script(steps);
        let file = script.strip_prefix("--rehearse=").expect("an option");
        let mut command = world.hermod(&["rehearse", file], &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("hermod starts");
        let mut base_url = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut base_url).expect("its first line");
        Self(child, base_url.trim().to_owned())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child that can be waited for");
    }
}

#[test]
fn a_mistake_ends_with_78_before_anything_is_done() {
    let run: &[&str] = &["run", "--rehearse", "hi"];
    let check = |config: &str, set: &[(&str, &str)], part: &str| {
        let world = World::new(config);
        for args in [run, &["config", "check"], &["config", "show"], &["providers", "list"]] {
            world.check(args, set, (78, &[part]));
        }
        assert!(!world.path("state").exists(), "no state was made");
    };
    check("[agent]\nmax_turn = 5", &[], "hermod.toml:2: there is no key `agent.max_turn`; did you mean");
    check(
        "[agent]\nmax_turns = \"many\"",
        &[],
        "hermod.toml:2: agent.max_turns = \"many\": must be a whole number",
    );
    check("[agent\n", &[], "hermod.toml:1:");
    check(
        "",
        &[("HERMOD_MODLE", SECRET)],
        "HERMOD_MODLE: there is no such variable; did you mean `HERMOD_MODEL`?",
    );
    check("", &[("HERMOD_CONFIG", "/nowhere.toml")], "/nowhere.toml: No such file");
    check("[providers.openai]\ncredential = \"sk-live-1234\"", &[], "write \"env:NAME\"");
}

#[test]
fn a_mistake_is_told_in_json_too() {
    let world = World::new("modle = \"x\"");
    let object = world.check(&["run", "--rehearse", "--json", "hi"], &[], (78, &["did you mean `model`"]));
    let object: Value = serde_json::from_str(&object).expect("one JSON object");
    assert!(object["error"].as_str().is_some_and(|error| error.contains("`modle`")), "{object}");
}

/// Three providers, one by its key in a file, one in a variable, one without.
const PROVIDERS: &str = r#"
model = "beta/large"

[providers.beta]
base_url = "https://beta.example/v1?token=sk-live-1234"
credential = "env:BETA_KEY"
calls = 3

[providers.acme]
base_url = "http://127.0.0.1:9/v1"
credential = "file:DIR/key"
model = "small"
"#;

#[test]
fn a_check_reads_what_a_run_would_read() {
    let world = World::new(PROVIDERS);
    fs::write(world.path("key"), SECRET).expect("written");
    let set = [("BETA_KEY", SECRET), ("HERMOD_AGENT__MAX_TURNS", "5")];
    let file = format!("file      {}", world.path("hermod.toml").display());
    let lines = ["variable  HERMOD_AGENT__MAX_TURNS", "provider  beta: env:BETA_KEY", "\nok\n", &file];
    world.check(&["config", "check"], &set, (0, &lines));
    world.check(
        &["config", "check"],
        &[],
        (78, &["provider `beta` has no credential: env:BETA_KEY", "export BETA_KEY"]),
    );
    // Whoever does not need the provider does not need its key.
    let done = world.script(&json!([{ "say": "done" }]));
    world.check(&["run", &done, "hi"], &[], (0, &["done"]));
    world.check(
        &["run", "hi"],
        &[],
        (78, &["provider `beta` has no credential: env:BETA_KEY: the variable is not set"]),
    );
    fs::remove_file(world.path("key")).expect("removed");
    world.check(
        &["run", "--provider", "acme", "hi"],
        &set,
        (78, &["provider `acme` has no credential: file:"]),
    );
    let unknown = [("BETA_KEY", "k"), ("HERMOD_FALLBACK_PROVIDERS", "gamma/x")];
    fs::write(world.path("key"), SECRET).expect("written");
    world.check(&["config", "check"], &unknown, (78, &["there is no provider `gamma`", "[providers.gamma]"]));
    let beside = [("BETA_KEY", "k"), ("HERMOD_AUXILIARY__TITLE__CHAIN", "delta/x")];
    world.check(&["config", "check"], &beside, (78, &["there is no provider `delta`"]));
}

#[test]
fn settings_are_shown_with_their_origin() {
    let world = World::new(PROVIDERS);
    let set = [("HERMOD_AGENT__MAX_TURNS", "5")];
    let own =
        world.check(&["config", "show"], &set, (0, &["agent.max_turns = 5", "# HERMOD_AGENT__MAX_TURNS"]));
    assert!(
        own.contains("providers.beta.credential = \"env:BETA_KEY\"") && !own.contains("# default"),
        "{own}"
    );
    assert!(own.contains("https://beta.example/v1?…"), "{own}");
    let all = world.check(&["config", "show", "--effective", "--json"], &set, (0, &[]));
    let all: Value = serde_json::from_str(&all).expect("one JSON object");
    let settings = all["settings"].as_array().expect("a list");
    let origin =
        |key: &str| settings.iter().find(|setting| setting["key"] == key).map(|s| s["origin"].clone());
    let keys = Config::load(&[], &std::collections::BTreeMap::new()).expect("the defaults").settings;
    assert!(keys.keys().all(|key| origin(key).is_some()), "{all}");
    assert_eq!(origin("agent.max_turns"), Some("HERMOD_AGENT__MAX_TURNS".into()));
    assert_eq!(origin("agent.max_tokens"), Some("default".into()));
    assert!(
        origin("model").is_some_and(|origin| origin.as_str().is_some_and(|o| o.ends_with("hermod.toml:2")))
    );
}

#[test]
fn what_is_shown_effectively_is_a_file_that_can_be_used() {
    let world = World::new("");
    let bare = world
        .hermod(&["config", "show"], &[])
        .env_remove("HERMOD_OLLAMA__ADDRESS")
        .output()
        .expect("hermod starts");
    let bare = String::from_utf8_lossy(&bare.stdout).into_owned();
    assert!(bare.starts_with("# nothing is set: every key has its default"), "{bare}");
    let shown = World::new("").check(&["config", "show", "--effective"], &[], (0, &[]));
    let key = [("OPENAI_API_KEY", SECRET)];
    World::new(&shown).check(&["config", "check"], &key, (0, &["ok"]));
    World::new(EMBEDDED).check(&["config", "check"], &key, (0, &["ok"]));
}

#[test]
fn a_check_says_what_a_run_would_miss() {
    let anthropic = "there is no provider `anthropic` here";
    let key = [("OPENAI_API_KEY", SECRET)];
    let check = |config: &str, set: &[(&str, &str)], parts: &[&str]| {
        let world = World::new(config);
        for args in [&["config", "check"][..], &["run", "hi"]] {
            let printed = world.check(args, set, (78, parts));
            assert!(!printed.lines().any(|line| line == "ok"), "{args:?}: {printed}");
        }
    };
    check("", &[], &["no model provider is configured", "ANTHROPIC_API_KEY"]);
    let variable = "set ANTHROPIC_API_KEY to have it";
    check("model = \"anthropic/claude-x\"", &key, &[anthropic, "configured are: openai", variable]);
    check("model = \"anthropic/claude-x\"", &[], &[anthropic, "configured are: none", variable]);
    check("fallback_providers = [\"anthropic/claude-x\"]", &key, &[anthropic, variable]);
    let beside = World::new("[auxiliary.compression]\nchain = [\"anthropic/claude-x\"]");
    beside.check(&["config", "check"], &key, (78, &[anthropic, variable]));
    let world = World::new("");
    world.check(&["run", "--model", "anthropic/claude-x", "hi"], &key, (78, &[anthropic, variable]));
    assert!(world.check(&["runs", "list"], &[], (0, &[])).lines().count() <= 1, "no run was accepted");
}

#[test]
fn providers_are_listed_with_whether_their_key_is_there() {
    let world = World::new(PROVIDERS);
    let set = [("OPENAI_API_KEY", SECRET)];
    world.check(&["providers", "list"], &set, (0, &["PROVIDER", "missing: env:BETA_KEY", "environment"]));
    let list = world.check(&["providers", "list", "--json"], &set, (0, &[]));
    let list: Vec<Value> = serde_json::from_str(&list).expect("a JSON array");
    let names: Vec<_> = list.iter().filter_map(|provider| provider["name"].as_str()).collect();
    assert_eq!(names, ["beta", "acme", "openai"]);
    let wanted = json!({
        "name": "beta", "base_url": "https://beta.example/v1?…", "wire": "chat_completions",
        "credentials": [{ "from": "env:BETA_KEY", "error": "the variable is not set; export BETA_KEY" }],
        "pool": "fill_first", "requests_per_minute": null, "tokens_per_minute": null, "model": null,
        "window": null, "priced": false, "calls": 3, "from": "config",
    });
    assert_eq!(list[0], wanted);
    assert_eq!(list[2]["credentials"], json!([{ "from": "env:OPENAI_API_KEY", "error": null }]));
    assert_eq!(World::new("").check(&["providers", "list", "--json"], &[], (0, &[])), "[]\n");
}

#[test]
fn a_run_asks_the_configured_provider_with_the_key_from_its_file() {
    let world = World::new("model = \"acme/m/1\"\n[providers.acme]\ncredential = \"file:DIR/key\"");
    fs::write(world.path("key"), SECRET).expect("written");
    let model = Model::of(&world, &json!([{ "say": "hello" }]));
    let set = [
        ("HERMOD_PROVIDERS__ACME__BASE_URL", model.1.as_str()),
        ("HERMOD_PROVIDERS__BETA__BASE_URL", model.1.as_str()),
        ("HERMOD_FALLBACK_PROVIDERS", "beta/m2,acme/m/1"),
    ];
    world.check(&["run", "hi"], &set, (0, &["[rehearsal] hello", "with      acme/m/1 in "]));
    assert_eq!(world.records("run.accepted")[0]["spec"]["chain"], json!(["acme/m/1", "beta/m2"]));
}

#[test]
fn a_run_has_the_limits_that_are_configured() {
    let world = World::new("[agent]\nmax_tokens = 777");
    let sleeps = |seconds: &str| {
        let arguments = json!({ "command": format!("sleep {seconds}") });
        json!([{ "call": [{ "tool": "shell", "arguments": arguments }] }, { "say": "done" }])
    };
    let script = world.script(&sleeps("60"));
    world.check(&["run", &script, "hi"], &[("HERMOD_TOOLS__SHELL__TIMEOUT", "100ms")], (0, &["done"]));
    let content = world.records("call.ended")[0]["content"].to_string();
    assert!(content.contains("timed_out\\\":true"), "{content}");
    let limits = &world.records("run.accepted")[0]["spec"]["limits"];
    assert_eq!((&limits["max_tokens"], &limits["timeout_ms"]), (&json!(777), &Value::Null));
    world.check(
        &["run", &script, "hi"],
        &[("HERMOD_AGENTS__DEFAULTS__TIMEOUT", "100ms")],
        (124, &["timed_out"]),
    );
    let script = world.script(&sleeps("0"));
    world.check(
        &["run", &script, "hi"],
        &[("HERMOD_AGENT__MAX_TURNS", "1")],
        (3, &["iterations limit of 1"]),
    );
}

#[test]
fn a_failed_call_is_tried_again_as_often_as_configured() {
    let world = World::new("[retry]\nfirst_pause = \"1ms\"\nlongest_pause = \"2ms\"");
    let fault = json!({ "status": 500, "times": "forever" });
    let script = world.script(&json!([{ "say": "never", "fault": fault }]));
    for attempts in ["1", "2", "5"] {
        world.check(
            &["run", &script, "hi"],
            &[("HERMOD_RETRY__ATTEMPTS__SERVER", attempts)],
            (69, &["failed"]),
        );
        assert_eq!(world.records("model.failed").len().to_string(), attempts);
    }
    let slow = world.script(&json!([{ "say": "late", "delay": "1m" }]));
    let set =
        [("HERMOD_PROVIDER_DEFAULTS__FIRST_EVENT_TIMEOUT", "50ms"), ("HERMOD_RETRY__ATTEMPTS__TIMEOUT", "1")];
    world.check(&["run", &slow, "hi"], &set, (69, &["no answer began within 0.05 s"]));
}

#[test]
fn the_model_behind_the_first_is_asked_when_that_cannot_answer() {
    let (world, other) = (World::new("fallback_providers = [\"beta/m2\"]"), World::new(""));
    let fault = json!({ "status": 401, "times": "forever" });
    let first = Model::of(&world, &json!([{ "say": "never", "fault": fault }]));
    let second = Model::of(&other, &json!([{ "say": "hello" }]));
    let set = [
        ("HERMOD_MODEL", "acme/m1"),
        ("HERMOD_PROVIDERS__ACME__BASE_URL", first.1.as_str()),
        ("HERMOD_PROVIDERS__BETA__BASE_URL", second.1.as_str()),
    ];
    world.check(&["run", "hi"], &set, (0, &["[rehearsal] hello", "the next of the chain is asked"]));
    let asked: Vec<_> =
        world.records("model.started").iter().map(|started| started["model"].clone()).collect();
    assert_eq!(asked, ["acme/m1", "beta/m2"]);
    assert_eq!(world.records("run.ended")[0]["iterations"], 1);
}
