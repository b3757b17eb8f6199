//! Webhooks of other services: signed ones become messages, each once, also across a kill; others open nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::{Value, json};

use crate::{
    http::Answer,
    running::until,
    served::{Served, scripts},
    world::World,
};

const HUB: &str = "It's a Secret to Everybody";
const CONFIG: &str = r#"
[agents.bot]
max_turns = 5

[inbound.hub]
signature = "github"
secrets = ["env:HUB_NEW", "env:HUB"]
session = "github-{{ repository.full_name }}"
text = "{{ headers.x_github_event }}: {{ issue.title }}"
instructions = "Sort this issue."
events = ["X-GitHub-Event=issues", "/action=opened"]
agent = "bot"

[inbound.pay]
signature = "stripe"
secret = "env:PAY"
session = "pay-{{ data.object.customer | default('none') }}"
text = "{{ type }}"

[inbound.chat]
signature = "slack"
secret = "env:CHAT"
session = "slack-{{ event.channel }}"
text = "{{ event.text }}"
mode = "collect"

[inbound.std]
signature = "standard"
secret = "env:STD"
session = "std"
text = "{{ data.text }}"

[inbound.plain]
signature = "bearer"
secret = "env:PLAIN"
session = "plain{{ suffix | default('') }}"
text = "{{ text }}"
"#;

fn start() -> Served {
    let world = World::new();
    world.configure(CONFIG);
    let variables = [
        ("HUB_NEW", "the next secret"),
        ("HUB", HUB),
        ("PAY", "whsec_pay"),
        ("CHAT", "8f742231b10e8888abcd99yyyzzz85a5"),
        ("STD", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("PLAIN", "plain-token"),
    ];
    Served::start_with((world, &scripts()), |_| variables.map(|(name, value)| (name, value.into())).into())
}

#[allow(clippy::disallowed_methods)] // signatures are of the present
fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn issue(title: &str) -> Value {
    json!({ "action": "opened", "issue": { "title": title }, "repository": { "full_name": "a/b" } })
}

impl Served {
    fn hook(&self, name: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.send_plain(("POST", &format!("/v1/hooks/{name}")), &headers, body)
    }

    fn github(&self, (secret, id, event): (&str, &str, &str), body: &Value) -> Answer {
        let body = body.to_string();
        let tag = format!("sha256={}", HEXLOWER.encode(&mac(secret.as_bytes(), &body)));
        let headers = [("x-hub-signature-256", &*tag), ("x-github-delivery", id), ("x-github-event", event)];
        self.hook("hub", &headers, &body)
    }

    fn stripe(&self, (secret, time): (&str, i64), body: &Value) -> Answer {
        let body = body.to_string();
        let tag = HEXLOWER.encode(&mac(secret.as_bytes(), &format!("{time}.{body}")));
        self.hook("pay", &[("stripe-signature", &format!("t={time},v1={tag},v0={tag}"))], &body)
    }

    fn slack(&self, time: i64, body: &Value) -> Answer {
        let body = body.to_string();
        let tag = HEXLOWER.encode(&mac(b"8f742231b10e8888abcd99yyyzzz85a5", &format!("v0:{time}:{body}")));
        let (time, tag) = (time.to_string(), format!("v0={tag}"));
        self.hook("chat", &[("x-slack-request-timestamp", &time), ("x-slack-signature", &tag)], &body)
    }

    #[track_caller]
    fn answered(&self, accepted: &Value) -> String {
        let message = accepted["message"].as_str().unwrap_or_else(|| panic!("{accepted}"));
        until("the message is answered", || {
            self.get(&format!("/v1/messages/{message}")).json()["state"] == "answered"
        });
        let waited = self.get(&format!("/v1/runs/{message}/wait?timeout=60s")).json();
        waited["answer"].as_str().unwrap_or_default().to_owned()
    }
}

#[track_caller]
fn accepted(answer: Answer) -> Value {
    let (status, body) = (answer.status, answer.json());
    assert_eq!(status, 202, "{body}");
    body
}

#[test]
fn a_signed_webhook_is_a_message_once_also_across_a_kill() {
    let mut served = start();
    let first = accepted(served.github((HUB, "d-1", "issues"), &issue("It breaks")));
    let answer = served.answered(&first);
    let expect = "Sort this issue.\n\nThis came by the webhook `hub`.";
    assert!(
        answer.contains(expect) && answer.contains("----- webhook hub -----\nissues: It breaks\n-----"),
        "{answer}"
    );
    let session = served.get("/v1/sessions/github-a%2Fb").json();
    assert_eq!((&session["id"], &session["agent"]), (&first["session"], &json!("bot")), "{session}");
    // The same delivery, though the body differs in what the template shows; and by the other secret.
    assert_eq!(accepted(served.github((HUB, "d-1", "issues"), &issue("other"))), first);
    served.kill();
    served.start_again();
    assert_eq!(accepted(served.github(("the next secret", "d-1", "issues"), &issue("It breaks"))), first);
    assert_eq!(served.runs(), 1);
    let second = accepted(served.github((HUB, "d-2", "issues"), &issue("It breaks")));
    assert_eq!(second["session"], first["session"]);
    assert_ne!(second["message"], first["message"]);
}

#[test]
fn a_webhook_that_is_not_signed_opens_nothing() {
    let served = start();
    let body = issue("x").to_string();
    let right = format!("sha256={}", HEXLOWER.encode(&mac(HUB.as_bytes(), &body)));
    let wrong = right.replace(&right[10..14], "0000");
    let mut texts = Vec::new();
    let mut check = |answer: Answer| {
        let (status, text) = (answer.status, answer.text());
        assert_eq!(status, 401, "{text}");
        texts.push(text);
    };
    let id = ("x-github-delivery", "d");
    check(served.hook("hub", &[id], &body));
    check(served.hook("hub", &[id, ("x-hub-signature-256", &wrong)], &body));
    check(served.hook("hub", &[id, ("x-hub-signature-256", &right)], &format!("{body} ")));
    check(served.hook("hub", &[id, ("x-hub-signature-256", &right)], "{ this is no JSON"));
    check(served.hook("nobody", &[id, ("x-hub-signature-256", &right)], &body));
    check(served.hook("plain", &[("authorization", "Bearer plain-toke")], &body));
    check(served.stripe(("whsec_pay", now() - 310), &json!({ "id": "evt" })));
    check(served.stripe(("whsec_pay", now() + 310), &json!({ "id": "evt" })));
    check(served.stripe(("other", now()), &json!({ "id": "evt" })));
    check(served.slack(now() - 310, &json!({ "type": "url_verification", "challenge": "c" })));
    // A token of the service is no signature, and a secret of an endpoint no token.
    let bearer = format!("Bearer {}", served.token);
    check(served.hook("hub", &[("authorization", &bearer)], &body));
    check(served.hook("plain", &[("authorization", &bearer)], &body));
    texts.dedup();
    assert_eq!(texts.len(), 1, "an answer tells what is wrong: {texts:?}");
    let secret = [("authorization", "Bearer plain-token"), ("content-type", "application/json")];
    for (method, path) in [
        ("GET", "/v1/runs"),
        ("POST", "/v1/runs"),
        ("GET", "/v1/hooks/plain/../../runs"),
        ("GET", "/metrics"),
    ] {
        let status = served.send_plain((method, path), &secret, r#"{"input":"x"}"#).status;
        assert!(matches!(status, 401 | 404), "{method} {path}: {status}");
    }
    assert_eq!(served.send_plain(("GET", "/v1/hooks/hub"), &[], "").status, 405);
    assert_eq!(served.runs(), 0, "nothing was accepted");
}

#[test]
fn each_sender_signs_in_its_own_way() {
    let served = start();
    let event = json!({ "id": "evt_1", "type": "invoice.paid", "pending_webhooks": 1, "data": { "object": { "customer": "c1" } } });
    let paid = accepted(served.stripe(("whsec_pay", now()), &event));
    assert!(served.answered(&paid).contains("\ninvoice.paid\n"));
    // Stripe counts attempts in the body, and signs anew.
    let again =
        json!({ "id": "evt_1", "type": "invoice.paid", "pending_webhooks": 0, "data": { "object": {} } });
    assert_eq!(accepted(served.stripe(("whsec_pay", now() - 200), &again)), paid);

    let challenge = served.slack(now(), &json!({ "type": "url_verification", "challenge": "3eZb" }));
    assert_eq!((challenge.status, challenge.json()), (200, json!({ "challenge": "3eZb" })));
    let said = |id: &str, text: &str| json!({ "type": "event_callback", "event_id": id, "event": { "channel": "C1", "text": text } });
    let [one, two] = ["Ev1", "Ev2"].map(|id| accepted(served.slack(now(), &said(id, id))));
    until("both are answered by one run", || {
        let fates = [&one, &two]
            .map(|sent| served.get(&format!("/v1/messages/{}", sent["message"].as_str().unwrap())).json());
        fates.iter().all(|fate| fate["state"] == "answered" && fate["run"] == one["message"])
    });
    // A message that has joined another one is known by its id too.
    assert_eq!(accepted(served.slack(now(), &said("Ev2", "changed"))), two);

    let body = json!({ "data": { "text": "hello" } }).to_string();
    let (id, time) = ("msg_1", now().to_string());
    let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let tag = format!("v1,{}", STANDARD.encode(mac(&key, &format!("{id}.{time}.{body}"))));
    let headers = [("webhook-id", id), ("webhook-timestamp", &time), ("webhook-signature", &tag)];
    let sent = accepted(served.hook("std", &headers, &body));
    assert_eq!(accepted(served.hook("std", &headers, &body)), sent);

    let ping = served.github((HUB, "p", "ping"), &json!({ "zen": "Keep it simple." }));
    assert_eq!((ping.status, ping.json()), (200, json!({ "ignored": "ping" })));
    let other = served.github((HUB, "o", "push"), &issue("x"));
    assert_eq!((other.status, other.json()), (200, json!({ "ignored": "events" })));
    let before = served.runs();
    let token = [("authorization", "Bearer plain-token")];
    let twice = [(); 2].map(|()| accepted(served.hook("plain", &token, r#"{"text":"hi"}"#)));
    assert_ne!(twice[0], twice[1], "without an id of its own each one is new");
    assert_eq!(served.runs(), before + 2);
}

#[test]
fn what_cannot_become_a_message_is_named() {
    let served = start();
    let check = |body: &str, status: u16, part: &str| {
        let answer = served.hook("plain", &[("authorization", "Bearer plain-token")], body);
        let (found, problem) = (answer.status, answer.text());
        assert_eq!(found, status, "{problem}");
        assert!(problem.contains(part), "{problem}");
    };
    check("payload=%7B%7D", 400, "the body is no JSON");
    check("[]", 422, "text: undefined value");
    check(r#"{"text":""}"#, 422, "text: is empty");
    check(r#"{"text":"x","suffix":"\u0000"}"#, 422, "session: \\\"plain\\\\0\\\" has control characters");
    check(&format!(r#"{{"text":"x","suffix":"{}"}}"#, "y".repeat(300)), 422, "session: has 305 bytes");
    check(&json!({ "text": "x".repeat(5 << 20) }).to_string(), 413, "is longer than 4194304 bytes");
    let body = issue("x").to_string();
    let tag = format!("sha256={}", HEXLOWER.encode(&mac(HUB.as_bytes(), &body)));
    let headers = [("x-hub-signature-256", tag.as_str()), ("x-github-event", "issues")];
    let answer = served.hook("hub", &headers, &body);
    let (status, problem) = (answer.status, answer.text());
    assert_eq!(status, 422, "{problem}");
    assert!(problem.contains("id: the header X-GitHub-Delivery"), "{problem}");
    // A session of another agent stays as it is, also if a sender can name it.
    let taken = json!({ "input": "hello", "session": "plain-x" });
    let mine = json!({ "input": "hello", "session": "github-c/d" });
    assert_eq!((served.post("/v1/runs", &taken).status, served.post("/v1/runs", &mine).status), (202, 202));
    let event =
        json!({ "action": "opened", "issue": { "title": "t" }, "repository": { "full_name": "c/d" } });
    let answer = served.github((HUB, "d-9", "issues"), &event);
    let (status, problem) = (answer.status, answer.text());
    assert_eq!(status, 422, "{problem}");
    assert!(problem.contains("session: `github-c/d` belongs to another agent"), "{problem}");
}

#[test]
fn a_reload_exchanges_the_endpoints() {
    let served = start();
    let send = |id: &str| served.github((HUB, id, "issues"), &issue("t")).status;
    assert_eq!(send("1"), 202);
    let rotated = CONFIG.replace(r#"["env:HUB_NEW", "env:HUB"]"#, r#"["env:HUB_NEW"]"#);
    served.world.configure(&rotated);
    served.world.ok(&["config", "reload"]);
    assert_eq!(send("2"), 401, "the old secret holds no more");
    served.world.configure(&rotated.replace("HUB_NEW", "NOT_SET"));
    let refused = served.world.hermod(&["config", "reload"]).output().unwrap();
    assert!(!refused.status.success());
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("inbound.hub: secret: env:NOT_SET"),
        "{refused:?}"
    );
    assert_eq!(served.github(("the next secret", "3", "issues"), &issue("t")).status, 202, "nothing changed");
}
