//! `hermod providers`: the real binary, models behind endpoints, and a look into the process that asks them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Output, Stdio},
    sync::Mutex,
};

use serde_json::{Value, json};

use crate::{
    running::Running,
    server::{response, serve},
    world::{World, object, stderr},
};

/// A key that must not be seen anywhere.
const SECRET: &str = "sk-live-0123456789abcdef";
const NOBODY: &str = "no Hermod is running; breakers live in its process";

/// Two models behind endpoints, a configuration that names them, and a world to run in.
struct Scene {
    world: World,
    config: String,
    set: Vec<(String, String)>,
    _models: Vec<Running>,
}

impl Scene {
    /// `acme`, with the keys A and B, plays the first steps, and `beta` the others.
    fn new(acme: &Value, beta: &Value) -> Self {
        let world = World::new();
        let (acme, beta) = (model(&world, acme), model(&world, beta));
        let config = world.work().join("../hermod.toml").to_str().unwrap().to_owned();
        let text = format!(
            "model = \"acme/m1\"\nfallback_providers = [\"beta/m2\"]\n\
             [providers.acme]\nbase_url = \"{}\"\nmodel = \"m1\"\ncredentials = [\"env:A\", \"command:/bin/cat {}\"]\n\
             requests_per_minute = 60\n[providers.beta]\nbase_url = \"{}\"\nmodel = \"m2\"\n",
            acme.1,
            world.work().join("../key").display(),
            beta.1
        );
        fs::write(&config, text).unwrap();
        fs::write(world.work().join("../key"), format!("{SECRET}-b")).unwrap();
        let set = vec![("A".to_owned(), format!("{SECRET}-a"))];
        Self { world, config, set, _models: vec![acme.0, beta.0] }
    }

    /// This configuration, and these variables.
    fn of(text: &str, set: &[(&str, &str)]) -> Self {
        let world = World::new();
        let config = world.work().join("../hermod.toml").to_str().unwrap().to_owned();
        fs::write(&config, text).unwrap();
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { world, config, set, _models: Vec::new() }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.world.hermod(args);
        command.env("HERMOD_CONFIG", &self.config).env("HERMOD_OLLAMA__ADDRESS", "none");
        command.envs(self.set.iter().cloned());
        command
    }

    /// Ends with `code`; its output, which never shows a secret.
    #[track_caller]
    fn check(&self, args: &[&str], code: i32) -> (String, String) {
        let output = self.command(args).output().unwrap();
        told(&output, code)
    }

    /// The JSON that is printed.
    #[track_caller]
    fn json(&self, args: &[&str], code: i32) -> Value {
        object(&self.check(args, code).0)
    }
}

#[track_caller]
fn told(output: &Output, code: i32) -> (String, String) {
    let (stdout, stderr) = (String::from_utf8(output.stdout.clone()).unwrap(), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
    for text in [&stdout, &stderr] {
        assert!(!text.contains(SECRET) && !text.contains("panicked"), "{text}");
    }
    (stdout, stderr)
}

/// A scripted model behind an endpoint, and its base URL.
fn model(world: &World, steps: &Value) -> (Running, String) {
    let script = world.script(steps);
    let file = script.strip_prefix("--rehearse=").unwrap();
    let mut command = world.hermod(&["rehearse", file]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut base_url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut base_url).unwrap();
    (Running::new(child), base_url.trim().to_owned())
}

fn says(text: &str) -> Value {
    json!([{ "say": text, "repeat": "forever" }])
}

fn refuses() -> Value {
    let message = format!("the key {SECRET}-a is not known, nor is {SECRET}-b");
    let body = json!({ "error": { "message": message } });
    json!([{ "say": "never", "fault": { "status": 401, "body": body.to_string(), "times": "forever" } }])
}

#[test]
fn a_test_asks_each_provider_with_each_credential() {
    let scene = Scene::new(&says("ok"), &says("ok"));
    let (table, _) = scene.check(&["providers", "test"], 0);
    let lines: Vec<_> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0], ["PROVIDER", "MODEL", "CREDENTIAL", "OUTCOME", "TIME", "MESSAGE"]);
    assert_eq!(lines[1][..5], ["acme", "m1", "0", "env:A", "answered"]);
    assert_eq!(lines[2][..6], ["acme", "m1", "1", "command:/bin/cat", "…", "answered"]);
    assert_eq!(lines[3][..4], ["beta", "m2", "-", "answered"]);
    let one = scene.json(&["providers", "test", "beta", "--model", "other", "--json"], 0);
    assert!(one[0]["took_ms"].is_u64(), "{one}");
    let expect = json!([{
        "name": "beta", "model": "other", "credential": null, "from": null, "outcome": "answered",
        "took_ms": one[0]["took_ms"], "message": null,
    }]);
    assert_eq!(one, expect);
    assert_eq!(fs::read_dir(scene.world.state()).unwrap().count(), 0, "nothing is opened or kept");
}

#[test]
fn a_test_says_who_does_not_answer_and_why() {
    let mut scene = Scene::new(&refuses(), &says("ok"));
    let tried = scene.json(&["providers", "test", "--json"], 69);
    let outcomes: Vec<_> =
        tried.as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["auth", "auth", "answered"]);
    assert_eq!(tried[0]["message"], "HTTP 401: the key *** is not known, nor is ***");
    scene.set.clear();
    let (table, _) = scene.check(&["providers", "test"], 69);
    assert!(table.contains("not_asked") && table.contains("env:A: the variable is not set"), "{table}");
    let (_, error) = scene.check(&["providers", "test", "gamma"], 78);
    assert!(error.contains("there is no provider `gamma`"), "{error}");
    scene.check(&["providers", "test", "--model", "m"], 2);
}

/// Starts a run, and returns when its second model is asked.
fn fallen_back(scene: &Scene) -> Running {
    under_way(scene, "model 1   asks beta/m2").0
}

/// Starts a run, and returns when its progress has said `what`, with all that it has said.
fn under_way(scene: &Scene, what: &str) -> (Running, String) {
    let mut command = scene.command(&["-vv", "run", "--json", "think"]);
    let mut running = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let progress = BufReader::new(running.child().stderr.as_mut().unwrap());
    let mut seen = String::new();
    for line in progress.lines().map(|line| line.unwrap()) {
        seen.push_str(&line);
        if line.contains(what) {
            break;
        }
    }
    assert!(seen.contains(what), "{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
    (running, seen)
}

#[test]
fn an_impossible_usage_is_said_once_and_counted_and_not_booked() {
    let claims =
        |usage: Value| json!({ "call": [{ "tool": "current_time", "arguments": {} }], "usage": usage });
    let steps = json!([
        claims(json!({ "cached_tokens": 1_000_000 })),
        claims(json!({ "output_tokens": 1_000_000_000_000_000_000_u64 })),
        { "say": "late", "delay": "5m" },
    ]);
    let scene = Scene::new(&steps, &says("ok"));
    let (running, seen) = under_way(&scene, "model 3   asks acme/m1");
    // The log, which is shown here too, has it for each.
    assert_eq!(seen.matches("usage     not believed").count(), 1, "{seen}");
    assert!(seen.contains("usage     not believed: parts_beyond_whole ("), "{seen}");
    let status = scene.json(&["providers", "status", "--json"], 0);
    let acme = &status[0];
    assert_eq!((&acme["answered"], &acme["usage_anomalies"]), (&json!(2), &json!(2)), "{status}");
    assert_eq!(acme["models"][0]["usage_anomalies"], 2, "{status}");
    assert_eq!(acme["last_usage_anomaly"]["kind"], "invalid_count", "{status}");
    let budget = scene.json(&["budget", "show", "last", "--json"], 0);
    let spent = &budget["accounts"][0]["dimensions"]["tokens"]["spent"];
    assert!(spent.as_u64().is_some_and(|spent| (100..100_000).contains(&spent)), "{budget}");
    scene.check(&["stop", "--all"], 0);
    drop(running);
}

#[test]
fn attempts_that_reach_nobody_cost_nothing() {
    // The configuration of an endpoint at which nothing listens: port 1 is never given away.
    let text = "model = \"acme/m1\"\n[providers.acme]\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                [models.\"acme/m1\"]\nprice = { input = 3.0, output = 15.0 }\n\
                [retry]\nfirst_pause = \"1ms\"\n";
    let scene = Scene::of(text, &[]);
    scene.check(&["run", "--budget", "tokens=80000,usd=0.5", "hi"], 69);
    let budget = scene.json(&["budget", "show", "last", "--json"], 0);
    let dimensions = &budget["accounts"][0]["dimensions"];
    for (dimension, expect) in [("tokens", json!(0)), ("usd", json!(0.0))] {
        assert_eq!(dimensions[dimension]["spent"], expect, "{budget}");
        assert_eq!(dimensions[dimension]["reserved"], expect, "{budget}");
    }
    assert_eq!(budget["failure"]["request"], "not_sent", "{budget}");
}

#[test]
fn the_process_that_asks_shows_its_breakers_and_closes_them() {
    let scene = Scene::new(&refuses(), &json!([{ "say": "late", "delay": "5m" }]));
    for args in [["providers", "status"].as_slice(), &["providers", "reset", "acme"]] {
        let (out, error) = scene.check(args, 0);
        assert_eq!((out.as_str(), error.trim()), ("", NOBODY));
    }
    assert_eq!(scene.json(&["providers", "status", "--json"], 0), json!([]));

    let running = fallen_back(&scene);
    let status = scene.json(&["providers", "status", "--json"], 0);
    let acme = &status[0];
    assert_eq!(
        (&acme["name"], &acme["credentials"], &acme["requests_per_minute"]),
        (&json!("acme"), &json!(2), &json!(60))
    );
    assert_eq!(acme["breaker"], json!({ "state": "closed" }));
    assert_eq!((&acme["answered"], &acme["last_failure"]["class"]), (&json!(0), &json!("auth")));
    for (at, model) in acme["models"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&model["model"], &model["credential"]), (&json!("m1"), &json!(at)));
        assert_eq!(model["breaker"]["state"], "open", "{status}");
        assert!(model["breaker"]["until"].as_str().unwrap().ends_with('Z'), "{status}");
    }
    assert_eq!(acme["models"].as_array().unwrap().len(), 2, "{status}");
    let (table, _) = scene.check(&["providers", "status"], 0);
    for part in
        ["60 requests/min", "2 in all", "not asked until 2", "auth: HTTP 401: the key *** is not known"]
    {
        assert!(table.contains(part), "{part} is not in {table}");
    }

    assert_eq!(scene.check(&["providers", "reset", "acme"], 0).0, "acme is asked again\n");
    let status = scene.json(&["providers", "status", "--json"], 0);
    let open =
        status[0]["models"].as_array().unwrap().iter().any(|model| model["breaker"]["state"] == "open");
    assert!(!open, "{status}");
    let (_, error) = scene.check(&["providers", "reset", "gamma"], 2);
    assert!(error.contains("asks no provider `gamma`; it asks: acme, beta"), "{error}");
    scene.check(&["stop", "--all"], 0);
    told(&running.end(), 1);
}

/// All that is in the files below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes_below(&path));
        } else if path.extension().is_none_or(|extension| extension != "sock") {
            all.extend(fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn no_key_is_in_any_output_log_or_record() {
    let scene = Scene::new(&refuses(), &says("hello"));
    let run = scene.command(&["-vv", "--log-format", "json", "run", "--json", "hi"]).output().unwrap();
    let (result, log) = told(&run, 0);
    assert_eq!(object(&result)["outcome"], "completed");
    assert!(log.contains("the key *** is not known"), "{log}");
    for args in [
        ["journal", "last"].as_slice(),
        &["providers", "list"],
        &["providers", "list", "--json"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["config", "check"],
        &["runs", "show", "last", "--json"],
    ] {
        let (told, _) = scene.check(args, 0);
        assert!(!told.is_empty(), "{args:?}");
    }
    let stored = bytes_below(&scene.world.state());
    let has = |text: &str| stored.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("is not known") && !has(SECRET));
    let list = scene.json(&["providers", "list", "--json"], 0);
    let expect = json!([{ "from": "env:A", "error": null }, { "from": "command:/bin/cat …", "error": null }]);
    assert_eq!((&list[0]["credentials"], &list[0]["requests_per_minute"]), (&expect, &json!(60)));
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A token endpoint that takes only the refresh token that it gave last, and a model that takes every second access token.
fn tokens() -> String {
    let given = Mutex::new(0);
    serve(move |request| {
        let mut given = given.lock().unwrap();
        let token = |kind: &str, n: i32| format!("{SECRET}-{kind}-{n}");
        if request.starts_with("POST /token?") {
            let takes =
                format!("grant_type=refresh_token&refresh_token={}&client_id=c", token("refresh", *given));
            if !request.ends_with(&takes) {
                let quoted = json!({ "error": "invalid_grant", "error_description": request });
                return response("400 X", "application/json", &quoted.to_string());
            }
            *given += 1;
            let access = token("access", *given);
            let body = json!({ "access_token": access, "refresh_token": token("refresh", *given) });
            return response("200 OK", "application/json", &body.to_string());
        }
        let access = token("access", *given);
        match *given % 2 == 0 && request.contains(&format!("authorization: Bearer {access}\r\n")) {
            true => response("200 OK", "text/event-stream", HELLO),
            false => {
                response("401 X", "application/json", &json!({ "error": { "message": access } }).to_string())
            }
        }
    })
}

#[test]
fn a_run_goes_on_with_another_token_when_one_is_refused() {
    let address = tokens();
    let text = format!(
        "[providers.acme]\nbase_url = \"{address}/v1\"\nmodel = \"m\"\n[providers.acme.oauth]\n\
         token_url = \"{address}/token?a={SECRET}\"\nclient_id = \"c\"\nrefresh_token = \"env:R\"\n"
    );
    let refresh = format!("{SECRET}-refresh-0");
    let scene = Scene::of(&text, &[("R", &refresh)]);
    // Each process begins without an access token, and with the refresh token that the one before it was given.
    for _ in 0..2 {
        let run = scene.command(&["-vv", "run", "hi"]).output().unwrap();
        assert_eq!(told(&run, 0).0, "hello\n");
    }
    let (out, _) = scene.check(&["providers", "test"], 0);
    assert!(out.contains("0 oauth"), "{out}");
    scene.check(&["journal", "last"], 0);
    scene.check(&["config", "show"], 0);
    let (out, _) = scene.check(&["config", "check"], 0);
    assert!(out.contains("acme: oauth\n"), "{out}");
    let kept = fs::read_to_string(scene.world.state().join("credentials/acme.json")).unwrap();
    assert!(kept.contains(&format!("{SECRET}-refresh-6")), "{kept}");
    fs::remove_dir_all(scene.world.state().join("credentials")).unwrap();
    let stored = bytes_below(&scene.world.state());
    assert!(!stored.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));

    let used_up = scene.command(&["run", "--json", "hi"]).output().unwrap();
    let (result, _) = told(&used_up, 69);
    let failure = &object(&result)["failure"];
    assert_eq!(failure["class"], "auth", "{result}");
    assert!(
        failure["message"].as_str().unwrap().contains("/token?… answered HTTP 400: invalid_grant"),
        "{result}"
    );
    let scene = Scene::of(&text, &[]);
    let (_, error) = scene.check(&["run", "hi"], 78);
    assert!(error.contains("provider `acme` has no credential: env:R: the variable is not set"), "{error}");
}

#[test]
fn another_account_is_asked_when_one_is_refused() {
    let address = serve(|request| match request.contains(&format!("Bearer {SECRET}-b\r\n")) {
        true => response("200 OK", "text/event-stream", HELLO),
        false => response("401 X", "application/json", "{}"),
    });
    let text = format!(
        "[providers.acme]\nbase_url = \"{address}/v1\"\nmodel = \"m\"\n\
         credentials = [\"env:A\", [\"command:printenv\", \"B\"]]\npool = \"round_robin\"\n"
    );
    let (a, b) = (format!("{SECRET}-a"), format!("{SECRET}-b"));
    let scene = Scene::of(&text, &[("A", &a), ("B", &b)]);
    assert_eq!(scene.check(&["run", "hi"], 0).0, "hello\n");
    let tried = scene.json(&["providers", "test", "--json"], 69);
    assert_eq!((&tried[0]["outcome"], &tried[1]["outcome"]), (&json!("auth"), &json!("answered")));
}
