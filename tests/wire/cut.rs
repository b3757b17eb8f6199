//! Responses that are cut, at every byte: each is a cut answer, never another API and never an answer that is not whole.

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::recordings::{Nobody, cases, wire};
use hermod::{
    provider::{CacheTtl, Deadlines, Decoder, HttpProvider, ProviderConfig},
    secret::Secret,
};
use hermod_actors::{
    model::{
        AnswerOrigin, CallId, CredentialId, Failure, FailureClass, Message, ModelAnswer, ModelDeadlines,
        ModelProfile, PoolStrategy, RateLimits, RunId, SessionId,
    },
    port::{MessageBuffer, ModelProvider as _, ModelRequest, ToolChoice},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A body of status 200: its wire format, and what it is.
type Body = (&'static str, &'static str);

/// Every format, streamed with all that a stream may have, and not streamed.
const BODIES: [Body; 7] = [
    ("chat_completions", include_str!("../fixtures/responses/chat_completions.sse")),
    ("chat_completions", include_str!("../fixtures/responses/chat_completions.json")),
    ("anthropic_messages", include_str!("../fixtures/responses/anthropic_messages.sse")),
    ("anthropic_messages", include_str!("../fixtures/responses/anthropic_messages.json")),
    ("codex_responses", include_str!("../fixtures/responses/codex_responses.sse")),
    ("codex_responses", include_str!("../fixtures/responses/codex_responses.json")),
    // A document of which each field is read, and others whose numbers are the last that came.
    (
        "chat_completions",
        r#"{"logprob":-1.5e-3,"choices":[{"logprobs":{"p":-0.25E+1},"message":{"content":"ü\ud83d\ude00"},"finish_reason":"stop"}]}"#,
    ),
];

fn decoder(format: &str) -> Box<dyn Decoder> {
    let origin = AnswerOrigin { provider: "test".into(), wire: format.into(), model: "m".into() };
    wire(format).decoder(Arc::new(origin))
}

/// What may come of a response that ended after some of its bytes, if all of them are `whole`.
#[track_caller]
fn check_begin(begin: Result<ModelAnswer, Failure>, whole: &Result<ModelAnswer, Failure>, place: &str) {
    match (begin, whole) {
        (Ok(answer), Ok(whole)) => {
            // What comes behind the finish reason is no more than the usage.
            assert_eq!((answer.message, answer.finish), (whole.message.clone(), whole.finish), "{place}");
        }
        // An error behind the finish reason.
        (Ok(_), Err(_)) => {}
        (Err(failure), Err(whole)) if failure.class == whole.class => {}
        (Err(failure), _) => assert_eq!(failure.class, FailureClass::IncompleteStream, "{place}: {failure}"),
    }
}

/// Reads a body up to each of the places, which rise.
fn check_body(mut decoder: Box<dyn Decoder>, body: &[u8], places: impl Iterator<Item = usize>, name: &str) {
    let mut all = decoder.fork();
    let whole = all.push(body, &Nobody).and_then(|_| all.finish(&Nobody));
    let mut from = 0;
    for at in places {
        if let Err(failure) = decoder.push(&body[from..at], &Nobody) {
            return check_begin(Err(failure), &whole, &format!("{name} at {at}"));
        }
        from = at;
        check_begin(decoder.fork().finish(&Nobody), &whole, &format!("{name} at {at}"));
    }
}

#[test]
fn what_is_cut_is_cut_at_every_byte_in_all_formats() {
    for (format, body) in BODIES {
        for body in [body.to_owned(), body.replace('\n', "\r\n"), format!("\u{feff}{body}")] {
            let whole = decoder(format);
            check_body(whole, body.as_bytes(), 0..body.len(), &format!("{format} {body:.9}"));
        }
        // None of them is an answer before its end has begun.
        let early = body.len() / 2;
        let mut decoder = decoder(format);
        decoder.push(&body.as_bytes()[..early], &Nobody).unwrap();
        assert_eq!(decoder.finish(&Nobody).unwrap_err().class, FailureClass::IncompleteStream, "{format}");
    }
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn recordings_that_are_cut_are_cut() {
    let cases: Vec<_> = cases().into_iter().filter(|case| case.status == 200).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let length = case.body.len();
            let step = (length / 25).max(1);
            let places = (0..length).filter(|at| *at < 150 || at + 100 > length || at % step == 0);
            check_body(case.decoder(), &case.body, places, &case.name);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
}

#[test]
fn a_whole_body_that_is_no_answer_is_no_api() {
    for format in ["chat_completions", "anthropic_messages", "codex_responses"] {
        for body in ["<html>down</html>", "upstream is down", r#"{"hello":1}"#, "error: down\n\n", "null"] {
            let mut decoder = decoder(format);
            decoder.push(body.as_bytes(), &Nobody).unwrap();
            assert_eq!(decoder.finish(&Nobody).unwrap_err().class, FailureClass::NotAnApi, "{format} {body}");
        }
    }
}

/// How a response says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    /// With the connection.
    Close,
}

/// How a server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Orderly,
    Reset,
}

/// A response as bytes, and how many of them are its head.
fn response(status: u16, kind: &str, body: &str, framing: Framing) -> (Vec<u8>, usize) {
    let (header, body) = match framing {
        Framing::Length => (format!("content-length: {}\r\n", body.len()), body.to_owned()),
        Framing::Close => ("connection: close\r\n".to_owned(), body.to_owned()),
        Framing::Chunked => {
            let (first, rest) = body.split_at(body.floor_char_boundary(body.len() / 2));
            let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
            ("transfer-encoding: chunked\r\n".to_owned(), chunk(first) + &chunk(rest) + "0\r\n\r\n")
        }
    };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{header}\r\n");
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    (bytes, head.len())
}

/// Answers each connection's request with what was sent for it.
struct Server {
    base_url: String,
    answers: mpsc::UnboundedSender<(Vec<u8>, Ending)>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (answers, mut next) = mpsc::unbounded_channel::<(Vec<u8>, Ending)>();
        tokio::spawn(async move {
            while let Some((bytes, ending)) = next.recv().await {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, &bytes, ending).await;
            }
        });
        Self { base_url, answers }
    }

    fn provider(&self, format: &str) -> HttpProvider {
        HttpProvider::new(ProviderConfig {
            name: "test".into(),
            base_url: self.base_url.clone(),
            wire: format.into(),
            credentials: vec![hermod::provider::Credential::fixed(Secret::new("k"))],
            pool: PoolStrategy::default(),
            limits: RateLimits::default(),
            cache: CacheTtl::default(),
            deadlines: Deadlines { gap: Duration::from_mins(1), ..Deadlines::default() },
        })
        .unwrap()
    }
}

async fn answer(mut stream: TcpStream, bytes: &[u8], ending: Ending) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    let whole = |seen: &[u8]| {
        let end = seen.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        (seen.len() >= end + length?).then_some(())
    };
    while whole(&seen).is_none() {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "a request should be whole");
        seen.extend_from_slice(&buffer[..count]);
    }
    stream.write_all(bytes).await.unwrap();
    if ending == Ending::Reset {
        stream.set_zero_linger().unwrap();
    }
}

async fn call(provider: &HttpProvider) -> Result<ModelAnswer, Failure> {
    let encoder = provider.encoder("m", &ModelProfile::default());
    let mut messages = MessageBuffer::default();
    encoder.messages(&[Message::User("hi".into())], &mut messages);
    let request = ModelRequest {
        credential: CredentialId::default(),
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m".into(),
        max_tokens: 5,
        thinking: None,
        tool_choice: ToolChoice::Auto,
        deadlines: ModelDeadlines::default(),
        head: encoder.head("", &[]),
        messages,
        images: BTreeMap::new(),
    };
    provider.call(request, &Nobody).await
}

/// Sends a response up to some of its bytes, and gives what came of each.
async fn cut_through_sockets(
    (format, status, body): (&str, u16, &str),
    (framing, ending): (Framing, Ending),
    mut check: impl FnMut(usize, Option<usize>, Result<ModelAnswer, Failure>),
) {
    let server = Server::start().await;
    let provider = server.provider(format);
    let kind = if body.starts_with(['{', '[']) { "application/json" } else { "text/event-stream" };
    let (bytes, head) = response(status, kind, body, framing);
    let length = bytes.len();
    let in_body =
        [0, 1, 2, 7, (length - head) / 3, (length - head) * 2 / 3, length - head - 1].map(|at| head + at);
    for at in [1, 12, head - 1].into_iter().chain(in_body) {
        server.answers.send((bytes[..at].to_vec(), ending)).unwrap();
        check(at, at.checked_sub(head), call(&provider).await);
    }
}

const ENDINGS: [(Framing, Ending); 6] = [
    (Framing::Length, Ending::Orderly),
    (Framing::Length, Ending::Reset),
    (Framing::Chunked, Ending::Orderly),
    (Framing::Chunked, Ending::Reset),
    (Framing::Close, Ending::Orderly),
    (Framing::Close, Ending::Reset),
];

#[tokio::test]
async fn however_a_connection_ends_early_its_answer_is_cut() {
    for (format, body) in BODIES {
        let mut all = decoder(format);
        let whole = all.push(body.as_bytes(), &Nobody).and_then(|_| all.finish(&Nobody));
        for how in ENDINGS {
            cut_through_sockets((format, 200, body), how, |at, in_body, outcome| {
                let place = format!("{format} {body:.9} {how:?} at {at}");
                match (in_body, outcome) {
                    (None, outcome) => {
                        assert_eq!(outcome.unwrap_err().class, FailureClass::Network, "{place}");
                    }
                    // A reset can overtake what was sent before it.
                    (Some(_), Err(failure)) if how.1 == Ending::Reset => {
                        assert!(
                            matches!(failure.class, FailureClass::IncompleteStream | FailureClass::Network),
                            "{place}: {failure}"
                        );
                    }
                    (Some(_), outcome) => check_begin(outcome, &whole, &place),
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn however_an_explanation_ends_early_it_decides_nothing() {
    const EXPLANATION: &str = r#"{"error":{"message":"The model `m` does not exist","type":"not_found_error","code":"model_not_found"}}"#;
    for format in ["chat_completions", "anthropic_messages", "codex_responses"] {
        for status in [400, 403, 404] {
            for how in ENDINGS {
                cut_through_sockets((format, status, EXPLANATION), how, |at, in_body, outcome| {
                    let class = outcome.unwrap_err().class;
                    let place = format!("{format} {status} {how:?} at {at}");
                    // All of the document may be there, and only the mark behind it not.
                    let is_there = class == FailureClass::ModelNotFound && how.0 == Framing::Chunked;
                    let is_lost =
                        class == FailureClass::Network && (in_body.is_none() || how.1 == Ending::Reset);
                    assert!(
                        class == FailureClass::IncompleteStream || is_there || is_lost,
                        "{place}: {class:?}"
                    );
                })
                .await;
            }
        }
    }
}
