//! The operations that clients of OpenAI's API use: `/v1/chat/completions`, `/v1/responses` and `/v1/models`. A model is an
//! agent of this service, and each request is a run.
//!
//! `chat*.rs` and `response*.rs` have one operation family each: the request is converted into a [`conversation`], and the
//! run's result into an answer or its events. `submission.rs` joins a conversation to its session, as `sessions.rs`
//! remembers it. Nothing is sent that a later event would have to take back: a text is sent when its run has ended.

mod chat;
mod chat_answer;
mod chat_request;
mod content;
mod conversation;
mod error;
mod fields;
mod models;
mod response_events;
mod response_object;
mod response_request;
mod responses;
mod schema;
mod sessions;
mod stream;
mod submission;

use self::sessions::KnownSessions;
use super::operations::Operations;

pub(super) use error::{is_own_path, render_errors};
pub(super) use schema::schemas;

pub(super) fn routes() -> Operations {
    Operations::default()
        .merge(chat::routes())
        .merge(responses::routes())
        .merge(models::routes())
        .with_extension(KnownSessions::default())
}
