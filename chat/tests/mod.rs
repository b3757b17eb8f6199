//! Events in, screen out: whole screens at 80 and at 40 columns.

mod keys;
mod plain;
mod screens;

use hermod_core::model::{CallId, RunId};
use ratatui_core::{backend::TestBackend, terminal::Terminal};

use crate::{CallOutcome, ChatEvent, ChatState, Look, Used};

pub(super) const RUN: RunId = RunId::from_bits(1);

pub(super) fn model_call(iteration: u32) -> CallId {
    CallId { run: RUN, iteration, n: 0 }
}

pub(super) fn tool_call(iteration: u32, n: u32) -> CallId {
    CallId { run: RUN, iteration, n }
}

pub(super) fn task(text: &str) -> ChatEvent {
    ChatEvent::Task {
        run: RUN,
        text: text.to_owned(),
        images: 0,
        model: "vendor/model".to_owned(),
        workspace: "/srv/site".to_owned(),
        at_ms: 0,
    }
}

pub(super) fn text(iteration: u32, delta: &str) -> ChatEvent {
    ChatEvent::Text { call: model_call(iteration), attempt: 1, delta: delta.to_owned() }
}

pub(super) fn answered(iteration: u32, text: &str) -> ChatEvent {
    ChatEvent::Answered {
        call: model_call(iteration),
        text: text.to_owned(),
        reasoning: String::new(),
        is_discarded: false,
        usage: Used { input: 1_000, output: 234, nano_usd: 12_300_000 },
    }
}

pub(super) fn shell(n: u32, command: &str) -> ChatEvent {
    let arguments = serde_json::json!({ "command": command }).to_string();
    ChatEvent::Call { call: tool_call(1, n), tool: "shell".to_owned(), arguments }
}

pub(super) fn shell_end(n: u32, code: i32, stdout: &str) -> ChatEvent {
    let content = serde_json::json!({
        "exit_code": code, "signal": null, "timed_out": false, "stdout": stdout, "stderr": ""
    });
    ChatEvent::Ended {
        call: tool_call(1, n),
        end: CallOutcome::Ok,
        content: content.to_string(),
        at_ms: 1_500,
    }
}

pub(super) fn run_ended(is_completed: bool, outcome: &str) -> ChatEvent {
    ChatEvent::RunEnded { run: RUN, is_completed, outcome: outcome.to_owned() }
}

/// A state after events.
pub(super) fn state(events: Vec<ChatEvent>) -> ChatState {
    let mut state = ChatState::new(Look::default(), "/srv/site".to_owned());
    state.apply(ChatEvent::Link(crate::Link::Up(7)), 0);
    events.into_iter().for_each(|event| state.apply(event, 0));
    state
}

/// The screen at a time, without blanks at the ends of its lines.
pub(super) fn screen(state: &mut ChatState, (columns, rows): (u16, u16), now_ms: u64) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| {
            let cursor = state.draw(frame.buffer_mut(), now_ms);
            frame.set_cursor_position(cursor);
        })
        .unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let mut line = String::new();
        let mut x = 0;
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(unicode_width::UnicodeWidthStr::width(symbol).max(1)).unwrap();
        }
        line.trim_end().to_owned()
    };
    let lines: Vec<String> = (0..rows).map(line).collect();
    lines.join("\n").trim_start_matches('\n').to_owned()
}
