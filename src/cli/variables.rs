//! Reads the environment variables of the process.

use super::{CliError, Exit};
use crate::{discovery::Variables, redaction};

/// The process's variables. Those that are not UTF-8 are ignored, unless the name begins with `HERMOD_`: that is an
/// error. The secrets among them are redacted from now on.
pub(super) fn read() -> Result<Variables, CliError> {
    let mut variables = Variables::new();
    for (key, value) in std::env::vars_os() {
        match (key.into_string(), value.into_string()) {
            (Ok(key), Ok(value)) => drop(variables.insert(key, value)),
            (Ok(key), Err(_)) if key.starts_with("HERMOD_") => {
                let text = format!("{key}: its value is not UTF-8; set it to a text");
                return Err(CliError { exit: Exit::Config, text });
            }
            (Ok(_) | Err(_), _) => {}
        }
    }
    redaction::learn_variables(&variables);
    Ok(variables)
}
