//! `/metrics`: what a scrape shows, and that everything that is drawn or alarmed about exists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::{
    receiver::SECRET,
    running::until,
    served::{Served, scripts},
    world::World,
};

/// The samples of a scrape, by name and labels.
#[track_caller]
fn scrape(served: &Served) -> BTreeMap<String, f64> {
    let answer = served.get("/metrics");
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

#[test]
fn runs_are_counted_from_the_start_of_the_process() {
    let mut served = Served::start(&scripts());
    assert_eq!(scrape(&served).get(r#"hermod_runs_accepted_total{origin="client"}"#), None);
    let submit = |served: &Served, input: &str| {
        let run = served.post("/v1/runs", &json!({ "input": input })).json()["run"].clone();
        let run = run.as_str().unwrap();
        served.get(&format!("/v1/runs/{run}/wait?timeout=60s"));
    };
    submit(&served, "hello");
    submit(&served, "fail");
    let samples = scrape(&served);
    let check = |name: &str, expect: f64| assert_eq!(samples.get(name), Some(&expect), "{name}: {samples:?}");
    check(r#"hermod_runs_accepted_total{origin="client"}"#, 2.0);
    check(r#"hermod_runs_ended_total{outcome="completed"}"#, 1.0);
    check(r#"hermod_runs_ended_total{outcome="failed"}"#, 1.0);
    check(r#"hermod_runs_unfinished{state="running"}"#, 0.0);
    check("hermod_probation", 0.0);
    check(r#"hermod_actor_restarts_total{actor="Session"}"#, 0.0);
    let of_model = |name: &str| {
        let named =
            samples.iter().filter(|(sample, _)| sample.starts_with(name) && sample.contains("rehearsal-"));
        named.map(|(_, value)| value).sum::<f64>()
    };
    assert!((of_model("hermod_iterations_total") - 1.0).abs() < f64::EPSILON, "{samples:?}");
    assert!(of_model("hermod_tokens_total") > 100.0, "{samples:?}");
    assert!(samples["hermod_commit_duration_seconds_count"] > 3.0);
    assert!(samples["process_resident_memory_bytes"] > 1e6);
    assert!(samples["hermod_http_connections"] >= 1.0, "its own");
    assert!(!samples.keys().any(|name| name.contains("hello")), "no text of users is a label");
    served.stop();
    served.start_again();
    assert_eq!(scrape(&served).get(r#"hermod_runs_accepted_total{origin="client"}"#), None);
}

#[test]
fn gauges_show_the_moment() {
    let served = Served::start(&scripts());
    let run = served.post("/v1/runs", &json!({ "input": "wait", "session": "s" })).json()["run"].clone();
    until("the command runs", || served.world.work().join("ran").exists());
    served.post("/v1/runs", &json!({ "input": "next", "session": "s" }));
    let mut stream = served.get(&format!("/v1/runs/{}/events", run.as_str().unwrap()));
    stream.chunk();
    until("the scrape has all records", || {
        let samples = scrape(&served);
        let is = |name: &str, expect: f64| (samples[name] - expect).abs() < f64::EPSILON;
        is(r#"hermod_runs_unfinished{state="running"}"#, 1.0)
            && is(r#"hermod_runs_unfinished{state="queued"}"#, 1.0)
            && is(r#"hermod_waits{reason="tool"}"#, 1.0)
            && is(r#"hermod_waits{reason="queue"}"#, 1.0)
            && is("hermod_event_streams", 1.0)
            && is("hermod_sessions_live", 1.0)
    });
    drop(stream);
    until("the stream is closed", || scrape(&served)["hermod_event_streams"] < 1.0);
    served.world.release();
}

#[test]
fn a_scrape_needs_a_token_that_may_read() {
    let served = Served::start(&scripts());
    assert_eq!(served.send_plain(("GET", "/metrics"), &[], "").status, 401);
    let bearer = format!("Bearer {}", served.new_token("other", "submit"));
    assert_eq!(served.send_plain(("GET", "/metrics"), &[("authorization", &bearer)], "").status, 403);
    let old = served.send(("GET", "/metrics"), &[("accept", "text/plain;version=0.0.4")], "");
    assert_eq!(old.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(old.text().contains("# TYPE hermod_runs_accepted_total counter\n"));
}

#[test]
fn messages_deliveries_and_hooks_are_counted() {
    let world = World::new();
    let folder = world.work().join("box");
    world.configure(&format!(
        "[targets.box]\nkind = \"folder\"\npath = \"{}\"\n\
         [targets.ops]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\nsecret = \"env:HOOK\"\n\
         [delivery]\nfirst_pause = \"1h\"\n\
         [hooks.guard]\non = [\"pre_tool_call\"]\ncommand = \"cat >/dev/null; echo '{{\\\"verdict\\\":\\\"refuse\\\"}}'\"\n\
         [hooks.broken]\non = [\"run_end\"]\ncommand = \"exit 1\"\n",
        folder.display()
    ));
    let mut served = Served::start_with((world, &scripts()), |_| vec![("HOOK", SECRET.into())]);
    let targets = json!({ "input": "hello", "deliver_to": ["box", "ops"] });
    served.post("/v1/runs", &targets);
    for (n, mode) in ["followup", "collect", "followup"].iter().enumerate() {
        let text = if n == 2 { "wait" } else { "hi" };
        served.post("/v1/sessions/s/messages", &json!({ "text": text, "mode": mode }));
    }
    let is = |served: &Served, name: &str, expect: f64| {
        scrape(served).get(name).is_some_and(|value| (value - expect).abs() < f64::EPSILON)
    };
    for (name, expect) in [
        (r#"hermod_messages_accepted_total{mode="followup"}"#, 2.0),
        (r#"hermod_messages_accepted_total{mode="collect"}"#, 1.0),
        (r#"hermod_messages_ended_total{fate="answered"}"#, 3.0),
        ("hermod_messages_queued", 0.0),
        (r#"hermod_deliveries_pending{target="box"}"#, 0.0),
        (r#"hermod_deliveries_pending{target="ops"}"#, 1.0),
        (r#"hermod_deliveries_ended_total{target="box",state="delivered"}"#, 1.0),
        (r#"hermod_delivery_attempts_total{target="ops"}"#, 1.0),
        (r#"hermod_deliveries_dead{target="ops"}"#, 0.0),
        (r#"hermod_hook_refusals_total{hook="guard"}"#, 1.0),
        (r#"hermod_hook_failures_total{hook="guard"}"#, 0.0),
        (r#"hermod_hook_disabled{hook="broken"}"#, 0.0),
    ] {
        until(&format!("{name} is {expect}: {:?}", scrape(&served).get(name)), || is(&served, name, expect));
    }
    assert!(scrape(&served)[r#"hermod_hook_failures_total{hook="broken"}"#] >= 1.0);
    let age = r#"hermod_delivery_oldest_age_seconds{target="ops"}"#;
    until("it has an age", || scrape(&served)[age] > 0.0);
    // What waits is known after a restart too.
    served.kill();
    served.start_again();
    assert!(is(&served, r#"hermod_deliveries_pending{target="ops"}"#, 1.0));
    assert!(scrape(&served)[age] > 0.0);
}

/// Words of a text that are names of metrics.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("hermod_") || word.starts_with("process_"));
    names.map(str::to_owned).collect()
}

#[test]
fn all_that_is_drawn_or_alarmed_about_exists() {
    let served = Served::start(&scripts());
    let text = served.get("/metrics").text();
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let known: BTreeSet<String> = kinds
        .flat_map(|(name, kind)| match kind {
            "counter" => vec![format!("{name}_total")],
            "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
            _ => vec![name.to_owned()],
        })
        .collect();
    assert!(known.len() > 20, "{text}");
    for (file, text) in [
        ("config/grafana.json", include_str!("../../config/grafana.json")),
        ("config/alerts.yml", include_str!("../../config/alerts.yml")),
    ] {
        let named = metric_names(text);
        assert!(named.len() > 5, "{file} names few metrics: {named:?}");
        assert!(named.is_subset(&known), "{file}: {:?}", named.difference(&known));
    }
}
