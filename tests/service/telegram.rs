//! Chats of Telegram: conversations as a person sees them, against a server that speaks the bot API, also over kills.

use std::{fs, sync::Mutex, time::Duration};

use image::ImageFormat;
use serde_json::{Value, json};

use crate::{
    pictures::picture,
    running::{WAITING, until},
    served::Served,
    telegram_server::{Answer, Sent, TOKEN, TelegramServer},
    world::{World, object},
};

/// The chat of the person who may write.
const ANN: i64 = 17;
const KEY: &str = "telegram:home:17";

fn small_picture() -> Vec<u8> {
    picture(ImageFormat::Png, (2, 2))
}

fn scripts() -> Value {
    let waiting = json!([{ "tool": "shell", "arguments": { "command": WAITING } }]);
    let asked = json!([{ "tool": "write_file", "arguments": { "path": "made.txt", "content": "x" } }]);
    let question = json!({ "question": "Which colour?", "choices": ["red", "blue"] });
    let words = "one two three four five six seven eight nine ten. ".repeat(12);
    let code = format!("Code:\n\n```rust\n{}```\n\nThe end.", "let x = \"<&>\";\n".repeat(700));
    json!([
        { "when": "wait", "steps": [{ "call": waiting }, { "say": "waited" }] },
        { "when": "approve", "steps": [{ "call": asked }, { "say": "{{result:last}}" }] },
        { "when": "clarify", "steps": [
            { "call": [{ "tool": "clarify", "arguments": question }] }, { "say": "chosen: {{result:last}}" },
        ] },
        { "when": "stream", "steps": [{ "say": words, "chunk": 20, "chunk_delay": "25ms" }] },
        { "when": "slowly", "steps": [{ "say": words, "chunk": 4, "chunk_delay": "40ms" }] },
        { "when": "code", "steps": [{ "say": code }] },
        { "when": "silent", "steps": [{ "say": "NO_REPLY" }] },
        { "when": "fail", "steps": [{ "say": "x", "fault": { "status": 400, "times": "forever" } }] },
        { "when": "tell", "steps": [
            { "call": [{ "tool": "message", "arguments": { "target": "me", "text": "by the way" } }] },
            { "say": "told" },
        ] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ])
}

fn config(url: &str, more: &str) -> String {
    format!(
        r#"
[channels.home]
kind = "telegram"
token = "env:BOT"
allow = [{ANN}, -400]
url = "{url}"
edit_interval = "60ms"
{more}

[policy]
ask = ["write_file"]

[approvals]
approver = "person"

[replies]
required = false

[delivery]
first_pause = "20ms"
longest_pause = "100ms"
"#
    )
}

fn start_with(server: &TelegramServer, more: &str) -> Served {
    let world = World::new();
    world.configure(&config(&server.url, more));
    Served::start_with((world, &scripts()), |_| vec![("BOT", TOKEN.into())])
}

fn start(server: &TelegramServer) -> Served {
    start_with(server, "")
}

fn said(text: &str) -> String {
    format!("[rehearsal] You said: {text}")
}

/// Waits until a message of the chat has this text.
#[track_caller]
fn sees(server: &TelegramServer, text: &str) {
    until(&format!("the chat has `{text}`"), || server.has(ANN, text));
}

/// The runs of the service, the newest first.
fn runs(served: &Served) -> Vec<Value> {
    served.get("/v1/runs").json()["items"].as_array().unwrap().clone()
}

#[test]
fn a_conversation_with_streaming_steering_approval_commands_and_a_picture() {
    let server = TelegramServer::start();
    let served = start(&server);
    server.say(ANN, "hello");
    sees(&server, &said("hello"));
    streams(&server, &served);
    is_steered(&server, &served);
    asks_before_it_writes(&server, &served);
    // A picture with words.
    server.picture(ANN, &json!({ "caption": "look" }), &small_picture());
    sees(&server, &said("look"));
    assert!(served.world.ok(&["journal", KEY]).contains("\"images\""));
    obeys(&server, &served);
    until("all is confirmed", || server.unconfirmed() == 0);
    let status = object(&served.world.ok(&["status", "--json"]));
    let channel = &status["channels"][0];
    assert_eq!(
        (&channel["state"], &channel["bot"]),
        (&json!("connected"), &json!("hermod_bot")),
        "{channel}"
    );
    assert!(
        served.world.ok(&["status"]).contains("channel      home (telegram as @hermod_bot) is connected")
    );
}

/// A reply is streamed by edits of one message.
#[track_caller]
fn streams(server: &TelegramServer, served: &Served) {
    server.say(ANN, "stream");
    let whole = |text: &str| text.matches("ten.").count() == 12;
    until("it is whole", || server.shown(ANN).last().is_some_and(|sent| whole(&sent.text)));
    let shown = server.shown(ANN);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[1].earlier.len() >= 2, "{shown:?}");
    assert!(
        shown[1].earlier.iter().all(|earlier| shown[1].text.starts_with(earlier.trim_end())),
        "{shown:?}"
    );
    // A preview may have been whole before the run has ended: the next message would steer that run.
    until("it has ended", || runs(served).iter().all(|run| run["state"] == "ended"));
}

/// A message to a run under way steers it.
#[track_caller]
fn is_steered(server: &TelegramServer, served: &Served) {
    server.say(ANN, "wait");
    until("the command runs", || served.world.work().join("ran").exists());
    server.say(ANN, "and be quick");
    until("it is steered", || served.world.ok(&["journal", KEY]).contains("message.steered"));
    served.world.release();
    sees(server, "[rehearsal] waited");
    assert_eq!(runs(served).len(), 3);
}

/// A call that the policy asks about is allowed by a button.
#[track_caller]
fn asks_before_it_writes(server: &TelegramServer, served: &Served) {
    server.say(ANN, "approve");
    until("it asks", || server.shown(ANN).last().is_some_and(|sent| !sent.buttons.is_empty()));
    let question = server.shown(ANN).last().unwrap().clone();
    let labels: Vec<&str> = question.buttons.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!((labels.first(), labels.last()), (Some(&"Allow"), Some(&"Deny")), "{question:?}");
    server.press(ANN, "Allow");
    until("it is written", || served.world.work().join("made.txt").exists());
    let edited = || server.shown(ANN).into_iter().find(|sent| sent.id == question.id).unwrap();
    until("the question is settled", || edited().text.ends_with("Allowed.") && edited().buttons.is_empty());
    until("it is acknowledged", || !server.calls("answerCallbackQuery").is_empty());
    assert_eq!(server.calls("answerCallbackQuery")[0]["text"], "Allowed.");
    until("it answers", || server.texts(ANN).last().unwrap().contains("made.txt"));
}

/// What is under way is stopped; then a new conversation begins.
#[track_caller]
fn obeys(server: &TelegramServer, served: &Served) {
    fs::remove_file(served.world.work().join("release")).unwrap();
    fs::remove_file(served.world.work().join("ran")).unwrap();
    server.say(ANN, "wait");
    until("the command runs again", || served.world.work().join("ran").exists());
    server.say(ANN, "/stop");
    sees(server, "Stopped.");
    until("it is stopped", || runs(served)[0]["outcome"] == "stopped");
    server.say(ANN, "/status");
    until("it tells", || server.texts(ANN).iter().any(|text| text.contains("Nothing is under way.")));
    let number = server.say(ANN, "/new@hermod_bot");
    sees(server, "A new conversation begins.");
    server.say(ANN, "who am I?");
    sees(server, &said("who am I?"));
    let fresh = served.get(&format!("/v1/sessions/{KEY}:g{number}"));
    assert_eq!(fresh.status, 200);
    server.say(ANN, "/dance");
    until("it is told", || server.texts(ANN).iter().any(|text| text.contains("There is no command /dance")));
}

#[test]
fn questions_of_models_are_answered_by_buttons_or_words_and_outlive_the_process() {
    let server = TelegramServer::start();
    let mut served = start(&server);
    let asks = |count| {
        until("it asks", || {
            server.shown(ANN).iter().filter(|sent| sent.text.contains("Which colour?")).count() == count
        });
    };
    server.say(ANN, "clarify");
    asks(1);
    is_kept(&served, "Which colour?");
    served.kill();
    served.start_again();
    server.press(ANN, "blue");
    sees(&server, "[rehearsal] chosen: blue");
    until("it is settled", || server.texts(ANN)[0].ends_with("Answered."));
    server.say(ANN, "clarify");
    asks(2);
    is_kept(&served, "Which colour?");
    server.say(ANN, "rather green");
    sees(&server, "[rehearsal] chosen: rather green");
    // Answered elsewhere, while no process runs: the chat learns of it.
    server.say(ANN, "approve");
    until("it asks", || server.shown(ANN).last().is_some_and(|sent| !sent.buttons.is_empty()));
    let question = server.shown(ANN).last().unwrap().clone();
    is_kept(&served, "made.txt");
    let call = served.get("/v1/approvals").json()[0]["call"].as_str().unwrap().to_owned();
    served.kill();
    served.world.ok(&["approvals", "deny", &call]);
    served.start_again();
    let settled = || server.shown(ANN).into_iter().find(|sent| sent.id == question.id).unwrap();
    until("it is settled", || settled().text.ends_with("Denied.") && settled().buttons.is_empty());
    // A press that comes too late, and one with the data of another chat.
    let data = &question.buttons[0].1;
    server.press_data(ANN, question.id, data);
    until("it is told", || server.calls("answerCallbackQuery").len() == 2);
    assert!(!served.world.work().join("made.txt").exists());
}

/// A kill between the answer to a question and the confirmation of its update: the update comes again.
#[test]
fn a_text_that_has_answered_a_question_is_no_message_when_it_comes_again() {
    let server = TelegramServer::start();
    let mut served = start(&server);
    server.say(ANN, "clarify");
    is_kept(&served, "Which colour?");
    let path = served.world.state().join("channels/home.json");
    let state = || object(&fs::read_to_string(&path).unwrap());
    let call = state()["questions"].as_object().unwrap().keys().next().unwrap().clone();
    let number = server.say(ANN, "rather green");
    sees(&server, "[rehearsal] chosen: rather green");
    until("it is confirmed", || server.unconfirmed() == 0);
    until("the run has ended", || runs(&served).iter().all(|run| run["state"] == "ended"));
    served.kill();
    let mut earlier = state();
    earlier["next"] = number.into();
    earlier["answering"] = json!([number, call]);
    fs::write(&path, earlier.to_string()).unwrap();
    for (text, count) in [("rather green", 1), ("another text", 2)] {
        server.skip_to(number);
        server.say(ANN, text);
        served.start_again();
        until("it is confirmed", || server.unconfirmed() == 0);
        until("all have ended", || runs(&served).iter().all(|run| run["state"] == "ended"));
        assert_eq!(runs(&served).len(), count, "{text}");
        served.kill();
        fs::write(&path, earlier.to_string()).unwrap();
    }
}

/// Waits until the state of the channel has this text.
#[track_caller]
fn is_kept(served: &Served, text: &str) {
    let path = served.world.state().join("channels/home.json");
    until("it is kept", || fs::read_to_string(&path).is_ok_and(|state| state.contains(text)));
}

#[test]
fn hostile_senders_reach_nothing() {
    let server = TelegramServer::start();
    let served = start(&server);
    let mallory = 666;
    server.say(mallory, "hello");
    until("it is refused", || server.texts(mallory).len() == 1);
    assert!(server.texts(mallory)[0].contains("Your id is 666."), "{:?}", server.texts(mallory));
    server.say(mallory, "/stop");
    server.say(mallory, "clarify");
    // A member of a group is not one of its chats.
    server.message(mallory, &json!({ "text": "hi", "chat": { "id": -9, "type": "group" } }));
    server.say(ANN, "approve");
    until("it asks", || server.shown(ANN).last().is_some_and(|sent| !sent.buttons.is_empty()));
    let question = server.shown(ANN)[0].clone();
    server.press_data(mallory, question.id, &question.buttons[0].1);
    // A chat that may write, and presses what belongs to another one.
    server.press_data(-400, question.id, &question.buttons[0].1);
    until("both are answered", || server.calls("answerCallbackQuery").len() == 2);
    let notes: Vec<Value> =
        server.calls("answerCallbackQuery").iter().map(|body| body["text"].clone()).collect();
    assert_eq!(notes, ["You may not use this bot.", "This question is not of this chat."]);
    assert_eq!((runs(&served).len(), server.texts(mallory).len(), server.texts(-9).len()), (1, 1, 0));
    assert!(!served.world.work().join("made.txt").exists());
    // In a group that may write, the text says who speaks, and a topic is a chat of its own.
    server.message(mallory, &json!({
        "text": "hi", "chat": { "id": -400, "type": "supergroup" }, "message_thread_id": 3, "is_topic_message": true,
    }));
    until("it answers there", || server.has(-400, &said("Ann: hi")));
    assert_eq!(server.shown(-400)[0].thread, Some(3));
    assert_eq!(served.get("/v1/sessions/telegram:home:-400:t3").status, 200);
}

#[test]
fn an_update_is_one_message_over_kills() {
    let server = TelegramServer::start();
    let mut served = start(&server);
    sees_connected(&served);
    for n in 0..6 {
        server.say(ANN, &format!("number {n}"));
        // Killed at any moment: before the message is durable, before it is confirmed, during its run.
        std::thread::sleep(Duration::from_millis(23 * n));
        served.kill();
        served.start_again();
    }
    for n in 0..6 {
        until("each is answered", || {
            server.texts(ANN).iter().any(|text| text.ends_with(&format!("number {n}")))
        });
    }
    until("all is confirmed", || server.unconfirmed() == 0);
    let page = served.get(&format!("/v1/sessions/{KEY}/messages")).json().to_string();
    for n in 0..6 {
        let count = page.matches(&format!("number {n}")).count();
        // The message itself, and the answer that repeats it.
        assert!((1..=2).contains(&count), "{count} of number {n}: {page}");
    }
}

fn sees_connected(served: &Served) {
    until("it is connected", || {
        object(&served.world.ok(&["status", "--json"]))["channels"][0]["state"] == "connected"
    });
}

#[test]
fn a_reply_arrives_once_although_the_process_is_killed_while_it_streams_and_ends() {
    let server = TelegramServer::start();
    let mut served = start(&server);
    server.say(ANN, "slowly");
    for _ in 0..3 {
        let before = server.calls("editMessageText").len();
        until("it is streamed", || server.calls("editMessageText").len() > before + 1);
        served.kill();
        served.start_again();
    }
    let whole = |text: &str| text.matches("ten.").count() == 12;
    until("it is whole", || server.texts(ANN).iter().any(|text| whole(text)));
    until("it is delivered", || served.get("/v1/deliveries").json()["items"].as_array().unwrap().is_empty());
    assert_eq!(server.shown(ANN).len(), 1, "the preview became the reply: {:?}", server.texts(ANN));
    // The answer of a final edit is lost, and the process with it: nothing is sent twice.
    let lost = Mutex::new(0);
    server.behave(move |method, body| {
        let is_final = method == "editMessageText" && whole(body["text"].as_str().unwrap_or_default());
        let mut lost = lost.lock().unwrap();
        *lost += u32::from(is_final);
        if is_final && *lost <= 3 { Answer::Break } else { Answer::Normal }
    });
    server.say(ANN, "stream");
    until("it is whole again", || server.texts(ANN).iter().filter(|text| whole(text)).count() == 2);
    served.kill();
    served.start_again();
    until("it is delivered", || served.get("/v1/deliveries").json()["items"].as_array().unwrap().is_empty());
    server.say(ANN, "hello");
    sees(&server, &said("hello"));
    assert_eq!(server.shown(ANN).len(), 3, "{:?}", server.texts(ANN));
}

#[test]
fn long_answers_silence_and_failures_are_what_a_chat_can_show() {
    let server = TelegramServer::start();
    let served =
        start_with(&server, "\n[targets.me]\nkind = \"telegram\"\nchannel = \"home\"\nchat = \"17\"\n");
    server.say(ANN, "code");
    until("all of it is there", || server.texts(ANN).iter().any(|text| text.contains("The end.")));
    let shown = server.shown(ANN);
    assert!(shown.len() >= 3, "{}", shown.len());
    let count: usize = shown.iter().map(|sent| sent.text.matches("let x = \"<&>\";").count()).sum();
    assert_eq!(count, 700);
    assert!(
        shown.iter().all(|sent| sent.html.matches("<pre>").count() == sent.html.matches("</pre>").count())
    );
    let is_code = |sent: &Sent| sent.html.contains("<pre><code class=\"language-rust\">");
    assert_eq!(shown.iter().filter(|sent| is_code(sent)).count(), shown.len() - 1);
    server.say(ANN, "silent");
    server.say(ANN, "fail");
    until("it is told", || server.texts(ANN).last().unwrap().starts_with("No answer: "));
    let line = server.texts(ANN).last().unwrap().clone();
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(server.shown(ANN).len(), shown.len() + 1, "silence is nothing: {:?}", server.texts(ANN));
    server.say(ANN, "tell");
    sees(&server, "by the way");
    sees(&server, "[rehearsal] told");
    server.message(ANN, &json!({ "voice": { "file_id": "v" } }));
    sees(&server, "I take text and pictures, and not a voice message.");
    let output = served.world.ok(&["config", "show"]);
    assert!(!output.contains(TOKEN), "{output}");
}

#[test]
fn a_server_that_fails_holds_up_nothing_for_ever() {
    let server = TelegramServer::start();
    let count = Mutex::new(0);
    server.behave(move |method, _| {
        let mut count = count.lock().unwrap();
        *count += 1;
        match (*count, method) {
            (1, "getMe") => Answer::Error(502, "Bad Gateway"),
            (3, _) => Answer::Error(500, "Internal Server Error"),
            (_, "sendMessage") if *count % 3 == 0 => Answer::Limit(1),
            (_, "editMessageText") if *count % 2 == 0 => Answer::Limit(1),
            (_, "sendChatAction") => Answer::Hang,
            _ => Answer::Normal,
        }
    });
    let served = start(&server);
    // Poison: none of these may hold up the one behind.
    server.update(&json!({}));
    server.update(&json!({ "message": { "text": 7, "chat": "x" } }));
    server.update(
        &json!({ "callback_query": { "id": "x", "data": "a:b:c", "from": { "id": ANN }, "message": {} } }),
    );
    server.message(ANN, &json!({ "photo": [{ "file_id": "nowhere", "width": 1, "height": 1 }] }));
    server.picture(ANN, &json!({ "caption": "x" }), b"no picture");
    server.say(ANN, "hello");
    sees(&server, &said("hello"));
    until("all is confirmed", || server.unconfirmed() == 0);
    let refused =
        server.texts(ANN).iter().filter(|text| text.starts_with("This message was not taken")).count();
    assert_eq!(refused, 2, "{:?}", server.texts(ANN));
    server.behave(|method, _| match method {
        "getUpdates" => Answer::Error(401, "Unauthorized"),
        _ => Answer::Normal,
    });
    let status = || object(&served.world.ok(&["status", "--json"]))["channels"][0].clone();
    until("it fails", || status()["state"] == "failing");
    assert!(status()["error"].as_str().unwrap().contains("the token is not valid any more"), "{}", status());
    assert!(!status().to_string().contains(TOKEN));
}

#[test]
fn an_album_is_one_message_and_another_poller_is_told() {
    let server = TelegramServer::start();
    let conflicts = Mutex::new(0);
    server.behave(move |method, _| {
        let mut conflicts = conflicts.lock().unwrap();
        if method == "getUpdates" && *conflicts < 1 {
            *conflicts += 1;
            return Answer::Error(409, "Conflict: terminated by other getUpdates request");
        }
        Answer::Normal
    });
    let served = start(&server);
    server.picture(ANN, &json!({ "caption": "two", "media_group_id": "g" }), &small_picture());
    server.picture(ANN, &json!({ "media_group_id": "g" }), &small_picture());
    server.say(ANN, "after");
    sees(&server, &said("two"));
    sees(&server, &said("after"));
    assert_eq!(runs(&served).len(), 2);
    sees_connected(&served);
}

#[test]
fn hooks_are_told_of_commands_over_kills() {
    let server = TelegramServer::start();
    let world = World::new();
    let path = world.state().with_file_name("told");
    let hooks = format!(
        "\n[hooks.all]\non = [\"command\"]\ncommand = \"sleep 0.2; cat >> {0}\"\n\
         [hooks.new]\non = [\"command:reset\"]\ncommand = \"cat >> {0}\"\n",
        path.display()
    );
    world.configure(&config(&server.url, &hooks));
    let mut served = Served::start_with((world, &scripts()), |_| vec![("BOT", TOKEN.into())]);
    let number = server.say(ANN, "/new");
    server.say(ANN, "/dance now");
    until("both are answered", || server.texts(ANN).len() >= 2);
    served.kill();
    served.start_again();
    let told = || -> Vec<Value> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let has =
        |hook: &str, command: &str| told().iter().any(|it| it["hook"] == hook && it["command"] == command);
    until("all are told", || has("all", "new") && has("all", "dance") && has("new", "new"));
    assert!(!has("new", "dance"));
    let new: Vec<Value> = told().into_iter().filter(|event| event["command"] == "new").collect();
    for event in &new {
        let name = event["name"].as_str().unwrap();
        assert_eq!(event["id"], format!("home-{number:020}/{name}"));
        assert_eq!(
            (&event["chat"], &event["sender"], &event["channel"]),
            (&json!("17"), &json!("17"), &json!("home"))
        );
    }
    assert_eq!(told().iter().find(|event| event["command"] == "dance").unwrap()["argument"], "now");
    until("none waits", || {
        let folder = served.world.state().join("commands/all");
        fs::read_dir(folder).unwrap().count() == 0
    });
}

#[test]
fn a_reload_exchanges_the_channels() {
    let (server, other) = (TelegramServer::start(), TelegramServer::start());
    // The bot is the same, so the numbers of its updates go on.
    other.skip_to(900);
    let mut served = start(&server);
    server.say(ANN, "one");
    sees(&server, &said("one"));
    served.world.configure(&config(&other.url, "colour = 1"));
    served.world.fails(&["config", "reload"], 78, "channels.home.colour");
    served.world.configure(&config(&other.url, "").replace("env:BOT", "env:NONE"));
    served.world.fails(&["config", "reload"], 2, "channels.home.token");
    server.say(ANN, "two");
    sees(&server, &said("two"));
    served.world.configure(&config(&other.url, ""));
    served.world.ok(&["config", "reload"]);
    other.say(ANN, "three");
    sees(&other, &said("three"));
    served.world.configure("");
    served.world.ok(&["config", "reload"]);
    assert_eq!(object(&served.world.ok(&["status", "--json"]))["channels"], json!([]));
    // A channel that cannot be used keeps no service from starting.
    served.stop();
    served.world.configure(&config(&other.url, "").replace("env:BOT", "env:NONE"));
    served.start_noting(Some("channel   home is not used"));
    let status = object(&served.world.ok(&["status", "--json"]));
    assert_eq!(status["channels"][0]["state"], "unusable");
}
