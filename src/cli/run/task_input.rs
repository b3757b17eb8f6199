//! What `hermod run` is given besides options: the task, which is its argument joined with the piped standard input, and
//! the files of `--history` and `--image`.

use std::{
    io::{self, ErrorKind, IsTerminal, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use hermod_actors::{
    MAX_IMAGE_BYTES, MAX_IMAGES,
    model::{ImageFormat, Message},
};
use rustix::fs::{FileType, fstat};

use crate::{
    cli::{CliError, print_note, wire::message},
    files::{read_limited, read_regular, text as utf8},
};

/// Size limit of standard input; more than any model reads at once.
const MAX_INPUT_BYTES: u64 = 16 << 20;
/// How long a pipe is read before a note tells the user that its end is awaited.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// The task: TEXT with the piped input appended, or all of standard input if TEXT is `-`. `None` without TEXT; piped
/// input is then an error.
pub(super) fn read_task(text: Option<&str>) -> Result<Option<Arc<str>>, CliError> {
    let stdin = io::stdin();
    let Some(text) = text else {
        if has_input(&stdin) {
            return Err(CliError::usage(
                "standard input has text, and there is no TEXT: `-` as TEXT makes it the task; without a task, give </dev/null",
            ));
        }
        return Ok(None);
    };
    let task = match text {
        "-" => read(stdin.lock())?,
        text if text.trim().is_empty() => String::new(),
        text if is_piped(&stdin) => with_input(text, &with_notice(|| read(stdin.lock()))?),
        text => text.to_owned(),
    };
    if task.trim().is_empty() {
        return Err(CliError::usage("TEXT is empty; say what is to be done"));
    }
    Ok(Some(task.into()))
}

/// TEXT with the input below it, in a fence longer than any in the input.
fn with_input(text: &str, input: &str) -> String {
    if input.trim().is_empty() {
        return text.to_owned();
    }
    let longest = input.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if input.ends_with('\n') { "" } else { "\n" };
    format!("{text}\n\nStandard input:\n\n{fence}\n{input}{end}{fence}")
}

fn read(input: impl Read) -> Result<String, CliError> {
    read_limited(input, MAX_INPUT_BYTES)
        .and_then(utf8)
        .map_err(|error| CliError::usage(format!("standard input cannot be read as text: {error}")))
}

/// True if standard input is a pipe, a socket or a file; `/dev/null` and a terminal give no task.
fn is_piped(stdin: &io::Stdin) -> bool {
    let kind = fstat(stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    !stdin.is_terminal() && matches!(kind, Ok(FileType::Fifo | FileType::Socket | FileType::RegularFile))
}

/// True if bytes can be read from standard input now.
fn has_input(stdin: &io::Stdin) -> bool {
    is_piped(stdin) && rustix::io::ioctl_fionread(stdin).is_ok_and(|bytes| bytes > 0)
}

/// Reads, and prints a note if it takes long: a pipe may have been left open by mistake.
fn with_notice<T>(read: impl FnOnce() -> T) -> T {
    let (sender, receiver) = mpsc::channel::<()>();
    thread::spawn(move || {
        if receiver.recv_timeout(NOTICE_DELAY) == Err(RecvTimeoutError::Timeout) {
            print_note(
                "stdin     waits for the end of what is piped to standard input; give </dev/null if nothing is",
            );
        }
    });
    let result = read();
    drop(sender);
    result
}

/// Size limit of a history; more than the window of any model.
const MAX_HISTORY_BYTES: u64 = 64 << 20;

/// The messages of the file; empty without a file.
pub(super) fn read_history(path: Option<&Path>) -> Result<Vec<Message>, CliError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let history_error = |reason: String| CliError::usage(format!("--history {}: {reason}", path.display()));
    let json = read_regular(path, MAX_HISTORY_BYTES).map_err(|error| history_error(error.to_string()))?;
    message::history(&json).map_err(history_error)
}

/// Reads the pictures of this option.
pub(in crate::cli) fn read_images(files: &[PathBuf], option: &str) -> Result<Vec<Bytes>, CliError> {
    if files.len() > MAX_IMAGES {
        let text = format!("{option}: {} pictures; at most {MAX_IMAGES} can be sent together", files.len());
        return Err(CliError::usage(text));
    }
    let image_error = |path: &Path, reason| CliError::usage(format!("{option} {}: {reason}", path.display()));
    files.iter().map(|path| read_image(path).map_err(|reason: String| image_error(path, reason))).collect()
}

fn read_image(path: &Path) -> Result<Bytes, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_stands_below_the_text_in_a_fence() {
        let check = |input: &str, expect: &str| assert_eq!(with_input("do it", input), expect);
        check("", "do it");
        check(" \n", "do it");
        check("a\nb\n", "do it\n\nStandard input:\n\n```\na\nb\n```");
        check("a", "do it\n\nStandard input:\n\n```\na\n```");
        check("```\ncode\n```\n", "do it\n\nStandard input:\n\n````\n```\ncode\n```\n````");
    }

    #[test]
    fn input_has_an_end() {
        let check = |input: &mut dyn Read, expect: Result<&str, &str>| match (read(input), expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(failure), Err(part)) => assert!(failure.text.contains(part), "{}", failure.text),
            (other, _) => panic!("{other:?} instead of {expect:?}"),
        };
        check(&mut &b"text"[..], Ok("text"));
        check(&mut &b"\xff"[..], Err("not text in UTF-8"));
        check(&mut io::repeat(b'x'), Err("at most 16777216 are read"));
    }
}
