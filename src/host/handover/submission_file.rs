//! Files with submissions that are too long for a line of the control socket. The client writes one for each try, the owner
//! removes it when it has read it. They are in the state directory, because a service may see another `/tmp`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::{
    clock,
    control::{RequestError, RequestErrorKind},
    files::{self, IoResult as _, PathError, off_thread, read_regular},
};

/// The folder of these files in the state directory.
const FOLDER: &str = "submissions";
/// Size limit of a file: all that a task may have, in JSON and base64.
const MAX_BYTES: u64 = 1 << 30;
/// Age from which a file is left over: its client and the owner died before it was read.
const MIN_LEFTOVER_AGE: Duration = Duration::from_mins(10);
/// One file at a time is in memory.
static READS: Semaphore = Semaphore::const_new(1);

/// A file with a submission; dropping it removes the file if the owner has not.
#[derive(Debug)]
pub(super) struct SubmissionFile {
    path: PathBuf,
    name: String,
}

impl SubmissionFile {
    /// Writes a submission, as JSON.
    pub(super) fn write(state: &Path, json: &[u8]) -> Result<Self, PathError> {
        let folder = state.join(FOLDER);
        files::make_folder(&folder).at(&folder)?;
        let name = format!("{:032x}.json", u128::from_le_bytes(clock::random_bytes()));
        let file = Self { path: folder.join(&name), name };
        files::make(&file.path).and_then(|mut to| to.write_all(json)).at(&file.path)?;
        Ok(file)
    }

    /// The file's name in its folder.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for SubmissionFile {
    fn drop(&mut self) {
        if let Err(error) = files::remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot be removed");
        }
    }
}

/// Reads a submission, and removes its file.
pub(super) async fn take<T: DeserializeOwned + Send + 'static>(
    state: &Path,
    name: String,
) -> Result<T, RequestError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.strip_suffix(".json").is_some_and(|stem| !stem.is_empty() && stem.bytes().all(is_valid)) {
        return Err(RequestError::usage(format!("name: `{name}` is no name of a file with a submission")));
    }
    let _permit = READS.acquire().await.map_err(|error| RequestError::internal(error.to_string()))?;
    let path = state.join(FOLDER).join(name);
    let read_error = |error: io::Error| {
        RequestError::new(RequestErrorKind::Usage, format!("the submission cannot be read: {error}"))
    };
    off_thread(move || {
        let json = read_regular(&path, MAX_BYTES);
        files::remove(&path)?;
        Ok(serde_json::from_slice(&json?)?)
    })
    .await
    .map_err(read_error)
}

/// Removes the files that are left over.
pub(in crate::host) fn remove_old_submissions(state: &Path) {
    remove_if(state, |age| age >= MIN_LEFTOVER_AGE);
}

fn remove_if(state: &Path, is_old: impl Fn(Duration) -> bool) {
    let Ok(entries) = files::entries(&state.join(FOLDER)) else { return };
    for path in entries {
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(&is_old)
            && let Err(error) = files::remove(&path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::SystemTime};

    use super::*;
    use crate::control::RunSubmission;

    #[tokio::test]
    async fn a_submission_is_read_once_and_from_its_folder_alone() {
        let state = tempfile::tempdir().unwrap();
        let json = br#"{"text":"hi","idempotency_key":"k"}"#;
        let file = SubmissionFile::write(state.path(), json).unwrap();
        let name = file.name().to_owned();
        let read: RunSubmission = take(state.path(), name.clone()).await.unwrap();
        assert_eq!((&*read.text, &*read.idempotency_key), ("hi", "k"));
        assert!(!file.path.exists(), "the owner removes it");
        assert!(take::<RunSubmission>(state.path(), name).await.unwrap_err().text.contains("cannot be read"));
        fs::write(state.path().join("outside.json"), json).unwrap();
        for name in ["../outside.json", "", ".json", "/etc/passwd", "a/b.json"] {
            let error = take::<RunSubmission>(state.path(), name.into()).await.unwrap_err();
            assert!(error.text.contains("is no name"), "{error}");
        }
    }

    #[test]
    fn only_what_is_left_over_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let file = SubmissionFile::write(state.path(), b"{}").unwrap();
        remove_old_submissions(state.path());
        assert!(file.path.exists());
        let old = File::options().write(true).open(&file.path).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        remove_old_submissions(state.path());
        assert!(!file.path.exists());
    }
}
