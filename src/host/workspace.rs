//! Resolves the folder in which the tools of a run work, and creates it on request. `state_dir.rs` says which folders
//! are forbidden.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{error::StartError, state_dir::workspace_problem};

/// The requested workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceChoice<'a> {
    /// The current folder.
    Current,
    /// This folder, which must exist; the error proposes `--create`.
    Existing(&'a Path),
    /// This folder, which must exist.
    Named(&'a Path),
    /// This folder; it is created if it does not exist.
    Created(&'a Path),
    /// The folder in which the conversation has worked before.
    Former(&'a Path),
}

/// The real path of the workspace; fails for a folder in the state directory.
pub fn resolve_workspace(choice: WorkspaceChoice<'_>, state: &Path) -> Result<PathBuf, StartError> {
    let (path, creation) = match choice {
        WorkspaceChoice::Current => (Path::new("."), Ok(())),
        WorkspaceChoice::Existing(path) | WorkspaceChoice::Named(path) | WorkspaceChoice::Former(path) => {
            (path, Ok(()))
        }
        WorkspaceChoice::Created(path) => (path, fs::create_dir_all(path)),
    };
    let workspace_error = |error: io::Error| {
        let remedy = match choice {
            WorkspaceChoice::Existing(_) if error.kind() == io::ErrorKind::NotFound => "; --create makes it",
            WorkspaceChoice::Former(_) => {
                "; the conversation has worked there: --workspace DIR names another folder"
            }
            WorkspaceChoice::Current
            | WorkspaceChoice::Existing(_)
            | WorkspaceChoice::Named(_)
            | WorkspaceChoice::Created(_) => "",
        };
        StartError::Workspace { path: path.to_owned(), reason: format!("{error}{remedy}") }
    };
    creation.map_err(workspace_error)?;
    let canonical = path.canonicalize().map_err(workspace_error)?;
    match workspace_problem(&canonical, state) {
        None => Ok(canonical),
        Some(reason) => Err(StartError::Workspace { path: path.to_owned(), reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(choice: WorkspaceChoice<'_>, state: &Path, expect: Result<&Path, &str>) {
        match (resolve_workspace(choice, state), expect) {
            (Ok(path), Ok(expect)) => assert_eq!(path, expect),
            (Err(failure), Err(part)) => assert!(failure.to_string().contains(part), "{failure}"),
            (got, expect) => panic!("{choice:?}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn a_workspace_exists_and_is_not_in_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (work, state) = (root.join("work"), root.join("state"));
        fs::create_dir_all(work.join("in")).unwrap();
        fs::create_dir_all(state.join("in")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        check(WorkspaceChoice::Existing(&work), &state, Ok(&work));
        check(WorkspaceChoice::Existing(&root.join("no")), &state, Err("--create makes it"));
        check(WorkspaceChoice::Created(&root.join("new/er")), &state, Ok(&root.join("new/er")));
        check(WorkspaceChoice::Former(&root.join("no")), &state, Err("names another folder"));
        check(WorkspaceChoice::Existing(&root.join("file")), &state, Err("no folder"));
        check(WorkspaceChoice::Existing(&root), &state, Ok(&root));
        check(
            WorkspaceChoice::Existing(&state.join("in")),
            &state,
            Err("it lies in Hermod's state directory"),
        );
        check(WorkspaceChoice::Existing(&state), &state, Err("HERMOD_HOME"));
    }
}
