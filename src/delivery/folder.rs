//! Puts each message into a file of its own. A file has its name only when it is whole and on disk, and its name has the
//! message's id: a repeated delivery replaces the file by the same one.

use std::path::{Path, PathBuf};

use hermod_actors::model::OutboxMessage;

use super::{payload::line, verdict::SendResult};
use crate::files;

/// Blocks for as long as the file system does.
pub(super) fn write(folder: &Path, message: &OutboxMessage) -> SendResult {
    let written = files::make_folder(folder).and_then(|()| {
        let path = folder.join(format!("{}.json", message.id));
        files::replace(&path, &hidden(folder, &message.id), line(message).as_bytes())
    });
    match written {
        Ok(()) => SendResult::Delivered,
        Err(error) => SendResult::Temporary { why: error.to_string(), pause: None },
    }
}

/// The file until it is whole.
fn hidden(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!(".{id}.part"))
}
