//! Standard output and standard error, for a world in which either may be closed.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

use super::exit::{Exit, Failure};

/// Writes `text` to standard output, with a line break behind it if it has none. A reader that has gone has seen
/// enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(end.as_bytes()));
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure { exit: Exit::Store, text: format!("standard output cannot be written: {error}") })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a line to standard error. If that is closed, nobody is there to be told.
pub(crate) fn say(line: impl Display) {
    // In one piece, so that lines of other processes do not come in between.
    let _nobody_listens = io::stderr().write_all(format!("{line}\n").as_bytes());
}
