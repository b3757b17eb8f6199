//! The real binary and what is known of models: costs, thinking, pictures, limits.

use std::fs;

use image::ImageFormat;
use serde_json::{Value, json};

use crate::{
    pictures::picture,
    world::{World, object, stderr},
};

/// A world whose scripted model, `t`, is known by these keys.
struct Known {
    world: World,
    config: std::path::PathBuf,
}

impl Known {
    fn new(config: &str) -> Self {
        let world = World::new();
        let path = world.work().with_file_name("hermod.toml");
        fs::write(&path, config).unwrap();
        Self { world, config: path }
    }

    /// Runs a model that says `done`, and gives the object that it prints, and what it says on standard error.
    #[track_caller]
    fn run(&self, args: &[&str], code: i32) -> (Value, String) {
        let script = self.world.script(&json!([{ "say": "done" }]));
        let args: Vec<&str> = ["run", &script, "--json"].iter().chain(args).copied().collect();
        let output = self.world.hermod(&args).env("HERMOD_CONFIG", &self.config).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        let printed = String::from_utf8_lossy(&output.stdout);
        (if printed.is_empty() { Value::Null } else { object(&printed) }, told)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.world.hermod(args).env("HERMOD_CONFIG", &self.config).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The last record of a kind in the last run's session.
    #[track_caller]
    fn record(&self, kind: &str) -> Value {
        let records = self.world.journal("last");
        records.into_iter().rfind(|record| record["kind"] == kind).expect(kind)
    }
}

#[test]
fn a_limit_in_dollars_is_kept_before_the_spend() {
    let known = Known::new("[models.t]\nprice = { input = 100, output = 200 }");
    let (result, _) = known.run(&["--budget", "usd=5", "hi"], 0);
    let cost = result["cost_usd"].as_f64().unwrap();
    let reserved = known.record("model.started")["reserved"]["usd"].as_f64().unwrap();
    assert!(cost > 0.0 && cost <= reserved && reserved <= 5.0, "{cost} {reserved}");

    let (result, told) = known.run(&["--budget", "usd=0.0001", "hi"], 3);
    assert_eq!((&result["outcome"], &result["cost_usd"]), (&json!("budget_exhausted"), &json!(0.0)));
    assert!(told.contains("usd"), "{told}");
    let kinds: Vec<Value> = known.world.journal("last").into_iter().map(|mut r| r["kind"].take()).collect();
    assert!(!kinds.contains(&json!("model.started")), "{kinds:?}");
}

#[test]
fn a_run_says_what_it_cost_or_what_has_no_price() {
    let known = Known::new("[models.t]\nprice = { input = 100, output = 200.5 }");
    let (result, told) = known.run(&["hi"], 0);
    let tokens = |name: &str| result["usage"][name].as_f64().unwrap();
    let dollars = (tokens("input_tokens") * 100.0 + tokens("output_tokens") * 200.5) / 1e6;
    let cost = result["cost_usd"].as_f64().unwrap();
    assert!(dollars > 0.0 && (cost - dollars).abs() < 1e-9, "{cost} is not {dollars}");
    assert_eq!(result["unpriced"], json!([]));
    assert!(told.contains(", $0."), "{told}");
    let shown = object(&known.ok(&["runs", "show", "last", "--json"]));
    assert_eq!((&shown["cost_usd"], &shown["unpriced"]), (&result["cost_usd"], &json!([])));
    assert!(known.ok(&["runs", "show", "last"]).contains("\ncost        $0."));

    let unknown = Known::new("");
    let (result, told) = unknown.run(&["hi"], 0);
    let model = unknown.record("model.started")["model"].clone();
    assert_eq!((&result["cost_usd"], &result["unpriced"]), (&Value::Null, &json!([model])));
    assert!(!told.contains('$'), "{told}");
    let shown = unknown.ok(&["runs", "show", "last"]);
    assert!(shown.contains(&format!("\ncost        not known of {}", model.as_str().unwrap())), "{shown}");
}

#[test]
fn no_more_output_is_asked_for_than_the_model_can_write() {
    for (config, expect) in [("", 8_192), ("[models.t]\nmax_output = 300", 300)] {
        let known = Known::new(config);
        known.run(&["hi"], 0);
        assert_eq!(known.record("model.started")["max_tokens"], expect);
    }
}

#[test]
fn how_much_to_think_is_the_runs_else_the_conversations_else_the_agents() {
    let level = |known: &Known| known.record("run.accepted")["spec"]["thinking"].clone();
    let known = Known::new("[agent]\nthinking = \"low\"\n[models.t]\nthinking = \"effort\"");
    let (_, told) = known.run(&["hi"], 0);
    assert_eq!(level(&known), "low");
    assert!(!told.contains("left out"), "{told}");
    known.run(&["--session", "k", "--thinking", "high", "hi"], 0);
    assert_eq!(level(&known), "high");
    known.run(&["--session", "k", "hi"], 0);
    assert_eq!(level(&known), "high");
    known.run(&["--session", "k", "--thinking", "off", "hi"], 0);
    assert_eq!(level(&known), "off");
    let (_, told) = known.run(&["--thinking", "much", "hi"], 2);
    assert!(told.contains("possible values: off, minimal, low, medium, high"), "{told}");
}

#[test]
fn what_a_model_cannot_be_told_is_said_once() {
    let check = |config: &str, args: &[&str], expect: Option<&str>| {
        let known = Known::new(config);
        let (_, told) = known.run(args, 0);
        assert_eq!(told.matches("is left out").count(), usize::from(expect.is_some()), "{told}");
        assert!(expect.is_none_or(|expect| told.contains(expect)), "{told}");
    };
    let high = ["--thinking", "high", "hi"];
    check("", &high, Some("/t is told is not known; set thinking in [models.\"rehearsal-"));
    check("[models.t]\nthinking = \"none\"", &high, Some("/t cannot be told how much to think"));
    let some = "[models.t]\nthinking = \"effort\"\nthinking_levels = [\"medium\", \"low\"]";
    check(some, &high, Some("thinking  high is left out: rehearsal-"));
    check(some, &high, Some("/t takes only low, medium"));
    check(some, &["--thinking", "low", "hi"], None);
    check(some, &["hi"], None);
    check(&format!("{some}\nthinking_level = \"minimal\""), &["hi"], Some("minimal is left out"));
}

#[test]
fn pictures_come_from_files() {
    let known = Known::new("[models.t]\nimages = false");
    let at = |name: &str| known.world.work().join(name).to_str().unwrap().to_owned();
    fs::write(at("a.gif"), picture(ImageFormat::Gif, (2, 2))).unwrap();
    fs::write(at("b.png"), picture(ImageFormat::Png, (3_136, 20))).unwrap();
    fs::write(at("c.pdf"), b"%PDF-1.7").unwrap();
    let (_, told) = known.run(&["--image", "a.gif", "--image", &at("b.png"), "hi"], 0);
    assert!(told.contains("does not see pictures"), "{told}");
    let images = known.record("run.accepted")["images"].clone();
    let formats: Vec<_> = images.as_array().unwrap().iter().map(|image| image["format"].clone()).collect();
    assert_eq!(formats, ["gif", "png"]);
    assert!(images[0].get("original").is_none() && images[1]["original"].is_string(), "{images}");
    let wrong = |args: &[&str], part: &str| {
        let (_, told) = known.run(args, 2);
        assert!(told.contains(part), "{told}");
    };
    wrong(&["--image", "c.pdf", "hi"], "--image c.pdf: it is neither PNG, JPEG, GIF nor WebP; convert it");
    let whole = picture(ImageFormat::Png, (40, 30));
    fs::write(at("damaged.png"), &whole[..whole.len() / 2]).unwrap();
    wrong(&["--image", "damaged.png", "hi"], "images: picture 1: it cannot be decoded");
    wrong(
        &["--image", "nowhere.png", "hi"],
        "--image nowhere.png: No such file or directory (os error 2); name a PNG",
    );
    wrong(&["--image", ".", "hi"], "--image .: it is a folder, and only regular files are read; name a PNG");
    let many = [["--image", "a.gif"]; 21].concat();
    wrong(&[many.as_slice(), &["hi"]].concat(), "--image: 21 pictures; at most 20");
    let told = known.world.run(&["run", "--resume", "last", "--image", "a.gif"]);
    assert!(stderr(&told).contains("--image: the unfinished run goes on as it was accepted"), "{told:?}");
}

/// What comes of a model that is silent for so long in the middle of its answer, or before it.
fn check_stall(config: &str, (ms, after): (u64, u32), code: i32, says: &str) {
    let retry = "[retry.attempts]\ntimeout = 1\n";
    let known = Known::new(&format!("{retry}{config}"));
    let fault = json!({ "stall": format!("{ms}ms"), "stall_after": after });
    let script = known.world.script(&json!([{ "say": "done at last", "fault": fault }]));
    let output = known.world.hermod(&["run", &script, "hi"]).env("HERMOD_CONFIG", &known.config).output();
    let (output, asked) = (output.unwrap(), format!("{config:?}, {ms} ms after {after}"));
    assert_eq!(output.status.code(), Some(code), "{asked}: {}", stderr(&output));
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(told.contains(says), "{asked}: {told}");
}

#[test]
fn a_model_that_says_nothing_is_given_up_by_its_own_deadlines() {
    const MINUTE: u64 = 60_000;
    let own = |said: &str| format!("[models.t]\n{said}");
    check_stall(&own("first_event = \"50ms\""), (MINUTE, 0), 69, "no answer began within 0.05 s");
    check_stall(&own("gap = \"50ms\""), (MINUTE, 2), 69, "the answer did not go on within 0.05 s");
    check_stall(&own("call = \"50ms\""), (MINUTE, 2), 69, "the answer did not end within 0.05 s");
    // What the model does not say is its provider's; what it says stands over that.
    let short = "[provider_defaults]\nfirst_event_timeout = \"50ms\"\n";
    check_stall(&format!("{short}{}", own("gap = \"1m\"")), (MINUTE, 0), 69, "no answer began within 0.05 s");
    check_stall(&format!("{short}{}", own("first_event = \"1m\"")), (300, 0), 0, "done at last");
}

#[test]
fn what_is_known_is_listed_and_the_users_own_comes_first() {
    let known = Known::new(
        "[models.\"acme/large-1.5\"]\nwindow = 5\nfirst_event = \"10m\"\nprice = { input = 0.25, output = 2 }",
    );
    let table = known.ok(&["models", "list"]);
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("acme/large-1.5 ")), "{table}");
    assert!(table.contains("claude-sonnet-4-5 ") && table.contains("program"), "{table}");
    let list: Vec<Value> = serde_json::from_str(&known.ok(&["models", "list", "--json"])).unwrap();
    let own = json!({
        "model": "acme/large-1.5", "from": "config", "window": 5, "max_output": null, "thinking": null,
        "thinking_levels": null, "thinking_level": null, "images": null,
        "first_event_ms": 600_000, "gap_ms": null, "call_ms": null, "price": { "input": 0.25, "output": 2 },
    });
    assert_eq!(list[0], own);
    let sonnet = list.iter().find(|entry| entry["model"] == "claude-sonnet-4-5").unwrap();
    assert_eq!((&sonnet["window"], &sonnet["price"]["cache_read"]), (&json!(200_000), &json!(0.3)));
    let shown = known.ok(&["config", "show"]);
    assert!(shown.contains("models.\"acme/large-1.5\".price.input = 0.25"), "{shown}");
    let checked = shown + "\n[providers.acme]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n";
    assert_eq!(Known::new(&checked).ok(&["config", "check"]).lines().last(), Some("ok"));
}
