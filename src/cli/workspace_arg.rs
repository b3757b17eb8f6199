//! The argument `--workspace`.

use std::path::{Path, PathBuf};

use super::exit::CliError;
use crate::host::{StartError, WorkspaceChoice, resolve_workspace};

/// The real path of the folder; the error names the option.
pub(super) fn resolve(choice: WorkspaceChoice<'_>, state: &Path) -> Result<PathBuf, CliError> {
    resolve_workspace(choice, state).map_err(usage)
}

/// The error of a workspace, as one of the option.
pub(super) fn usage(error: StartError) -> CliError {
    if let StartError::Workspace { .. } = &error {
        CliError::usage(format!("--{error}"))
    } else {
        error.into()
    }
}
