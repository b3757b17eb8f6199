//! How a command of the `shell` tool ended, parsed from the recorded result of its call: its failure in words, its
//! output, its last line.

use serde::Deserialize;

/// Signal names on Linux, ordered by number from 1.
const SIGNALS: [&str; 15] = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
    "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
];
/// A shell exits with this plus a signal's number if the signal ended its command.
const SIGNAL_EXIT_BASE: i32 = 128;

/// The result of a command, in the form that the model reads.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct CommandEnd {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    /// What it printed to standard output.
    pub stdout: String,
    /// What it printed to standard error.
    pub stderr: String,
}

impl CommandEnd {
    /// `None` if the result is not that of an executed command.
    pub fn parse(tool: &str, content: &str) -> Option<Self> {
        if tool == "shell" { serde_json::from_str(content).ok() } else { None }
    }

    /// How the command failed; `None` if it exited with 0.
    pub fn failure(&self) -> Option<String> {
        match (self.exit_code, self.signal) {
            _ if self.timed_out => Some("timed out".into()),
            (Some(0), None) => None,
            (_, Some(signal)) => Some(format!("killed by {}", signal_name(signal))),
            (Some(code), None) => Some(match code {
                126 => "exit 126 (it cannot be executed)".into(),
                127 => "exit 127 (command not found)".into(),
                code if code > SIGNAL_EXIT_BASE && SIGNALS.len() > index(code - SIGNAL_EXIT_BASE) => {
                    format!("exit {code} ({})", signal_name(code - SIGNAL_EXIT_BASE))
                }
                code => format!("exit {code}"),
            }),
            (None, None) => Some("no exit code".into()),
        }
    }

    /// The last line that the command printed: of standard error if it has any, else of standard output.
    pub fn last_line(&self) -> Option<&str> {
        last(&self.stderr).or_else(|| last(&self.stdout))
    }
}

/// The last line that is not blank.
fn last(text: &str) -> Option<&str> {
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::trim_end)
}

/// The index of a signal in [`SIGNALS`]; past its end for unknown numbers.
fn index(signal: i32) -> usize {
    usize::try_from(signal.saturating_sub(1)).unwrap_or(usize::MAX)
}

fn signal_name(signal: i32) -> String {
    SIGNALS.get(index(signal)).map_or_else(|| format!("signal {signal}"), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, failure: Option<&str>, last_line: Option<&str>) {
        let end = CommandEnd::parse("shell", content).expect("a command's result");
        assert_eq!((end.failure().as_deref(), end.last_line()), (failure, last_line), "{content}");
    }

    #[test]
    fn a_command_that_failed_says_how() {
        let end = |code: &str, signal: &str, timed_out: bool| {
            format!(
                r#"{{"exit_code":{code},"signal":{signal},"timed_out":{timed_out},"stdout":"one\ntwo\n\n","stderr":""}}"#
            )
        };
        let two = Some("two");
        check(&end("0", "null", false), None, two);
        check(&end("1", "null", false), Some("exit 1"), two);
        check(&end("3", "null", false), Some("exit 3"), two);
        check(&end("126", "null", false), Some("exit 126 (it cannot be executed)"), two);
        check(&end("127", "null", false), Some("exit 127 (command not found)"), two);
        check(&end("137", "null", false), Some("exit 137 (SIGKILL)"), two);
        check(&end("200", "null", false), Some("exit 200"), two);
        check(&end("null", "9", false), Some("killed by SIGKILL"), two);
        check(&end("null", "15", true), Some("timed out"), two);
        check(&end("null", "64", false), Some("killed by signal 64"), two);
        check(&end("null", "-2147483648", false), Some("killed by signal -2147483648"), two);
        check(&end("null", "null", false), Some("no exit code"), two);
    }

    #[test]
    fn what_it_said_last_is_its_error() {
        let json = r#"{"exit_code":1,"signal":null,"timed_out":false,"stdout":"out","stderr":"a\nwhy  \n"}"#;
        check(json, Some("exit 1"), Some("why"));
    }

    #[test]
    fn other_results_are_none() {
        for (tool, content) in [
            ("read_file", r#"{"exit_code":1,"signal":null,"timed_out":false,"stdout":"","stderr":""}"#),
            ("shell", r#"{"error":"no","hint":"x"}"#),
            ("shell", "exit_code"),
        ] {
            assert_eq!(CommandEnd::parse(tool, content), None, "{content}");
        }
    }
}
