//! The files of `--image`: reads them, and checks their number, size and format.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use hermod_actors::{MAX_IMAGE_BYTES, MAX_IMAGES, model::ImageFormat};

use crate::{cli::exit::CliError, files::read_regular};

/// Reads the files of `--image`.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Bytes>, CliError> {
    if files.len() > MAX_IMAGES {
        let text = format!("--image: {} pictures; at most {MAX_IMAGES} can come with a task", files.len());
        return Err(CliError::usage(text));
    }
    files.iter().map(|path| read_one(path).map_err(|reason| image_error(path, &reason))).collect()
}

fn image_error(path: &Path, reason: &str) -> CliError {
    CliError::usage(format!("--image {}: {reason}", path.display()))
}

fn read_one(path: &Path) -> Result<Bytes, String> {
    let bytes = read_regular(path, MAX_IMAGE_BYTES as u64).map_err(|error| {
        let is_too_large = error.kind() == ErrorKind::FileTooLarge;
        let remedy = if is_too_large {
            "scale it down"
        } else {
            "name a PNG, JPEG, GIF or WebP file that can be read"
        };
        format!("{error}; {remedy}")
    })?;
    match ImageFormat::of_bytes(&bytes) {
        Some(_) => Ok(bytes.into()),
        None => Err("it is neither PNG, JPEG, GIF nor WebP; convert it".to_owned()),
    }
}
