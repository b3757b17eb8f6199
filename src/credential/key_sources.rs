//! Sources of API keys: a file, and the output of a command.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::{
    excerpt::first_chars,
    process::{self, CommandResult, Environment, ExitCause},
    provider::{FetchedKey, KeyError, KeySource},
    secret::{Reference, Secret},
};

/// Time limit of the command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of the command's output, in bytes.
const MAX_KEY_BYTES: usize = 16 * 1024;
/// Characters of the command's standard error that an error shows.
const MAX_ERROR_CHARS: usize = 120;

/// A key in a file, read anew at each fetch since the file may be replaced.
#[derive(Debug)]
pub struct KeyFile(Reference);

impl KeyFile {
    /// Creates the source from a reference to a file with an absolute path.
    pub const fn new(file: Reference) -> Self {
        Self(file)
    }
}

impl KeySource for KeyFile {
    fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
        let file = self.0.clone();
        async {
            let read = spawn_blocking(move || file.resolve(&BTreeMap::new())).await;
            match read {
                Ok(Ok(key)) => Ok(FetchedKey { key, expires_in: None }),
                Ok(Err(missing)) => Err(KeyError::Denied(missing.to_string())),
                Err(_) => Err(KeyError::Denied(format!("{}: reading it broke off", self.0))),
            }
        }
        .boxed()
    }
}

/// A key that a command prints. The command is the user's: it gets this process's variables and runs without a shell.
pub struct KeyCommand {
    words: Vec<String>,
    limit: Duration,
}

impl KeyCommand {
    /// Creates the source from a program and its arguments.
    pub const fn new(words: Vec<String>) -> Self {
        Self { words, limit: COMMAND_TIMEOUT }
    }

    fn redacted(&self) -> Reference {
        Reference::Command(self.words.clone())
    }

    fn denied(&self, problem: impl fmt::Display) -> KeyError {
        KeyError::Denied(format!("{}: {problem}", self.redacted()))
    }

    async fn run(&self) -> Result<FetchedKey, KeyError> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(self.denied("there is no program"));
        };
        let command = process::Command {
            program: program.clone(),
            arguments: arguments.to_vec(),
            folder: PathBuf::from("/"),
            environment: Environment::Own,
            variables: Vec::new(),
            sandbox: None,
            timeout: self.limit,
        };
        let result = process::run(command, None, &CancellationToken::new()).await;
        let result = result.map_err(|error| self.denied(format!("it cannot be started: {error}")))?;
        self.parse_result(result)
    }

    fn parse_result(&self, mut result: CommandResult) -> Result<FetchedKey, KeyError> {
        let output = result.stdout.truncated(MAX_KEY_BYTES);
        if output.left_out > 0 {
            return Err(self.denied("its output is too long for a key; it must print the key alone"));
        }
        let key = std::str::from_utf8(output.head).map(str::trim);
        let key = key.map_err(|_| self.denied("its output is no text; it must print the key alone"))?;
        let error_output = result.stderr.truncated(MAX_KEY_BYTES);
        let error_output =
            last_line(if error_output.tail.is_empty() { error_output.head } else { error_output.tail }, key);
        match (result.cause, result.exit_code) {
            (ExitCause::Exit, Some(0)) if key.is_empty() => Err(self.denied(format!(
                "it printed nothing; it must print the key to standard output{error_output}"
            ))),
            (ExitCause::Exit, Some(0)) => Ok(FetchedKey { key: Secret::new(key), expires_in: None }),
            (ExitCause::Exit, Some(code)) => {
                Err(self.denied(format!("it ended with code {code}{error_output}")))
            }
            (ExitCause::Exit, None) => {
                let signal = result.signal.map_or_else(String::new, |signal| format!(" {signal}"));
                Err(self.denied(format!("it was ended by signal{signal}{error_output}")))
            }
            (ExitCause::Timeout | ExitCause::Cancel, _) => Err(KeyError::Unreachable(format!(
                "{}: it did not end within {} s{error_output}",
                self.redacted(),
                self.limit.as_secs_f64()
            ))),
        }
    }
}

/// The last line of a command's stderr for an error message, on one line and with the key redacted.
fn last_line(text: &[u8], key: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else { return String::new() };
    let line = Secret::new(key).redact_in(line.to_owned());
    let visible: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!(": {}", first_chars(&visible, MAX_ERROR_CHARS))
}

impl KeySource for KeyCommand {
    fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
        self.run().boxed()
    }
}

impl fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.redacted(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of this `/bin/sh` script: the key, or a part of the error.
    async fn check(line: &str, expect: Result<&str, KeyError>) {
        let words = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        match (KeyCommand { words, limit: Duration::from_millis(300) }.fetch().await, expect) {
            (Ok(fetched), Ok(key)) => assert_eq!(fetched.key.reveal(), key, "{line}"),
            (Err(KeyError::Denied(text)), Err(KeyError::Denied(part)))
            | (Err(KeyError::Unreachable(text)), Err(KeyError::Unreachable(part))) => {
                assert!(text.contains(&part), "{line}: {text}");
                assert!(
                    text.starts_with("command:/bin/sh …: ") && !text.contains("sk-secret"),
                    "{line}: {text}"
                );
                assert!(text.len() < 250, "{text}");
            }
            (got, expect) => panic!("{line}: expected {expect:?}, got {got:?}"),
        }
    }

    #[tokio::test]
    async fn a_command_prints_a_key_or_says_why_not() {
        let denied = |part: &str| Err(KeyError::Denied(part.to_owned()));
        check("echo '  sk-secret '; echo noise >&2", Ok("sk-secret")).await;
        check(
            "echo sk-secret; echo >&2; echo the vault is sealed >&2; exit 3",
            denied("code 3: the vault is sealed"),
        )
        .await;
        check("echo sk-secret-of-mine; echo tried sk-secret-of-mine >&2; exit 3", denied("tried ***")).await;
        check("head -c 90000 /dev/zero | tr '\\0' 'e' >&2; exit 1", denied("eee…")).await;
        check("true", denied("printed nothing")).await;
        check("kill -9 $$", denied("signal 9")).await;
        check("yes | head -c 99999", denied("too long for a key")).await;
        check("printf '\\377'", denied("no text")).await;
        check("sleep 60", Err(KeyError::Unreachable("within 0.3 s".into()))).await;
        let nowhere = KeyCommand::new(vec!["/nowhere/program".into()]).fetch().await.unwrap_err();
        assert!(
            nowhere.to_string().starts_with("command:/nowhere/program: it cannot be started: "),
            "{nowhere}"
        );
    }
}
