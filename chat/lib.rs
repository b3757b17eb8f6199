//! The face of Hermod's chat: the state of a conversation as a reducer of events, the editor of the input, and the
//! drawing of both. No store, no socket and no file is used here; the only I/O is the terminal, in `screen.rs`.
//!
//! `event.rs` has the words between the face and the adapter that speaks with the service: [`ChatEvent`] and [`Intent`].
//! `state.rs` folds events, `input.rs` keys, `view.rs` draws. `plain.rs` is the mode without cursor movement.

mod command;
mod command_end;
mod diff;
mod editor;
mod event;
mod highlight;
mod input;
mod keys;
mod look;
mod markdown;
mod picker;
mod plain;
mod records;
mod result_text;
mod screen;
mod state;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod tool_entry;
mod transcript;
mod view;
mod wrap;

pub use command::{COMMANDS, Command, CommandHelp, KEYS, STATUS, help_text};
pub use command_end::CommandEnd;
pub use editor::Motion;
pub use event::{
    AllowScope, CallOutcome, ChatEvent, Choice, Intent, Link, PageKind, Question, Subagent, TodoLine, Tone,
    Used, Verdict,
};
pub use input::{Input, Key};
pub use look::{FRAME_MS, Look};
pub use plain::PlainChat;
pub use records::{RecordReader, question, streamed};
pub use screen::{Screen, restore_terminal};
pub use state::ChatState;
pub use status::dollars;
pub use wrap::counted;
