use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use hermod_actors::{MAX_PICTURE_BYTES, MAX_PICTURES, model::ImageFormat};

use crate::cli::exit::Failure;

/// The files that `--image` names, whole.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Bytes>, Failure> {
    if files.len() > MAX_PICTURES {
        let text = format!("--image: {} pictures; at most {MAX_PICTURES} can come with a task", files.len());
        return Err(Failure::usage(text));
    }
    files.iter().map(|path| read_one(path).map_err(|reason| wrong(path, &reason))).collect()
}

fn wrong(path: &Path, reason: &str) -> Failure {
    Failure::usage(format!("--image {}: {reason}", path.display()))
}

fn read_one(path: &Path) -> Result<Bytes, String> {
    let unreadable =
        |error: io::Error| format!("{error}; name a PNG, JPEG, GIF or WebP file that can be read");
    // Whatever else it is, opening it may wait for ever.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("it is no file; name a PNG, JPEG, GIF or WebP file".to_owned());
    }
    let most = u64::try_from(MAX_PICTURE_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_PICTURE_BYTES {
        return Err(format!("it has more than {MAX_PICTURE_BYTES} bytes; scale it down"));
    }
    match ImageFormat::of_bytes(&bytes) {
        Some(_) => Ok(bytes.into()),
        None => Err("it is neither PNG, JPEG, GIF nor WebP; convert it".to_owned()),
    }
}
