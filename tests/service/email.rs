//! Messages and results as e-mail: each arrives under one id, whatever the mail server does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    mail_server::{MailServer, Manner},
    running::until,
    served::Served,
    world::World,
};

fn scripts() -> Value {
    let call = json!({ "tool": "message", "arguments": { "target": "mail", "text": "{{user}}" } });
    json!([
        { "when": "tell", "steps": [{ "call": [call] }, { "say": "told" }] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ])
}

/// A service with a target at the server.
fn start(server: &MailServer, more: &str) -> Served {
    start_with(server, "none", more)
}

fn start_with(server: &MailServer, tls: &str, more: &str) -> Served {
    let world = World::new();
    world.configure(&format!(
        r#"
[targets.mail]
kind = "email"
server = "127.0.0.1"
port = {}
tls = "{tls}"
from = "Bot <bot@example.com>"
to = ["ops@example.com", "Änne <aenne@example.com>"]
{more}

[delivery]
attempts = 5
timeout = "1s"
first_pause = "5ms"
longest_pause = "40ms"
"#,
        server.port
    ));
    Served::start_with((world, &scripts()), |_| vec![("MAIL_PASSWORD", "hunter2-hunter2".into())])
}

impl Served {
    #[track_caller]
    fn send_letter(&self, body: &Value) -> String {
        self.post("/v1/runs", body).json()["run"].as_str().expect("it is accepted").to_owned()
    }

    fn listed(&self, state: &str) -> Vec<Value> {
        let listed = self.get(&format!("/v1/deliveries?state={state}")).json();
        listed["items"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
    }
}

#[test]
fn a_message_is_a_letter() {
    let server = MailServer::start(|_| Manner::Accept);
    let more = "user = \"bot\"\npassword = \"env:MAIL_PASSWORD\"\n";
    let served = start(&server, more);
    served.send_letter(&json!({ "input": "tell\n.one\nBcc: x@example.com" }));
    until("it has ended", || !served.listed("delivered").is_empty() || !served.listed("dead").is_empty());
    assert_eq!(served.listed("dead"), [Value::Null; 0]);
    let letters = server.letters();
    let letter = &letters[0];
    let id = served.listed("delivered")[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(letter.header("Message-ID"), Some(&*format!("<{id}@example.com>")));
    assert_eq!(letter.header("From"), Some("Bot <bot@example.com>"));
    assert_eq!(letter.header("Subject"), Some("tell"));
    assert_eq!(letter.header("Auto-Submitted"), Some("auto-generated"));
    assert_eq!(letter.header("Bcc"), None, "a text is no header");
    let commands = letter.commands.join("\n");
    for command in ["MAIL FROM:<bot@example.com>", "RCPT TO:<ops@example.com>", "RCPT TO:<aenne@example.com>"]
    {
        assert!(commands.contains(command), "{commands}");
    }
    let login = STANDARD.encode("\0bot\0hunter2-hunter2");
    assert!(commands.contains(&format!("AUTH PLAIN {login}")), "{commands}");
    let (_, body) = letter.text.split_once("\r\n\r\n").unwrap();
    // A line that begins with a full stop gets a second one on the way.
    assert_eq!(body.trim_end(), "tell\r\n..one\r\nBcc: x@example.com");
}

#[test]
fn a_result_is_a_letter_with_a_subject_of_its_own() {
    let server = MailServer::start(|_| Manner::Accept);
    let served = start(&server, r#"subject = "[bot] {{ outcome | default('message') }}: {{ first_line }}""#);
    let run = served.send_letter(&json!({ "input": "hello", "deliver_to": ["mail"] }));
    until("it has come", || server.letters().len() == 1);
    let letter = &server.letters()[0];
    assert_eq!(letter.header("Subject"), Some("[bot] completed: [rehearsal] You said: hello"));
    assert!(
        letter.text.contains(&format!("run {run}: completed\r\n\r\n[rehearsal] You said: hello")),
        "{}",
        letter.text
    );
    // A template that cannot be filled is a dead letter that says why.
    let served = start(&server, "subject = \"{{ nothing }}\"");
    served.send_letter(&json!({ "input": "tell" }));
    until("it is dead", || served.listed("dead").len() == 1);
    let error = served.listed("dead")[0]["error"].to_string();
    assert!(error.contains("subject: undefined value"), "{error}");
}

#[test]
fn what_fails_for_now_is_tried_again_with_the_same_id() {
    let server = MailServer::start(|n| match n {
        0 => Manner::Reply("RCPT", "451 4.7.1 greylisted"),
        1 => Manner::Hang,
        2 => Manner::DieAfterData,
        _ => Manner::Accept,
    });
    let served = start(&server, "");
    served.send_letter(&json!({ "input": "tell" }));
    until("it has ended", || !served.listed("delivered").is_empty() || !served.listed("dead").is_empty());
    assert_eq!(served.listed("dead"), [Value::Null; 0]);
    assert_eq!(served.listed("delivered")[0]["attempts"], 4);
    let ids: Vec<String> =
        server.letters().iter().map(|letter| letter.header("Message-ID").unwrap().to_owned()).collect();
    // The server took the first one too, and did not say so.
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
}

#[test]
fn a_refusal_for_good_is_a_dead_letter_with_the_servers_words() {
    let check = |manner: Manner, more: &str, part: &str| {
        let server = MailServer::start(move |_| manner);
        let served = start(&server, more);
        served.send_letter(&json!({ "input": "tell" }));
        until("it is dead", || served.listed("dead").len() == 1);
        let dead = &served.listed("dead")[0];
        let error = dead["error"].to_string();
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        assert_eq!(server.letters().len(), 0);
        dead["attempts"].as_u64().unwrap()
    };
    assert_eq!(check(Manner::Reply("RCPT", "550 5.1.1 no such user"), "", "5.1.1 no such user"), 1);
    let login = "user = \"bot\"\npassword = \"env:MAIL_PASSWORD\"\n";
    assert_eq!(check(Manner::Reply("AUTH", "535 5.7.8 hunter2-hunter2 is wrong"), login, "5.7.8"), 1);
    assert_eq!(check(Manner::Reply("DATA", "452 4.3.1 disk full"), "", "4.3.1 disk full"), 5);
}

#[test]
fn nothing_is_sent_in_the_clear_if_the_server_offers_no_encryption() {
    let server = MailServer::start(|_| Manner::Accept);
    let served = start_with(&server, "starttls", "user = \"bot\"\npassword = \"env:MAIL_PASSWORD\"\n");
    served.send_letter(&json!({ "input": "tell" }));
    until("it is given up", || served.listed("dead").len() == 1);
    assert_eq!(served.listed("dead")[0]["attempts"], 5);
    assert_eq!(server.letters().len(), 0);
}
