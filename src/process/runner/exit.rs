//! The file `exit`: how a command ended. Here are its format, which reveals every torn or incomplete file, and the file
//! with preallocated disk space that the runner writes.
//!
//! It begins with a line `hermod-exit <length> <SHA-256>`. `length` bytes follow: a line of JSON, the captured bytes of
//! both streams, and a short output. The remainder is unused reserve. While the command runs the file begins with `begun`.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt,
};

use hermod_actors::model::Hash;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    files::{SpoolFolder, present},
    output::MAX_INLINE_BYTES,
};
use crate::{
    files::{make, open_regular},
    process::{Capture, CommandResult, ExitCause, HEAD_BYTES, TAIL_BYTES},
};

pub(super) const FILE: &str = "exit";
const VERSION: u32 = 1;
const MAGIC: &str = "hermod-exit";
/// What the file begins with while the command runs.
const BEGUN: &[u8] = b"begun";
/// Bytes reserved for both streams, a short output and the two lines.
const RESERVED_BYTES: usize = 2 * (HEAD_BYTES + TAIL_BYTES) + MAX_INLINE_BYTES + (8 << 10);
/// Bytes that are read first.
const SHORT_BYTES: usize = 4 << 10;
/// Characters of an error that are kept, so that the reserve always suffices.
const MAX_ERROR_BYTES: usize = 1 << 10;

/// How a command ended.
#[derive(Debug)]
pub struct ExitRecord {
    /// The command's result, or why the system did not start it.
    pub end: Result<CommandResult, String>,
    /// Extent of the output that was kept.
    pub output: OutputExtent,
    /// The whole output of both streams, if it is kept here. Otherwise the file `output` has it.
    pub inline_output: Vec<u8>,
}

/// Extent of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputExtent {
    /// Bytes that were kept, from the beginning.
    pub bytes: u64,
    /// Bytes left out at the end.
    pub left_out: u64,
}

#[derive(Serialize, Deserialize)]
struct ExitHeader {
    version: u32,
    /// The attempt's name; absent in files of an earlier version.
    #[serde(default)]
    attempt: Option<String>,
    #[serde(flatten)]
    end: RecordedEnd,
    output: OutputExtent,
    /// Length of the output in this file.
    #[serde(default)]
    inline_output: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedEnd {
    Ran {
        cause: ExitCause,
        exit_code: Option<i32>,
        signal: Option<i32>,
        stdout: CaptureLengths,
        stderr: CaptureLengths,
    },
    Failed {
        error: String,
    },
}

#[derive(Serialize, Deserialize)]
struct CaptureLengths {
    head: usize,
    tail: usize,
    total: u64,
}

impl ExitRecord {
    pub(super) fn encode(&self, attempt: &str) -> Vec<u8> {
        let streams =
            self.end.as_ref().map_or_else(|_| vec![], |result| vec![&result.stdout, &result.stderr]);
        let lengths = |stream: &Capture| {
            let (head, tail) = stream.parts();
            CaptureLengths {
                head: head.len(),
                tail: tail.iter().map(|part| part.len()).sum(),
                total: stream.total(),
            }
        };
        let end = match &self.end {
            Ok(result) => RecordedEnd::Ran {
                cause: result.cause,
                exit_code: result.exit_code,
                signal: result.signal,
                stdout: lengths(&result.stdout),
                stderr: lengths(&result.stderr),
            },
            Err(error) => RecordedEnd::Failed { error: error.chars().take(MAX_ERROR_BYTES).collect() },
        };
        let header = ExitHeader {
            version: VERSION,
            attempt: Some(attempt.to_owned()),
            end,
            output: self.output,
            inline_output: self.inline_output.len(),
        };
        let mut body = serde_json::to_vec(&header).expect("numbers and texts are JSON");
        body.push(b'\n');
        for (head, tail) in streams.into_iter().map(Capture::parts) {
            body.extend_from_slice(head);
            tail.iter().for_each(|part| body.extend_from_slice(part));
        }
        body.extend_from_slice(&self.inline_output);
        let mut bytes = format!("{MAGIC} {} {}\n", body.len(), Hash::of(&body)).into_bytes();
        bytes.append(&mut body);
        bytes
    }

    /// Decodes the file's content; `None` unless it is complete, of this attempt and of a known version.
    pub(super) fn decode(bytes: &[u8], attempt: &str) -> Option<Self> {
        let (first, rest) = line(bytes)?;
        let mut words = std::str::from_utf8(first).ok()?.split(' ');
        let (magic, length, hash) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        let body = rest.get(..length)?;
        if magic != MAGIC || words.next().is_some() || Hash::of(body).to_string() != hash {
            return None;
        }
        let (header, streams) = line(body)?;
        let ExitHeader { version, attempt: of, end, output, inline_output } =
            serde_json::from_slice(header).ok()?;
        if version != VERSION || of.is_some_and(|of| of != attempt) {
            return None;
        }
        let (end, rest) = match end {
            RecordedEnd::Failed { error } => (Err(error), streams),
            RecordedEnd::Ran { cause, exit_code, signal, stdout, stderr } => {
                let (stdout, streams) = capture(streams, &stdout)?;
                let (stderr, rest) = capture(streams, &stderr)?;
                (Ok(CommandResult { cause, exit_code, signal, stdout, stderr }), rest)
            }
        };
        Some(Self { end, output, inline_output: rest.get(..inline_output)?.to_owned() })
    }

    /// Reads the record of a folder; `None` without a complete one.
    pub(super) fn read(folder: &SpoolFolder) -> io::Result<Option<Self>> {
        let Some(file) = present(open_regular(&folder.file(FILE)))? else { return Ok(None) };
        let mut bytes = Vec::new();
        // Most of the file is unused reserve.
        for limit in [SHORT_BYTES, RESERVED_BYTES] {
            (&file).take((limit - bytes.len()) as u64).read_to_end(&mut bytes)?;
            let record = Self::decode(&bytes, folder.name());
            if record.is_some() || bytes.len() < limit {
                return Ok(record);
            }
        }
        Ok(None)
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn capture<'a>(bytes: &'a [u8], lengths: &CaptureLengths) -> Option<(Capture, &'a [u8])> {
    let (head, rest) = bytes.split_at_checked(lengths.head)?;
    let (tail, rest) = rest.split_at_checked(lengths.tail)?;
    Some((Capture::of_parts(head, tail, lengths.total)?, rest))
}

/// The empty file, with disk space preallocated for any result.
#[derive(Debug)]
pub(super) struct PreallocatedExit {
    file: File,
    folder: SpoolFolder,
}

impl PreallocatedExit {
    pub(super) fn create(folder: &SpoolFolder) -> io::Result<Self> {
        let file = make(&folder.file(FILE))?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES as u64) {
            Ok(()) => {}
            // Without support by the file system, zeros allocate the same space.
            Err(Errno::OPNOTSUPP) => file.write_all_at(&vec![0; RESERVED_BYTES], 0)?,
            Err(error) => return Err(error.into()),
        }
        Ok(Self { file, folder: folder.clone() })
    }

    /// Notes that the command is about to run. The ledger says the same, and may be cut later.
    pub(super) fn note_begun(&self) {
        let (Ok(()) | Err(_)) = self.file.write_all_at(BEGUN, 0);
    }

    /// Writes the record. If the command has removed the file, a new one takes its place.
    pub(super) fn write(&mut self, exit: &ExitRecord) -> io::Result<()> {
        let bytes = exit.encode(self.folder.name());
        if self.folder.is_current(FILE, &self.file)? {
            return self.file.write_all_at(&bytes, 0);
        }
        self.file = self.folder.restore_file(FILE, |file| file.write_all_at(&bytes, 0))?;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// True if the file of a folder says that the command was begun.
pub(super) fn has_begun(folder: &SpoolFolder) -> io::Result<bool> {
    let Some(file) = present(open_regular(&folder.file(FILE)))? else { return Ok(false) };
    let mut first = [0];
    Ok(file.read_at(&mut first, 0)? > 0 && first != [0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "call.1";

    fn captured(length: usize) -> Capture {
        let mut capture = Capture::default();
        capture.push(&(0..length).map(|n| u8::try_from(n % 251).unwrap()).collect::<Vec<_>>());
        capture
    }

    fn record(out: usize, err: usize) -> ExitRecord {
        let (stdout, stderr) = (captured(out), captured(err));
        let result =
            CommandResult { cause: ExitCause::Exit, exit_code: Some(3), signal: None, stdout, stderr };
        let inline_output = vec![b'x'; (out + err).min(MAX_INLINE_BYTES)];
        ExitRecord { end: Ok(result), output: OutputExtent { bytes: 7, left_out: 8 }, inline_output }
    }

    fn check(exit: &ExitRecord) {
        let mut bytes = exit.encode(NAME);
        assert!(bytes.len() <= RESERVED_BYTES, "{}", bytes.len());
        let whole = bytes.len();
        bytes.resize(RESERVED_BYTES, 0);
        let again = ExitRecord::decode(&bytes, NAME).expect("it is whole");
        assert_eq!(again.encode(NAME), bytes[..whole]);
        // Every state that a power loss can leave.
        for cut in [0, 1, 20, whole / 2, whole - 1] {
            assert!(ExitRecord::decode(&bytes[..cut], NAME).is_none(), "{cut}");
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            assert!(ExitRecord::decode(&torn, NAME).is_none(), "{cut} then zeros");
            let mut torn = bytes.clone();
            torn[cut] ^= 1;
            assert!(ExitRecord::decode(&torn, NAME).is_none(), "another bit in {cut}");
        }
    }

    #[test]
    fn an_exit_is_whole_or_nothing() {
        check(&record(0, 0));
        check(&record(10, HEAD_BYTES + 1));
        check(&record(10 * HEAD_BYTES, 20 * TAIL_BYTES));
        let end = Err("no such file\n".repeat(1_000));
        check(&ExitRecord { end, output: OutputExtent::default(), inline_output: Vec::new() });
    }

    #[test]
    fn an_exit_of_another_attempt_is_none() {
        let bytes = record(1, 1).encode("call.2");
        assert!(ExitRecord::decode(&bytes, "call.2").is_some());
        assert!(ExitRecord::decode(&bytes, NAME).is_none());
    }

    #[test]
    fn an_exit_of_another_version_is_none() {
        let body = br#"{"version":2,"failed":{"error":""},"output":{"bytes":0,"left_out":0}}"#;
        let of = |body: &[u8]| {
            let body = [body, b"\n"].concat();
            [format!("{MAGIC} {} {}\n", body.len(), Hash::of(&body)).as_bytes(), &body].concat()
        };
        assert!(ExitRecord::decode(&of(body), NAME).is_none());
        assert!(
            ExitRecord::decode(&of(&body.map(|byte| if byte == b'2' { b'1' } else { byte })), NAME).is_some()
        );
    }

    #[test]
    fn lengths_that_cannot_be_are_no_exit() {
        let bytes = record(10, 10).encode(NAME);
        let (_, body) = line(&bytes).unwrap();
        for (length, other) in
            [(r#""head":10"#, r#""head":99"#), (r#""inline_output":20"#, r#""inline_output":21"#)]
        {
            let body = String::from_utf8_lossy(body).replacen(length, other, 1);
            let head = format!("{MAGIC} {} {}\n", body.len(), Hash::of(body.as_bytes()));
            let bytes = [head.as_bytes(), body.as_bytes()].concat();
            assert!(ExitRecord::decode(&bytes, NAME).is_none(), "{other}");
        }
    }
}
