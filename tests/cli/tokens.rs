//! `hermod tokens`: access tokens are created, listed and revoked, whether a process holds the store or not.

use std::{fs, process::Stdio};

use hermod::access::{Scope, TokenFile, TokenVerifier};
use serde_json::{Value, json};

use crate::{
    running::{Running, texts},
    world::{World, object},
};

/// Creates a token, and returns it.
#[track_caller]
fn create(world: &World, more: &[&str]) -> String {
    let line = world.ok(&[&["tokens", "create"], more].concat());
    assert_eq!(line.lines().count(), 1, "{line}");
    line.split_whitespace().last().unwrap().to_owned()
}

fn list(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.ok(&["tokens", "list", "--json"])).unwrap()
}

/// The name of the token, if it is one.
#[track_caller]
fn verify(verifier: &TokenVerifier, token: &str) -> Option<String> {
    verifier.verify(token).unwrap().map(|entry| entry.name.clone())
}

#[test]
fn a_token_is_created_listed_and_revoked() {
    let world = World::new();
    assert_eq!(list(&world), [json!(null); 0]);
    let output = world.run(&["tokens", "create", "--name", "my phone", "--scopes", "submit,read"]);
    let (line, note) = texts(&output);
    let token = line.split_whitespace().last().unwrap().to_owned();
    assert!(token.starts_with("hermod_") && !note.contains(&token), "{line}{note}");
    let verifier = TokenVerifier::new(&world.state());
    let phone = verifier.verify(&token).unwrap().unwrap();
    assert_eq!(line, format!("token {} my phone may read, submit: {token}\n", phone.id));
    assert!(phone.has(Scope::Submit) && !phone.has(Scope::Steer) && phone.may_use_agent("any"));

    let more = ["--name", "ci", "--scopes", "admin", "--agents", "a,b", "--expires", "90d", "--json"];
    let created = object(&world.ok(&[&["tokens", "create"], &more[..]].concat()));
    let ci = verifier.verify(created["token"].as_str().unwrap()).unwrap().unwrap();
    assert!(ci.has(Scope::Approve) && ci.may_use_agent("b") && !ci.may_use_agent("c"));
    // The command reads the clock a moment before the token is created.
    let (lifetime, wanted) = (ci.expires_at.unwrap().ms_since(ci.created_at), 90 * 86_400_000);
    assert!((wanted - 60_000..=wanted).contains(&lifetime), "{lifetime}");

    let tokens = list(&world);
    let names: Vec<_> = tokens.iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["my phone", "ci"]);
    assert_eq!((&tokens[0]["agents"], &tokens[0]["expires_at"]), (&Value::Null, &Value::Null));
    let mut expected = created.clone();
    expected.as_object_mut().unwrap().remove("token");
    assert_eq!(tokens[1], expected, "the list has what was created, but for the token");
    let table = world.ok(&["tokens", "list"]);
    assert!(table.starts_with("TOKEN     NAME      SCOPES        AGENTS  CREATED"), "{table}");
    assert!(table.contains(&format!("{}  my phone  read, submit  -       20", phone.id)), "{table}");
    assert!(table.contains(&format!("{}  ci        admin         a, b    20", ci.id)), "{table}");

    let revoked = world.ok(&["tokens", "revoke", "my phone"]);
    assert_eq!(revoked, format!("token {} my phone is revoked\n", phone.id));
    assert_eq!(verify(&verifier, &token), None);
    world.ok(&["tokens", "revoke", &ci.id]);
    assert_eq!(list(&world), [json!(null); 0]);
}

#[test]
fn wrong_input_is_named_with_exit_code_2() {
    let world = World::new();
    let token = create(&world, &["--name", "n", "--scopes", "read"]);
    let check = |args: &[&str], part: &str| world.fails(&[&["tokens"], args].concat(), 2, part);
    let known = "there is no such scope; known are read, submit, steer, approve, admin";
    check(&["create", "--name", "m", "--scopes", "read,write"], known);
    check(&["create", "--name", "m", "--scopes", ""], known);
    check(&["create", "--name", "m"], "--scopes");
    check(&["create", "--scopes", "read"], "--name");
    check(&["create", "--name", "n", "--scopes", "read"], "there is a token `n` already");
    check(&["create", "--name", &"x".repeat(65), "--scopes", "read"], "1 to 64 characters");
    check(&["create", "--name", "a\nb", "--scopes", "read"], "no control characters");
    check(&["create", "--name", "m", "--scopes", "read", "--agents", "a,"], "it is empty; give a name");
    check(&["create", "--name", "m", "--scopes", "read", "--expires", "0s"], "must be longer than 0");
    check(&["create", "--name", "m", "--scopes", "read", "--expires", "soon"], "write it like");
    check(&["revoke", "m"], "there is no token `m`; `hermod tokens list` shows them");
    check(&["revoke", &token], "the name of a token has 1 to 64 characters");
    let (_, stderr) = texts(&world.run(&["tokens", "revoke", &token]));
    assert!(!stderr.contains(&token), "{stderr}");
    assert_eq!(list(&world).len(), 1, "nothing was changed");
}

#[test]
fn a_damaged_file_is_named_and_stays() {
    let world = World::new();
    create(&world, &["--name", "n", "--scopes", "read"]);
    let path = world.state().join("tokens.json");
    fs::write(&path, "{\"version\": 1, \"tokens\": [").unwrap();
    for args in [&["list"][..], &["create", "--name", "m", "--scopes", "read"], &["revoke", "n"]] {
        let part = format!("{}: it is damaged: EOF", path.display());
        world.fails(&[&["tokens"], args].concat(), 74, &part);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"version\": 1, \"tokens\": [");
}

#[test]
fn tokens_need_no_owner_of_the_store_and_disturb_none() {
    let world = World::new();
    let before = create(&world, &["--name", "before", "--scopes", "read"]);
    let running = world.started(&[]);
    let verifier = TokenVerifier::new(&world.state());
    let while_owned = create(&world, &["--name", "while owned", "--scopes", "read"]);
    assert_eq!(verify(&verifier, &before).as_deref(), Some("before"));
    assert_eq!(verify(&verifier, &while_owned).as_deref(), Some("while owned"));
    world.ok(&["tokens", "revoke", "before"]);
    assert_eq!(verify(&verifier, &before), None);
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
    assert_eq!(verify(&verifier, &while_owned).as_deref(), Some("while owned"));
}

#[test]
fn processes_that_create_at_once_lose_no_token() {
    let world = World::new();
    let start = |n: usize| {
        let name = n.to_string();
        let mut command = world.hermod(&["tokens", "create", "--name", &name, "--scopes", "read"]);
        Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let running: Vec<Running> = (0..20).map(start).collect();
    let verifier = TokenVerifier::new(&world.state());
    for (n, running) in running.into_iter().enumerate() {
        let (line, note) = texts(&running.end());
        let token = line.split_whitespace().last().unwrap_or_else(|| panic!("no token: {note}"));
        assert_eq!(verify(&verifier, token), Some(n.to_string()));
    }
    assert_eq!(TokenFile::new(&world.state()).list().unwrap().len(), 20);
}
