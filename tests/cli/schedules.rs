//! `hermod schedules` without a service, and what it refuses.

use serde_json::{Value, json};

use crate::world::{World, object};

#[test]
fn schedules_are_managed_without_a_service() {
    let world = World::new();
    let add = ["schedules", "add", "night", "--cron", "0 6 * * *", "--tz", "Europe/Berlin", "--text", "Look"];
    let made = object(&world.ok(&[&add[..], &["--pause-after", "3", "--json"]].concat()));
    assert_eq!((&made["name"], &made["source"]), (&json!("night"), &json!("command")));
    assert!(made["next"].is_string(), "{made}");
    // The same again changes nothing; another definition needs a word.
    world.ok(&[&add[..], &["--pause-after", "3"]].concat());
    world.fails(&add, 2, "`--replace` changes it");
    world.ok(&[&add[..], &["--replace"]].concat());
    let listed = world.ok(&["schedules", "list"]);
    assert!(listed.contains("0 6 * * * Europe/Berlin") && listed.contains("T06:00:00+0"), "{listed}");
    let paused = object(&world.ok(&["schedules", "pause", "night", "--reason", "holidays", "--json"]));
    assert_eq!(paused["paused"]["reason"], "holidays");
    assert!(world.ok(&["schedules", "show", "night"]).contains("paused: holidays"));
    let resumed = object(&world.ok(&["schedules", "resume", "night", "--json"]));
    assert_eq!(resumed["paused"], Value::Null);
    assert_eq!(world.ok(&["schedules", "history", "night", "--json"]).trim(), "[]");
    world.fails(&["schedules", "run-now", "night"], 2, "start `hermod serve`");
    world.ok(&["schedules", "remove", "night"]);
    world.fails(&["schedules", "show", "night"], 2, "there is no schedule `night`");
    assert_eq!(world.ok(&["schedules", "list", "--json"]).trim(), "[]");
}

#[test]
fn a_text_with_a_secret_can_be_given_again() {
    let world = World::new();
    let add =
        ["schedules", "add", "deploy", "--every", "1h", "--text", "Use tok-3f9a7c21e4 for it", "--json"];
    for _ in 0..2 {
        let output = world.hermod(&add).env("DEPLOY_TOKEN", "tok-3f9a7c21e4").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let made = object(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(made["definition"]["text"], "Use [redacted:DEPLOY_TOKEN] for it");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    let world = World::new();
    let check = |more: &[&str], part: &str| {
        world.fails(&[&["schedules", "add", "n", "--text", "hi"], more].concat(), 2, part);
    };
    check(&[], "--every");
    check(&["--every", "1h", "--cron", "@daily"], "cannot be used with");
    check(&["--every", "soon"], "--every: ");
    check(&["--every", "100ms"], "from 1s to 365days");
    check(&["--cron", "* * *"], "--cron: `* * *` is no cron expression: it has 3 fields");
    check(&["--cron", "0 0 30 2 *"], "is never due");
    check(&["--cron", "@daily", "--tz", "Mars"], "--tz: there is no time zone `Mars`");
    check(&["--at", "tomorrow"], "--at: `tomorrow` is no time");
    check(&["--every", "1h", "--agent", "nobody"], "there is no agent `nobody`");
    check(&["--every", "1h", "--deliver-to", "ops"], "there is no target `ops`");
    check(&["--every", "1h", "--budget", "x=1"], "--budget: ");
    check(&["--every", "1h", "--overlap", "later"], "skip, queue, cancel");
    check(&["--every", "1h", "--heartbeat", "--overlap", "queue"], "--overlap: a heartbeat is skipped");
    check(&["--every", "1h", "--pause-after", "0"], "--pause-after: is not from 1 to 100");
    world.fails(&["schedules", "add", "A b", "--every", "1h", "--text", "hi"], 2, "is no name of a schedule");
    world.fails(&["schedules", "add", "n", "--every", "1h", "--text", " "], 2, "--text: is missing");
    world.fails(&["schedules", "pause", "none"], 2, "there is no schedule `none`");
    world.fails(&["runs", "list", "--schedule", "A b"], 2, "is no name of a schedule");
}

#[test]
fn a_section_is_checked_with_the_configuration() {
    let world = World::new();
    world.configure("[schedules.night]\ncron = \"0 6 * *\"\ntext = \"Look\"\n");
    world.fails(&["config", "check"], 78, "schedules.night.cron = \"0 6 * *\"");
}
