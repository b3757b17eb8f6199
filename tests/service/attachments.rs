//! Files that models send with the tool `message`: captured once, whatever becomes of the file, the session and the process.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    mail_server::{MailServer, Manner},
    receiver::{Answer, Receiver, SECRET},
    running::until,
    served::Served,
    telegram_server::{Answer as ChatAnswer, TOKEN, TelegramServer},
    world::World,
};

const TARGETS: &str = r#"
[targets.ops]
kind = "webhook"
url = "URL"
secret = "env:HOOK"

[targets.box]
kind = "folder"
path = "BOX"

[delivery]
attempts = 1000
timeout = "2s"
first_pause = "5ms"
longest_pause = "40ms"
"#;

/// A run whose input is `TARGET PATH…` sends these files; the model then says what the tool has answered.
fn scripts(calls: &[(&str, &str, &[&str])]) -> Value {
    let script = |(when, target, files): &(&str, &str, &[&str])| {
        let arguments = json!({ "target": target, "text": "see the files", "attachments": files });
        json!({ "when": when, "steps": [
            { "call": [{ "tool": "message", "arguments": arguments }] }, { "say": "{{result:last}}" },
        ] })
    };
    calls.iter().map(script).chain([json!({ "steps": [{ "say": "hello" }] })]).collect()
}

fn start(url: &str, more: &str, scripts: &Value) -> Served {
    let world = World::new();
    let folder = world.work().join("box").display().to_string();
    world.configure(&(TARGETS.replace("URL", url).replace("BOX", &folder) + more));
    fs::write(world.work().join("report 1.txt"), "one\ntwo\n").unwrap();
    fs::write(world.work().join("chart.png"), PICTURE).unwrap();
    fs::write(world.work().join("secret.txt"), "hidden").unwrap();
    Served::start_with((world, scripts), |_| vec![("HOOK", SECRET.into()), ("BOT", TOKEN.into())])
}

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\x00\xff\xfe";

impl Served {
    /// Carries out a run of this input in the session `c`, and returns the answer.
    #[track_caller]
    fn carries_out(&self, input: &str) -> String {
        let body = json!({ "input": input, "session": "c" });
        let run = self.post("/v1/runs", &body).json()["run"].as_str().expect("it is accepted").to_owned();
        let ended = self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
        ended["answer"].as_str().unwrap_or_else(|| panic!("{ended}")).to_owned()
    }

    fn messages_in(&self, state: &str) -> Vec<Value> {
        let listed = self.get(&format!("/v1/deliveries?state={state}")).json();
        listed["items"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
    }
}

const BOTH: &[&str] = &["report 1.txt", "chart.png"];

#[test]
fn a_file_is_sent_as_it_was_over_a_kill_a_removed_session_and_gc() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let receiver =
        Receiver::start(move |_, _| Answer::Status(if up.load(Ordering::Relaxed) { 200 } else { 503 }));
    let more = "\n[retention]\nartifacts = \"1ms\"\n";
    let mut served = start(&receiver.url, more, &scripts(&[("send", "ops", BOTH)]));
    let told = served.carries_out("send");
    assert!(told.contains(r#""attachments":[{"name":"report 1.txt","bytes":8}"#), "{told}");
    until("it is tried", || !receiver.received().is_empty());
    fs::write(served.world.work().join("report 1.txt"), "changed").unwrap();
    fs::remove_file(served.world.work().join("chart.png")).unwrap();
    served.kill();
    served.start_again();
    // Nothing takes the files while the message waits.
    served.world.ok(&["gc"]);
    assert_eq!(served.send(("DELETE", "/v1/sessions/c"), &[], "").status, 204);
    served.world.ok(&["gc"]);
    let waiting = served.messages_in("pending");
    let files =
        json!([{ "name": "report 1.txt", "bytes": 8 }, { "name": "chart.png", "bytes": PICTURE.len() }]);
    assert_eq!(waiting[0]["attachments"], files);
    is_up.store(true, Ordering::Relaxed);
    until("it has come", || receiver.taken().len() == 1);
    let taken = receiver.taken()[0].body["data"]["attachments"].clone();
    let content = |n: usize| STANDARD.decode(taken[n]["content"].as_str().unwrap()).unwrap();
    assert_eq!((content(0), content(1)), (b"one\ntwo\n".to_vec(), PICTURE.to_vec()));
    assert_eq!(taken[1]["media_type"], "image/png");
    // Then they go.
    until("it is delivered", || served.messages_in("delivered").len() == 1);
    let folder = served.world.state().join("artifacts");
    let artifacts = || fs::read_dir(&folder).unwrap().count();
    // Files of no run stay for a while, because their run may be about to be accepted.
    let long_ago = SystemTime::UNIX_EPOCH;
    for session in
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for file in fs::read_dir(&session).unwrap().map(|entry| entry.unwrap().path()) {
            fs::File::open(file).unwrap().set_modified(long_ago).unwrap();
        }
        fs::File::open(session).unwrap().set_modified(long_ago).unwrap();
    }
    until("gc has removed them", || {
        served.world.ok(&["gc"]);
        artifacts() <= 1
    });
}

#[test]
fn what_may_not_be_sent_is_said_and_sends_nothing() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let more = "\n[attachments]\neach = \"1KiB\"\ntotal = \"1KiB\"\ncount = 3\n\n[policy]\ndeny = [\"read_file(secret*)\"]\n";
    let scripts = scripts(&[
        ("outside", "ops", &["../x"]),
        ("link", "ops", &["link"]),
        ("missing", "ops", &["report 1.txt", "none"]),
        ("large", "ops", &["large"]),
        ("together", "ops", &["half", "half"]),
        ("many", "ops", &["half", "half", "half", "half"]),
        ("denied", "ops", &["secret.txt"]),
    ]);
    let served = start(&receiver.url, more, &scripts);
    fs::write(served.world.work().join("large"), vec![0; 1_025]).unwrap();
    fs::write(served.world.work().join("half"), vec![0; 600]).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", served.world.work().join("link")).unwrap();
    for (input, part) in [
        ("outside", "leads out of the workspace"),
        ("link", "leads out of the workspace"),
        ("missing", "does not exist"),
        ("large", "is too large"),
        ("together", "together with the other files"),
        ("many", "it has 4 files, over the limit of 3"),
        ("denied", "policy"),
    ] {
        let told = served.carries_out(input);
        assert!(told.contains(part) && told.contains("error"), "{input}: {told}");
    }
    for state in ["pending", "delivered", "dead"] {
        assert_eq!(served.messages_in(state), [Value::Null; 0], "{state}");
    }
    assert!(receiver.received().is_empty());
}

#[test]
fn a_folder_and_a_letter_have_the_files_and_a_webhook_has_a_bound() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let mail = MailServer::start(|_| Manner::Accept);
    let more = format!(
        "\n[targets.mail]\nkind = \"email\"\nserver = \"127.0.0.1\"\nport = {}\ntls = \"none\"\nfrom = \
         \"bot@example.com\"\nto = [\"ops@example.com\"]\n",
        mail.port
    );
    let scripts = scripts(&[("box", "box", BOTH), ("mail", "mail", BOTH), ("large", "ops", &["large"])]);
    let served = start(&receiver.url, &more, &scripts);
    fs::write(served.world.work().join("large"), vec![0; (5 << 20) + 1]).unwrap();

    served.carries_out("box");
    until("it is delivered", || served.messages_in("delivered").len() == 1);
    let folder = served.world.work().join("box");
    let id = served.messages_in("delivered")[0]["id"].as_str().unwrap().to_owned();
    let message: Value =
        serde_json::from_str(&fs::read_to_string(folder.join(format!("{id}.json"))).unwrap()).unwrap();
    let files = &message["data"]["attachments"];
    assert_eq!(files[0]["file"], json!(format!("{id}-1-report 1.txt")));
    let content = |n: usize| fs::read(folder.join(files[n]["file"].as_str().unwrap())).unwrap();
    assert_eq!((content(0), content(1)), (b"one\ntwo\n".to_vec(), PICTURE.to_vec()));

    served.carries_out("mail");
    until("it has come", || mail.letters().len() == 1);
    let letter = &mail.letters()[0];
    let kind = letter.header("Content-Type").unwrap_or_default();
    assert!(kind.starts_with("multipart/mixed"), "{kind}");
    assert!(letter.text.contains("see the files"), "{}", letter.text);
    assert!(letter.text.contains("filename=\"report 1.txt\""), "{}", letter.text);
    assert!(letter.text.contains(&STANDARD.encode(PICTURE)), "{}", letter.text);

    served.carries_out("large");
    until("it is dead", || served.messages_in("dead").len() == 1);
    let error = served.messages_in("dead")[0]["error"].to_string();
    assert!(error.contains("a webhook takes at most 5242880"), "{error}");
    assert!(receiver.received().is_empty());
}

#[test]
fn a_chat_gets_each_file_once() {
    let receiver = Receiver::start(|_, _| Answer::Status(200));
    let server = TelegramServer::start();
    let more = format!(
        "\n[channels.home]\nkind = \"telegram\"\ntoken = \"env:BOT\"\nallow = [17]\nurl = \"{}\"\n\n[targets.me]\n\
         kind = \"telegram\"\nchannel = \"home\"\nchat = \"17\"\n",
        server.url
    );
    // The second file fails at first: what was sent before it is not sent again.
    let failures = AtomicBool::new(true);
    server.behave(move |method, _| match method {
        "sendPhoto" if failures.swap(false, Ordering::Relaxed) => ChatAnswer::Error(500, "Internal"),
        _ => ChatAnswer::Normal,
    });
    let served = start(&receiver.url, &more, &scripts(&[("send", "me", BOTH)]));
    served.carries_out("send");
    until("it is delivered", || served.messages_in("delivered").len() == 1);
    assert!(server.has(17, "see the files"), "{:?}", server.texts(17));
    let documents = server.calls("sendDocument");
    assert_eq!((documents.len(), server.calls("sendPhoto").len()), (1, 2));
    let form = documents[0].as_str().unwrap();
    assert!(form.contains("filename=\"report 1.txt\"") && form.contains("\r\n\r\none\ntwo\n\r\n"), "{form}");
    assert!(form.contains("name=\"chat_id\"\r\n\r\n17\r\n"), "{form}");
}
