//! Puts each message into a file of its own. A file has its name only when it is whole and on disk, and its name has the
//! message's id: a repeated delivery replaces the file by the same one. The files of a message lie beside it.

use std::path::{Path, PathBuf};

use hermod_actors::model::OutboxMessage;

use super::{attachments::AttachedFile, payload::payload_with_files, verdict::SendResult};
use crate::files;

/// Blocks for as long as the file system does.
pub(super) fn write(folder: &Path, message: &OutboxMessage, attached: &[AttachedFile]) -> SendResult {
    let id = &message.id;
    let names: Vec<String> =
        attached.iter().zip(1..).map(|(file, n)| format!("{id}-{n}-{}", file.name)).collect();
    let written = files::make_folder(folder).and_then(|()| {
        // Who sees the message finds its files.
        for (file, name) in attached.iter().zip(&names) {
            files::replace(&folder.join(name), &hidden(folder, id), &file.bytes)?;
        }
        let line = format!("{}\n", payload_with_files(message, "file", names.iter().map(String::as_str)));
        files::replace(&folder.join(format!("{id}.json")), &hidden(folder, id), line.as_bytes())
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
