//! The decoders against recorded exchanges with providers, and what the vendors' own SDKs made of them.
//!
//! The recordings lie in `../shared/recordings`, or where HERMOD_RECORDINGS says. Without them the test says so and is
//! passed over, unless HERMOD_REQUIRE_RECORDINGS=1. What is decided otherwise than in the SDKs stands, with its reason,
//! in `wire_differences.json`; an entry that no longer differs fails the test.
#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test may

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod::provider::{Decoder, Dialect, WIRES, WireFormat};
use hermod_actors::{
    model::{Answer, Failure, FailureClass, Origin},
    port::Deltas,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// Places at which every recording is cut.
const CUTS: usize = 64;

struct Case {
    name: String,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    expected: Value,
}

struct Nobody;

impl Deltas for Nobody {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}

fn decoder() -> Box<dyn Decoder> {
    let origin = Origin { provider: "p".into(), wire: "w".into(), model: "m".into() };
    wire().decoder(Arc::new(origin))
}

fn wire() -> Box<dyn WireFormat> {
    (WIRES.iter().find(|wire| wire.name == "chat_completions").unwrap().make)(&Dialect::default())
}

fn decode(body: &[u8]) -> Result<Answer, Failure> {
    let mut decoder = decoder();
    decoder.push(body, &Nobody)?;
    decoder.finish(&Nobody)
}

fn outcome(case: &Case) -> Result<Answer, Failure> {
    if case.status == 200 {
        return decode(&case.body);
    }
    Err(wire().failure(case.status, &case.headers, &case.body))
}

#[test]
fn recordings_decode_as_the_vendors_sdks_decode_them() {
    let Some(cases) = cases() else { return };
    let listed: BTreeMap<String, Difference> =
        serde_json::from_str::<Vec<Difference>>(include_str!("wire_differences.json"))
            .unwrap()
            .into_iter()
            .map(|difference| (difference.case.clone(), difference))
            .collect();
    let mut agreed = 0;
    let mut wrong = Vec::new();
    for case in &cases {
        let expected = expectation(&case.expected);
        let found = facts(&outcome(case));
        let fields: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let differs: Vec<String> =
            fields.into_iter().filter(|f| expected.get(*f) != found.get(*f)).cloned().collect();
        agreed += usize::from(differs.is_empty());
        let known = listed.get(&case.name).map(|difference| difference.fields.clone()).unwrap_or_default();
        if differs != known {
            wrong.push(format!("{}: {}", case.name, details(&differs, &expected, &found)));
        }
    }
    println!("{agreed} of {} recordings agree, {} differ on purpose", cases.len(), listed.len());
    assert!(wrong.is_empty(), "{} recordings:\n{}", wrong.len(), wrong.join("\n"));
    let unknown: Vec<_> =
        listed.keys().filter(|name| !cases.iter().any(|case| case.name == **name)).collect();
    assert!(unknown.is_empty(), "differences of cases that do not exist: {unknown:?}");
}

#[test]
fn a_cut_between_chunks_changes_nothing() {
    for case in cases().unwrap_or_default().iter().filter(|case| case.status == 200) {
        let whole = decode(&case.body);
        for_each_cut(&case.body, |at, begin| {
            let cut = begin.and_then(|mut begin| {
                begin.push(&case.body[at..], &Nobody)?;
                begin.finish(&Nobody)
            });
            assert_eq!(cut, whole, "{} cut at {at}", case.name);
        });
    }
}

#[test]
fn a_truncated_stream_never_asks_for_other_calls() {
    for case in cases().unwrap_or_default().iter().filter(|case| case.status == 200) {
        let whole = decode(&case.body);
        for_each_cut(&case.body, |at, begin| {
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
    }
}

/// Gives, for places spread over the body, the decoder that has read up to there, or why it gave up before.
fn for_each_cut(body: &[u8], mut check: impl FnMut(usize, Result<Box<dyn Decoder>, Failure>)) {
    let step = (body.len() / CUTS).max(1);
    // Uneven, so that no pattern of the stream is followed.
    let places =
        (0..body.len()).step_by(step).enumerate().map(|(n, at)| (at + n * 61 % step).min(body.len()));
    let mut decoder = Ok(decoder());
    let mut from = 0;
    for at in places {
        decoder = decoder.and_then(|mut decoder| decoder.push(&body[from..at], &Nobody).map(|_| decoder));
        from = at;
        check(at, decoder.as_ref().map(|decoder| decoder.fork()).map_err(Clone::clone));
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    case: String,
    /// The facts that differ, in alphabetical order.
    fields: Vec<String>,
    /// For people.
    #[serde(rename = "reason")]
    _reason: String,
}

type Facts = BTreeMap<String, Value>;

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

/// What the SDKs say, in our words.
fn expectation(expected: &Value) -> Facts {
    let outcome = expected["outcome"].as_str().unwrap();
    if expected["truncated"] == true {
        return facts_of([("outcome", json!("failure")), ("retry", json!(true))]);
    }
    match outcome {
        "message" => expected_answer(expected),
        "http_error" => {
            let after = expected["sdk_retry_after_seconds"].as_f64().map(Duration::from_secs_f64);
            let retry = &expected["sdk_would_retry"];
            let mut facts = facts_of([("outcome", json!("failure")), ("retry", retry.clone())]);
            facts.extend(after.map(|after| {
                ("retry_after_ms".to_owned(), json!(u64::try_from(after.as_millis()).unwrap()))
            }));
            facts
        }
        "stream_error" | "empty_stream" | "no_choices" => {
            let retry = outcome == "stream_error" && expected["stream_error"]["code"] == "server_error";
            facts_of([("outcome", json!("failure")), ("retry", json!(retry))])
        }
        other => panic!("unknown outcome {other}"),
    }
}

fn expected_answer(expected: &Value) -> Facts {
    let mut answer = expected.clone();
    let preferred = if expected["preferred"] == "cross_check" {
        Some(&expected["cross_check"])
    } else {
        // Where the accumulator of the SDK is known to be wrong.
        expected.get("chunk_concatenation")
    };
    for (field, value) in preferred.and_then(Value::as_object).into_iter().flatten() {
        answer[field] = value.clone();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let call = |call: &Value| json!({"id": text(&call["id"]), "name": text(&call["name"]), "arguments": text(&call["arguments"])});
    let mut calls: Vec<Value> = answer["tool_calls"].as_array().into_iter().flatten().map(call).collect();
    let function = &answer["function_call"];
    if !text(&function["name"]).is_empty() {
        calls.push(json!({"id": "call_0", "name": function["name"], "arguments": function["arguments"]}));
    }
    let refusal = text(&answer["refusal"]);
    let finish = match answer["finish_reason"].as_str().unwrap_or_default() {
        _ if !refusal.is_empty() => "refused",
        "length" => "length",
        "content_filter" => "refused",
        _ if calls.is_empty() => "stop",
        _ => "tool_calls",
    };
    let said = text(&answer["text"]);
    let usage = &answer["usage_normalised"];
    let count = |field: &str| usage[field].as_u64().unwrap_or(0);
    let usage = (!usage.is_null()).then(|| {
        json!({"input": count("input_tokens"), "output": count("output_tokens"), "cached": count("cached_tokens")})
    });
    facts_of([
        ("outcome", json!("answer")),
        ("text", json!(if said.is_empty() { refusal } else { said })),
        ("reasoning", json!(text(&answer["reasoning"]))),
        ("calls", json!(calls)),
        ("finish", json!(finish)),
        ("usage", json!(usage)),
    ])
}

/// What was decoded, in the same words.
fn facts(result: &Result<Answer, Failure>) -> Facts {
    let answer = match result {
        Ok(answer) => answer,
        Err(failure) => {
            let mut facts =
                facts_of([("outcome", json!("failure")), ("retry", json!(helps_to_retry(&failure.class)))]);
            if let FailureClass::RateLimited { retry_after_ms: Some(ms), .. } = failure.class {
                facts.insert("retry_after_ms".to_owned(), json!(ms));
            }
            return facts;
        }
    };
    let usage = answer.usage.map(|usage| {
        json!({"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached_tokens})
    });
    facts_of([
        ("outcome", json!("answer")),
        ("text", json!(answer.message.text)),
        ("reasoning", json!(answer.message.reasoning)),
        ("calls", json!(answer.message.calls)),
        ("finish", json!(answer.finish)),
        ("usage", json!(usage)),
    ])
}

fn facts_of<const N: usize>(facts: [(&str, Value); N]) -> Facts {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn helps_to_retry(class: &FailureClass) -> bool {
    match class {
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::Cut
        | FailureClass::Lost
        | FailureClass::Interrupted => true,
        FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled => false,
    }
}

/// All recordings of this wire format; `None` if there are none and that is allowed.
fn cases() -> Option<Vec<Case>> {
    let folder = env::var_os("HERMOD_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"), PathBuf::from);
    if !folder.is_dir() {
        let required = env::var("HERMOD_REQUIRE_RECORDINGS").is_ok_and(|value| value == "1");
        assert!(!required, "{} does not exist; set HERMOD_RECORDINGS to the recordings", folder.display());
        println!("passed over: {} does not exist", folder.display());
        return None;
    }
    let index = |name: &str| json_file(&folder.join(name)).as_array().unwrap().clone();
    let entries = index("index.json").into_iter().chain(index("index-documented.json"));
    let chat = entries.filter(|entry| entry["wire_format"] == "chat_completions");
    Some(chat.map(|entry| case(&folder, &entry)).collect())
}

fn case(folder: &Path, entry: &Value) -> Case {
    let folder = folder.join(entry["dir"].as_str().unwrap());
    let headers = json_file(&folder.join("response.headers.json"));
    let header = |(name, value): (&String, &Value)| {
        let value = HeaderValue::from_str(value.as_str()?).ok()?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    Case {
        name: entry["name"].as_str().unwrap().to_owned(),
        status: u16::try_from(entry["status"].as_u64().unwrap()).unwrap(),
        headers: headers.as_object().unwrap().iter().filter_map(header).collect(),
        body: fs::read(folder.join("response.body")).unwrap(),
        expected: json_file(&folder.join("expected.json")),
    }
}

fn json_file(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
