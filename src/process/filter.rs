//! Runs a command of the user that gets a text and gives one back, in a process group of its own. Its time and its output
//! are bounded: a command that exceeds one is killed.

use std::{io, path::PathBuf, process::Stdio, time::Duration};

use hermod_actors::ActiveDeadline;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt as _};

use super::{command::inherited, group::ProcessGroup};

/// The shell that runs the command.
const SHELL: &str = "/bin/sh";
/// Bytes that are kept of what the command writes to stderr.
const MAX_STDERR_BYTES: usize = 2_048;
/// How long the output is still read after the command's exit: a process that it left may hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the kernel may take to report the exit of a killed command.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// A command of the user.
#[derive(Debug, Clone)]
pub struct FilterCommand {
    /// The script for the shell. It gets the variables of [`inherited`] alone.
    pub script: String,
    /// The working directory.
    pub folder: PathBuf,
    /// The time limit.
    pub timeout: Duration,
    /// Most bytes that it may write to stdout.
    pub max_output: usize,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterEnd {
    /// It exited with this code; `None` if a signal ended it.
    Exited(Option<i32>),
    /// It was killed, because its time was over.
    TimedOut,
    /// It was killed, because it wrote too much.
    TooMuchOutput,
}

/// What came of a command.
#[derive(Debug)]
pub struct FilterResult {
    /// How it ended.
    pub end: FilterEnd,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// The beginning of what it wrote to stderr.
    pub stderr: Vec<u8>,
}

/// Runs a command with `input` at its stdin, which it need not read. Dropping the future kills its process group, and
/// after the end no member of the group is left. Errors: the command cannot be started or watched.
pub async fn filter(command: FilterCommand, input: &[u8]) -> io::Result<FilterResult> {
    let FilterCommand { script, folder, timeout, max_output } = command;
    let mut child = tokio::process::Command::new(SHELL)
        .env_clear()
        .envs(inherited())
        .args(["-c", &script])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = ProcessGroup::led_by(child)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let end = {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input closes the pipe.
                let (Ok(()) | Err(_)) = stdin.write_all(input).await;
            }
            Ok(())
        };
        let exchange = async {
            tokio::try_join!(write, read(stdout, max_output, &mut out), discard(stderr, &mut err)).map(|_| ())
        };
        let watched = watch(&group, exchange);
        ActiveDeadline::after(timeout).bound(watched).await.unwrap_or(Ok(None))?
    };
    let status = group.finish(EXIT_TIMEOUT).await?;
    let end = match end {
        Some(Exchanged::Whole) => FilterEnd::Exited(status.and_then(|status| status.code())),
        Some(Exchanged::TooMuch) => FilterEnd::TooMuchOutput,
        None => FilterEnd::TimedOut,
    };
    Ok(FilterResult { end, stdout: out, stderr: err })
}

/// What became of the output.
enum Exchanged {
    Whole,
    TooMuch,
}

/// Why an exchange does not go on.
enum ExchangeError {
    TooMuch,
    Io(io::Error),
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Waits for the exit of the command, and for its output.
async fn watch(
    group: &ProcessGroup,
    exchange: impl Future<Output = Result<(), ExchangeError>>,
) -> io::Result<Option<Exchanged>> {
    let mut exchange = std::pin::pin!(exchange);
    let exchanged = tokio::select! {
        biased;
        exchanged = &mut exchange => {
            if exchanged.is_ok() {
                group.exited().await?;
            }
            exchanged
        }
        exited = group.exited() => {
            exited?;
            ActiveDeadline::after(DRAIN_TIMEOUT).bound(exchange).await.unwrap_or(Ok(()))
        }
    };
    match exchanged {
        Ok(()) => Ok(Some(Exchanged::Whole)),
        Err(ExchangeError::TooMuch) => Ok(Some(Exchanged::TooMuch)),
        Err(ExchangeError::Io(error)) => Err(error),
    }
}

/// Reads all of a stream, unless it has more than `max` bytes.
async fn read(
    stream: Option<impl AsyncRead + Unpin>,
    max: usize,
    into: &mut Vec<u8>,
) -> Result<(), ExchangeError> {
    let Some(stream) = stream else { return Ok(()) };
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    stream.take(limit).read_to_end(into).await?;
    if into.len() > max { Err(ExchangeError::TooMuch) } else { Ok(()) }
}

/// Reads a stream to its end, and keeps its beginning.
async fn discard(stream: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> Result<(), ExchangeError> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut buffer = vec![0; 8 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let room = MAX_STDERR_BYTES - into.len();
        into.extend_from_slice(&buffer[..count.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(script: &str, end: FilterEnd, stdout: &str) {
        let command = FilterCommand {
            script: script.to_owned(),
            folder: "/".into(),
            timeout: Duration::from_millis(700),
            max_output: 1_000,
        };
        let input = "an input\n".repeat(100_000);
        let limit = Duration::from_secs(30);
        let result = tokio::time::timeout(limit, filter(command, input.as_bytes())).await;
        let result = result.expect("it is killed").unwrap();
        assert_eq!(result.end, end, "{script}");
        if end != FilterEnd::TooMuchOutput {
            assert_eq!(String::from_utf8_lossy(&result.stdout), stdout, "{script}");
        }
    }

    #[tokio::test]
    async fn a_command_is_bounded_in_time_and_output() {
        check("head -n 1", FilterEnd::Exited(Some(0)), "an input\n").await;
        check("wc -l | tr -d ' '", FilterEnd::Exited(Some(0)), "100000\n").await;
        check("exit 7", FilterEnd::Exited(Some(7)), "").await;
        check("kill -9 $$", FilterEnd::Exited(None), "").await;
        check("echo half; exec sleep 60", FilterEnd::TimedOut, "half\n").await;
        check("yes", FilterEnd::TooMuchOutput, "").await;
        check("yes >&2 & sleep 60", FilterEnd::TimedOut, "").await;
        // What it leaves behind holds the pipe, and is killed with the group.
        check("sleep 60 & echo done", FilterEnd::Exited(Some(0)), "done\n").await;
    }
}
