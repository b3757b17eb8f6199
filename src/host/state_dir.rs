//! The state directory: its path, its creation, the opening of its store, and which workspaces it forbids.
//! `maintenance/` cleans it up.

use std::{
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
pub(super) fn workspace_problem(folder: &Path, state: &Path) -> Option<String> {
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
}
