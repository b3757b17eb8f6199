//! Chat channels: a front door whose clients are chats. A message of a chat becomes a message to the session of the chat,
//! and the replies of its runs come back. See `docs/decisions/channels.md`.
//!
//! `port.rs` is what a channel needs of a chat service, `telegram/` the adapter. `channels.rs` starts and exchanges the
//! channels of a configuration, each of which is a `Channel` (`chat_channel.rs`). `inbound.rs` receives updates, `messages.rs` and `commands.rs` carry them out, and
//! `questions.rs` shows approvals. `records.rs` watches what runs do, `stream.rs` shows a reply while it is made, and
//! `outbox.rs` delivers it. `state.rs` is what outlives the process.

mod address;
mod channels;
mod chat_channel;
mod commands;
mod inbound;
mod messages;
mod outbox;
mod port;
mod questions;
mod records;
mod replies;
mod state;
mod stream;
mod telegram;
mod text;

pub use channels::Channels;
pub use chat_channel::FrontDoor;
