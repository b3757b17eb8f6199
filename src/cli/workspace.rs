//! The folder in which the tools of a run work.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::exit::Failure;
use crate::daemon;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// The current folder.
    Here,
    /// This folder, which must exist and may be made.
    Existing(&'a Path),
    /// This folder, which must exist.
    Named(&'a Path),
    /// This folder, which is made if it does not exist.
    Created(&'a Path),
    /// This folder, in which the conversation has worked before.
    Former(&'a Path),
}

/// The real path of the workspace. One in the state directory is refused.
pub(crate) fn resolve(place: Place<'_>, state: &Path) -> Result<PathBuf, Failure> {
    let (path, made) = match place {
        Place::Here => (Path::new("."), Ok(())),
        Place::Existing(path) | Place::Named(path) | Place::Former(path) => (path, Ok(())),
        Place::Created(path) => (path, fs::create_dir_all(path)),
    };
    let failed = |error: io::Error| {
        let remedy = match place {
            Place::Existing(_) if error.kind() == io::ErrorKind::NotFound => "; --create makes it",
            Place::Former(_) => "; the conversation has worked there: --workspace DIR names another folder",
            Place::Here | Place::Existing(_) | Place::Named(_) | Place::Created(_) => "",
        };
        Failure::usage(format!("--workspace {}: {error}{remedy}", path.display()))
    };
    made.map_err(failed)?;
    let real = path.canonicalize().map_err(failed)?;
    if let Some(reason) = daemon::unfit_for_tools(&real, state) {
        return Err(Failure::usage(format!("--workspace {}: {reason}", path.display())));
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(place: Place<'_>, state: &Path, expect: Result<&Path, &str>) {
        match (resolve(place, state), expect) {
            (Ok(path), Ok(expect)) => assert_eq!(path, expect),
            (Err(failure), Err(part)) => assert!(failure.text.contains(part), "{failure}"),
            (got, expect) => panic!("{place:?}: expected {expect:?}, got {got:?}"),
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
        check(Place::Existing(&work), &state, Ok(&work));
        check(Place::Existing(&root.join("no")), &state, Err("--create makes it"));
        check(Place::Created(&root.join("new/er")), &state, Ok(&root.join("new/er")));
        check(Place::Former(&root.join("no")), &state, Err("names another folder"));
        check(Place::Existing(&root.join("file")), &state, Err("no folder"));
        check(Place::Existing(&root), &state, Ok(&root));
        check(Place::Existing(&state.join("in")), &state, Err("it lies in Hermod's state directory"));
        check(Place::Existing(&state), &state, Err("HERMOD_HOME"));
    }
}
