//! The HTTP side of a provider, against a server made of bytes on the loopback interface.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use hermod::{
    provider::{CacheTtl, Credential, Deadlines, HttpProvider, ProviderConfig, ProviderConfigError},
    secret::Secret,
};
use hermod_actors::{
    model::{
        CallId, CredentialId, Deadline, Failure, FailureClass, Message, ModelAnswer, ModelDeadlines,
        ModelProfile, PoolStrategy, RateLimits, RequestFate, RunId, SessionId, Usage,
    },
    port::{DeltaSink, MessageBuffer, ModelProvider as _, ModelRequest, ToolChoice},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

const KEY: &str = "sk-very-secret";

/// What the server does with one request of a connection.
#[derive(Debug, Clone)]
enum Act {
    /// Sends these bytes.
    Send(Bytes),
    /// Waits until the client goes away, and tells it.
    Hold,
    /// Sends these bytes again and again until the client goes away.
    Repeat(&'static [u8]),
    /// Closes the connection.
    Close,
}

/// What the server saw.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Connection,
    Request { head: String, body: String },
    ClientGone,
}

/// Answers the n-th request, whichever connection it comes by, with the n-th script.
struct Server {
    base_url: String,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Server {
    async fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (tell, seen) = mpsc::unbounded_channel();
        let scripts = Arc::new(Mutex::new(scripts.into_iter()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tell.send(Seen::Connection).ok();
                let (scripts, tell) = (Arc::clone(&scripts), tell.clone());
                tokio::spawn(async move {
                    let mut stream = stream;
                    while let Ok(Some(request)) = read_request(&mut stream).await {
                        tell.send(request).ok();
                        let script = scripts.lock().unwrap().next().unwrap_or_default();
                        if play(&mut stream, script, &tell).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { base_url, seen }
    }

    async fn next(&mut self) -> Seen {
        let seen = tokio::time::timeout(Duration::from_secs(20), self.seen.recv()).await;
        seen.expect("the server should have seen something").unwrap()
    }
}

/// `Err` ends the connection.
async fn play(
    stream: &mut TcpStream,
    script: Vec<Act>,
    tell: &mpsc::UnboundedSender<Seen>,
) -> io::Result<()> {
    for act in script {
        match act {
            Act::Send(bytes) => stream.write_all(&bytes).await?,
            Act::Close => return Err(io::ErrorKind::Other.into()),
            Act::Hold => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.ok();
                tell.send(Seen::ClientGone).ok();
            }
            Act::Repeat(bytes) => loop {
                stream.write_all(bytes).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            },
        }
    }
    Ok(())
}

async fn read_request(stream: &mut TcpStream) -> io::Result<Option<Seen>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let length = length.or_else(|| head.starts_with("get ").then_some(0));
    let length = length.expect("a request with a body should have a content-length");
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await?;
    }
    let body = String::from_utf8(bytes[end..].to_vec()).unwrap();
    Ok(Some(Seen::Request { head, body }))
}

fn chunked(parts: &[&str]) -> Act {
    let parts: Vec<String> = parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
    Act::Send(parts.concat().into())
}

/// The head of a streamed answer, whose body is chunked.
fn streaming() -> Act {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    Act::Send(head.into())
}

fn respond(status: u16, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Send(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into())
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// A whole answer, in a body that ends.
fn hello() -> Vec<Act> {
    vec![streaming(), chunked(&[HELLO, STOP, DONE, ""])]
}

#[derive(Default)]
struct Shown(Mutex<String>);

impl DeltaSink for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().push_str(delta);
    }
    fn reasoning(&self, _: &str) {}
}

fn key(text: &str) -> Credential {
    Credential::fixed(Secret::new(text))
}

fn config(base_url: &str) -> ProviderConfig {
    ProviderConfig {
        name: "test".into(),
        base_url: base_url.into(),
        wire: "chat_completions".into(),
        credentials: vec![key(KEY)],
        pool: PoolStrategy::default(),
        limits: RateLimits::default(),
        cache: CacheTtl::default(),
        deadlines: Deadlines::default(),
    }
}

fn provider(server: &Server, deadlines: Deadlines) -> HttpProvider {
    HttpProvider::new(ProviderConfig { deadlines, ..config(&server.base_url) }).unwrap()
}

fn request(provider: &HttpProvider) -> ModelRequest {
    let encoder = provider.encoder("m", &ModelProfile::default());
    let mut messages = MessageBuffer::default();
    encoder.messages(&["one", "two ü"].map(|text| Message::User(text.into())), &mut messages);
    ModelRequest {
        credential: CredentialId::default(),
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m".into(),
        max_tokens: 5,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder.head("", &[]),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::new(),
    }
}

async fn call(provider: &HttpProvider) -> Result<ModelAnswer, Failure> {
    provider.call(request(provider), &Shown::default()).await
}

/// One call, which the server answers so.
async fn call_once(script: Vec<Act>, deadlines: Deadlines) -> Result<ModelAnswer, Failure> {
    let server = Server::start(vec![script]).await;
    call(&provider(&server, deadlines)).await
}

/// The call fails so, and its message has this in it but not the key.
async fn check_failure(script: Vec<Act>, deadlines: Deadlines, class: FailureClass, says: &str) {
    let failure = call_once(script, deadlines).await.unwrap_err();
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
    assert!(!failure.message.contains(KEY), "{failure}");
}

fn short() -> Duration {
    Duration::from_millis(100)
}

#[tokio::test]
async fn a_request_has_its_length_and_its_key() {
    let mut server = Server::start(vec![hello()]).await;
    let provider = provider(&server, Deadlines::default());
    let shown = Shown::default();
    let answer = provider.call(request(&provider), &shown).await.unwrap();
    assert_eq!((&*answer.message.text, &**shown.0.lock().unwrap()), ("Hello", "Hello"));
    assert_eq!(server.next().await, Seen::Connection);
    let Seen::Request { head, body } = server.next().await else { panic!("no request") };
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    for line in ["content-type: application/json\r\n", &format!("authorization: bearer {KEY}\r\n")] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    assert!(!head.contains("transfer-encoding"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messages"][1]["content"], "two ü");
}

#[tokio::test]
async fn a_later_call_uses_the_same_connection() {
    let mut server = Server::start(vec![hello(), hello()]).await;
    let provider = provider(&server, Deadlines::default());
    for _ in 0..2 {
        call(&provider).await.unwrap();
    }
    assert_eq!(server.next().await, Seen::Connection);
    assert!(matches!(server.next().await, Seen::Request { .. }));
    assert!(matches!(server.next().await, Seen::Request { .. }), "the second call made a connection");
}

#[tokio::test]
async fn a_stall_is_told_by_its_place() {
    let first = Deadlines { first_event: short(), ..Deadlines::default() };
    let gap = Deadlines { gap: short(), ..Deadlines::default() };
    let whole = Deadlines { call: short(), ..Deadlines::default() };
    let timeout = |which| FailureClass::Timeout { which };
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    check_failure(vec![Act::Hold], first, timeout(Deadline::FirstEvent), "within 0.1 s").await;
    let begun = vec![streaming(), chunked(&[role]), Act::Hold];
    check_failure(begun, first, timeout(Deadline::FirstEvent), "no answer began").await;
    let stalled = vec![streaming(), chunked(&[HELLO]), Act::Hold];
    check_failure(stalled, gap, timeout(Deadline::Gap), "did not go on").await;
    let kept = vec![streaming(), chunked(&[HELLO]), Act::Repeat(b"6\r\n: hi\n\n\r\n")];
    check_failure(kept, gap, timeout(Deadline::Gap), "did not go on").await;
    let endless = vec![streaming(), Act::Repeat(b"1\r\n \r\n")];
    check_failure(endless, whole, timeout(Deadline::Call), "did not end").await;
}

/// Likewise, where the model has deadlines of its own.
async fn check_own(
    script: Vec<Act>,
    own: ModelDeadlines,
    deadlines: Deadlines,
    expect: Result<&str, Deadline>,
) {
    let server = Server::start(vec![script]).await;
    let provider = provider(&server, deadlines);
    let request = ModelRequest { deadlines: own, ..request(&provider) };
    let answer = provider.call(request, &Shown::default()).await;
    match (answer, expect) {
        (Ok(answer), Ok(text)) => assert_eq!(answer.message.text, text, "{own:?}"),
        (Err(failure), Err(which)) => {
            assert_eq!(failure.class, FailureClass::Timeout { which }, "{own:?}: {failure}");
            assert!(failure.message.contains("within 0.1 s"), "{own:?}: {failure}");
        }
        (got, expect) => panic!("expected {expect:?}, got {got:?}: {own:?}"),
    }
}

#[tokio::test]
async fn a_models_deadlines_stand_over_its_providers() {
    let (none, usual, short) = (ModelDeadlines::default(), Deadlines::default(), Some(100));
    let own = ModelDeadlines { first_event_ms: short, ..none };
    check_own(vec![Act::Hold], own, usual, Err(Deadline::FirstEvent)).await;
    let own = ModelDeadlines { gap_ms: short, ..none };
    check_own(vec![streaming(), chunked(&[HELLO]), Act::Hold], own, usual, Err(Deadline::Gap)).await;
    let own = ModelDeadlines { call_ms: short, ..none };
    check_own(vec![streaming(), Act::Repeat(b"1\r\n \r\n")], own, usual, Err(Deadline::Call)).await;
    // And over a shorter one.
    let long = Some(60_000);
    let own = ModelDeadlines { first_event_ms: long, gap_ms: long, call_ms: long };
    let none = Duration::ZERO;
    check_own(hello(), own, Deadlines { first_event: none, gap: none, call: none, ..usual }, Ok("Hello"))
        .await;
}

#[tokio::test]
async fn a_whole_answer_needs_no_proper_end() {
    let gap = Deadlines { gap: short(), ..Deadlines::default() };
    for end in [Act::Hold, Act::Close] {
        let script = vec![streaming(), chunked(&[HELLO, STOP]), end];
        assert_eq!(call_once(script, gap).await.unwrap().message.text, "Hello");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_cut() {
    let broken = vec![streaming(), chunked(&[HELLO]), Act::Close];
    check_failure(broken, Deadlines::default(), FailureClass::IncompleteStream, "broke off").await;
    let ended = vec![streaming(), chunked(&[HELLO, ""])];
    check_failure(ended, Deadlines::default(), FailureClass::IncompleteStream, "without a finish reason")
        .await;
}

#[tokio::test]
async fn errors_are_what_they_are() {
    let quoted = format!("{{\"error\":{{\"message\":\"bad key {KEY}\"}}}}");
    let limit = FailureClass::RateLimited { retry_after_ms: Some(3_000), reset_at: None };
    let check = |act, class, says| check_failure(vec![act], Deadlines::default(), class, says);
    check(respond(401, "", &quoted), FailureClass::Auth, "HTTP 401: bad key ***").await;
    check(respond(200, "", "<html>down"), FailureClass::NotAnApi, "<html>down").await;
    check(respond(502, "", "<html>down"), FailureClass::Overloaded, "HTML page").await;
    check(respond(429, "retry-after: 3\r\n", "{}"), limit, "HTTP 429").await;
    check(respond(301, "location: http://127.0.0.1:1/\r\n", ""), FailureClass::NotAnApi, "HTTP 301").await;
    check(respond(400, "", &"x".repeat(200_000)), FailureClass::InvalidRequest, "HTTP 400: xxx").await;
    check(Act::Close, FailureClass::Network, "/v1/chat/completions").await;
}

#[tokio::test]
async fn nobody_there_is_a_network_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let failure = call(&HttpProvider::new(config(&base_url)).unwrap()).await.unwrap_err();
    assert_eq!((&failure.class, failure.request), (&FailureClass::Network, Some(RequestFate::NotSent)));
    assert!(failure.message.contains(&base_url) && failure.message.contains("refused"), "{failure}");
}

/// The call fails, and its request came so far.
async fn check_fate(script: Vec<Act>, deadlines: Deadlines, expect: RequestFate) {
    let said = format!("{script:?}");
    let failure = call_once(script, deadlines).await.unwrap_err();
    assert_eq!(failure.request, Some(expect), "{failure}: {said}");
}

#[tokio::test]
async fn a_failure_says_whether_its_request_may_have_been_worked_on() {
    use RequestFate::{MayHaveRun, Rejected};
    let usual = Deadlines::default();
    for status in [301, 400, 401, 402, 403, 404, 405, 409, 413, 422, 429, 501, 503, 521, 522, 523, 529] {
        for body in ["", "<html>", r#"{"error":{"message":"no"}}"#] {
            check_fate(vec![respond(status, "", body)], usual, Rejected).await;
        }
    }
    for status in [408, 424, 500, 502, 504, 520, 524, 599] {
        check_fate(vec![respond(status, "", "{}")], usual, MayHaveRun).await;
    }
    let filtered = r#"{"error":{"message":"no","code":"content_filter"}}"#;
    check_fate(vec![respond(400, "", filtered)], usual, MayHaveRun).await;
    check_fate(vec![Act::Close], usual, MayHaveRun).await;
    check_fate(vec![Act::Hold], Deadlines { first_event: short(), ..usual }, MayHaveRun).await;
    check_fate(vec![Act::Hold], Deadlines { call: short(), ..usual }, MayHaveRun).await;
    check_fate(vec![streaming(), Act::Close], usual, MayHaveRun).await;
    // An error under status 200 is a refusal only before the answer has begun.
    let limited = "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n";
    check_fate(vec![streaming(), chunked(&[limited, ""])], usual, Rejected).await;
    for parts in [vec![HELLO, limited, ""], vec![&[HELLO, limited].concat(), ""]] {
        check_fate(vec![streaming(), chunked(&parts)], usual, MayHaveRun).await;
    }
    let broken = "data: {\"error\":{\"code\":500,\"message\":\"broken\"}}\n\n";
    check_fate(vec![streaming(), chunked(&[broken, ""])], usual, MayHaveRun).await;
    check_fate(vec![respond(200, "", r#"{"error":{"code":429,"message":"no"}}"#)], usual, Rejected).await;
}

#[tokio::test]
async fn what_was_never_sent_whole_says_so() {
    let deadlines = Deadlines { first_event: short(), call: short() * 50, ..Deadlines::default() };
    // Bound, and nothing is accepted: small requests fit into the buffers of the kernel, this one does not.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let provider = HttpProvider::new(ProviderConfig { deadlines, ..config(&base_url) }).unwrap();
    let mut large = request(&provider);
    let encoder = provider.encoder("m", &ModelProfile::default());
    for _ in 0..64 {
        encoder.messages(&[Message::User("x".repeat(1 << 20).into())], &mut large.messages);
        large.messages.close();
    }
    let stalled = provider.call(large, &Shown::default()).await.unwrap_err();
    assert_eq!(stalled.request, Some(RequestFate::NotSent), "{stalled}");
    // No such credential.
    let keyless = ModelRequest { credential: CredentialId(7), ..request(&provider) };
    let keyless = provider.call(keyless, &Shown::default()).await.unwrap_err();
    assert_eq!((keyless.class, keyless.request), (FailureClass::Auth, Some(RequestFate::NotSent)));
}

#[tokio::test]
async fn usage_that_comes_with_an_error_is_kept() {
    let usage = "data: {\"error\":{\"code\":500,\"message\":\"broken\"},\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
    let failure = call_once(vec![streaming(), chunked(&[HELLO, usage, ""])], Deadlines::default()).await;
    let expect = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
    assert_eq!(failure.unwrap_err().usage.as_deref(), Some(&expect));
}

#[tokio::test]
async fn https_speaks_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}", listener.local_addr().unwrap());
    let provider = HttpProvider::new(config(&base_url)).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 plain\r\n\r\n").await.unwrap();
        first
    };
    let (result, first) = tokio::join!(call(&provider), serve);
    assert_eq!(first, 22, "a TLS record of the handshake");
    let failure = result.unwrap_err();
    assert_eq!((&failure.class, failure.request), (&FailureClass::Network, Some(RequestFate::NotSent)));
    assert!(failure.message.starts_with("cannot connect to https://127.0.0.1"), "{failure}");
}

#[tokio::test]
async fn dropping_the_call_closes_the_request() {
    let mut server = Server::start(vec![vec![streaming(), chunked(&[HELLO]), Act::Hold]]).await;
    let provider = provider(&server, Deadlines::default());
    let task = tokio::spawn(async move { call(&provider).await });
    assert_eq!(server.next().await, Seen::Connection);
    assert!(matches!(server.next().await, Seen::Request { .. }));
    task.abort();
    assert_eq!(server.next().await, Seen::ClientGone);
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let check = |config: ProviderConfig, says: &str| {
        let error: ProviderConfigError = HttpProvider::new(config).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(says) && text.contains("test") && !text.contains("hunter2"), "{text}");
    };
    check(config("no url"), "\"no url\"");
    check(config("ftp://host/"), "neither http nor https");
    check(config("https://user:hunter2@host/v1"), "credential");
    check(ProviderConfig { wire: "telex".into(), ..config("http://host") }, "chat_completions");
    check(ProviderConfig { credentials: vec![key(KEY), key("a\nb")], ..config("http://host") }, "line break");
    check(ProviderConfig { credentials: vec![key("")], ..config("http://host") }, "empty");
}

#[tokio::test]
async fn the_path_stands_once_behind_the_base_url() {
    for (wire, base, path) in [
        ("chat_completions", "", "/chat/completions"),
        ("chat_completions", "/v1/", "/v1/chat/completions"),
        ("chat_completions", "/v1/chat/completions", "/v1/chat/completions"),
        ("codex_responses", "/v1", "/v1/responses"),
        ("codex_responses", "/openai/v1/responses/", "/openai/v1/responses"),
        ("codex_responses", "/responses/v1", "/responses/v1/responses"),
    ] {
        let mut server = Server::start(vec![vec![respond(503, "", "")]]).await;
        let base_url = server.base_url.replace("/v1", base);
        let config = ProviderConfig { wire: wire.into(), ..config(&base_url) };
        assert!(call(&HttpProvider::new(config).unwrap()).await.is_err());
        assert_eq!(server.next().await, Seen::Connection);
        let Seen::Request { head, .. } = server.next().await else { panic!("no request") };
        assert_eq!(head.split_whitespace().nth(1), Some(path), "{wire} {base}");
    }
}

/// A probe is a request for the list of models; it succeeds with any response.
#[tokio::test]
async fn a_probe_needs_a_connection_and_no_list() {
    for (wire, status) in [("chat_completions", 200), ("anthropic_messages", 404), ("codex_responses", 500)] {
        let mut server = Server::start(vec![vec![respond(status, "", "no list")]]).await;
        let config = ProviderConfig { wire: wire.into(), ..config(&server.base_url) };
        let provider = HttpProvider::new(config).unwrap();
        assert_eq!(provider.probe().expect("it can be probed").await, Ok(()), "{wire}");
        assert_eq!(server.next().await, Seen::Connection);
        let Seen::Request { head, body } = server.next().await else { panic!("no request") };
        assert!(head.starts_with("get /v1/models http/1.1\r\n") && head.contains(KEY), "{head}");
        assert_eq!(body, "");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let provider = HttpProvider::new(config(&format!("http://{closed}/v1"))).unwrap();
    let failure = provider.probe().expect("it can be probed").await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Network, "{failure}");
    assert!(provider.without_model_list().probe().is_none());
}
