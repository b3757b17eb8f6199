//! What is printed in plain mode.

use crate::{
    AllowScope, ChatEvent, Intent, PlainChat, Question, Verdict,
    tests::{answered, run_ended, shell, shell_end, task, text, tool_call},
};

fn printed(chat: &mut PlainChat, events: Vec<ChatEvent>) -> String {
    events.into_iter().map(|event| chat.apply(event)).collect()
}

#[test]
fn a_conversation_is_printed_in_words() {
    let mut chat = PlainChat::default();
    let (intents, _) = chat.line("Count\n");
    assert_eq!(intents, [Intent::Send { local: 0, text: "Count".to_owned(), images: Vec::new() }]);
    assert!(chat.is_busy());
    let events = vec![
        task("Count"),
        text(1, "First, I "),
        text(1, "look.\nThen"),
        answered(1, "First, I look.\nThen"),
        shell(1, "seq 2"),
        ChatEvent::Started { call: tool_call(1, 1), at_ms: 0 },
        shell_end(1, 3, "1\n2\x1b[0m\n"),
        answered(2, "Two."),
        run_ended(true, "completed"),
    ];
    let expect = "answer:\nFirst, I look.\nThen\ntool: shell seq 2\nresult: shell seq 2  exit 3, 1.5 s\n  1\n  2␛[0m\n\
        answer:\nTwo.\ndone: completed\n";
    assert_eq!(printed(&mut chat, events), expect);
    assert!(!chat.is_busy());
}

#[test]
fn questions_are_answered_by_words() {
    let mut chat = PlainChat::default();
    let question = |wants_text| {
        ChatEvent::Question(Question {
            call: tool_call(1, 1),
            text: "May I?".to_owned(),
            wants_text,
            can_always: true,
        })
    };
    let expect = "you: x\nquestion: May I?\ncall: shell make\nanswer it: write allow, run, always or deny\n";
    assert_eq!(printed(&mut chat, vec![task("x"), shell(1, "make"), question(false)]), expect);
    let (intents, text) = chat.line("perhaps");
    assert!(intents.is_empty() && text.starts_with("failure: `perhaps` is neither allow"), "{text}");
    let allow = Intent::Decide(tool_call(1, 1), Verdict::Allow(AllowScope::Once));
    assert_eq!(chat.line("allow").0, [allow]);
    printed(
        &mut chat,
        vec![ChatEvent::Decided { call: tool_call(1, 1), answer: "allowed".to_owned() }, question(true)],
    );
    assert_eq!(
        chat.line("perhaps").0,
        [Intent::Decide(tool_call(1, 1), Verdict::Text("perhaps".to_owned()))]
    );
}
