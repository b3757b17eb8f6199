//! Shows the lines of a followed tree: redraws them in place on a terminal, and appends each change elsewhere.

use crate::{
    cli::{
        CliError,
        output::{StdoutState, print_over},
        terminal::{Charset, TerminalSize, truncate},
    },
    discovery::Variables,
};

/// On a terminal the lines are redrawn in place; elsewhere each change is appended.
#[derive(Debug, Default)]
pub(super) struct LiveScreen {
    drawn: Vec<String>,
    /// The `stable` lines of the last output that was no terminal.
    seen: Option<Vec<String>>,
}

impl LiveScreen {
    /// Shows the lines. `stable` are the same lines without running times: without a terminal, only a change of these
    /// is printed.
    pub(super) fn show(
        &mut self,
        lines: Vec<String>,
        stable: Vec<String>,
        variables: &Variables,
    ) -> Result<StdoutState, CliError> {
        match TerminalSize::of_stdout(variables) {
            Some(size) => {
                let lines = fit_screen(lines, size);
                if lines == self.drawn {
                    return Ok(StdoutState::Open);
                }
                let erasure = match self.drawn.len() {
                    0 => String::new(),
                    drawn => format!("\x1b[{drawn}A\r\x1b[J"),
                };
                self.drawn = lines;
                print_over(&erasure, &self.drawn.join("\n"))
            }
            None if self.seen.as_ref() == Some(&stable) => Ok(StdoutState::Open),
            None => {
                let separator = if self.seen.is_some() { "\n" } else { "" };
                self.seen = Some(stable);
                print_over("", &format!("{separator}{}", lines.join("\n")))
            }
        }
    }
}

/// Fits the lines to a screen; the cursor occupies its last line.
fn fit_screen(mut lines: Vec<String>, size: TerminalSize) -> Vec<String> {
    let max_lines = size.rows.saturating_sub(1).max(1);
    if lines.len() > max_lines {
        let more = lines.len() - (max_lines - 1);
        lines.truncate(max_lines - 1);
        lines.push(format!("{} and {more} lines more", Charset::current().ellipsis()));
    }
    // On some terminals a line that fills the last column starts another line.
    lines.iter().map(|line| truncate(line, size.columns.saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], (columns, rows): (usize, usize), expect: &[&str]) {
        let lines = lines.iter().map(ToString::to_string).collect();
        assert_eq!(fit_screen(lines, TerminalSize { columns, rows }), expect);
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        check(&["one", "two"], (80, 3), &["one", "two"]);
        check(&["one", "two", "three"], (80, 3), &["one", "… and 2 lines more"]);
        check(&["one", "two"], (3, 3), &["o…", "t…"]);
        check(&["one", "two"], (80, 1), &["… and 2 lines more"]);
    }
}
