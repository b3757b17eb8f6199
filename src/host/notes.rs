//! The port through which the host shows lines to people.

use std::fmt::Debug;

/// Shows lines about the host: the command line writes them to standard error, a service logs them.
pub trait NoteSink: Debug + Send + Sync {
    /// Shows a line that a person has to know.
    fn note(&self, line: &str);

    /// Shows a line of progress, which may be left out.
    fn progress(&self, line: &str);
}
