//! `hermod send` and `hermod messages`: a message by the command line to a session of a service, its fate, also over a kill.

use std::fs;

use image::ImageFormat;
use serde_json::{Value, json};

use crate::{
    pictures,
    running::until,
    served::{Served, scripts},
    world::{World, object},
};

impl Served {
    /// Runs a command that prints one JSON object.
    #[track_caller]
    fn told(&self, args: &[&str]) -> Value {
        object(&self.world.ok(&[args, &["--json"]].concat()))
    }
}

#[test]
fn a_message_is_sent_and_its_answer_is_waited_for() {
    let served = Served::start(&scripts());
    let told = served.told(&["send", "s", "hello", "--wait"]);
    assert_eq!(
        (&told["state"], &told["answer"]),
        (&json!("answered"), &json!("[rehearsal] You said: hello"))
    );
    assert_eq!(told["run"], told["message"]);
    assert_eq!(served.world.ok(&["send", "s", "again", "--wait"]), "[rehearsal] You said: again\n");
    let message = told["message"].as_str().unwrap();
    assert_eq!(served.told(&["messages", "show", message]), told);
    let shown = served.world.ok(&["messages", "show", message]);
    assert!(
        shown.starts_with(&format!("message {message} to session ")) && shown.ends_with(": answered\n"),
        "{shown}"
    );
    // The session by the id of a run, and the last one.
    for name in [message, "last"] {
        let told = served.told(&["send", name, "hello", "--wait"]);
        assert_eq!(told["session"], served.told(&["messages", "show", message])["session"], "{name}");
    }
    served.world.fails(&["messages", "show", "nothing"], 2, "there is no message `nothing`");
}

#[test]
fn a_repeat_by_key_is_the_first_message_also_after_a_kill() {
    let mut served = Served::start(&scripts());
    let busy = served.told(&["send", "s", "wait"]);
    until("the command runs", || served.world.work().join("ran").exists());
    let args = ["send", "s", "later", "--mode", "followup", "--key", "k"];
    let first = served.told(&args);
    assert_eq!((&first["state"], &first["run"]), (&json!("queued"), &first["message"]));
    served.kill();
    served.start_again();
    assert_eq!(served.told(&args)["message"], first["message"]);
    served.world.fails(&["send", "s", "other", "--key", "k"], 2, "key");
    served.world.release();
    let message = first["message"].as_str().unwrap();
    assert_eq!(served.world.ok(&["messages", "show", message, "--wait"]), "[rehearsal] You said: later\n");
    let busy = busy["message"].as_str().unwrap();
    assert_eq!(served.told(&["messages", "show", busy])["answer"], "[rehearsal] waited");
}

#[test]
fn pictures_come_with_it_and_what_was_dropped_says_why() {
    let served = Served::start(&scripts());
    let picture = served.world.work().join("p.png");
    // More than a line of the socket may have.
    fs::write(&picture, pictures::picture(ImageFormat::Png, (400, 400))).unwrap();
    let picture = picture.display().to_string();
    let told = served.told(&["send", "s", "look", "--attach", &picture, "--wait"]);
    assert_eq!(told["state"], "answered", "{told}");
    let journal = served.world.ok(&["journal", "s"]);
    assert!(journal.contains(r#""format":"png""#), "{journal}");
    let text = served.world.work().join("t.txt");
    fs::write(&text, "text").unwrap();
    served.world.fails(&["send", "s", "look", "--attach", &text.display().to_string()], 2, "--attach");

    served.told(&["send", "s", "wait"]);
    until("the command runs", || served.world.work().join("ran").exists());
    let dropped = served.told(&["send", "s", "later", "--mode", "followup"]);
    served.told(&["send", "s", "now", "--mode", "interrupt"]);
    let message = dropped["message"].as_str().unwrap();
    served.world.fails(&["messages", "show", message, "--wait"], 1, "stopped (by a newer message)");
}

#[test]
fn without_a_service_nothing_is_sent() {
    let world = World::new();
    world.fails(&["send", "s", "hello"], 2, "no service runs: start one with `hermod serve`");
}
