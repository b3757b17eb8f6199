//! Redaction of secrets by their known values. The set of known values belongs to the process: what the configuration,
//! its files, commands and OAuth yield, and what secret variables of the environment hold. The same set redacts texts
//! that become records or artifacts ([`Redactor`] is the port `TextRedactor`), log lines, and what a terminal shows.

mod forms;
mod matcher;
mod redactor;
mod stream;
mod variables;

use std::sync::LazyLock;

pub use redactor::Redactor;
pub use variables::{learn_url, learn_variable, learn_variables};

use crate::secret::Secret;

static PROCESS: LazyLock<Redactor> = LazyLock::new(Redactor::default);

/// The redactor of this process. It begins with no secret.
pub fn of_process() -> &'static Redactor {
    &PROCESS
}

/// From now on this process redacts the secret as `[redacted:LABEL]`. A value that is known already keeps its label.
pub fn learn(label: &str, secret: &Secret) {
    PROCESS.learn(label, secret);
}
