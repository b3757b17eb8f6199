//! Puts each message into a file of its own. A file has its name only when it is whole and on disk, and its name has the
//! message's id: a repeated delivery replaces the file by the same one.

use std::path::{Path, PathBuf};

use hermod_actors::model::OutboxMessage;

use super::{payload::line, verdict::SendResult};
use crate::files::{self, off_thread};

pub(super) async fn write(folder: &Path, message: &OutboxMessage) -> SendResult {
    let (folder, id, text) = (folder.to_owned(), message.id.to_string(), line(message));
    let written = off_thread(move || {
        files::make_folder(&folder)?;
        let path = folder.join(format!("{id}.json"));
        files::replace(&path, &hidden(&folder, &id), text.as_bytes())
    });
    match written.await {
        Ok(()) => SendResult::Delivered,
        Err(error) => SendResult::Temporary { why: error.to_string(), pause: None },
    }
}

/// The file until it is whole.
fn hidden(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!(".{id}.part"))
}
