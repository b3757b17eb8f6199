//! The state directory: its path, its creation, the opening of its store; `maintenance/` cleans it up. The workspaces of
//! runs: which folders they may be, and their creation on request.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::error::StartError;
use crate::{
    discovery::Variables,
    files::{IoResult as _, make_folder},
    store::redb::{Durability, RedbJournal},
};

/// The state directory: `HERMOD_HOME`, else `$XDG_STATE_HOME/hermod`, else `~/.local/state/hermod`.
pub fn state_dir(variables: &Variables) -> Result<PathBuf, StartError> {
    let non_empty = |key: &str| variables.get(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    non_empty("HERMOD_HOME")
        .or_else(|| Some(non_empty("XDG_STATE_HOME")?.join("hermod")))
        .or_else(|| Some(non_empty("HOME")?.join(".local/state/hermod")))
        .ok_or(StartError::NoHome)
}

/// The reason why tools must not work in this folder, given by its real path; `None` if they may. A folder above the
/// state directory, such as `$HOME`, is allowed: file tools leave the state directory out.
fn workspace_problem(folder: &Path, state: &Path) -> Option<String> {
    if !folder.is_dir() {
        return Some("it is no folder".to_owned());
    }
    if folder.to_str().is_none() {
        return Some("its path is not UTF-8; use another folder".to_owned());
    }
    folder.starts_with(state).then(|| {
        format!(
            "it lies in Hermod's state directory {}, which no tool may change; use another folder, or move the state with \
             HERMOD_HOME",
            state.display()
        )
    })
}

/// Creates the state directory if it is missing, and returns its real path.
pub fn create_state_dir(dir: &Path) -> Result<PathBuf, StartError> {
    Ok(make_folder(dir).and_then(|()| dir.canonicalize()).at(dir)?)
}

/// The real path of the state directory that the variables name; it is created if it is missing.
pub fn configured_state_dir(variables: &Variables) -> Result<PathBuf, StartError> {
    create_state_dir(&state_dir(variables)?)
}

/// Opens the store in the state directory.
pub fn open(state: &Path, durability: Durability) -> Result<Arc<RedbJournal>, StartError> {
    Ok(Arc::new(RedbJournal::open(state, durability)?))
}

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

    #[test]
    fn the_state_directory_follows_the_environment() {
        let check = |variables: &[(&str, &str)], expect: Option<&str>| {
            let variables =
                variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(state_dir(&variables).ok(), expect.map(PathBuf::from));
        };
        let (home, xdg, own) = (("HOME", "/h"), ("XDG_STATE_HOME", "/x"), ("HERMOD_HOME", "/o"));
        check(&[home, xdg, own], Some("/o"));
        check(&[home, xdg], Some("/x/hermod"));
        check(&[home, ("XDG_STATE_HOME", "")], Some("/h/.local/state/hermod"));
        check(&[], None);
    }

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
