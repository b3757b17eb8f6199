//! What a terminal can show: how wide it is, whether in colour, and how text fits into it.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar;

use crate::environment::Variables;

/// The width of a terminal that does not say.
const WIDTH: usize = 80;
/// The height of one.
const ROWS: usize = 24;

/// A terminal at standard error that can move its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// How its lines are coloured.
    pub(crate) palette: Palette,
}

/// Whether there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// None: NO_COLOR is set.
    Plain,
    /// The sixteen of every terminal.
    Coloured,
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It goes on as it should.
    Quiet,
    /// Something went wrong.
    Bad,
}

impl Terminal {
    /// The terminal at standard error; `None` if there is none, or one that knows no control sequences.
    pub(crate) fn at_stderr(variables: &Variables) -> Option<Self> {
        let draws = io::stderr().is_terminal() && !is_dumb(variables);
        draws.then(|| Self { palette: Palette::of(variables) })
    }
}

fn is_dumb(variables: &Variables) -> bool {
    variables.get("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// How much a terminal shows at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    /// Of a terminal at standard output that can move its cursor, as it is now; `None` if there is none.
    pub(crate) fn of_stdout(variables: &Variables) -> Option<Self> {
        let columns = stdout_columns().filter(|_| !is_dumb(variables))?;
        let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        Some(Self { columns, rows: if rows > 0 { rows } else { ROWS } })
    }
}

impl Palette {
    /// As `NO_COLOR` asks.
    pub(crate) fn of(variables: &Variables) -> Self {
        match variables.get("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            true => Self::Plain,
            false => Self::Coloured,
        }
    }

    /// The text in its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        match (self, tone) {
            (Self::Plain, _) => text.to_owned(),
            (Self::Coloured, Tone::Quiet) => format!("\x1b[2m{text}\x1b[0m"),
            (Self::Coloured, Tone::Bad) => format!("\x1b[31m{text}\x1b[0m"),
        }
    }
}

/// The columns of the terminal at standard error.
pub(crate) fn stderr_columns() -> usize {
    columns(&io::stderr()).unwrap_or(WIDTH)
}

/// The columns of standard output; `None` if it is no terminal.
pub(crate) fn stdout_columns() -> Option<usize> {
    let stdout = io::stdout();
    stdout.is_terminal().then(|| columns(&stdout).unwrap_or(WIDTH))
}

fn columns(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let columns = tcgetwinsize(stream).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The beginning of a line that fits into so many columns; `…` stands for the rest.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let mut cut: String = line.chars().take_while(fits).collect();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_its_columns() {
        let check = |line: &str, columns: usize, expect: &str| {
            assert_eq!(cut(line, columns), expect, "{line} in {columns}");
            assert!(width(&cut(line, columns)) <= columns);
        };
        check("plain", 5, "plain");
        check("plain", 4, "pla…");
        check("漢字漢字", 8, "漢字漢字");
        check("漢字漢字", 6, "漢字…");
        check("漢字", 3, "漢…");
        check("e\u{301}e\u{301}", 1, "…");
        check("x", 0, "");
    }

    #[test]
    fn no_color_means_none() {
        let of = |value: &str| Palette::of(&Variables::from([("NO_COLOR".to_owned(), value.to_owned())]));
        assert_eq!(of("1").paint(Tone::Bad, "x"), "x");
        assert_eq!(of("").paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
