//! What keys do.

use crate::{
    AllowScope, ChatEvent, ChatState, Choice, Command, Input, Intent, Key, Question, Verdict,
    tests::{RUN, screen, shell, state, task, tool_call},
};

fn type_text(state: &mut ChatState, text: &str) {
    for c in text.chars() {
        assert_eq!(state.input(Input::Key(Key::Char(c)), 10_000), Vec::new());
    }
}

fn press(state: &mut ChatState, key: Key) -> Vec<Intent> {
    state.input(Input::Key(key), 10_000)
}

#[test]
fn enter_sends_and_the_message_waits_until_it_is_in_the_conversation() {
    let mut state = state(Vec::new());
    type_text(&mut state, "hello");
    let sent = press(&mut state, Key::Enter);
    assert_eq!(sent, [Intent::Send { local: 0, text: "hello".to_owned(), images: Vec::new() }]);
    assert!(screen(&mut state, (40, 10), 0).contains("❯ hello  [being sent]"));
    state.apply(ChatEvent::Sent { local: 0, message: RUN }, 0);
    assert!(screen(&mut state, (40, 10), 0).contains("❯ hello  [sent]"));
    state.apply(task("hello"), 0);
    let seen = screen(&mut state, (40, 10), 0);
    assert!(seen.starts_with("❯ hello") && !seen.contains("[sent]"), "{seen}");
    assert_eq!(press(&mut state, Key::Enter), Vec::new(), "an empty input is not sent");
}

#[test]
fn a_message_that_is_not_sent_comes_back() {
    let mut state = state(Vec::new());
    type_text(&mut state, "hello");
    press(&mut state, Key::Enter);
    state.apply(ChatEvent::NotSent { local: 0, reason: "no model".to_owned() }, 0);
    assert_eq!(state.input_text(), "hello");
    assert!(screen(&mut state, (40, 10), 0).contains("✗ not sent: no model"));
}

#[test]
fn escape_stops_the_run_and_control_c_clears_first() {
    let mut state = state(vec![task("x")]);
    assert_eq!(press(&mut state, Key::Escape), [Intent::Interrupt(RUN)]);
    assert!(screen(&mut state, (40, 10), 0).contains("is being stopped"));
    type_text(&mut state, "abc");
    assert_eq!(press(&mut state, Key::Interrupt), Vec::new());
    assert_eq!(state.input_text(), "");
    assert_eq!(press(&mut state, Key::Interrupt), [Intent::Interrupt(RUN)]);
    assert_eq!(press(&mut state, Key::Interrupt), [Intent::Quit]);
    assert_eq!(press(&mut state, Key::EndOfInput), [Intent::Quit]);
}

#[test]
fn a_question_is_answered_by_a_letter_and_enter_when_it_has_been_seen() {
    let question =
        Question { call: tool_call(1, 1), text: "?".to_owned(), wants_text: false, can_always: false };
    let mut state = state(vec![task("x"), shell(1, "make")]);
    state.apply(ChatEvent::Question(question), 10_000);
    let mut entered = |text: &str, at_ms| {
        while !state.input_text().is_empty() {
            press(&mut state, Key::Backspace);
        }
        type_text(&mut state, text);
        (state.input(Input::Key(Key::Enter), at_ms), state.input_text().to_owned())
    };
    let kept = |text: &str| (Vec::new(), text.to_owned());
    assert_eq!(entered("y", 10_100), kept("y"), "it was not seen yet");
    let decided = |verdict| (vec![Intent::Decide(tool_call(1, 1), verdict)], String::new());
    assert_eq!(entered("y", 11_000), decided(Verdict::Allow(AllowScope::Once)));
    assert_eq!(entered("r", 11_000), decided(Verdict::Allow(AllowScope::Run)));
    assert_eq!(entered(" no", 11_000), decided(Verdict::Deny));
    assert_eq!(entered("a", 11_000), kept("a"), "it cannot be allowed for always");
    let (intents, _) = entered("also run the linter", 11_000);
    assert!(matches!(&intents[..], [Intent::Send { text, .. }] if text == "also run the linter"));
}

#[test]
fn a_question_that_wants_a_text_gets_the_input() {
    let question =
        Question { call: tool_call(1, 1), text: "Which?".to_owned(), wants_text: true, can_always: false };
    let mut state = state(vec![task("x"), ChatEvent::Question(question)]);
    type_text(&mut state, "yes, main");
    let answer = Intent::Decide(tool_call(1, 1), Verdict::Text("yes, main".to_owned()));
    assert_eq!(press(&mut state, Key::Enter), [answer]);
}

#[test]
fn commands_are_offered_completed_and_carried_out() {
    let mut state = state(Vec::new());
    type_text(&mut state, "/m");
    assert!(screen(&mut state, (80, 12), 0).contains("▸ /model"));
    press(&mut state, Key::Tab);
    type_text(&mut state, " a/b");
    assert_eq!(press(&mut state, Key::Enter), [Intent::Command(Command::Model(Some("a/b".to_owned())))]);
    type_text(&mut state, "/ne");
    assert_eq!(press(&mut state, Key::Enter), [Intent::Command(Command::New)], "the offered one is taken");
    type_text(&mut state, "/dance");
    press(&mut state, Key::Enter);
    assert!(screen(&mut state, (80, 12), 0).contains("there is no command /dance"));
}

#[test]
fn paths_are_completed_after_an_at_sign() {
    let mut state = state(Vec::new());
    type_text(&mut state, "see @sr");
    assert_eq!(press(&mut state, Key::Tab), [Intent::CompletePath { start: 5, path: "sr".to_owned() }]);
    state.apply(ChatEvent::Completions { start: 5, candidates: vec!["src/".to_owned()] }, 0);
    assert_eq!(state.input_text(), "see @src/");
    let two = vec!["src/a.rs".to_owned(), "src/b.rs".to_owned()];
    state.apply(ChatEvent::Completions { start: 5, candidates: two }, 0);
    press(&mut state, Key::Down);
    press(&mut state, Key::Tab);
    assert_eq!(state.input_text(), "see @src/b.rs");
}

#[test]
fn lines_are_added_and_pasted() {
    let mut state = state(Vec::new());
    type_text(&mut state, "a\\");
    assert_eq!(press(&mut state, Key::Enter), Vec::new());
    press(&mut state, Key::NewLine);
    state.input(Input::Paste("b\r\nc\x1b[0m\td".to_owned()), 0);
    assert_eq!(state.input_text(), "a\n\nb\nc␛[0m    d");
    let picture = Input::Paste("/tmp/a\\ b.png".to_owned());
    let attach = Intent::Command(Command::Image(Some("/tmp/a b.png".to_owned())));
    assert_eq!(state.input(picture, 0), [attach]);
}

#[test]
fn the_hint_of_control_c_is_over_soon() {
    let mut state = state(Vec::new());
    let hint = "Ctrl-C again leaves";
    assert_eq!(press(&mut state, Key::Interrupt), Vec::new());
    assert!(state.is_animated(), "its end is drawn");
    assert!(screen(&mut state, (60, 10), 12_000).contains(hint));
    assert!(!screen(&mut state, (60, 10), 13_000).contains(hint));
    assert!(!state.is_animated());
    assert_eq!(state.input(Input::Key(Key::Interrupt), 13_100), Vec::new(), "it is the first one again");
    state.input(Input::Key(Key::Char('x')), 13_200);
    assert!(!screen(&mut state, (60, 10), 13_200).contains(hint), "another key ends it");
}

#[test]
fn control_c_empties_an_input_that_is_completed() {
    let mut state = state(Vec::new());
    type_text(&mut state, "/");
    assert!(screen(&mut state, (80, 20), 0).contains("▸ /new"));
    assert_eq!(press(&mut state, Key::Interrupt), Vec::new());
    assert_eq!(state.input_text(), "");
    let seen = screen(&mut state, (80, 20), 0);
    assert!(!seen.contains("/new") && !seen.contains("leaves"), "{seen}");
}

#[test]
fn a_conversation_is_picked_by_what_is_typed() {
    let mut state = state(Vec::new());
    let choice = |id: &str, text: &str| Choice {
        id: id.to_owned(),
        label: format!("{id}  title"),
        text: text.to_owned(),
    };
    let choices = vec![choice("AAAA", "count"), choice("BBBB", "write"), choice("CCCC", "write too")];
    state.apply(ChatEvent::Choices { choices, is_cut: true }, 0);
    type_text(&mut state, "wRite");
    assert_eq!(state.input_text(), "", "what is typed filters");
    let seen = screen(&mut state, (80, 20), 0);
    assert!(seen.contains("▸ BBBB  title") && !seen.contains("AAAA"), "{seen}");
    assert!(seen.contains("1 of 2, all: 3 newest · filter: wRite"), "{seen}");
    press(&mut state, Key::Down);
    assert_eq!(press(&mut state, Key::Enter), [Intent::Open("CCCC".to_owned())]);
    assert!(!screen(&mut state, (80, 20), 0).contains("filter"));
}

#[test]
fn questions_of_other_conversations_are_answered_by_their_ids() {
    let mut state = state(Vec::new());
    let mut line = |text: &str| {
        state.input(Input::Paste(text.to_owned()), 0);
        state.input(Input::Key(Key::Enter), 0)
    };
    let named = |id: &str, verdict| [Intent::DecideNamed(id.to_owned(), verdict)];
    assert_eq!(line("/approve"), [Intent::Command(Command::Approvals)]);
    assert_eq!(line("/approve 7NA7B9MX.1.1"), named("7NA7B9MX.1.1", Verdict::Allow(AllowScope::Once)));
    assert_eq!(line("/deny 7NA7B9MX"), named("7NA7B9MX", Verdict::Deny));
    assert_eq!(line("/approve nonsense"), Vec::new());
    assert!(screen(&mut state, (80, 20), 0).contains("✗ this conversation asks nothing"));
}

#[test]
fn the_overview_is_seen_until_something_is_sent() {
    let mut state = state(Vec::new());
    state.apply(ChatEvent::Overview("2 wait for you (/approvals)".to_owned()), 0);
    assert!(screen(&mut state, (80, 20), 0).contains("· 2 wait for you (/approvals)"));
    type_text(&mut state, "x");
    assert!(screen(&mut state, (80, 20), 0).contains("2 wait for you"));
    press(&mut state, Key::Enter);
    assert!(!screen(&mut state, (80, 20), 0).contains("2 wait for you"));
}
