//! The rules that a person has approved: the file `approved-rules.json` in the state directory.

use std::{
    fmt,
    fs::File,
    io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Rule;
use crate::files::{self, FileCache, IoResult as _, PathError};

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

/// Told when the approved rules are found to be damaged. No approved rule counts from then on, until they are repaired.
pub trait DamageObserver: fmt::Debug + Send + Sync {
    /// The rules are damaged. Called once until they have been readable again.
    fn on_damaged(&self, error: &ApprovedRulesError);
}

/// The rules in the file. They are read again when the file has changed, also by another process.
#[derive(Debug)]
pub struct ApprovedRules {
    path: PathBuf,
    state: Mutex<ReadState>,
    observer: Option<Arc<dyn DamageObserver>>,
}

#[derive(Debug, Default)]
struct ReadState {
    cache: FileCache<Result<Arc<[Rule]>, ApprovedRulesError>>,
    /// Whether the rules were damaged the last time.
    is_damaged: bool,
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
        Self { path: state_dir.join(FILE), state: Mutex::default(), observer: None }
    }

    /// These rules, with an observer of their damage.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn DamageObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// The rules, in the order of their approval; none if there is no file. In an error no rule of the file counts. The
    /// first error is logged, and told to the observer.
    pub fn list(&self) -> Result<Arc<[Rule]>, ApprovedRulesError> {
        // Ignores poisoning: each update is one assignment.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = match state.cache.get(&self.path, MAX_BYTES, |bytes| self.parse(bytes)) {
            Ok(rules) => rules.unwrap_or_else(|| Ok(Arc::default())),
            Err(error) => Err(self.unreadable(&error)),
        };
        let was_damaged = mem::replace(&mut state.is_damaged, rules.is_err());
        drop(state);
        if let Some(error) = rules.as_ref().err().filter(|_| !was_damaged) {
            tracing::error!(%error, "the approved rules do not count");
            self.observer.iter().for_each(|observer| observer.on_damaged(error));
        }
        rules
    }

    /// Adds rules, and returns those that the file did not have when they are durable. A damaged file stays as it is, and
    /// nothing is added.
    pub fn add(&self, rules: &[Rule]) -> Result<Vec<Rule>, ApprovedRulesError> {
        let _lock = self.lock()?;
        let mut texts = self.texts()?;
        let mut added = Vec::new();
        for rule in rules {
            if !texts.contains(rule.text()) {
                texts.push(Arc::clone(rule.text()));
                added.push(rule.clone());
            }
        }
        if !added.is_empty() {
            self.replace(texts)?;
        }
        Ok(added)
    }

    /// Removes rules, and returns when that is durable.
    pub fn remove(&self, rules: &[Rule]) -> Result<(), ApprovedRulesError> {
        let _lock = self.lock()?;
        let mut texts = self.texts()?;
        let count = texts.len();
        texts.retain(|text| rules.iter().all(|rule| rule.text() != text));
        if texts.len() == count { Ok(()) } else { self.replace(texts) }
    }

    /// Waits until no other process changes the rules. They are unlocked when the returned file is dropped.
    fn lock(&self) -> Result<File, ApprovedRulesError> {
        let path = self.path.with_extension("lock");
        files::lock(&path, LOCK_TRIES).at(&path).map_err(change_error)
    }

    fn texts(&self) -> Result<Vec<Arc<str>>, ApprovedRulesError> {
        Ok(self.read()?.iter().map(|rule| Arc::clone(rule.text())).collect())
    }

    fn read(&self) -> Result<Arc<[Rule]>, ApprovedRulesError> {
        match files::read_regular(&self.path, MAX_BYTES).if_exists() {
            Ok(Some(bytes)) => self.parse(&bytes),
            Ok(None) => Ok(Arc::default()),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Arc<[Rule]>, ApprovedRulesError> {
        const REMEDY: &str = "repair the file, or remove it and approve again";
        let damaged =
            |problem: String| ApprovedRulesError { path: self.path.clone(), problem, remedy: REMEDY };
        let file: ApprovedRulesFile =
            serde_json::from_slice(bytes).map_err(|error| damaged(format!("it is damaged: {error}")))?;
        let rules = file.allow.iter().map(|text| text.parse::<Rule>());
        rules.collect::<Result<_, _>>().map_err(|error| damaged(error.to_string()))
    }

    /// Replaces the file durably.
    fn replace(&self, texts: Vec<Arc<str>>) -> Result<(), ApprovedRulesError> {
        self.write(&ApprovedRulesFile { allow: texts }).at(&self.path).map_err(change_error)
    }

    fn write(&self, file: &ApprovedRulesFile) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        let text = serde_json::to_vec_pretty(file)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it would have more than 4 MiB"));
        }
        files::replace(&self.path, &new, &text)
    }

    fn unreadable(&self, error: &io::Error) -> ApprovedRulesError {
        let remedy = "make it a readable file, or remove it and approve again";
        ApprovedRulesError { path: self.path.clone(), problem: format!("it cannot be read: {error}"), remedy }
    }
}

/// The error of a change that was not made.
fn change_error(error: PathError) -> ApprovedRulesError {
    ApprovedRulesError {
        path: error.path,
        problem: format!("the approved rules cannot be changed: {}", error.source),
        remedy: "make the state directory writable",
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

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
        assert_eq!(one.add(&rules(&["mcp_*", "x", "x"])).unwrap(), rules(&["x"]), "those that are new");
        one.remove(&rules(&["x", "y", "mcp_*"])).unwrap();
        assert_eq!(*other.list().unwrap(), rules(&["shell(rm -f x)"])[..]);
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(*one.list().unwrap(), []);
    }

    #[derive(Debug, Default)]
    struct Observed(Mutex<Vec<String>>);

    impl DamageObserver for Observed {
        fn on_damaged(&self, error: &ApprovedRulesError) {
            self.0.lock().unwrap().push(error.to_string());
        }
    }

    #[test]
    fn a_damage_is_told_once_until_it_is_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let observed = Arc::<Observed>::default();
        let approved = ApprovedRules::new(dir.path()).observed_by(Arc::clone(&observed) as _);
        let check = |text: &str, times: usize| {
            fs::write(&path, text).unwrap();
            for _ in 0..3 {
                assert_eq!(approved.list().is_ok(), text.starts_with("{\"allow\": []}"), "{text}");
            }
            assert_eq!(observed.0.lock().unwrap().len(), times, "{text}");
        };
        check("{\"allow\": []}", 0);
        check("{\"allow\"", 1);
        check("{", 1);
        check("{\"allow\": []} ", 1);
        check("{\"allow\"", 2);
        let told = observed.0.lock().unwrap()[0].clone();
        for part in [FILE, "it is damaged: EOF", "repair the file, or remove it and approve again"] {
            assert!(told.contains(part), "{told}");
        }
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
            assert!(approved.remove(&rules(&["shell"])).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(approved.list().unwrap_err().to_string().contains("only regular files"));
    }
}
