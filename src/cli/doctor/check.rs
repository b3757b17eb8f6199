//! What a check is: what it looks at, and what it finds.

use std::path::PathBuf;

use futures::future::BoxFuture;
use serde::Serialize;

use crate::{
    config::{Config, ConfigErrors},
    discovery::Variables,
    host::{self, StartError},
};

/// A check of the installation.
pub(super) struct Check {
    /// Its name in reports.
    pub(super) name: &'static str,
    /// Its deadline in seconds.
    pub(super) limit_s: u64,
    pub(super) run: for<'e> fn(&'e Examination) -> BoxFuture<'e, Vec<Finding>>,
}

/// What is examined.
pub(super) struct Examination {
    pub(super) variables: Variables,
    pub(super) config: Result<Config, ConfigErrors>,
    /// The state directory, which may be missing.
    pub(super) state: Result<PathBuf, StartError>,
    /// Whether no provider is asked.
    pub(super) is_offline: bool,
}

impl Examination {
    pub(super) fn new(is_offline: bool, variables: &Variables) -> Self {
        Self {
            config: Config::read(variables),
            state: host::state_dir(variables),
            variables: variables.clone(),
            is_offline,
        }
    }

    /// The state directory, if it exists.
    pub(super) fn existing_state(&self) -> Option<PathBuf> {
        self.state.as_ref().ok()?.canonicalize().ok()
    }
}

/// The result of a check; the last is the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum CheckResult {
    /// There was nothing to look at.
    Skipped,
    /// All is well.
    Ok,
    /// It works, but not as well as it might.
    Warn,
    /// Something does not work.
    Fail,
}

/// What a check has found: `{check, subject, result, value, remedy}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check.
    pub(super) check: &'static str,
    /// What was looked at.
    pub(super) subject: String,
    pub(super) result: CheckResult,
    /// What was found.
    pub(super) value: String,
    /// What to do; `None` if all is well.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(CheckResult::Ok, subject.into(), value.into(), None)
    }

    pub(super) fn skipped(subject: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(CheckResult::Skipped, subject.into(), value.into(), None)
    }

    pub(super) fn warn(
        subject: impl Into<String>,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(CheckResult::Warn, subject.into(), value.into(), Some(remedy.into()))
    }

    pub(super) fn fail(
        subject: impl Into<String>,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(CheckResult::Fail, subject.into(), value.into(), Some(remedy.into()))
    }

    const fn new(result: CheckResult, subject: String, value: String, remedy: Option<String>) -> Self {
        Self { check: "", subject, result, value, remedy }
    }
}
