//! Hooks: commands and endpoints of the operator that are asked at points of a run, or told of what has happened.
//!
//! `names.rs` has the names, `configured.rs` the hooks of a configuration, and `hook.rs` one of them with its state.
//! `caller.rs` calls it, `event.rs` has the JSON that it gets, `verdict.rs` reads what it answers. Those that decide
//! implement the port `DecisionHooks`. `prompt.rs` has those that shape system prompts. `observers.rs` starts those that observe: each reads the feed by itself
//! (`observer.rs`), and `teller.rs` calls it, with the pauses of `observer_pace.rs`. `command_event.rs` tells of
//! commands of chats. See `docs/decisions/hooks.md`.

mod caller;
mod command_event;
mod configured;
mod event;
mod hook;
mod names;
mod observer;
mod observer_pace;
mod observers;
mod prompt;
mod service_event;
mod teller;
mod trial;
mod verdict;

pub use command_event::{CommandEvent, CommandEvents};
pub use configured::ConfiguredHooks;
pub use hook::Hook;
pub use names::{HookName, HookRole, NAMES, ObservedEvent, PromptPoint};
pub use observers::HookObservers;
pub use prompt::{HookSource, HookedPrompt};
