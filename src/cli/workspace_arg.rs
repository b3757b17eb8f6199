//! Resolves the value of the option `--workspace`; errors name the option.

use std::path::{Path, PathBuf};

use super::exit::CliError;
use crate::host::{StartError, WorkspaceChoice, resolve_workspace};

/// The real path of the folder; the error names the option.
pub(super) fn resolve(choice: WorkspaceChoice<'_>, state: &Path) -> Result<PathBuf, CliError> {
    resolve_workspace(choice, state).map_err(usage)
}

/// An error about the workspace as an error of the option `--workspace`; other errors stay.
pub(super) fn usage(error: StartError) -> CliError {
    if let StartError::Workspace { .. } = &error {
        CliError::usage(format!("--{error}"))
    } else {
        error.into()
    }
}
