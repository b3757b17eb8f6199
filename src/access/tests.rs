//! The file of the tokens and its verifier, with each other.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc, thread};

use hermod_actors::model::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{AccessToken, NewToken, Scope, TokenEntry, TokenError, TokenFile, TokenVerifier};
use crate::clock;

/// A state directory with tokens.
struct Tokens {
    state: TempDir,
    file: TokenFile,
    verifier: TokenVerifier,
}

impl Tokens {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let (file, verifier) = (TokenFile::new(state.path()), TokenVerifier::new(state.path()));
        Self { state, file, verifier }
    }

    fn path(&self) -> PathBuf {
        self.state.path().join("tokens.json")
    }

    #[track_caller]
    fn create(&self, name: &str) -> (TokenEntry, AccessToken) {
        self.file.create(new_token(name)).unwrap()
    }

    /// The name of the token, if it is one.
    #[track_caller]
    fn verify(&self, presented: &str) -> Option<String> {
        self.verifier.verify(presented).unwrap().map(|entry| entry.name.clone())
    }

    fn read(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path()).unwrap()).unwrap()
    }
}

fn new_token(name: &str) -> NewToken {
    NewToken { name: name.into(), scopes: [Scope::Read].into(), agents: None, expires_at: None }
}

#[test]
fn a_created_token_is_verified_and_a_revoked_one_is_not() {
    let tokens = Tokens::new();
    assert!(tokens.verifier.verify("").unwrap().is_none());
    let (reader, token) = tokens.create("reader");
    assert_eq!(tokens.verify(token.reveal()).as_deref(), Some("reader"));
    // The verifier has read the file before the second token, and before each revocation.
    let (writer, other) = tokens.create("writer");
    assert_eq!(tokens.verify(other.reveal()).as_deref(), Some("writer"));
    assert_eq!(tokens.verify(token.reveal()).as_deref(), Some("reader"));
    assert_eq!(tokens.file.list().unwrap(), [reader.clone(), writer.clone()]);
    assert_eq!(tokens.file.revoke("reader").unwrap(), reader);
    assert_eq!(tokens.verify(token.reveal()), None);
    assert_eq!(tokens.verify(other.reveal()).as_deref(), Some("writer"));
    assert_eq!(tokens.file.revoke(&writer.id).unwrap(), writer);
    assert_eq!(tokens.verify(other.reveal()), None);
    assert_eq!(tokens.file.list().unwrap(), []);
    tokens.create("reader");
    fs::remove_file(tokens.path()).unwrap();
    assert_eq!(tokens.verify(token.reveal()), None);
}

#[test]
fn only_the_whole_token_is_the_token() {
    let tokens = Tokens::new();
    let (_, token) = tokens.create("reader");
    let text = token.reveal();
    let check = |presented: &str, expect: bool| {
        assert_eq!(tokens.verify(presented).is_some(), expect, "{presented}");
    };
    check(text, true);
    check("", false);
    check(&text[1..], false);
    check(&format!("{text}0"), false);
    check(&format!("{text} "), false);
    check(&text.to_uppercase(), false);
    check(text.strip_prefix("hermod_").unwrap(), false);
    let last = if text.ends_with('0') { "1" } else { "0" };
    check(&format!("{}{last}", &text[..text.len() - 1]), false);
    check(AccessToken::generate().reveal(), false);
    check(tokens.read()["tokens"][0]["sha256"].as_str().unwrap(), false);
}

#[test]
fn every_entry_is_found_by_its_token_alone() {
    let tokens = Tokens::new();
    let created: Vec<_> = (0..20).map(|n| tokens.create(&format!("t{n}"))).collect();
    for (entry, token) in &created {
        assert_eq!(tokens.verifier.verify(token.reveal()).unwrap().as_deref(), Some(entry));
    }
}

#[test]
fn an_expired_token_is_none() {
    let tokens = Tokens::new();
    let at = |ms| Some(Timestamp(ms));
    let check = |name: &str, expires_at: Option<Timestamp>, now: i64, expect: bool| {
        let (entry, token) = tokens.file.create(NewToken { expires_at, ..new_token(name) }).unwrap();
        let found = tokens.verifier.verify_at(token.reveal(), Timestamp(now)).unwrap();
        assert_eq!(found.is_some(), expect, "{name}");
        assert_eq!(tokens.file.list().unwrap().last(), Some(&entry), "it is listed still, as it was created");
    };
    check("before", at(5_000), 4_999, true);
    check("at", at(5_000), 5_000, false);
    check("after", at(5_000), 5_001, false);
    check("never", None, i64::MAX, true);
    let (_, token) = tokens.file.create(NewToken { expires_at: at(1), ..new_token("past") }).unwrap();
    assert_eq!(tokens.verify(token.reveal()), None, "by the clock");
}

#[test]
fn the_file_has_hashes_and_is_for_its_user_alone() {
    let tokens = Tokens::new();
    let before = clock::now();
    let new = NewToken {
        name: "phone".into(),
        scopes: [Scope::Submit, Scope::Read].into(),
        agents: Some(["b".to_owned(), "a".to_owned()].into()),
        expires_at: Some(Timestamp(1_900_000_000_000)),
    };
    let (entry, token) = tokens.file.create(new).unwrap();
    let text = fs::read_to_string(tokens.path()).unwrap();
    assert!(!text.contains(token.reveal().strip_prefix("hermod_").unwrap()), "{text}");
    let content = tokens.read();
    assert_eq!((&content["version"], content["tokens"].as_array().unwrap().len()), (&json!(1), 1));
    let stored = &content["tokens"][0];
    assert_eq!((&stored["id"], &stored["name"]), (&json!(entry.id), &json!("phone")));
    assert_eq!((&stored["scopes"], &stored["agents"]), (&json!(["read", "submit"]), &json!(["a", "b"])));
    assert_eq!(stored["expires_at"], "2030-03-17T17:46:40.000Z");
    assert_eq!(stored["created_at"], clock::rfc3339(entry.created_at));
    assert!(entry.created_at >= before && entry.created_at <= clock::now());
    let sha256 = hermod_actors::model::ContentHash::of(token.reveal().as_bytes());
    assert_eq!(stored["sha256"], sha256.to_string());
    let mode = fs::metadata(tokens.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut names: Vec<_> =
        fs::read_dir(tokens.state.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["tokens.json", "tokens.lock"]);
}

#[test]
fn wrong_tokens_are_not_created_and_unknown_ones_not_revoked() {
    let tokens = Tokens::new();
    let (first, token) = tokens.create("first");
    let check = |change: &dyn Fn(&mut NewToken), expect: &str| {
        let mut new = new_token("new");
        change(&mut new);
        let error = tokens.file.create(new).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(&|new| new.name = "first".into(), "there is a token `first` already");
    check(&|new| new.name.clone_from(&first.id), "already; choose another name");
    check(&|new| new.name = " ".into(), "the name of a token has 1 to 64 characters");
    check(&|new| new.name = "x".repeat(65), "the name of a token has 1 to 64 characters");
    check(&|new| new.scopes.clear(), "a token needs a scope");
    check(&|new| new.agents = Some([].into()), "one agent or more");
    check(&|new| new.agents = Some(["\n".to_owned()].into()), "the name of an agent has 1 to 64");
    let check = |name: &str, expect: &str| {
        let error = tokens.file.revoke(name).unwrap_err().to_string();
        assert!(error.contains(expect) && !error.contains(token.reveal()), "{error}");
    };
    check("second", "there is no token `second`; `hermod tokens list` shows them");
    check("First", "there is no token `First`");
    check("", "the name of a token has 1 to 64 characters");
    check(token.reveal(), "the name of a token has 1 to 64 characters");
    assert_eq!(tokens.file.list().unwrap(), [first]);
}

#[test]
fn a_damaged_file_is_an_error_and_never_no_tokens() {
    let tokens = Tokens::new();
    let (_, token) = tokens.create("reader");
    assert!(tokens.verify(token.reveal()).is_some());
    let whole = tokens.read();
    let check = |text: &str, expect: &str| {
        fs::write(tokens.path(), text).unwrap();
        let listed = tokens.file.list().unwrap_err();
        let text = listed.to_string();
        assert!(text.contains("tokens.json: ") && text.contains(expect) && text.contains("; "), "{text}");
        assert!(!text.contains(token.reveal()), "{text}");
        for _ in 0..2 {
            assert_eq!(tokens.verifier.verify(token.reveal()), Err(listed.clone()));
            assert_eq!(tokens.verifier.verify(""), Err(listed.clone()));
        }
        assert_eq!(tokens.file.create(new_token("new")).unwrap_err(), TokenError::File(listed.clone()));
        assert_eq!(tokens.file.revoke("reader").unwrap_err(), TokenError::File(listed));
    };
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut value = whole.clone();
        change(&mut value);
        value.to_string()
    };
    let entry = |field: &str, value: Value| changed(&|file| file["tokens"][0][field] = value.clone());
    check("", "it is damaged: EOF");
    check("[]", "it is damaged");
    check("{\"version\": 1}", "missing field `tokens` at line 1 column 14; repair the file, or remove it");
    check(&whole.to_string()[..90], "it is damaged: EOF");
    check(&changed(&|file| file["version"] = json!(2)), "it has version 2, and this program knows version 1");
    check(&changed(&|file| file["more"] = json!(1)), "unknown field `more`");
    check(&entry("limit", json!(1)), "unknown field `limit`");
    check(&entry("scopes", json!(["root"])), "unknown variant `root`");
    check(&entry("expires_at", json!("soon")), "`soon`: ");
    check(&entry("sha256", json!(token.reveal())), "`sha256` is not a SHA-256");
    check(&entry("id", json!("1A2B3C4D")), "the id of token 1 is not 8 hexadecimal digits");
    check(&entry("name", json!("")), "token 1: the name of a token has 1 to 64");
    let twice = changed(&|file| file["tokens"] = json!([file["tokens"][0], file["tokens"][0]]));
    check(&twice, "token 2 has the name or id of another token");
    let many = changed(&|file| file["tokens"] = json!(vec![file["tokens"][0].clone(); 1_001]));
    check(&many, "it has 1001 tokens, and at most 1000 are kept");
    check(&" ".repeat((4 << 20) + 1), "at most 4194304 are read");
    fs::remove_file(tokens.path()).unwrap();
    fs::create_dir(tokens.path()).unwrap();
    assert!(tokens.verifier.verify("").unwrap_err().to_string().contains("only regular files"));
    fs::remove_dir(tokens.path()).unwrap();
    fs::write(tokens.path(), whole.to_string()).unwrap();
    assert!(tokens.verify(token.reveal()).is_some(), "it is repaired");
}

#[test]
fn the_number_of_tokens_is_bounded() {
    let tokens = Tokens::new();
    tokens.create("first");
    let mut file = tokens.read();
    let first = file["tokens"][0].clone();
    let entry = |n: usize| {
        let mut entry = first.clone();
        entry["id"] = json!(format!("{n:08x}"));
        entry["name"] = json!(format!("t{n}"));
        entry
    };
    file["tokens"] = (0..1_000).map(entry).collect();
    fs::write(tokens.path(), file.to_string()).unwrap();
    assert_eq!(tokens.file.create(new_token("new")).unwrap_err(), TokenError::TooMany(1_000));
    tokens.file.revoke("t7").unwrap();
    let (_, token) = tokens.create("new");
    assert_eq!(tokens.verify(token.reveal()).as_deref(), Some("new"));
}

#[test]
fn tokens_are_created_and_verified_by_several_threads_at_once() {
    let tokens = Arc::new(Tokens::new());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let tokens = Arc::clone(&tokens);
            thread::spawn(move || {
                for n in 0..5 {
                    let name = format!("{thread}-{n}");
                    let (_, token) = tokens.create(&name);
                    assert_eq!(tokens.verify(token.reveal()), Some(name));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(tokens.file.list().unwrap().len(), 20);
}
