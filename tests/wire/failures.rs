//! Failures as vendors word them: as other projects class them, as they were recorded, and what only looks like one.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use hermod::provider::failure::{failure_in_body, failure_in_stream, failure_of};
use hermod_actors::model::{Failure, FailureClass};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::{any, proptest};
use serde::Deserialize;
use serde_json::{Value, json};

/// The classes of the projects that the wordings are from, and which of ours mean the same there.
const LABELS: &[(&str, Meaning)] = &[
    ("auth", Meaning::Is(&["auth"])),
    ("auth_permanent", Meaning::Is(&["auth"])),
    ("billing", Meaning::Is(&["quota_exhausted"])),
    // There the overflow of a call that compresses.
    ("compaction_failure", Meaning::Is(&["context_too_long"])),
    ("content_policy", Meaning::Is(&["content_refused"])),
    ("context_overflow", Meaning::Is(&["context_too_long"])),
    ("disconnect", Meaning::Is(&["network", "cut"])),
    ("format", Meaning::Is(&["invalid_request"])),
    // There whatever is no model's 404.
    ("generic_404", Meaning::Is(&["not_an_api"])),
    ("image_too_large", Meaning::Is(&["invalid_request"])),
    ("invalid_encrypted_content", Meaning::Is(&["invalid_request"])),
    ("llama_cpp_grammar", Meaning::Is(&["invalid_request"])),
    ("model_not_found", Meaning::Is(&["model_not_found"])),
    ("not_billing", Meaning::IsNot("quota_exhausted")),
    ("not_context_overflow", Meaning::IsNot("context_too_long")),
    ("overloaded", Meaning::Is(&["overloaded"])),
    ("payload_too_large", Meaning::Is(&["context_too_long"])),
    ("rate_limit", Meaning::Is(&["rate_limited"])),
    ("reasoning_mandatory", Meaning::Is(&["invalid_request"])),
    // There one class for all that is broken for a while.
    ("server_error", Meaning::Is(&["server", "overloaded"])),
    ("server_error_html", Meaning::Is(&["server", "overloaded"])),
    // There one class for all that happens to a connection.
    ("timeout", Meaning::Is(&["timeout", "network", "cut"])),
];

#[derive(Debug, Clone, Copy)]
enum Meaning {
    Is(&'static [&'static str]),
    IsNot(&'static str),
}

impl Meaning {
    fn holds(self, class: &str) -> bool {
        match self {
            Self::Is(classes) => classes.contains(&class),
            Self::IsNot(other) => class != other,
        }
    }
}

/// The share of the wordings that have to be classed as where they are from; a few differ on purpose.
const MIN_AGREED_PERCENT: usize = 92;

#[derive(Deserialize)]
struct Wording {
    label: String,
    message: String,
    status: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    message: String,
    status: Option<u16>,
    /// What it is here.
    class: String,
    /// For people.
    #[serde(rename = "reason")]
    _reason: String,
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn wordings_are_classed_as_where_they_are_from() {
    let folder = recordings();
    let text = fs::read_to_string(folder.join("error-wordings/wordings.jsonl")).unwrap();
    let wordings: Vec<Wording> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differences: Vec<Difference> =
        serde_json::from_str(include_str!("failures_differences.json")).unwrap();
    let mut listed: BTreeMap<(&str, Option<u16>), &str> =
        differences.iter().map(|it| ((it.message.as_str(), it.status), it.class.as_str())).collect();
    assert_eq!(listed.len(), differences.len(), "a difference is listed twice");
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut look_alikes = 0;
    for wording in &wordings {
        let (_, meaning) = LABELS.iter().find(|(label, _)| *label == wording.label).unwrap();
        let class = class_of_wording(wording);
        let agrees = meaning.holds(class);
        look_alikes += usize::from(!agrees && matches!(meaning, Meaning::IsNot(_)));
        if let Some(expected) = listed.remove(&(wording.message.as_str(), wording.status)) {
            assert!(
                !agrees && class == expected,
                "a listed difference is no longer one: {class}, not {expected}"
            );
        }
        let (agreed, all) = counts.entry(&wording.label).or_default();
        *agreed += usize::from(agrees);
        *all += 1;
    }
    for (label, (agreed, all)) in &counts {
        println!("{label:<26} {agreed:>3} of {all:>3}");
    }
    let agreed: usize = counts.values().map(|(agreed, _)| agreed).sum();
    println!(
        "{agreed} of {} wordings are classed as their source does, {} differ on purpose",
        wordings.len(),
        differences.len()
    );
    // The rules are for wordings that are not in this file, so a failure shows no rows.
    assert!(agreed * 100 >= wordings.len() * MIN_AGREED_PERCENT, "{agreed} of {}", wordings.len());
    assert_eq!(look_alikes, 0, "texts that are no failures are classed as one");
    assert!(listed.is_empty(), "differences of wordings that do not exist: {listed:?}");
}

/// The class of a wording, however it is wrapped.
fn class_of_wording(wording: &Wording) -> &'static str {
    let Wording { message, status, .. } = wording;
    let is_json = serde_json::from_str::<Value>(message).is_ok_and(|body| body.is_object());
    let object = json!({ "message": message });
    let found: Vec<Failure> = match status {
        Some(status) => {
            let fails = |body: String| failure_of(*status, &HeaderMap::new(), body.as_bytes());
            let wrapped = json!({ "error": object }).to_string();
            vec![fails(message.clone()), fails(wrapped)]
        }
        None if is_json => {
            vec![failure_in_body(message.as_bytes()).unwrap(), failure_in_stream(&json!(message))]
        }
        None => vec![
            failure_in_stream(&json!(message)),
            failure_in_stream(&object),
            failure_in_stream(&json!({ "type": "error", "error": object })),
        ],
    };
    let classes: BTreeSet<&str> = found.iter().map(|failure| failure.class.name()).collect();
    assert_eq!(classes.len(), 1, "{message}: {found:?}");
    classes.into_iter().next().unwrap()
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn recorded_failures_have_the_class_that_helps() {
    let folder = recordings();
    let mut expected: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("failures_recorded.json")).unwrap();
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in ["index.json", "index-documented.json"].iter().flat_map(|name| entries(&folder.join(name))) {
        let Some(failure) = recorded(&folder, &entry) else { continue };
        *counts.entry(failure.class.name().to_owned()).or_default() += 1;
        let mut found = serde_json::to_value(&failure.class).unwrap();
        if let Some(fields) = found.as_object_mut().filter(|fields| fields.len() == 1) {
            found = fields["class"].take();
        }
        let name = entry["name"].as_str().unwrap();
        let known = expected.remove(name).unwrap_or_default();
        if found != known {
            wrong.push(format!("{name}: expected {known}, found {found}: {}", failure.message));
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} recordings:\n{}", wrong.len(), wrong.join("\n"));
    assert!(expected.is_empty(), "recordings that do not exist: {expected:?}");
}

/// The failure that a recording holds, of whichever wire format.
fn recorded(folder: &Path, entry: &Value) -> Option<Failure> {
    let folder = folder.join(entry["dir"].as_str().unwrap());
    let status = u16::try_from(entry["status"].as_u64().unwrap()).unwrap();
    let body = fs::read(folder.join("response.body")).unwrap();
    if status != 200 {
        return Some(failure_of(status, &headers(&folder), &body));
    }
    let expected = json_file(&folder.join("expected.json"));
    match expected["outcome"].as_str().unwrap() {
        "no_choices" => failure_in_body(&body),
        "stream_error" | "failed" => {
            let text = String::from_utf8(body).unwrap();
            let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
            let mut events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
            events.find_map(|event| {
                let errors = [&event["error"], &event["response"]["error"]];
                errors.into_iter().find(|error| !error.is_null()).map(failure_in_stream)
            })
        }
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    message: String,
    status: Option<u16>,
    /// What it means.
    class: Option<String>,
    /// What it only looks like.
    not: Option<String>,
}

#[test]
fn wordings_of_many_vendors_have_their_class() {
    let examples: Vec<Example> = serde_json::from_str(include_str!("failures_wordings.json")).unwrap();
    let mut wrong = Vec::new();
    for Example { message, status, class, not } in examples {
        assert!(class.is_some() != not.is_some(), "{message}");
        let wording = Wording { label: String::new(), message, status };
        let found = class_of_wording(&wording);
        if class.as_deref().is_some_and(|class| class != found) || not.as_deref() == Some(found) {
            wrong.push(format!("{found}: {status:?} {}", wording.message));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    vendor: String,
    /// None: it came under status 200.
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Value,
    class: FailureClass,
}

#[test]
fn each_vendors_shapes_are_understood() {
    let shapes: Vec<Shape> = serde_json::from_str(include_str!("failures_vendors.json")).unwrap();
    let mut wrong = Vec::new();
    for Shape { vendor, status, headers, body, class } in &shapes {
        let header =
            |(name, value): (&String, &String)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        let headers: HeaderMap = headers.iter().map(header).collect();
        let bytes = body.to_string().into_bytes();
        let failure = match status {
            Some(status) => failure_of(*status, &headers, &bytes),
            None => failure_in_body(&bytes).unwrap(),
        };
        if failure.class != *class {
            wrong.push(format!(
                "{vendor}: expected {class:?}, found {:?}: {}",
                failure.class, failure.message
            ));
        }
    }
    println!("{} of {} shapes are understood", shapes.len() - wrong.len(), shapes.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_only_looks_like_a_failure_is_not_one() {
    let check = |status: u16, message: &str, class: FailureClass| {
        let body = json!({ "error": { "message": message, "type": "invalid_request_error" } }).to_string();
        let failure = failure_of(status, &HeaderMap::new(), body.as_bytes());
        assert_eq!(failure.class, class, "{failure}");
    };
    for quoting in [
        "Invalid value for 'messages[0].content': \"prompt is too long: 5 tokens > 4 maximum\"",
        "Invalid schema for function 'rate_limit_exceeded': rate_limit_exceeded is not an object",
        "tools.3.custom.name: String should match pattern: 'rate limit exceeded'",
        "messages.4: `tool_use` ids were found without `tool_result` blocks: the maximum context length",
        "Unknown parameter: 'insufficient_quota'.",
        "Could not parse the arguments of tool \"exceeded your current quota\": {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"x\"}}",
        "Invalid JSON: expected `,` in “The model `x` does not exist”",
        "The tool 'overloaded' of this request has no schema; its description is 'Service Unavailable'",
        "function invalid_api_key: parameters are missing",
        "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
        "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Function call is missing a thought_signature; the function was not found in the model's turn",
        "402 items found in the database",
    ] {
        check(400, quoting, FailureClass::InvalidRequest);
    }
    check(401, "The model `x` does not exist: rate limit exceeded", FailureClass::Auth);
    check(500, "Invalid API key of an upstream: unauthorized", FailureClass::Server);
    check(429, "Tool 'context_length_exceeded' was called too often", RATE_LIMITED);
    check(404, "Previous response with id 'model not found' not found.", FailureClass::InvalidRequest);
}

#[test]
fn a_field_that_the_vendor_names_says_more_than_its_words() {
    let check = |error: Value, class: FailureClass| {
        let body = json!({ "error": error }).to_string();
        assert_eq!(failure_of(400, &HeaderMap::new(), body.as_bytes()).class, class, "{body}");
    };
    let message = "prompt is too long: the description of this tool";
    check(json!({ "message": message, "param": "tools[0].description" }), FailureClass::InvalidRequest);
    check(json!({ "message": message, "code": "unsupported_value" }), FailureClass::InvalidRequest);
    check(json!({ "message": message, "param": "messages" }), FailureClass::ContextTooLong { limit: None });
    let detail = json!([{ "loc": ["body"], "msg": "Field required", "input": message }]);
    let body = json!({ "detail": detail }).to_string();
    assert_eq!(failure_of(422, &HeaderMap::new(), body.as_bytes()).class, FailureClass::InvalidRequest);
}

proptest! {
    #[test]
    fn any_bytes_are_some_failure(status in 100_u16..1_000, body in any::<Vec<u8>>()) {
        any_failure(status, &body);
    }

    #[test]
    fn any_pieces_of_errors_are_some_failure(
        status in 400_u16..600,
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..12),
    ) {
        let text = pieces.concat();
        any_failure(status, text.as_bytes());
        any_failure(status, json!({ "error": { "message": text, "retry_after": text } }).to_string().as_bytes());
        failure_in_stream(&json!(text));
    }
}

fn any_failure(status: u16, body: &[u8]) {
    let failure = failure_of(status, &HeaderMap::new(), body);
    assert!(failure.message.chars().count() < 600, "{failure}");
    failure_in_body(body);
}

/// What the parsers look for, and what could make them stumble.
const PIECES: &[&str] = &[
    "400 ",
    "HTTP ",
    "Error: ",
    "{",
    "}",
    "\"",
    "'",
    "`",
    "“",
    "”",
    ": ",
    ". ",
    "é",
    "İ",
    "K",
    "余",
    "4",
    "99999999999999999999",
    "max_tokens",
    " > ",
    ", which is the maximum allowed",
    "model ",
    " does not exist",
    "try again in ",
    "1m",
    "3.5s",
    "6hr ",
    "resets at ",
    "2026-08-24T10:00:00Z",
    "|1787565600",
    "{\"error\":{\"message\":\"",
    "\"}}",
    "maximum context length is ",
    "<",
    "\0",
    "\n",
    "rate limit exceeded",
    "Exception - ",
    "输入内容过长，",
    "credits",
    "exceeded ",
    "://",
    "-",
    "/",
    " 429 ",
];

const RATE_LIMITED: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

/// The folder with the recordings. A test that needs it is ignored without it (`no_recordings`, see `build.rs`).
#[track_caller]
fn recordings() -> PathBuf {
    let folder = env::var_os("HERMOD_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"), PathBuf::from);
    assert!(folder.is_dir(), "{} does not exist; set HERMOD_RECORDINGS to the recordings", folder.display());
    folder
}

fn entries(index: &Path) -> Vec<Value> {
    json_file(index).as_array().unwrap().clone()
}

fn headers(folder: &Path) -> HeaderMap {
    let headers = json_file(&folder.join("response.headers.json"));
    let header = |(name, value): (&String, &Value)| {
        let value = HeaderValue::from_str(value.as_str()?).ok()?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    headers.as_object().unwrap().iter().filter_map(header).collect()
}

fn json_file(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
