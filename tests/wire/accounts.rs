//! Credentials of a provider, what is left of their limits, and many streams at once, against servers on the loopback
//! interface.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use hermod::{
    credential::{self, Oauth, OauthGrant, RefreshTokenFile},
    provider::{CacheTtl, Credential, Deadlines, FormClient, HttpProvider, KeyPlacement, ProviderConfig},
    secret::Secret,
};
use hermod_actors::{
    model::{
        CallId, CredentialId, Failure, FailureClass, Message, ModelAnswer, ModelDeadlines, ModelProfile,
        PoolStrategy, RateInfo, RateLimits, RunId, SessionId,
    },
    port::{DeltaSink, MessageBuffer, ModelProvider as _, ModelRequest, ToolChoice},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Barrier,
};

/// A request: its head in small letters, and its body.
struct Request {
    head: String,
    body: String,
}

/// What a server makes of a request: status, further headers, body.
type Reply = (u16, String, String);

/// Serves until its test ends; says its address.
async fn serve(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let reply = Arc::new(reply);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let reply = Arc::clone(&reply);
            tokio::spawn(async move {
                while let Some(request) = read(&mut stream).await {
                    let (status, headers, body) = reply(&request);
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n");
                    stream.write_all((head + &body).as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

/// The next request of a connection; `None` if there is none.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    while bytes.len() < end + length.expect("a request has its length") {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    Some(Request { head, body: String::from_utf8(bytes[end..].to_vec()).unwrap() })
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn hello() -> Reply {
    (200, "content-type: text/event-stream\r\n".into(), HELLO.into())
}

/// The bearer token of a request.
fn bearer(request: &Request) -> &str {
    request.head.lines().find_map(|line| line.strip_prefix("authorization: bearer ")).unwrap_or("none")
}

/// Accepts only the keys in the list.
fn judged(request: &Request, accepted: &[&str]) -> Reply {
    let key = bearer(request);
    if accepted.contains(&key) {
        return hello();
    }
    (401, String::new(), format!("{{\"error\":{{\"message\":\"wrong key {key}\"}}}}"))
}

fn provider(base_url: &str, credentials: Vec<Credential>) -> HttpProvider {
    HttpProvider::new(ProviderConfig {
        name: "acme".into(),
        base_url: base_url.into(),
        wire: "chat_completions".into(),
        credentials,
        pool: PoolStrategy::LeastUsed,
        limits: RateLimits { requests: Some(60), tokens: None },
        cache: CacheTtl::default(),
        deadlines: Deadlines::default(),
    })
    .unwrap()
}

#[derive(Default)]
struct Heard(Mutex<Vec<RateInfo>>);

impl DeltaSink for Heard {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
    fn limits(&self, info: RateInfo) {
        self.0.lock().unwrap().push(info);
    }
}

fn request(provider: &HttpProvider, credential: usize) -> ModelRequest {
    let encoder = provider.encoder("m", &ModelProfile::default());
    let mut messages = MessageBuffer::default();
    encoder.messages(&[Message::User("hi".into())], &mut messages);
    ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m".into(),
        credential: CredentialId(credential),
        max_tokens: 5,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder.head("", &[]),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::new(),
    }
}

async fn call(provider: &HttpProvider, credential: usize) -> Result<ModelAnswer, Failure> {
    provider.call(request(provider, credential), &Heard::default()).await
}

fn key(text: &str) -> Credential {
    Credential::fixed(Secret::new(text))
}

#[tokio::test]
async fn a_request_is_made_with_its_credential_and_no_message_shows_any() {
    let keys = ["sk-first-0123456789", "sk-second-0123456789", "sk-third-0123456789"];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&seen);
    let base_url = serve(move |request| {
        tell.lock().unwrap().push(bearer(request).to_owned());
        (401, String::new(), format!("{{\"error\":{{\"message\":\"not {}\"}}}}", keys.join(" nor ")))
    })
    .await;
    let provider = provider(&base_url, keys.map(key).to_vec());
    assert_eq!((provider.credentials(), provider.pool()), (3, PoolStrategy::LeastUsed));
    assert_eq!(provider.limits().requests, Some(60));
    for credential in [2, 0, 1] {
        let failure = call(&provider, credential).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Auth);
        assert!(failure.message.ends_with("not *** nor *** nor ***"), "{failure}");
    }
    assert_eq!(*seen.lock().unwrap(), [keys[2], keys[0], keys[1]]);
    let none = call(&provider, 3).await.unwrap_err();
    assert_eq!(
        (none.class, none.message.as_str()),
        (FailureClass::Auth, "provider acme has no credential 3")
    );
    assert!(!format!("{provider:?}").contains("sk-"), "{provider:?}");
}

/// The credential that a reference leads to.
fn of(reference: &str) -> Credential {
    credential::of_reference(&reference.parse().unwrap(), &BTreeMap::new()).unwrap()
}

#[tokio::test]
async fn a_key_of_a_command_is_got_when_needed_and_once_for_all_who_were_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (script, count) = (dir.path().join("key.sh"), dir.path().join("count"));
    let line = format!("echo x >> {0}; echo key-$(wc -l < {0} | tr -d ' ')-of-the-vault", count.display());
    fs::write(&script, line).unwrap();
    let times = || fs::read_to_string(&count).unwrap_or_default().lines().count();
    let base_url = serve(|request| judged(request, &["key-2-of-the-vault"])).await;
    let provider = provider(&base_url, vec![of(&format!("command:/bin/sh {}", script.display()))]);
    assert_eq!(times(), 0, "nothing is run at the start");
    let failures = join_all((0..20).map(|_| call(&provider, 0))).await;
    for failure in failures.into_iter().map(Result::unwrap_err) {
        assert!(
            failure.class == FailureClass::Auth && failure.message.ends_with("wrong key ***"),
            "{failure}"
        );
    }
    assert_eq!(times(), 1);
    assert_eq!(join_all((0..20).map(|_| provider.renew(CredentialId(0)))).await, [true; 20]);
    assert_eq!(times(), 2);
    assert_eq!(call(&provider, 0).await.unwrap().message.text, "Hello");
    // One that comes late, refused for the first key, runs nothing.
    assert!(provider.renew(CredentialId(0)).await);
    assert_eq!(times(), 2);
}

#[tokio::test]
async fn a_command_that_fails_is_a_refused_credential() {
    let base_url = serve(|request| judged(request, &[])).await;
    let provider = provider(&base_url, vec![of("command:/bin/false --token sk-secret"), key("k")]);
    let failure = call(&provider, 0).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Auth);
    let expect = "credential 0 of provider acme cannot be had: command:/bin/false …: it ended with code 1";
    assert_eq!(failure.message, expect);
    assert!(!provider.renew(CredentialId(0)).await);
}

#[tokio::test]
async fn a_file_is_read_again_when_its_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    fs::write(&file, "old-key-0123456789").unwrap();
    let base_url = serve(|request| judged(request, &["new-key-0123456789"])).await;
    let provider = provider(&base_url, vec![of(&format!("file:{}", file.display()))]);
    call(&provider, 0).await.unwrap_err();
    assert!(!provider.renew(CredentialId(0)).await, "it is the same one");
    fs::remove_file(&file).unwrap();
    assert!(!provider.renew(CredentialId(0)).await, "it is not there");
    fs::write(&file, "new-key-0123456789\n").unwrap();
    assert!(provider.renew(CredentialId(0)).await);
    call(&provider, 0).await.unwrap();
}

/// A token endpoint that knows one refresh token at a time, and a model behind the tokens that it gives.
struct Tokens {
    /// How often it was asked for a token.
    asked: AtomicUsize,
    /// The number of the last access token.
    given: AtomicUsize,
    /// The refresh token that it takes.
    takes: Mutex<String>,
    /// With what it refuses everything, if it does.
    down: Mutex<Option<Reply>>,
}

impl Tokens {
    async fn start() -> (Arc<Self>, String) {
        let tokens = Arc::new(Self {
            asked: AtomicUsize::new(0),
            given: AtomicUsize::new(0),
            takes: Mutex::new("refresh-0".into()),
            down: Mutex::default(),
        });
        let own = Arc::clone(&tokens);
        let address = serve(move |request| {
            if !request.head.starts_with("post /token ") {
                let last = own.given.load(Ordering::SeqCst);
                return judged(request, &[&format!("access-{last}")]);
            }
            own.give(request)
        });
        (tokens, address.await)
    }

    fn give(&self, request: &Request) -> Reply {
        let n = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(
            request.head.contains("content-type: application/x-www-form-urlencoded\r\n"),
            "{}",
            request.head
        );
        if let Some(reply) = self.down.lock().unwrap().clone() {
            return reply;
        }
        let mut takes = self.takes.lock().unwrap();
        let grant =
            format!("grant_type=refresh_token&refresh_token={takes}&client_id=c1&client_secret=s3cret%2B");
        if request.body != format!("{grant}&scope=a+b") {
            let said = format!("{{\"error\":\"invalid_grant\",\"error_description\":\"{}\"}}", request.body);
            return (400, String::new(), said);
        }
        *takes = format!("refresh-{n}");
        self.given.store(n, Ordering::SeqCst);
        let expires = if n == 1 { 0 } else { 3_600 };
        let granted = format!(
            "{{\"access_token\":\"access-{n}\",\"expires_in\":{expires},\"refresh_token\":\"{takes}\"}}"
        );
        (200, String::new(), granted)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A provider that is asked with tokens for this refresh token.
fn with_oauth(address: &str, state: &Path, refresh_token: &str) -> HttpProvider {
    let grant = OauthGrant {
        client_id: "c1".into(),
        client_secret: Some(Secret::new("s3cret+")),
        refresh_token: Secret::new(refresh_token),
        scope: Some("a b".into()),
    };
    let forms = FormClient::new(&format!("{address}/token")).unwrap();
    let oauth = Oauth::new(forms, grant, RefreshTokenFile::new(state.join("credentials"), "acme"));
    provider(&format!("{address}/v1"), vec![Credential::from_source(oauth, None, KeyPlacement::Bearer)])
}

#[tokio::test]
async fn a_refresh_token_is_exchanged_at_the_first_use_and_the_one_that_comes_for_it_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let (tokens, address) = Tokens::start().await;
    let provider = with_oauth(&address, state.path(), "refresh-0");
    assert_eq!(tokens.asked(), 0, "not at the start");
    call(&provider, 0).await.unwrap();
    // That token was over at once.
    let answers = join_all((0..50).map(|_| call(&provider, 0))).await;
    assert_eq!(answers.into_iter().filter_map(Result::err).collect::<Vec<_>>(), []);
    assert_eq!(tokens.asked(), 2, "once for all");
    let kept = state.path().join("credentials/acme.json");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&kept).unwrap().contains("refresh-2"));
    // A later process goes on with it; one that is configured anew does not.
    call(&with_oauth(&address, state.path(), "refresh-0"), 0).await.unwrap();
    assert_eq!(tokens.asked(), 3);
    *tokens.takes.lock().unwrap() = "another".into();
    call(&with_oauth(&address, state.path(), "another"), 0).await.unwrap();
    assert!(!format!("{provider:?}").contains("refresh-"), "{provider:?}");
}

#[tokio::test]
async fn two_processes_do_not_use_up_each_others_refresh_token() {
    let state = tempfile::tempdir().unwrap();
    let (tokens, address) = Tokens::start().await;
    let both = [0, 1].map(|_| with_oauth(&address, state.path(), "refresh-0"));
    for round in 0..3 {
        let renewed = join_all(both.iter().map(|provider| provider.renew(CredentialId(0)))).await;
        assert!(renewed.contains(&true), "round {round}: {renewed:?}");
    }
    assert!(tokens.asked() >= 2, "{}", tokens.asked());
    let grants = tokens.takes.lock().unwrap().clone();
    assert_eq!(grants, format!("refresh-{}", tokens.asked()), "none was refused");
}

#[tokio::test]
async fn a_token_that_is_not_given_says_why_and_loses_nothing() {
    let state = tempfile::tempdir().unwrap();
    let (tokens, address) = Tokens::start().await;
    let provider = with_oauth(&address, state.path(), "refresh-0");
    let check = async |reply: Option<Reply>, class: FailureClass, says: &str| {
        *tokens.down.lock().unwrap() = reply;
        let failure = call(&provider, 0).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        assert!(failure.message.contains(says) && failure.message.contains("cannot be had"), "{failure}");
        for secret in ["refresh-0", "s3cret"] {
            assert!(!failure.message.contains(secret), "{failure}");
        }
    };
    let quoted = r#"{"error":"invalid_grant","error_description":"refresh-0 of s3cret+ is over"}"#;
    check(Some((400, String::new(), quoted.into())), FailureClass::Auth, "invalid_grant: *** of *** is over")
        .await;
    check(Some((503, String::new(), "down".into())), FailureClass::Server, "/token answered HTTP 503").await;
    check(Some((200, String::new(), "{}".into())), FailureClass::Auth, "without an access_token").await;
    *tokens.down.lock().unwrap() = None;
    assert!(provider.renew(CredentialId(0)).await);
    *tokens.down.lock().unwrap() = Some((400, String::new(), quoted.into()));
    assert!(!provider.renew(CredentialId(0)).await);
    call(&provider, 0).await.expect("the old one is still there");
}

#[tokio::test]
async fn what_is_left_of_the_limits_is_told_with_answers_and_failures() {
    let left = "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 7\r\nx-ratelimit-reset-requests: 30s\r\n";
    for status in [200, 429] {
        let base_url =
            serve(move |_| (status, left.into(), if status == 200 { HELLO } else { "{}" }.into())).await;
        let provider = provider(&base_url, Vec::new());
        let heard = Heard::default();
        assert_eq!(provider.call(request(&provider, 0), &heard).await.is_ok(), status == 200);
        let heard = heard.0.lock().unwrap();
        let requests = heard[0].requests.unwrap();
        assert_eq!((heard.len(), requests.remaining, requests.limit), (1, 7, Some(60)), "{status}");
        assert!(requests.reset_at.0 > 1_700_000_000_000, "{requests:?}");
    }
}

/// Streams that are open at the same time.
const STREAMS: usize = 200;

#[tokio::test]
async fn two_hundred_streams_are_open_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let (all, connections) = (Arc::new(Barrier::new(STREAMS)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                read(&mut stream).await.unwrap();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                // Nobody is answered before everybody has asked: one that queues would wait for ever.
                all.wait().await;
                stream.write_all(HELLO.as_bytes()).await.unwrap();
            });
        }
    });
    let provider = provider(&base_url, Vec::new());
    let answers = join_all((0..STREAMS).map(|_| call(&provider, 0))).await;
    assert_eq!(answers.into_iter().filter_map(Result::err).collect::<Vec<_>>(), []);
    assert_eq!(connections.load(Ordering::SeqCst), STREAMS);
}

#[tokio::test]
async fn streams_over_what_an_endpoint_allows_are_told_and_the_others_go_on() {
    let base_url = {
        let under_way = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Barrier::new(STREAMS));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (under_way, seen) = (Arc::clone(&under_way), Arc::clone(&seen));
                tokio::spawn(async move {
                    read(&mut stream).await.unwrap();
                    let allowed = under_way.fetch_add(1, Ordering::SeqCst) < STREAMS / 2;
                    seen.wait().await;
                    let answer = match allowed {
                        true => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{HELLO}", HELLO.len()),
                        false => "HTTP/1.1 429 X\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        base_url
    };
    let provider = provider(&base_url, Vec::new());
    let answers = join_all((0..STREAMS).map(|_| call(&provider, 0))).await;
    let limited = FailureClass::RateLimited { retry_after_ms: Some(1_000), reset_at: None };
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), STREAMS / 2);
    assert!(refused.iter().all(|failure| failure.class == limited), "{refused:?}");
}
