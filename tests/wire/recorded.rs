//! The decoders against recorded exchanges with providers, and what the vendors' own SDKs made of them.
//!
//! The recordings lie in `../shared/recordings`, or where HERMOD_RECORDINGS says. Without them the tests that need them are
//! ignored; with HERMOD_REQUIRE_RECORDINGS=1 they fail. What is decided otherwise than in the SDKs stands, with its reason,
//! in `wire_differences.json`; an entry that no longer differs fails the test.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use hermod::provider::{Decoder, WIRES};
use hermod_actors::{
    model::{Amounts, CallId, Failure, Hash, Incarnation, ModelStarted, RunId, UsageAnomalyKind},
    port::DeltaSink,
    usage_anomaly,
};
use serde_json::Value;

use crate::recordings::{Case, FORMATS, Nobody, cases, facts::Facts, json_file};

/// Places at which every recording is cut.
const CUTS: usize = 64;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    case: String,
    /// The facts that differ, in alphabetical order.
    fields: Vec<String>,
    reason: String,
}

fn differences() -> Vec<Difference> {
    serde_json::from_str(include_str!("wire_differences.json")).unwrap()
}

#[test]
fn every_wire_format_has_recordings() {
    let ours: BTreeSet<_> = WIRES.iter().map(|wire| wire.name).collect();
    assert_eq!(ours, FORMATS.iter().map(|format| format.name).collect());
    assert_eq!(FORMATS.iter().map(|format| format.cases).sum::<usize>(), 621 + 18);
}

#[test]
fn differences_are_sorted_and_have_reasons() {
    let all = differences();
    assert!(all.is_sorted_by(|a, b| a.case < b.case), "sort them by `case`, each once");
    for Difference { case, fields, reason } in all {
        assert!(!fields.is_empty() && fields.is_sorted(), "{case}: {fields:?}");
        assert!((20..=200).contains(&reason.len()), "{case}: give a short reason, not {reason:?}");
    }
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn recordings_decode_as_the_vendors_sdks_decode_them() {
    let listed = differences();
    let listed: BTreeMap<&str, &Difference> =
        listed.iter().map(|difference| (difference.case.as_str(), difference)).collect();
    let mut counted = BTreeMap::<&str, [usize; 3]>::new();
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    for case in &cases() {
        let (expected, found) = (case.expected(), case.found());
        let fields: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let differs: Vec<String> =
            fields.into_iter().filter(|f| expected.get(*f) != found.get(*f)).cloned().collect();
        let listed = listed.get(case.name.as_str());
        known.extend(listed.map(|difference| difference.case.as_str()));
        let [of, agreed, on_purpose] = counted.entry(case.format.name).or_default();
        *of += 1;
        *agreed += usize::from(differs.is_empty());
        *on_purpose += usize::from(listed.is_some());
        if differs != listed.map(|difference| difference.fields.clone()).unwrap_or_default() {
            wrong.push(format!("{}: {}", case.name, details(&differs, &expected, &found)));
        }
    }
    for (format, [of, agreed, on_purpose]) in &counted {
        println!("{format}: {agreed} of {of} recordings agree, {on_purpose} differ on purpose");
    }
    assert!(wrong.is_empty(), "{} recordings:\n{}", wrong.len(), wrong.join("\n"));
    let unknown: Vec<_> = listed.keys().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "differences of cases that do not exist: {unknown:?}");
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn a_cut_between_chunks_changes_nothing() {
    for_each_answered(|case| {
        let whole = case.decode([&*case.body]);
        assert_eq!(case.decode(case.body.chunks(1)), whole, "{} byte by byte", case.name);
        for_each_cut(case, |at, begin| {
            let cut = begin.and_then(|mut begin| {
                begin.push(&case.body[at..], &Nobody)?;
                begin.finish(&Nobody)
            });
            assert_eq!(cut, whole, "{} cut at {at}", case.name);
        });
    });
}

/// The calls that a decoder announces while the stream comes in: number, tool, arguments.
#[derive(Default)]
struct Announced(Mutex<Vec<(u32, String, String)>>);

impl DeltaSink for Announced {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.0.lock().unwrap().push((n, tool.to_owned(), arguments.to_owned()));
    }
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn calls_are_announced_while_they_stream_as_the_answer_has_them() {
    let (announced, called) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for_each_answered(|case| {
        let announcements = |size: usize| {
            let (seen, mut decoder) = (Announced::default(), case.decoder());
            let pushed = case.body.chunks(size).try_for_each(|part| decoder.push(part, &seen).map(|_| ()));
            (seen.0.into_inner().unwrap(), pushed.and_then(|()| decoder.finish(&Nobody)))
        };
        let (seen, answer) = announcements(case.body.len().max(1));
        assert_eq!(announcements(1).0, seen, "{} byte by byte", case.name);
        let Ok(answer) = answer else { return };
        let calls = answer.message.calls.iter().zip(1..);
        let calls: Vec<_> = calls.map(|(call, n)| (n, call.name.clone(), call.arguments.clone())).collect();
        assert!(calls.starts_with(&seen), "{}: {seen:?} of {calls:?}", case.name);
        if case.body.starts_with(b"event:") || case.body.starts_with(b"data:") {
            announced.fetch_add(seen.len(), Ordering::Relaxed);
            called.fetch_add(calls.len(), Ordering::Relaxed);
        }
    });
    let (announced, called) = (announced.into_inner(), called.into_inner());
    println!("{announced} of {called} streamed calls are announced before their answer is whole");
    assert!(announced * 100 >= called * 95, "only {announced} of {called}");
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn a_truncated_stream_never_asks_for_other_calls() {
    for_each_answered(|case| {
        let whole = case.decode([&*case.body]);
        for_each_cut(case, |at, begin| {
            let Ok(answer) = begin.and_then(|begin| begin.finish(&Nobody)) else { return };
            let calls = whole.as_ref().map(|whole| &whole.message.calls);
            assert!(
                answer.message.calls.is_empty() || calls == Ok(&answer.message.calls),
                "{} truncated at {at}: {answer:?}",
                case.name
            );
            // An error behind the finish reason is lost with the end, no more.
            if let Ok(whole) = &whole {
                assert_eq!(answer.message, whole.message, "{} truncated at {at}", case.name);
            }
        });
    });
}

/// Tokens that a request may ask for which does not say how many.
const UNLIMITED: u64 = 1 << 20;

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn no_recorded_usage_is_taken_for_impossible() {
    let (mut of, mut measured, mut foreign) = (0, 0, Vec::new());
    let mut wrong = Vec::new();
    for case in cases().into_iter().filter(|case| case.status == 200) {
        let Ok(answer) = case.decode([&*case.body]) else { continue };
        if answer.usage.is_none() {
            continue;
        }
        let request = json_file(&case.folder.join("request.json"))["body"].take();
        let (bytes, images) = measure(&request);
        let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let max_tokens = limits.iter().find_map(|name| request[name].as_u64()).unwrap_or(UNLIMITED);
        of += 1;
        measured += usize::from(bytes > 0);
        let Some(anomaly) = usage_anomaly(&started(bytes, images, max_tokens), &answer) else { continue };
        // What the vendor's own tools find is read too; no request from here has such tools.
        if anomaly.kind == UsageAnomalyKind::InputBeyondRequest && has_vendor_tools(&request) {
            foreign.push(case.name);
        } else {
            wrong.push(format!("{}: {anomaly}", case.name));
        }
    }
    println!(
        "{of} usages, {measured} with their request, {} read what the vendor's tools found",
        foreign.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(foreign.len() <= 3, "{foreign:?}");
}

/// The bytes of the texts of a request, and its pictures.
fn measure(value: &Value) -> (u64, u64) {
    let sum = |values: &mut dyn Iterator<Item = &Value>| {
        values.map(measure).fold((0, 0), |(bytes, images), more| (bytes + more.0, images + more.1))
    };
    match value {
        Value::String(text) if text.starts_with("data:image") => (0, 1),
        Value::String(text) => (text.len() as u64, 0),
        Value::Array(values) => sum(&mut values.iter()),
        Value::Object(fields) if matches!(fields.get("type").and_then(Value::as_str), Some("image")) => {
            (0, 1)
        }
        Value::Object(fields) => sum(&mut fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) => (0, 0),
    }
}

fn has_vendor_tools(request: &Value) -> bool {
    let own = [None, Some("function"), Some("custom")];
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["type"].as_str()).any(|kind| !own.contains(&kind))
}

fn started(bytes: u64, images: u64, max_tokens: u64) -> ModelStarted {
    ModelStarted {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        attempt: 1,
        model: "p/m".parse().unwrap(),
        view_seq: 1,
        request_hash: Hash::of(b""),
        bytes,
        images,
        max_tokens,
        prefix: None,
        reserved: Amounts::default(),
        period: None,
        price: None,
        incarnation: Incarnation::default(),
    }
}

/// Checks the exchanges with status 200, on all cores.
fn for_each_answered(check: impl Fn(&Case) + Sync) {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.status == 200).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(case);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
}

/// Gives, for places spread over the body, the decoder that has read up to there, or why it gave up before.
fn for_each_cut(case: &Case, mut check: impl FnMut(usize, Result<Box<dyn Decoder>, Failure>)) {
    let body = &case.body;
    let step = (body.len() / CUTS).max(1);
    // Uneven, so that no pattern of the stream is followed.
    let places =
        (0..body.len()).step_by(step).enumerate().map(|(n, at)| (at + n * 61 % step).min(body.len()));
    let mut decoder = Ok(case.decoder());
    let mut from = 0;
    for at in places {
        decoder = decoder.and_then(|mut decoder| decoder.push(&body[from..at], &Nobody).map(|_| decoder));
        from = at;
        check(at, decoder.as_ref().map(|decoder| decoder.fork()).map_err(Clone::clone));
    }
}

fn details(fields: &[String], expected: &Facts, found: &Facts) -> String {
    let short = |facts: &Facts, field: &String| {
        let text = facts.get(field).map_or("nothing".to_owned(), Value::to_string);
        text.chars().take(300).collect::<String>()
    };
    let each = |field: &String| {
        format!("\n    {field}: expected {}\n        found {}", short(expected, field), short(found, field))
    };
    fields.iter().map(each).collect()
}
