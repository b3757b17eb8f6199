//! What is seen of a conversation.

use crate::{
    ChatEvent, Choice, Link, PageKind, Question, Subagent, TodoLine, Tone,
    tests::{RUN, answered, model_call, run_ended, screen, shell, shell_end, state, task, text, tool_call},
};

#[track_caller]
fn check(events: Vec<ChatEvent>, size: (u16, u16), expect: &str) {
    let mut state = state(events);
    assert_eq!(screen(&mut state, size, 3_000), expect.trim_matches('\n'));
}

#[test]
fn a_new_chat_says_what_can_be_done() {
    let expect = "
Hermod  /srv/site

· Say what is to be done. While it works, what you type steers it.
· Esc stops it, /help lists commands and keys, @ and Tab complete paths.
· Leave at any time: what runs goes on, and `hermod attach` comes back.

────────────────────────────────────────────────────────────────────────────────
❯
new conversation · /help";
    check(Vec::new(), (80, 9), expect);
}

#[test]
fn an_answer_streams_as_markdown() {
    let events = vec![task("Fix it"), text(1, "Some **bold** text:\n\n```rust\nlet x = 1;\n")];
    let expect = "
❯ Fix it

Some bold text:

  let x = 1;

⠴ vendor/model writes  3 s · Esc stops
────────────────────────────────────────
❯
vendor/model · new conversation · /help";
    check(events, (40, 10), expect);
}

#[test]
fn a_tool_call_shows_its_command_and_its_output() {
    let events = vec![
        task("Count"),
        answered(1, ""),
        shell(1, "seq 7"),
        ChatEvent::Started { call: tool_call(1, 1), at_ms: 100 },
        shell_end(1, 0, "1\n2\n3\n4\n5\n6\n7\n"),
        answered(2, "Seven."),
        run_ended(true, "completed"),
    ];
    let expect = "
❯ Count

● shell seq 7  1.4 s
  … 2 lines folded (Ctrl-O)
  3
  4
  5
  6
  7

Seven.
────────────────────────────────────────
❯
vendor/model · $0.0246 · /help";
    check(events.clone(), (40, 14), expect);
    let seen = screen(&mut state(events), (60, 14), 0);
    assert!(seen.contains("vendor/model · 2.0k in, 468 out · $0.0246"), "{seen}");
}

#[test]
fn a_question_shows_the_call_and_the_answers() {
    let events = vec![
        task("Clean"),
        shell(1, "rm -rf build"),
        ChatEvent::Question(Question {
            call: tool_call(1, 1),
            text: "It removes files. Allow it?".to_owned(),
            wants_text: false,
            can_always: true,
        }),
    ];
    let expect = "
❯ Clean

● shell rm -rf build

? It removes files. Allow it?
    shell rm -rf build
  y allow  ·  r allow for this run  ·  a
  allow always  ·  n deny, then Enter  ·
  other text skips it
────────────────────────────────────────
❯
vendor/model · new conversation · /help";
    check(events, (40, 12), expect);
}

#[test]
fn the_help_is_read_at_any_width() {
    let mut state = state(Vec::new());
    state.apply(
        ChatEvent::Page {
            title: "Keys".to_owned(),
            text: "Enter\tsend\nEsc\tstop the run\n".to_owned(),
            kind: PageKind::Terms,
        },
        0,
    );
    let wide = screen(&mut state, (80, 8), 0);
    let column = " ".repeat(27);
    assert!(wide.starts_with(&format!("Keys\n  Enter{column}send\n  Esc")), "{wide}");
    let narrow = screen(&mut state, (40, 9), 0);
    assert!(narrow.starts_with("Keys\n  Enter\n      send\n  Esc\n      stop the run\n"), "{narrow}");
}

#[test]
fn a_decision_stands_with_its_call() {
    let question = Question {
        call: tool_call(1, 1),
        text: "It removes files. Allow it?".to_owned(),
        wants_text: false,
        can_always: true,
    };
    let decided = |call| ChatEvent::Decided { call, answer: "allowed for this run".to_owned() };
    let events = vec![
        task("Clean"),
        shell(1, "rm -rf build"),
        ChatEvent::Question(question),
        decided(tool_call(1, 1)),
        ChatEvent::Started { call: tool_call(1, 1), at_ms: 1_500 },
        shell_end(1, 0, "removed\n"),
        // Of a call that is not shown.
        decided(tool_call(9, 1)),
        run_ended(true, "completed"),
    ];
    let expect = "
❯ Clean

● shell rm -rf build
  allowed for this run
  removed

· allowed for this run
────────────────────────────────────────
❯
new conversation · /help";
    let seen = screen(&mut state(events), (40, 10), 3_000);
    assert_eq!(seen.replace("vendor/model · ", ""), expect.trim_matches('\n'));
}

#[test]
fn a_run_is_as_old_as_its_record_says() {
    let mut state = state(vec![task("Wait")]);
    let seen = screen(&mut state, (40, 8), 65_000);
    assert!(seen.contains("1 m 5 s · Esc stops"), "{seen}");
    // Another conversation, and this one again.
    state.apply(ChatEvent::Conversation(None), 70_000);
    state.apply(task("Wait"), 80_000);
    let seen = screen(&mut state, (40, 8), 90_000);
    assert!(seen.contains("1 m 30 s · Esc stops"), "{seen}");
}

#[test]
fn subagents_and_todos_stand_above_the_input() {
    let subagent = |depth, id: &str, task: &str| Subagent {
        depth,
        id: id.to_owned(),
        task: task.to_owned(),
        state: "running".to_owned(),
        has_ended: false,
        tokens: 1_200,
    };
    let todo = |text: &str, is_done, is_active| TodoLine { text: text.to_owned(), is_done, is_active };
    let events = vec![
        task("Split"),
        ChatEvent::Todo(vec![
            todo("Read", true, false),
            todo("Count", false, true),
            todo("Write", false, false),
        ]),
        ChatEvent::Tree(vec![
            subagent(0, "AB12CD", "Count the words"),
            subagent(1, "EF34GH", "Deeper"),
            subagent(0, "JK56MN", "Count the lines"),
        ]),
    ];
    let expect = "
❯ Split


☑ Read
▸ Count
☐ Write
├─ AB12CD running 1.2k tokens  Count the words
  └─ EF34GH running 1.2k tokens  Deeper
└─ JK56MN running 1.2k tokens  Count the lines
⠴ works  3 s · Esc stops
────────────────────────────────────────────────────────────
❯
vendor/model · new conversation · /help";
    check(events, (60, 13), expect);
}

#[test]
fn failures_and_losses_are_said() {
    let events = vec![
        task("Go"),
        ChatEvent::Notice(Tone::Bad, "the model failed: 503".to_owned()),
        ChatEvent::Link(Link::Lost("the service has gone".to_owned())),
    ];
    let expect = "
❯ Go

✗ the model failed: 503
! the service has gone: what runs is on
  disk, and goes on with the next one
⠴ waits for the service  3 s · Esc stops
────────────────────────────────────────
❯
no service · vendor/model · /help";
    check(events, (40, 9), expect);
}

#[test]
fn a_voided_answer_disappears() {
    let events =
        vec![task("Go"), text(1, "half an ans"), ChatEvent::Voided { call: model_call(1) }, text(1, "whole")];
    let mut state = state(events);
    let seen = screen(&mut state, (40, 10), 0);
    assert!(seen.contains("whole") && !seen.contains("half"), "{seen}");
}

#[test]
fn a_diff_page_and_choices_are_shown() {
    let page = ChatEvent::Page {
        title: "Changes".to_owned(),
        text: "+a\n-b\x1b[2J".to_owned(),
        kind: PageKind::Diff,
    };
    let choice =
        |id: &str| Choice { id: id.to_owned(), label: format!("conversation {id}"), text: String::new() };
    let choices = vec![choice("1"), choice("2")];
    let events = vec![page, ChatEvent::Choices { choices, is_cut: false }];
    let expect = "
Changes
  +a
  -b␛[2J

▸ conversation 1
  conversation 2
  1 of 2 · type to filter
────────────────────────────────────────
❯
new conversation · /help";
    check(events, (40, 10), expect);
}

#[test]
fn a_long_conversation_scrolls() {
    let mut state = state((0..50).map(|n| ChatEvent::Notice(Tone::Quiet, format!("line {n}"))).collect());
    let end = screen(&mut state, (40, 10), 0);
    assert!(end.contains("line 49") && !end.contains("line 40"), "{end}");
    state.input(crate::Input::Key(crate::Key::PageUp), 0);
    let up = screen(&mut state, (40, 10), 0);
    assert!(!up.contains("line 49") && up.contains("more below: Ctrl-End"), "{up}");
    state.apply(ChatEvent::Notice(Tone::Quiet, "line 50".to_owned()), 0);
    assert_eq!(screen(&mut state, (40, 10), 0), up, "what comes does not move what is read");
    state.input(crate::Input::Key(crate::Key::PageDown), 0);
    state.input(crate::Input::Key(crate::Key::ToEnd), 0);
    assert!(screen(&mut state, (40, 10), 0).contains("line 50"));
}

#[test]
fn every_size_is_drawn() {
    let mut state = state(vec![
        task("A task with several words 漢字"),
        text(1, "# T\n\n- a\n- b\n\n| a | b |\n| - | - |\n| 1 | 2 |\n"),
        shell(1, "make"),
        ChatEvent::Question(Question {
            call: tool_call(1, 1),
            text: "Allow it?".to_owned(),
            wants_text: false,
            can_always: true,
        }),
    ]);
    for columns in 1..50 {
        for rows in 1..20 {
            screen(&mut state, (columns, rows), 0);
        }
    }
}

#[test]
fn no_control_character_reaches_the_screen() {
    let bad = "\x1b]0;title\x07\x1b[2J\r\u{9b}31m\u{202e}";
    let events = vec![
        task(bad),
        text(1, bad),
        ChatEvent::Reasoning { call: model_call(2), attempt: 1, delta: bad.to_owned() },
        shell(1, bad),
        ChatEvent::Progress { call: tool_call(1, 1), note: bad.to_owned() },
        ChatEvent::Notice(Tone::Bad, bad.to_owned()),
        ChatEvent::Named { title: Some(bad.to_owned()), agent: Some(bad.to_owned()) },
        ChatEvent::Question(Question {
            call: tool_call(1, 1),
            text: bad.to_owned(),
            wants_text: true,
            can_always: false,
        }),
    ];
    let mut state = state(events);
    let seen = screen(&mut state, (120, 60), 0);
    let is_bad = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
    assert_eq!(seen.chars().find(is_bad), None, "{seen}");
    assert!(seen.contains('␛'));
}

#[test]
fn memory_of_a_long_conversation_is_bounded() {
    let mut state = state(Vec::new());
    let long = "word ".repeat(20_000);
    for n in 0..200 {
        state.apply(answered(n + 1, &long), 0);
    }
    assert!(state.transcript.forgotten() > 50, "{}", state.transcript.forgotten());
    let seen = screen(&mut state, (80, 20), 0);
    assert!(seen.contains("word word"));
}

#[test]
fn the_run_that_is_under_way_is_known() {
    let mut state = state(vec![task("one")]);
    assert_eq!(state.active_run(), Some(RUN));
    assert!(state.is_animated());
    state.apply(run_ended(false, "stopped"), 0);
    assert_eq!(state.active_run(), None);
    let seen = screen(&mut state, (40, 10), 0);
    assert!(seen.contains("✗ stopped"), "{seen}");
}

#[test]
fn a_message_that_came_too_late_to_steer_is_shown_once() {
    let steered = ChatEvent::Steered { message: RUN, text: "and this".to_owned() };
    let mut state = state(vec![steered, task("and this")]);
    let seen = screen(&mut state, (40, 10), 0);
    assert!(seen.starts_with("❯ and this") && !seen.contains('»'), "{seen}");
}

/// The state draws the same text whether it came at once or in pieces.
#[test]
fn pieces_of_an_answer_are_drawn_as_the_whole() {
    let whole = "# Title\n\nText *one*.\n\n- a\n\n- b\n\n```py\nif x:\n\n    y\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.";
    let mut at_once = state(vec![task("x"), text(1, whole)]);
    let mut in_pieces = state(vec![task("x")]);
    for c in whole.chars() {
        in_pieces.apply(text(1, &c.to_string()), 0);
        screen(&mut in_pieces, (40, 40), 0);
    }
    assert_eq!(screen(&mut in_pieces, (40, 40), 0), screen(&mut at_once, (40, 40), 0));
}
