//! The allow-list of environment variables that a command inherits.

use std::ffi::OsString;

const ALLOWED: &[&str] = &["PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// The variables that a command inherits: an allow-list, so that no secret of this process is among them. `TERM` is
/// `dumb`.
pub fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(is_allowed))
        .chain([("TERM".into(), "dumb".into())])
}

fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with("LC_")
}
