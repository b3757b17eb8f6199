//! `/metrics`: what a scrape shows, and that everything that is drawn or alarmed about exists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::{
    running::until,
    served::{Served, scripts},
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
