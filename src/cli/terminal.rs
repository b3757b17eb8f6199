//! Properties of terminals: size, colours, character set. Also the tones of lines, and the truncation of lines to a
//! width.

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
};

use rustix::{fs::fstat, termios::tcgetwinsize};
use unicode_width::UnicodeWidthChar;

use crate::discovery::Variables;

/// Width of a terminal that does not report its own.
const DEFAULT_COLUMNS: usize = 80;
/// Height of a terminal that does not report its own.
const DEFAULT_ROWS: usize = 24;

/// Whether lines are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// No colours: NO_COLOR is set, or nothing is drawn on a terminal.
    Plain,
    /// Dim, red and yellow lines.
    Coloured,
}

/// The kind of a line, which decides its colour and log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Normal progress.
    Quiet,
    /// A failure.
    Bad,
    /// A person has to act.
    Action,
    /// The error that ends the program.
    Error,
}

impl Tone {
    /// The level of a log entry with this line.
    pub(crate) const fn level(self) -> &'static str {
        match self {
            Self::Quiet => "INFO",
            Self::Bad | Self::Action => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// The characters for drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// ASCII only.
    Ascii,
    /// Braille, box drawings, `…`.
    Unicode,
}

/// The character set of this process.
static CHARSET: OnceLock<Charset> = OnceLock::new();

impl Charset {
    /// The character set of the locale: Unicode if its name contains UTF-8, else ASCII. Without a locale Unicode, since
    /// most containers have no locale and most terminals use UTF-8.
    pub(crate) fn of(variables: &Variables) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| variables.get(*name).filter(|value| !value.is_empty()));
        let is_utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        if is_utf8 { Self::Unicode } else { Self::Ascii }
    }

    /// Sets the character set of this process; only the first call has an effect.
    pub(crate) fn set_current(variables: &Variables) {
        CHARSET.get_or_init(|| Self::of(variables));
    }

    /// The character set of this process.
    pub(crate) fn current() -> Self {
        CHARSET.get().copied().unwrap_or(Self::Unicode)
    }

    /// The mark of truncated text.
    pub(crate) const fn ellipsis(self) -> &'static str {
        match self {
            Self::Ascii => "...",
            Self::Unicode => "…",
        }
    }

    /// The frames of the spinner before a call in progress.
    pub(crate) const fn spinner(self) -> &'static [char] {
        match self {
            Self::Ascii => &['|', '/', '-', '\\'],
            Self::Unicode => &['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'],
        }
    }

    /// The prefixes of a tree's node and of the nodes below it.
    pub(crate) const fn branch(self, is_last: bool) -> (&'static str, &'static str) {
        match (self, is_last) {
            (Self::Ascii, false) => ("|- ", "|  "),
            (Self::Ascii, true) => ("`- ", "   "),
            (Self::Unicode, false) => ("├─ ", "│  "),
            (Self::Unicode, true) => ("└─ ", "   "),
        }
    }
}

fn is_dumb(variables: &Variables) -> bool {
    variables.get("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl TerminalSize {
    /// The current size of a terminal at standard output that supports cursor movement; `None` if there is none.
    pub(crate) fn of_stdout(variables: &Variables) -> Option<Self> {
        let columns = stdout_columns().filter(|_| !is_dumb(variables))?;
        let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        Some(Self { columns, rows: if rows > 0 { rows } else { DEFAULT_ROWS } })
    }
}

impl Palette {
    /// The palette of the terminal at standard error; `None` if there is none, or if it supports no control sequences.
    pub(crate) fn at_stderr(variables: &Variables) -> Option<Self> {
        let can_draw = io::stderr().is_terminal() && !is_dumb(variables);
        can_draw.then(|| Self::of(variables))
    }

    /// The palette of standard output; no colours if it is no terminal, or one without control sequences.
    pub(crate) fn at_stdout(variables: &Variables) -> Self {
        let can_draw = io::stdout().is_terminal() && !is_dumb(variables);
        if can_draw { Self::of(variables) } else { Self::Plain }
    }

    /// The palette by the variable `NO_COLOR`.
    pub(crate) fn of(variables: &Variables) -> Self {
        match variables.get("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            true => Self::Plain,
            false => Self::Coloured,
        }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        match (self, tone) {
            (Self::Plain, _) => text.to_owned(),
            (Self::Coloured, Tone::Quiet) => format!("\x1b[2m{text}\x1b[0m"),
            (Self::Coloured, Tone::Bad | Tone::Error) => format!("\x1b[31m{text}\x1b[0m"),
            (Self::Coloured, Tone::Action) => format!("\x1b[33m{text}\x1b[0m"),
        }
    }
}

/// True if standard output and standard error are the same terminal.
pub(crate) fn is_one_terminal() -> bool {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let device = |stat: rustix::fs::Stat| stat.st_rdev;
    stdout.is_terminal()
        && stderr.is_terminal()
        && fstat(&stdout).ok().map(device) == fstat(&stderr).ok().map(device)
}

/// The columns of the terminal at standard error.
pub(crate) fn stderr_columns() -> usize {
    columns(&io::stderr()).unwrap_or(DEFAULT_COLUMNS)
}

/// The columns of standard output; `None` if it is no terminal.
pub(crate) fn stdout_columns() -> Option<usize> {
    let stdout = io::stdout();
    stdout.is_terminal().then(|| columns(&stdout).unwrap_or(DEFAULT_COLUMNS))
}

fn columns(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let columns = tcgetwinsize(stream).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Truncates a line to this many columns; an ellipsis replaces the rest.
pub(crate) fn truncate(line: &str, columns: usize) -> String {
    truncate_with(line, columns, Charset::current().ellipsis())
}

fn truncate_with(line: &str, columns: usize, ellipsis: &str) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let Some(mut columns_left) = columns.checked_sub(width(ellipsis)) else {
        return ellipsis.chars().take(columns).collect();
    };
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= columns_left;
        columns_left = columns_left.saturating_sub(width);
        fits
    };
    line.chars().take_while(fits).collect::<String>() + ellipsis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_its_columns() {
        let check = |line: &str, columns: usize, expect: &str| {
            assert_eq!(truncate(line, columns), expect, "{line} in {columns}");
            assert!(width(&truncate(line, columns)) <= columns);
        };
        check("plain", 5, "plain");
        check("plain", 4, "pla…");
        check("漢字漢字", 8, "漢字漢字");
        check("漢字漢字", 6, "漢字…");
        check("漢字", 3, "漢…");
        check("e\u{301}e\u{301}", 1, "…");
        check("x", 0, "");
        assert_eq!(truncate_with("plain text", 8, "..."), "plain...");
        assert_eq!(truncate_with("plain", 2, "..."), "..");
    }

    #[test]
    fn a_locale_without_utf_8_is_drawn_in_ascii() {
        let check = |set: &[(&str, &str)], expect| {
            let variables =
                set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(Charset::of(&variables), expect, "{set:?}");
        };
        check(&[], Charset::Unicode);
        check(&[("LANG", "de_DE.UTF-8")], Charset::Unicode);
        check(&[("LANG", "C.utf8")], Charset::Unicode);
        check(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")], Charset::Ascii);
        check(&[("LC_ALL", ""), ("LC_CTYPE", "POSIX")], Charset::Ascii);
        check(&[("LC_ALL", "C.UTF-8"), ("LC_CTYPE", "POSIX")], Charset::Unicode);
        check(&[("LANG", "en_US.ISO-8859-1")], Charset::Ascii);
        let drawn = [Charset::Ascii.branch(true), Charset::Ascii.branch(false)];
        let drawn = drawn.iter().all(|(branch, below)| branch.is_ascii() && below.is_ascii());
        assert!(
            drawn
                && Charset::Ascii.ellipsis().is_ascii()
                && Charset::Ascii.spinner().iter().all(char::is_ascii)
        );
    }

    #[test]
    fn no_color_means_none() {
        let of = |value: &str| Palette::of(&Variables::from([("NO_COLOR".to_owned(), value.to_owned())]));
        assert_eq!(of("1").paint(Tone::Bad, "x"), "x");
        assert_eq!(of("").paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
