//! Writes standard output and standard error: text, JSON, notes, progress, errors, log lines, and a status line that is
//! overwritten in place. Either stream may be closed. Control sequences in texts of models and tools never reach a
//! terminal: they are written as visible text. Known secrets reach neither stream.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    borrow::Cow,
    fmt::{Display, Write as _},
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use hermod_actors::SanitizedText;
use serde::Serialize;
use serde_json::json;

use super::{
    exit::{CliError, Exit},
    telemetry::wants_json,
    terminal::{Palette, Tone, stderr_columns, truncate},
};
use crate::{
    clock::{self, rfc3339},
    delivery::LineOutput,
    discovery::Variables,
    host::NoteSink,
    redaction,
};

/// Writes `text` to standard output, adding a line break if it ends without one. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_over("", text).map(drop)
}

/// Whether standard output still has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdoutState {
    /// It has a reader.
    Open,
    /// Its reader has closed the pipe.
    Closed,
}

/// Writes `erasure`, Hermod's own control sequences, then `text` as `print` does; reports whether standard output has
/// a reader.
pub(crate) fn print_over(erasure: &str, text: &str) -> Result<StdoutState, CliError> {
    let mut text = erasure.to_owned() + &SanitizedText::sanitize(&unix_lines(text));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    print_own(&text)
}

/// Writes a text to standard output in which Hermod's own control sequences stay.
fn print_own(text: &str) -> Result<StdoutState, CliError> {
    let text = safe_for_terminal(text);
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(StdoutState::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(StdoutState::Closed),
        Err(error) => {
            Err(CliError { exit: Exit::Store, text: format!("standard output cannot be written: {error}") })
        }
    }
}

/// Writes lines to standard output, each in the colour of its tone if a terminal shows it; reports whether standard
/// output has a reader. Texts from outside may be among them.
pub(crate) fn print_toned(
    lines: &[(Option<Tone>, String)],
    palette: Palette,
) -> Result<StdoutState, CliError> {
    let line = |(tone, line): &(Option<Tone>, String)| {
        let line = SanitizedText::sanitize(&unix_lines(line)).into_owned();
        tone.map_or(line.clone(), |tone| palette.paint(tone, &line)) + "\n"
    };
    print_own(&lines.iter().map(line).collect::<String>())
}

/// Writes a JSON value as one line to standard output. Characters that a terminal hides are escaped, so the output
/// parses to exactly this value.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    print_escaped(&to_json(value)?)
}

/// Writes a JSON value as [`print_json`] does; reports whether standard output has a reader.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<StdoutState, CliError> {
    print_over("", &escaped(&to_json(value)?))
}

/// Writes a value to standard output: as JSON, or as the text that `format` makes of it.
pub(crate) fn print_as<T: Serialize>(
    json: bool,
    value: &T,
    format: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    if json { print_json(value) } else { print(&format(value)) }
}

/// A value as JSON text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string(value)
        .map_err(|error| CliError::internal(format!("the result is no JSON: {error}")))
}

/// Writes a JSON text to standard output, with hidden characters escaped.
pub(crate) fn print_escaped(json: &str) -> Result<(), CliError> {
    print(&escaped(json))
}

/// Prints the last text of a run: an answer to standard output, another text to standard error.
pub(crate) fn print_last_text(text: Option<&str>, is_answer: bool) -> Result<(), CliError> {
    match text {
        Some(answer) if is_answer => print(answer)?,
        Some(partial) => print_note(format!("said last {partial}")),
        None => {}
    }
    Ok(())
}

/// Whether progress lines are omitted (`--quiet`).
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// Whether lines at standard error are JSON objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Omits progress lines from now on.
pub(crate) fn set_quiet(quiet: bool) {
    IS_QUIET.store(quiet, Ordering::Relaxed);
}

/// Writes every line at standard error as a JSON object from now on.
pub(crate) fn write_json_lines() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Whether lines at standard error are JSON objects.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Writes a line to standard error; errors are ignored, since there is no other place to report them.
pub(crate) fn print_note(line: impl Display) {
    print_in_tone(Tone::Quiet, &line.to_string());
}

/// Writes the host's lines to standard error.
#[derive(Debug)]
pub(crate) struct StderrNotes;

impl NoteSink for StderrNotes {
    fn note(&self, line: &str) {
        print_note(line);
    }

    fn progress(&self, line: &str) {
        print_progress(line);
    }
}

/// Writes the messages of the target `stdout`.
#[derive(Debug)]
pub(crate) struct StdoutLines;

impl LineOutput for StdoutLines {
    fn write_line(&self, line: &str) -> Result<(), String> {
        match print_over("", line) {
            Ok(StdoutState::Open) => Ok(()),
            Ok(StdoutState::Closed) => Err("standard output has no reader".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Writes clap's own output: help to standard output, a usage error to standard error.
pub(crate) fn print_clap(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        // A failed write means that there is no reader.
        let _has_no_reader = error.print();
        return Exit::Ok;
    }
    if wants_json(std::env::args_os()) {
        write_json_lines();
        print_error(error.render());
    } else {
        let _has_no_reader = error.print();
    }
    Exit::Usage
}

/// Writes a line of progress to standard error, unless `--quiet` omits it.
pub(crate) fn print_progress(line: impl Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        print_note(line);
    }
}

/// Writes the error that ends the program.
pub(crate) fn print_error(line: impl Display) {
    print_in_tone(Tone::Error, &line.to_string());
}

/// Writes a line to standard error, as JSON if logs are JSON.
pub(crate) fn print_in_tone(tone: Tone, line: &str) {
    if is_json() {
        let timestamp = rfc3339(clock::now());
        let entry = json!({ "timestamp": timestamp, "level": tone.level(), "message": line, "target": "hermod::cli" });
        return write_stderr(&(escaped(&entry.to_string()) + "\n"));
    }
    write_stderr(&format!("{}\n", strict(line)));
}

// One write per text, so that lines of other processes do not interleave.
pub(super) fn write_stderr(text: &str) {
    let _has_no_reader = io::stderr().write_all(safe_for_terminal(text).as_bytes());
}

/// Writes log lines to standard error, each in one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_stderr(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has panics written as errors, because their messages may quote texts from outside.
pub(super) fn print_panics() {
    std::panic::set_hook(Box::new(|panic| {
        print_error(panic);
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print_error(backtrace);
        }
    }));
}

/// The last step before either stream: hides known secrets, and all control sequences but those that Hermod writes
/// itself. Texts from outside have been sanitized before; this holds for those that were forgotten.
fn safe_for_terminal(text: &str) -> Cow<'_, str> {
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || is_bidi_control(c);
    let text = redaction::of_process().redact(text);
    if !text.contains(steers) {
        return text;
    }
    let (mut safe, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some(at) = rest.find(steers) {
        let (before, from) = rest.split_at(at);
        safe.push_str(before);
        let own = own_sequence(from);
        let length = if own == 0 { from.chars().next().map_or(0, char::len_utf8) } else { own };
        let (sequence, after) = from.split_at(length);
        safe.push_str(&if own == 0 { SanitizedText::strict(sequence) } else { sequence.into() });
        rest = after;
    }
    Cow::Owned(safe + rest)
}

/// Controls that change the order in which the text around them is shown.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Bytes of a control sequence at the start of `text` that Hermod writes: a return to the start of the line, colours, and
/// the erasure of lines. None of them can do harm.
fn own_sequence(text: &str) -> usize {
    if text.starts_with("\r\x1b[") {
        return 1;
    }
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let end = parameters.bytes().take(16).position(|byte| !(byte.is_ascii_digit() || byte == b';'));
    let end = end.filter(|end| matches!(parameters.as_bytes()[*end], b'm' | b'A' | b'J' | b'K'));
    end.map_or(0, |end| "\x1b[".len() + end + 1)
}

pub(super) fn unix_lines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Sanitizes a line of progress or an error strictly: it contains names, which must not look like other text.
pub(super) fn strict(text: &str) -> String {
    SanitizedText::strict(&unix_lines(text)).into_owned()
}

/// Escapes the hidden characters of a JSON text. They occur only inside strings, where an escape has the same
/// meaning.
pub(crate) fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        let hides = c.is_control() || SanitizedText::hides(c);
        if !hides {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("writing to a string does not fail");
        }
    }
    escaped
}

/// A status line at standard error; on a terminal it is overwritten in place.
#[derive(Debug)]
pub(crate) struct StatusLine {
    /// The palette of the terminal; `None` if there is none.
    palette: Option<Palette>,
}

impl StatusLine {
    /// Writes nothing yet.
    pub(crate) fn new(variables: &Variables) -> Self {
        Self { palette: Palette::at_stderr(variables).filter(|_| !is_json()) }
    }

    /// True if a terminal shows every change.
    pub(crate) const fn is_live(&self) -> bool {
        self.palette.is_some()
    }

    /// Shows the new status.
    pub(crate) fn show(&self, line: &str) {
        match self.palette {
            None => print_note(line),
            Some(palette) => {
                let line = palette.paint(Tone::Quiet, &truncate(&strict(line), stderr_columns() - 1));
                write_stderr(&format!("\r\x1b[K{line}"));
            }
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.is_live() {
            write_stderr("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Checks the table of hidden characters against another source of the same properties.
    #[test]
    fn no_character_without_a_glyph_is_passed_on() {
        use unicode_general_category::{GeneralCategory as Category, get_general_category};
        for c in '\0'..=char::MAX {
            let category = get_general_category(c);
            // Signs around numbers have a glyph.
            let is_sign = matches!(
                u32::from(c),
                0x600..=0x605 | 0x6dd | 0x70f | 0x890 | 0x891 | 0x8e2 | 0x110bd | 0x110cd
            );
            let is_filler = matches!(u32::from(c), 0x115f | 0x1160 | 0x3164 | 0xffa0);
            let separates =
                [Category::Control, Category::Format, Category::LineSeparator, Category::ParagraphSeparator];
            let has_no_glyph = separates.contains(&category) && !is_sign && c != '\n' && c != '\t';
            let is_unseen = is_filler || has_no_glyph;
            assert!(!is_unseen || SanitizedText::hides(c), "{c:?} {category:?}");
        }
    }

    #[test]
    fn only_own_sequences_reach_a_terminal() {
        let check = |text: &str, expect: &str| assert_eq!(safe_for_terminal(text), expect, "{text:?}");
        check("plain\n\ttext 👩\u{200d}💻", "plain\n\ttext 👩\u{200d}💻");
        check(
            "\r\x1b[K\x1b[2mdim\x1b[0m\x1b[3A\x1b[J\x1b[1;31m",
            "\r\x1b[K\x1b[2mdim\x1b[0m\x1b[3A\x1b[J\x1b[1;31m",
        );
        check("\x1b]0;title\x07", "␛]0;title␇");
        check("\x1b[?1049h\x1b[2;3Hx\x1b[6n\x1bc", "␛[?1049h␛[2;3Hx␛[6n␛c");
        check("\x1b[", "␛[");
        check("over\rwritten", "over␍written");
        check("\x1b[1111111111111111111111m", "␛[1111111111111111111111m");
        check("\u{9b}2J\u{202e}\u{2066}\u{7f}\0", "<U+009B>2J<U+202E><U+2066>␡␀");
    }

    #[test]
    fn nothing_hides_in_what_is_written() {
        assert_eq!(strict("a\x1b[2J\r\nb\u{202e}👩\u{200d}💻"), "a␛[2J\nb<U+202E>👩<U+200D>💻");
        let value = json!({ "text": "a\x1b\u{7f}\u{9b}\u{202e}\u{e0041}漢\n" });
        let line = escaped(&value.to_string());
        assert_eq!(line, r#"{"text":"a\u001b\u007f\u009b\u202e\udb40\udc41漢\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
