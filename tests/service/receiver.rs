//! A receiver of webhooks on the loopback interface, which a test lets fail, hang and answer late.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use serde_json::Value;

/// The secret of all webhooks.
pub(crate) const SECRET: &str = "a-secret-of-the-receiver";

/// What the receiver does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Status(u16),
    /// The connection stays open for a while, and no answer comes.
    Hang,
    /// The request counts as received, and its answer comes after this time.
    Late(Duration),
    /// The connection breaks after the request.
    Break,
    /// The head of an answer with this status, whose body does not come.
    HeadOnly(u16),
}

/// A request that was read whole.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) body: Value,
    /// Whether the receiver has taken it.
    pub(crate) is_taken: bool,
}

type Behavior = Box<dyn Fn(usize, &str) -> Answer + Send + Sync>;

pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    behavior: Arc<Mutex<Arc<Behavior>>>,
}

/// How long a request without an answer stays open.
const HANG: Duration = Duration::from_secs(2);

impl Receiver {
    /// `behavior` decides by the number of the request, from 0, and its text.
    pub(crate) fn start(behavior: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let behavior = Arc::new(Mutex::new(Arc::new(Box::new(behavior) as Behavior)));
        let (requests, decides) = (Arc::clone(&received), Arc::clone(&behavior));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, decides) = (Arc::clone(&requests), Arc::clone(&decides));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(request) = read(&mut reader) {
                        if !serve(request, reader.get_mut(), &requests, &decides) {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, received, behavior }
    }

    /// Decides like this from now on.
    pub(crate) fn behave(&self, behavior: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) {
        *self.behavior.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Box::new(behavior));
    }

    /// All requests that came so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests that were taken, without the repeats of an id.
    pub(crate) fn taken(&self) -> Vec<Received> {
        let mut taken: Vec<Received> = Vec::new();
        for request in self.received().into_iter().filter(|request| request.is_taken) {
            if taken.iter().all(|known| known.id != request.id) {
                taken.push(request);
            }
        }
        taken
    }
}

/// The id and the body of a request whose signature is valid; `None` at the end of the connection.
fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let (mut headers, mut line) = (Vec::<(String, String)>::new(), String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None if line.trim_end().is_empty() => break,
            None => assert!(line.starts_with("POST /hook "), "{line}"),
        }
    }
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let mut body = vec![0; header("content-length")?.parse().expect("a length")];
    reader.read_exact(&mut body).ok()?;
    let (id, at) = (header("webhook-id").expect("an id"), header("webhook-timestamp").expect("a time"));
    let signed = [format!("{id}.{at}.").as_bytes(), &body].concat();
    let signature = header("webhook-signature").expect("a signature");
    let signature = STANDARD.decode(signature.strip_prefix("v1,").expect("version 1")).expect("base64");
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &signed, &signature).expect("signed");
    Some((id, serde_json::from_slice(&body).expect("JSON")))
}

/// Answers a request; false if the connection is over.
fn serve(
    (id, body): (String, Value),
    stream: &mut TcpStream,
    requests: &Mutex<Vec<Received>>,
    decides: &Mutex<Arc<Behavior>>,
) -> bool {
    let text = body["data"]["text"].as_str().unwrap_or_default().to_owned();
    let decide = Arc::clone(&decides.lock().unwrap_or_else(PoisonError::into_inner));
    let answer = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = decide(requests.len(), &text);
        let is_taken =
            matches!(answer, Answer::Status(200..=299) | Answer::HeadOnly(200..=299) | Answer::Late(_));
        requests.push(Received { id, text, body, is_taken });
        answer
    };
    let status = match answer {
        Answer::Status(status) => status,
        Answer::Late(pause) => {
            thread::sleep(pause);
            200
        }
        Answer::Hang => {
            thread::sleep(HANG);
            return false;
        }
        Answer::Break => return false,
        Answer::HeadOnly(status) => {
            let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: 10\r\n\r\n");
            if stream.write_all(head.as_bytes()).is_ok() {
                thread::sleep(HANG);
            }
            return false;
        }
    };
    let written = write!(stream, "HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
    written.is_ok()
}
