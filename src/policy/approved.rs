//! The rules that a person has approved: the file `approved-rules.json` in the state directory.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Rule;
use crate::files::{self, IoResult as _, PathError};

/// Name of the file in the state directory.
const FILE: &str = "approved-rules.json";
/// Size limit of the file.
const MAX_BYTES: u64 = 4 << 20;
/// Tries to get the lock, and the pause between two of them.
const LOCK_TRIES: (u32, Duration) = (200, Duration::from_millis(10));

/// Why the approved rules cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}; {remedy}", path.display())]
pub struct ApprovedRulesError {
    path: PathBuf,
    problem: String,
    remedy: &'static str,
}

/// The rules in the file. They are read again when the file has changed, also by another process.
#[derive(Debug)]
pub struct ApprovedRules {
    path: PathBuf,
    cache: Mutex<Option<CachedRules>>,
}

#[derive(Debug, Clone)]
struct CachedRules {
    stamp: FileStamp,
    rules: Result<Arc<[Rule]>, ApprovedRulesError>,
}

/// What changes whenever the file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: (i64, i64),
    length: u64,
    inode: u64,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovedRulesFile {
    allow: Vec<Arc<str>>,
}

impl ApprovedRules {
    /// The rules in this state directory. Reads nothing yet.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE), cache: Mutex::default() }
    }

    /// The rules, in the order of their approval; none if there is no file. In an error no rule of the file counts.
    pub fn list(&self) -> Result<Arc<[Rule]>, ApprovedRulesError> {
        let stamp = match fs::metadata(&self.path).if_exists() {
            Ok(Some(metadata)) => FileStamp {
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                length: metadata.len(),
                inode: metadata.ino(),
            },
            Ok(None) => return Ok(Arc::default()),
            Err(error) => return Err(self.unreadable(&error)),
        };
        // Ignores poisoning: each update is one assignment.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.as_ref().filter(|cached| cached.stamp == stamp) {
            return cached.rules.clone();
        }
        let rules = self.read();
        if let Err(error) = &rules {
            tracing::error!(%error, "the approved rules do not count");
        }
        *cache = Some(CachedRules { stamp, rules: rules.clone() });
        rules
    }

    /// Adds rules that the file does not have, and returns when they are durable.
    pub fn add(&self, rules: &[Rule]) -> Result<(), ApprovedRulesError> {
        let lock_path = self.path.with_extension("lock");
        let failed = |error: PathError| ApprovedRulesError {
            path: error.path,
            problem: format!("the approved rules cannot be changed: {}", error.source),
            remedy: "make the state directory writable",
        };
        let lock = files::open_lock(&lock_path).at(&lock_path).map_err(failed)?;
        if !files::lock_within(&lock, LOCK_TRIES, || true).at(&lock_path).map_err(failed)? {
            let error = io::Error::new(io::ErrorKind::TimedOut, "another process has locked them");
            return Err(error).at(&lock_path).map_err(failed);
        }
        let known = self.read()?;
        let mut texts: Vec<Arc<str>> = known.iter().map(|rule| Arc::clone(rule.text())).collect();
        for rule in rules {
            if !texts.contains(rule.text()) {
                texts.push(Arc::clone(rule.text()));
            }
        }
        if texts.len() == known.len() {
            return Ok(());
        }
        self.replace(&ApprovedRulesFile { allow: texts }).at(&self.path).map_err(failed)
    }

    fn read(&self) -> Result<Arc<[Rule]>, ApprovedRulesError> {
        const REMEDY: &str = "repair the file, or remove it and approve again";
        let bytes = match files::read_regular(&self.path, MAX_BYTES).if_exists() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Arc::default()),
            Err(error) => return Err(self.unreadable(&error)),
        };
        let damaged =
            |problem: String| ApprovedRulesError { path: self.path.clone(), problem, remedy: REMEDY };
        let file: ApprovedRulesFile =
            serde_json::from_slice(&bytes).map_err(|error| damaged(format!("it is damaged: {error}")))?;
        let rules = file.allow.iter().map(|text| text.parse::<Rule>());
        rules.collect::<Result<_, _>>().map_err(|error| damaged(error.to_string()))
    }

    fn replace(&self, file: &ApprovedRulesFile) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        let text = serde_json::to_vec_pretty(file)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it would have more than 4 MiB"));
        }
        files::remove(&new)?;
        files::write(&new, &text)?;
        fs::rename(&new, &self.path)?;
        self.path.parent().map_or(Ok(()), files::sync_folder)
    }

    fn unreadable(&self, error: &io::Error) -> ApprovedRulesError {
        let remedy = "make it a readable file, or remove it and approve again";
        ApprovedRulesError { path: self.path.clone(), problem: format!("it cannot be read: {error}"), remedy }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    }

    #[test]
    fn approved_rules_last_and_are_read_again_when_they_change() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (ApprovedRules::new(dir.path()), ApprovedRules::new(dir.path()));
        assert_eq!(*one.list().unwrap(), []);
        one.add(&rules(&["shell(rm -f x)"])).unwrap();
        assert_eq!(*one.list().unwrap(), rules(&["shell(rm -f x)"])[..]);
        other.add(&rules(&["shell(rm -f x)", "mcp_*"])).unwrap();
        assert_eq!(*one.list().unwrap(), rules(&["shell(rm -f x)", "mcp_*"])[..]);
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(*one.list().unwrap(), []);
    }

    #[test]
    fn a_damaged_file_counts_for_nothing_and_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let approved = ApprovedRules::new(dir.path());
        for (text, expected) in [
            ("{\"allow\": [\"shell\"", "it is damaged"),
            ("{\"allow\": [\"shell(\"]}", "`shell(` is no rule"),
            ("[]", "it is damaged"),
        ] {
            fs::write(&path, text).unwrap();
            let error = approved.list().unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains(expected), "{error}");
            assert!(approved.add(&rules(&["shell"])).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(approved.list().unwrap_err().to_string().contains("only regular files"));
    }
}
