//! Tests of the edits of memory files.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 40;

fn arguments(action: Action, old_text: &str, content: &str) -> Order {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Order { action, target: Target::Memory, content: text(content), old_text: text(old_text) }
}

fn add(content: &str) -> Order {
    arguments(Action::Add, "", content)
}

fn replace(old_text: &str, content: &str) -> Order {
    arguments(Action::Replace, old_text, content)
}

fn remove(old_text: &str) -> Order {
    arguments(Action::Remove, old_text, "")
}

fn apply(arguments: &Order, text: &str, earlier_intent: Option<EditIntent>) -> Result<EditResult, EditError> {
    arguments.check()?;
    decide(arguments, &MemoryEntries::parse(text), earlier_intent, LIMIT)
}

/// Checks the file's text after the edit, also after repeating it with and without its intent.
#[track_caller]
fn check(before: &str, arguments: &Order, expect: &str) {
    match apply(arguments, before, None).unwrap() {
        EditResult::Unchanged => assert_eq!(MemoryEntries::parse(before).text(), expect),
        EditResult::Changed(entries, intent) => {
            assert_eq!(entries.text(), expect);
            assert_ne!(before, expect);
            assert_eq!(apply(arguments, expect, Some(intent)), Ok(EditResult::Unchanged), "again");
            // The intent was written, but the edit was not made.
            assert_eq!(apply(arguments, before, Some(intent)), Ok(EditResult::Changed(entries, intent)));
        }
    }
}

#[track_caller]
fn check_refused(before: &str, arguments: &Order, (field, part): (&str, &str)) {
    let error = apply(arguments, before, None).unwrap_err();
    assert_eq!(error.field, field, "{error}");
    assert!(error.error.contains(part) && !error.hint.is_empty(), "{error}");
}

#[test]
fn entries_are_added_replaced_and_removed() {
    check("", &add(" tea "), "tea");
    check("tea", &add("tea"), "tea");
    check("tea", &add("milk\nand sugar"), "tea\n§\nmilk\nand sugar");
    check("tea\n§\nmilk", &replace("te", "coffee"), "coffee\n§\nmilk");
    check("tea\n§\nmilk", &replace("tea", "tea, green"), "tea, green\n§\nmilk");
    check("tea, green", &replace("tea", "tea, green"), "tea, green");
    check("tea\n§\nmilk", &replace("tea", "milk"), "milk");
    check("milk", &replace("tea", "milk"), "milk");
    check("tea\n§\nmilk", &remove("mil"), "tea");
    check("tea", &remove("tea"), "");
    check("fact 1 is\n§\nfact 10 is", &remove("fact 1 "), "fact 10 is");
    // An exact match has precedence over an entry that contains the text.
    check("tea\n§\ntea, green", &remove("tea"), "tea, green");
}

#[test]
fn what_is_not_acceptable_is_named() {
    check_refused("", &add(" "), ("content", "missing or empty"));
    check_refused("", &add("a\n§\nb"), ("content", "a line `§`"));
    check_refused("", &add("a\u{202e}b"), ("content", "U+202E as character 2"));
    check_refused("", &add("a\rb"), ("content", "U+000D"));
    check_refused("", &arguments(Action::Add, "x", "y"), ("old_text", "not for `add`"));
    check_refused("", &arguments(Action::Remove, "x", "y"), ("content", "not for `remove`"));
    check_refused("tea", &replace(" ", "x"), ("old_text", "missing or empty"));
    check_refused("tea", &remove(""), ("old_text", "missing or empty"));
    check_refused("tea", &remove("milk"), ("old_text", "in none"));
    check_refused("tea", &replace("milk", "x"), ("old_text", "in none"));
    check_refused("tea 1\n§\ntea 2", &remove("tea"), ("old_text", "in 2 of the entries"));
    check_refused("tea", &add(&"x".repeat(35)), ("content", "41 characters long, 1 over its limit of 40"));
    check("tea", &add(&"ü".repeat(34)), &format!("tea\n§\n{}", "ü".repeat(34)));
}

#[test]
fn what_is_too_long_by_hand_may_become_shorter() {
    let long = format!("{}\n§\n{}", "a".repeat(30), "b".repeat(30));
    check(&long, &replace("b", "bb"), &format!("{}\n§\nbb", "a".repeat(30)));
    check(&long, &replace("b", &"c".repeat(29)), &format!("{}\n§\n{}", "a".repeat(30), "c".repeat(29)));
    check_refused(&long, &replace("b", &"c".repeat(30)), ("content", "over its limit"));
    check_refused(&long, &add("x"), ("content", "over its limit"));
    check(&long, &remove("b"), &"a".repeat(30));
}

#[test]
fn a_note_tells_what_an_earlier_attempt_did() {
    let intent = |arguments: &Order, before: &str| match apply(arguments, before, None) {
        Ok(EditResult::Changed(_, intent)) => Some(intent),
        other => panic!("{other:?}"),
    };
    let (removal, replacement) = (remove("tea"), replace("tea", "coffee"));
    // The entry was removed; an entry that was added since is a different one.
    assert_eq!(apply(&removal, "tea time", intent(&removal, "tea")), Ok(EditResult::Unchanged));
    assert_eq!(apply(&removal, "milk", intent(&removal, "tea")), Ok(EditResult::Unchanged));
    assert_eq!(
        apply(&replacement, "tea time\n§\ncoffee", intent(&replacement, "tea")),
        Ok(EditResult::Unchanged)
    );
    let unknown = apply(&replacement, "tea time", intent(&replacement, "tea")).unwrap_err();
    assert!(unknown.error.contains("changed from outside"), "{unknown}");
}

/// Edits over few words, so that they often affect the same entries.
fn edits() -> impl Strategy<Value = Order> {
    let word =
        || proptest::sample::select(vec!["a", "b", "ab", "b a", "ä\nb", "abcdefghijklm", "§ x", "y §"]);
    (0..4_u8, word(), word()).prop_map(|(action, old, new)| match action {
        0 | 1 => add(new),
        2 => replace(old, new),
        _ => remove(old),
    })
}

proptest! {
    #[test]
    fn any_orders_keep_the_limit_and_lose_nothing(edits in proptest::collection::vec(edits(), 0..40)) {
        let mut entries = MemoryEntries::default();
        for arguments in &edits {
            prop_assert_eq!(arguments.check(), Ok(()));
            let before = entries.clone();
            if let Ok(EditResult::Changed(edited, intent)) = decide(arguments, &before, None, LIMIT) {
                prop_assert!(edited.chars() <= LIMIT);
                prop_assert_eq!(&MemoryEntries::parse(&edited.text()), &edited);
                let lost = before.all().iter().filter(|entry| !edited.contains(entry)).count();
                prop_assert_eq!(lost, usize::from(arguments.action != Action::Add));
                prop_assert!(arguments.content.as_deref().is_none_or(|content| edited.contains(content)));
                prop_assert_eq!(decide(arguments, &edited, Some(intent), LIMIT), Ok(EditResult::Unchanged));
                entries = edited;
            }
        }
    }
}
