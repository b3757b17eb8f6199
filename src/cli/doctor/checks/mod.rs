//! The checks of `hermod doctor`. A check changes nothing but files of its own, and never shows a secret.

mod config;
mod machine;
mod outside;
mod providers;
mod schedules;
mod state;
mod store;

pub(super) use config::{configuration, secrets};
pub(super) use machine::{open_files, sandbox};
pub(super) use outside::{hooks, targets};
pub(super) use providers::{keys, models};
pub(super) use schedules::schedules;
pub(super) use state::{fsync, space, state};
pub(super) use store::{clock, service, store};

use crate::config::Config;

use super::check::{Examination, Finding};

/// The configuration; the finding of a check that needs one, without it.
fn config_of(examination: &Examination) -> Result<&Config, Vec<Finding>> {
    examination.config.as_ref().map_err(|_| vec![Finding::skipped("", "the configuration cannot be read")])
}
