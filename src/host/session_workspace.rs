//! The workspace that a session has for itself: the folder `sessions/NAME` in the one that was chosen. It is made before
//! the session's first run is accepted, and nothing removes it: it has the results.

use std::path::{Path, PathBuf};

use hermod_actors::{SessionChoice, model::Hash};

use super::{
    error::StartError,
    folders::{WorkspaceChoice, resolve_workspace},
};
use crate::clock::{self, SystemClock};

/// The folder of the sessions' workspaces in the chosen one.
const FOLDER: &str = "sessions";
/// Limit of a key in the name of a folder, in characters.
const MAX_KEY_CHARS: usize = 40;
/// Hexadecimal digits of a key's hash in the name of a folder.
const HASH_DIGITS: usize = 12;

/// The name of a session's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionFolder(String);

impl SessionFolder {
    /// The name for a session whose last run worked in `former`. A session keeps its name; two processes that begin the
    /// session of a key at the same time find the same one.
    pub(super) fn new(choice: &SessionChoice, former: Option<&Path>) -> Self {
        if let Some(name) = former.and_then(session_folder) {
            return Self(name.to_owned());
        }
        Self(match choice {
            SessionChoice::New => clock::ulid(&SystemClock::default()),
            SessionChoice::Id(id) => id.to_string(),
            SessionChoice::Key(key) => name_of_key(key),
        })
    }
}

/// The name of the session's folder that is this workspace; `None` for another workspace.
fn session_folder(workspace: &Path) -> Option<&str> {
    let is_of_session = workspace.parent()?.file_name()? == FOLDER;
    workspace.file_name()?.to_str().filter(|_| is_of_session)
}

/// The readable part of a key, and its hash, since different keys may have the same part.
fn name_of_key(key: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let kept: String = key.chars().take(MAX_KEY_CHARS).map(|c| if is_kept(c) { c } else { '_' }).collect();
    let hash = Hash::of(key.as_bytes()).to_string();
    format!("{kept}-{}", &hash[..HASH_DIGITS])
}

/// Makes the folder in `root`, a real path, unless it exists. A symlink on the way is an error: tools that have worked in
/// `root` could have made it.
pub(super) fn create_session_workspace(
    root: &Path,
    folder: &SessionFolder,
    state: &Path,
) -> Result<PathBuf, StartError> {
    let path = root.join(FOLDER).join(&folder.0);
    let is_symlink = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if let Some(link) = [root.join(FOLDER), path.clone()].into_iter().find(|path| is_symlink(path)) {
        let reason = "it is a symlink, and the workspace of a session is none; remove it".to_owned();
        return Err(StartError::Workspace { path: link, reason });
    }
    resolve_workspace(WorkspaceChoice::Created(&path), state)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use hermod_actors::model::SessionId;

    use super::*;

    fn name(choice: &SessionChoice, former: Option<&str>) -> String {
        SessionFolder::new(choice, former.map(Path::new)).0
    }

    #[test]
    fn a_session_keeps_the_name_of_its_folder() {
        let key = |key: &str| SessionChoice::Key(key.into());
        let check = |choice: SessionChoice, former: Option<&str>, expect: &str| {
            let found = name(&choice, former);
            assert!(found.starts_with(expect), "{found} of {choice:?}");
            assert_eq!(Path::new(&found).components().count(), 1, "{found}");
        };
        let id = SessionId::from_bits(7);
        check(SessionChoice::Id(id), None, &id.to_string());
        check(SessionChoice::Id(id), Some("/w"), &id.to_string());
        check(SessionChoice::Id(id), Some("/w/sessions/mail-1"), "mail-1");
        check(key("mail"), Some("/w/sessions/mail-1"), "mail-1");
        check(key("mail"), None, "mail-");
        check(key("../../etc"), None, "______etc-");
        check(key(""), None, "-");
        check(key("."), None, "_-");
        check(key(&"é".repeat(300)), None, "____");
        assert_ne!(name(&key("a/b"), None), name(&key("a_b"), None));
        assert_eq!(name(&key("a/b"), None), name(&key("a/b"), None));
        assert_ne!(name(&SessionChoice::New, None), name(&SessionChoice::New, None));
    }

    #[test]
    fn no_symlink_leads_to_the_workspace_of_a_session() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (work, other, state) = (root.join("work"), root.join("other"), root.join("state"));
        for folder in [&work, &other, &state] {
            fs::create_dir(folder).unwrap();
        }
        let create = |name: &str| create_session_workspace(&work, &SessionFolder(name.to_owned()), &state);
        symlink(&other, work.join(FOLDER)).unwrap();
        assert!(create("a").unwrap_err().to_string().contains("it is a symlink"));
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "nothing is made behind it");
        fs::remove_file(work.join(FOLDER)).unwrap();
        assert_eq!(create("a").unwrap(), work.join("sessions/a"));
        assert_eq!(create("a").unwrap(), work.join("sessions/a"));
        symlink(&other, work.join("sessions/b")).unwrap();
        assert!(create("b").unwrap_err().to_string().contains("sessions/b: it is a symlink"));
        fs::write(work.join("sessions/c"), "").unwrap();
        assert!(create("c").unwrap_err().to_string().starts_with("workspace "));
    }
}
