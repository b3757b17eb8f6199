use std::{fmt, path::PathBuf, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use tokio_util::sync::CancellationToken;

use crate::{
    process::{self, Cause, Environment, Ran},
    provider::{Fetch, Fetched, NoKey},
    secret::{Reference, Secret},
};

/// How long the command may run.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of its output that may be a key.
const LONGEST: usize = 16 * 1024;
/// Characters of what it says of its failure.
const SHOWN: usize = 120;

/// A key that a command prints. The command is the user's: it sees this process's variables, and no shell is between.
pub struct Command {
    words: Vec<String>,
    limit: Duration,
}

impl Command {
    /// The program and its arguments.
    pub const fn new(words: Vec<String>) -> Self {
        Self { words, limit: LIMIT }
    }

    /// The same, with less time.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn shown(&self) -> Reference {
        Reference::Command(self.words.clone())
    }

    fn denied(&self, what: impl fmt::Display) -> NoKey {
        NoKey::Denied(format!("{}: {what}", self.shown()))
    }

    async fn run(&self) -> Result<Fetched, NoKey> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(self.denied("there is no program"));
        };
        let command = process::Command {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            folder: PathBuf::from("/"),
            environment: Environment::Own,
            timeout: self.limit,
        };
        let ran = process::run(command, None, &CancellationToken::new()).await;
        let ran = ran.map_err(|error| self.denied(format!("it cannot be started: {error}")))?;
        self.judge(ran)
    }

    fn judge(&self, mut ran: Ran) -> Result<Fetched, NoKey> {
        let output = ran.stdout.shown(LONGEST);
        if output.left_out > 0 {
            return Err(self.denied("its output is too long for a key; it must print the key alone"));
        }
        let key = std::str::from_utf8(output.head).map(str::trim);
        let key = key.map_err(|_| self.denied("its output is no text; it must print the key alone"))?;
        let said = ran.stderr.shown(LONGEST);
        let said = last_line(if said.tail.is_empty() { said.head } else { said.tail }, key);
        match (ran.cause, ran.exit_code) {
            (Cause::Exit, Some(0)) if key.is_empty() => {
                Err(self
                    .denied(format!("it printed nothing; it must print the key to standard output{said}")))
            }
            (Cause::Exit, Some(0)) => Ok(Fetched { key: Secret::new(key), expires_in: None }),
            (Cause::Exit, Some(code)) => Err(self.denied(format!("it ended with code {code}{said}"))),
            (Cause::Exit, None) => {
                let signal = ran.signal.map_or_else(String::new, |signal| format!(" {signal}"));
                Err(self.denied(format!("it was ended by signal{signal}{said}")))
            }
            (Cause::Timeout | Cause::Cancel, _) => Err(NoKey::Unreachable(format!(
                "{}: it did not end within {} s{said}",
                self.shown(),
                self.limit.as_secs_f64()
            ))),
        }
    }
}

/// The end of what a command says at standard error, for a message: one line, and no key.
fn last_line(text: &[u8], key: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else { return String::new() };
    let line = Secret::new(key).hidden_in(line.to_owned());
    let visible = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let shown: String = visible.clone().take(SHOWN).collect();
    let more = if visible.count() > SHOWN { "…" } else { "" };
    format!(": {shown}{more}")
}

impl Fetch for Command {
    fn fetch(&self) -> BoxFuture<'_, Result<Fetched, NoKey>> {
        self.run().boxed()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.shown(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `/bin/sh` makes of this line: the key, or a part of the message.
    async fn check(line: &str, expect: Result<&str, NoKey>) {
        let words = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        match (Command::new(words).within(Duration::from_millis(300)).fetch().await, expect) {
            (Ok(fetched), Ok(key)) => assert_eq!(fetched.key.reveal(), key, "{line}"),
            (Err(NoKey::Denied(text)), Err(NoKey::Denied(part)))
            | (Err(NoKey::Unreachable(text)), Err(NoKey::Unreachable(part))) => {
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
        let denied = |part: &str| Err(NoKey::Denied(part.to_owned()));
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
        check("sleep 60", Err(NoKey::Unreachable("within 0.3 s".into()))).await;
        let nowhere = Command::new(vec!["/nowhere/program".into()]).fetch().await.unwrap_err();
        assert!(
            nowhere.to_string().starts_with("command:/nowhere/program: it cannot be started: "),
            "{nowhere}"
        );
    }
}
