//! Reads the beginning and the end of a text file, for `skill_view` and the prompt; a binary file is an error.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
};

use crate::tool::WorkspacePath;

/// A NUL byte within this many bytes makes a file binary.
const SNIFFED_BYTES: usize = 8 * 1024;

/// The beginning and the end of a file of any size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileExcerpt {
    /// The first bytes; the whole file if `tail` is empty.
    pub head: Vec<u8>,
    /// The last bytes.
    pub tail: Vec<u8>,
    /// Size of the file in bytes.
    pub total: u64,
}

impl FileExcerpt {
    /// Reads a regular file, at most `max_bytes` bytes of either end. A shorter file, up to twice that, is read whole.
    /// A binary one is an error. An error names the path and what is wrong, without a full stop.
    pub fn read(path: &WorkspacePath, max_bytes: usize) -> Result<Self, String> {
        let (file, stat) = path.open_file().map_err(|bad| bad.error)?;
        let stat_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let failed = |error: io::Error| path.io_error(error).error;
        let head = read_at(&file, 0, max_bytes.saturating_mul(2)).map_err(failed)?;
        let total = stat_bytes.max(head.len() as u64);
        if head[..head.len().min(SNIFFED_BYTES)].contains(&0) {
            return Err(path.refuse(&format!("is binary, {total} bytes"), "").error);
        }
        if total <= head.len() as u64 {
            return Ok(Self { head, tail: Vec::new(), total });
        }
        let tail = read_at(&file, total.saturating_sub(max_bytes as u64), max_bytes).map_err(failed)?;
        Ok(Self { head: head[..head.len().min(max_bytes)].to_vec(), tail, total })
    }

    /// An excerpt that is the whole text.
    pub fn of(text: &str) -> Self {
        Self { head: text.as_bytes().to_vec(), tail: Vec::new(), total: text.len() as u64 }
    }
}

/// At most `max_bytes` bytes from `offset` on.
fn read_at(mut file: &File, offset: u64, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(max_bytes as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
