//! Telegram's bot API, with long polling. `bot.rs` calls it, `update.rs` reads updates, `html.rs` writes the markup of messages.

mod bot;
mod form;
mod html;
mod update;

pub(super) use bot::{Telegram, URL};
