//! A server on the loopback interface that speaks Telegram's bot API, as strictly as Telegram. It keeps what it was asked,
//! and a test lets it fail, hang and limit.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The token of the bot.
pub(crate) const TOKEN: &str = "4711:a-secret-of-the-bot";
/// How long a request for updates is held, and one that gets no answer.
const HOLD: Duration = Duration::from_secs(3);
/// Most UTF-16 units of a message.
const MAX_UNITS: usize = 4_096;

/// What the server does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Normal,
    /// An error with this code and description.
    Error(u16, &'static str),
    /// 429, to wait for these seconds.
    Limit(u64),
    /// It is carried out, and the connection breaks before the answer.
    Break,
    /// No answer for a while.
    Hang,
}

/// A message of the bot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    pub(crate) id: i64,
    pub(crate) chat: i64,
    pub(crate) thread: Option<i64>,
    /// What a person sees.
    pub(crate) text: String,
    /// The markup with which it was written last.
    pub(crate) html: String,
    /// What stood there before.
    pub(crate) earlier: Vec<String>,
    /// The buttons: label and data.
    pub(crate) buttons: Vec<(String, String)>,
}

type Behavior = Box<dyn Fn(&str, &Value) -> Answer + Send + Sync>;

#[derive(Default)]
struct State {
    updates: Vec<Value>,
    next_update: i64,
    next_message: i64,
    messages: BTreeMap<i64, Sent>,
    calls: Vec<(String, Value)>,
    files: BTreeMap<String, Vec<u8>>,
    /// Counts requests for updates: a new one ends the one before.
    pollers: u64,
    behavior: Option<Arc<Behavior>>,
}

/// The server. A clone is of the same one.
#[derive(Clone)]
pub(crate) struct TelegramServer {
    pub(crate) url: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl TelegramServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = State { next_update: 500, next_message: 100, ..State::default() };
        let server = Self { url, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                // A client that goes is none of its problems.
                thread::spawn(move || server.serve(&stream));
            }
        });
        server
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `behavior` decides by the method and its body.
    pub(crate) fn behave(&self, behavior: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) {
        self.lock().behavior = Some(Arc::new(Box::new(behavior)));
    }

    /// The next update has this number.
    pub(crate) fn skip_to(&self, number: i64) {
        self.lock().next_update = number;
    }

    /// Adds an update with these fields, and returns its number.
    pub(crate) fn update(&self, fields: &Value) -> i64 {
        let mut state = self.lock();
        let number = state.next_update;
        state.next_update += 1;
        let mut update = json!({ "update_id": number });
        for (key, value) in fields.as_object().expect("an object") {
            update[key] = value.clone();
        }
        state.updates.push(update);
        self.state.1.notify_all();
        number
    }

    /// A message of a person in a private chat, with further fields.
    pub(crate) fn message(&self, chat: i64, fields: &Value) -> i64 {
        let id = {
            let mut state = self.lock();
            state.next_message += 1;
            state.next_message
        };
        let mut message = json!({
            "message_id": id, "date": 1, "chat": { "id": chat, "type": "private" },
            "from": { "id": chat, "is_bot": false, "first_name": "Ann" },
        });
        for (key, value) in fields.as_object().expect("an object") {
            message[key] = value.clone();
        }
        self.update(&json!({ "message": message }))
    }

    /// A text of a person in a private chat.
    pub(crate) fn say(&self, chat: i64, text: &str) -> i64 {
        self.message(chat, &json!({ "text": text }))
    }

    /// A picture of a person, with its bytes.
    pub(crate) fn picture(&self, chat: i64, fields: &Value, bytes: &[u8]) -> i64 {
        let file = {
            let mut state = self.lock();
            let file = format!("file{}", state.files.len());
            state.files.insert(file.clone(), bytes.to_vec());
            file
        };
        let sizes = json!([
            { "file_id": "thumbnail", "width": 9, "height": 9, "file_size": 1 },
            { "file_id": file, "width": 90, "height": 90, "file_size": bytes.len() },
        ]);
        let mut fields = fields.clone();
        fields["photo"] = sizes;
        self.message(chat, &fields)
    }

    /// A press of the button with this label, below the newest message that has it.
    pub(crate) fn press(&self, chat: i64, label: &str) -> i64 {
        let (message, data) = {
            let state = self.lock();
            let with = |sent: &Sent| {
                let button = sent.buttons.iter().find(|(known, _)| known == label)?;
                Some((sent.id, button.1.clone()))
            };
            state.messages.values().rev().find_map(with).unwrap_or_else(|| panic!("no button {label}"))
        };
        self.press_data(chat, message, &data)
    }

    /// A press with this data, which a hostile client may make up.
    pub(crate) fn press_data(&self, chat: i64, message: i64, data: &str) -> i64 {
        self.update(&json!({ "callback_query": {
            "id": "q1", "from": { "id": chat, "first_name": "Ann" }, "data": data,
            "message": { "message_id": message, "chat": { "id": chat, "type": "private" } },
        } }))
    }

    /// The messages of the bot that stand in a chat, in their order.
    pub(crate) fn shown(&self, chat: i64) -> Vec<Sent> {
        self.lock().messages.values().filter(|sent| sent.chat == chat).cloned().collect()
    }

    /// Their texts.
    pub(crate) fn texts(&self, chat: i64) -> Vec<String> {
        self.shown(chat).into_iter().map(|sent| sent.text).collect()
    }

    /// Whether a message of a chat has this text.
    pub(crate) fn has(&self, chat: i64, text: &str) -> bool {
        self.texts(chat).iter().any(|shown| shown == text)
    }

    /// The bodies of the calls of a method, in their order.
    pub(crate) fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.lock();
        state.calls.iter().filter(|(known, _)| known == method).map(|(_, body)| body.clone()).collect()
    }

    /// The updates that are not confirmed.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.lock().updates.len()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((path, body)) = read_request(&mut reader) {
            if let Some(file) = path.strip_prefix(&format!("/file/bot{TOKEN}/photos/")) {
                let bytes = self.lock().files.get(file).cloned();
                respond(stream, if bytes.is_some() { 200 } else { 404 }, &bytes.unwrap_or_default());
                continue;
            }
            let Some(method) = path.strip_prefix(&format!("/bot{TOKEN}/")) else {
                respond_json(stream, &failed(404, "Not Found"));
                continue;
            };
            let behavior = self.lock().behavior.clone();
            let answer = behavior.map_or(Answer::Normal, |behavior| behavior(method, &body));
            self.lock().calls.push((method.to_owned(), body.clone()));
            match answer {
                Answer::Normal => respond_json(stream, &self.carry_out(method, &body)),
                Answer::Error(code, description) => respond_json(stream, &failed(code, description)),
                Answer::Limit(seconds) => {
                    let mut answer = failed(429, "Too Many Requests");
                    answer["parameters"] = json!({ "retry_after": seconds });
                    respond_json(stream, &answer);
                }
                Answer::Break => {
                    self.carry_out(method, &body);
                    return;
                }
                Answer::Hang => {
                    thread::sleep(HOLD);
                    return;
                }
            }
        }
    }

    fn carry_out(&self, method: &str, body: &Value) -> Value {
        match method {
            "getMe" => done(&json!({ "id": 4711, "is_bot": true, "username": "hermod_bot" })),
            "getUpdates" => self.updates(body),
            "sendMessage" => self.send(body),
            "editMessageText" => self.edit(body),
            "deleteMessage" => {
                let id = body["message_id"].as_i64().unwrap_or_default();
                match self.lock().messages.remove(&id) {
                    Some(_) => done(&json!(true)),
                    None => failed(400, "Bad Request: message to delete not found"),
                }
            }
            "sendPhoto" | "sendDocument" => {
                let mut state = self.lock();
                state.next_message += 1;
                done(&json!({ "message_id": state.next_message }))
            }
            "answerCallbackQuery" | "sendChatAction" => done(&json!(true)),
            "getFile" => {
                let file = body["file_id"].as_str().unwrap_or_default();
                if self.lock().files.contains_key(file) {
                    done(&json!({ "file_id": file, "file_path": format!("photos/{file}") }))
                } else {
                    failed(400, "Bad Request: invalid file_id")
                }
            }
            _ => failed(404, "Not Found"),
        }
    }

    #[allow(clippy::disallowed_methods)] // a long poll ends by the clock
    fn updates(&self, body: &Value) -> Value {
        let offset = body["offset"].as_i64().unwrap_or(0);
        let until = Instant::now() + HOLD.min(Duration::from_secs(body["timeout"].as_u64().unwrap_or(0)));
        let mut state = self.lock();
        state.pollers += 1;
        let own = state.pollers;
        self.state.1.notify_all();
        state.updates.retain(|update| update["update_id"].as_i64().is_none_or(|number| number >= offset));
        while state.updates.is_empty() && state.pollers == own {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.state.1.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.pollers != own {
            return failed(409, "Conflict: terminated by other getUpdates request");
        }
        done(&json!(state.updates.iter().take(100).collect::<Vec<_>>()))
    }

    fn send(&self, body: &Value) -> Value {
        let text = match text_of(body) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let mut state = self.lock();
        state.next_message += 1;
        let rows = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
        let buttons: Vec<(String, String)> = rows
            .iter()
            .flat_map(|row| row.as_array().cloned().unwrap_or_default())
            .map(|button| {
                let field = |name: &str| button[name].as_str().expect("text").to_owned();
                (field("text"), field("callback_data"))
            })
            .collect();
        if buttons.iter().any(|(_, data)| data.len() > 64) {
            return failed(400, "Bad Request: BUTTON_DATA_INVALID");
        }
        let sent = Sent {
            id: state.next_message,
            chat: body["chat_id"].as_i64().expect("a chat"),
            thread: body["message_thread_id"].as_i64(),
            text,
            html: body["text"].as_str().unwrap_or_default().to_owned(),
            earlier: Vec::new(),
            buttons,
        };
        let id = sent.id;
        state.messages.insert(id, sent);
        done(&json!({ "message_id": id }))
    }

    fn edit(&self, body: &Value) -> Value {
        let text = match text_of(body) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let mut state = self.lock();
        let id = body["message_id"].as_i64().expect("an id");
        let Some(sent) = state.messages.get_mut(&id) else {
            return failed(400, "Bad Request: message to edit not found");
        };
        if sent.text == text && sent.buttons.is_empty() {
            return failed(400, "Bad Request: message is not modified: it has the same content");
        }
        let earlier = std::mem::replace(&mut sent.text, text);
        sent.earlier.push(earlier);
        body["text"].as_str().unwrap_or_default().clone_into(&mut sent.html);
        sent.buttons.clear();
        done(&json!({ "message_id": id }))
    }
}

/// What a person sees of the text in a request; an error if Telegram would not take it.
fn text_of(body: &Value) -> Result<String, Value> {
    let text = body["text"].as_str().unwrap_or_default();
    let text = if body["parse_mode"] == "HTML" { without_markup(text)? } else { text.to_owned() };
    if text.trim().is_empty() {
        return Err(failed(400, "Bad Request: message text is empty"));
    }
    if text.encode_utf16().count() > MAX_UNITS {
        return Err(failed(400, "Bad Request: message is too long"));
    }
    Ok(text)
}

/// Takes tags out, which must be closed in their order.
fn without_markup(html: &str) -> Result<String, Value> {
    let error = || failed(400, "Bad Request: can't parse entities");
    let (mut text, mut open, mut rest) = (String::new(), Vec::new(), html);
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = rest[at..].find('>').ok_or_else(error)? + at;
        let tag = &rest[at + 1..end];
        match tag.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(_) => return Err(error()),
            None => {
                let name = tag.split(' ').next().unwrap_or_default();
                if !["b", "code", "pre", "i", "a"].contains(&name) {
                    return Err(error());
                }
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    if !open.is_empty() {
        return Err(error());
    }
    text.push_str(rest);
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    Ok(text)
}

fn done(result: &Value) -> Value {
    json!({ "ok": true, "result": result })
}

fn failed(code: u16, description: &str) -> Value {
    json!({ "ok": false, "error_code": code, "description": description })
}

/// The path of a request and its body; `None` if the client is gone.
fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = header.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    // A form with a file is kept as a text.
    let form = || Value::String(String::from_utf8_lossy(&body).into_owned());
    Some((path, serde_json::from_slice(&body).unwrap_or_else(|_| form())))
}

fn respond_json(stream: &TcpStream, answer: &Value) {
    let status = answer["error_code"].as_u64().unwrap_or(200);
    respond(stream, status, answer.to_string().as_bytes());
}

fn respond(mut stream: &TcpStream, status: u64, body: &[u8]) {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
    // The client may be gone.
    let (Ok(()) | Err(_)) = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
