//! The folder of a test with its paths; the state of the test, stored there so that its runs can be checked again; and
//! the journals of its runs, read between two processes. They are read in a copy of the store: the recovery of the
//! store after a kill belongs to the next process.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod_actors::model::{Record, Seq};
use serde::{Deserialize, Serialize};

use super::{
    findings::{Findings, check_run},
    seen_journal::SeenJournal,
    workload::{LINES, Workload},
};
use crate::{
    cli::{CliError, run::DurabilityArg},
    control::StoreReader,
    files::{IoResult as _, PathError, remove_tree},
    host,
    store::redb::Durability,
};

/// The folder of a test, and the paths in it.
#[derive(Debug, Clone)]
pub(super) struct TestFolder(pub(super) PathBuf);

impl TestFolder {
    /// The state directory of the program under test.
    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// The path of the store's copy.
    pub(super) fn copy(&self) -> PathBuf {
        self.0.join("look")
    }

    /// The rehearsal script of all runs.
    pub(super) fn script(&self) -> PathBuf {
        self.0.join("script.json")
    }

    /// The workspace of a run.
    pub(super) fn workspace(&self, number: usize) -> PathBuf {
        self.0.join("work").join(number.to_string())
    }

    fn state_file(&self) -> PathBuf {
        self.0.join("notes.json")
    }

    /// The lines that a run has written.
    fn lines(&self, number: usize) -> Result<String, CliError> {
        let path = self.workspace(number).join(LINES);
        let bytes = fs::read(&path).if_exists().at(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The state of a test, stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TestState {
    pub(super) seed: u32,
    /// Commands of each run.
    pub(super) commands: u32,
    pub(super) durability: DurabilityArg,
    /// SIGKILLs that hit a living process.
    pub(super) kills: u32,
    /// Started processes.
    pub(super) starts: u32,
    /// Descriptions of the abnormal ends.
    #[serde(rename = "bad_ends")]
    pub(super) abnormal_ends: Vec<String>,
    /// Milliseconds from a restart to the first step of a run, for each restart that reached one.
    pub(super) progress_ms: Vec<u64>,
    /// Duration of the whole test in milliseconds.
    pub(super) took_ms: u64,
    /// The findings between the processes.
    pub(super) counts: Findings,
    /// The journal of each submission, from number 1 on.
    #[serde(rename = "books")]
    pub(super) journals: Vec<SeenJournal>,
}

impl TestState {
    /// Reads the state of an earlier test.
    pub(super) fn read(folder: &TestFolder) -> Result<Self, CliError> {
        let path = folder.state_file();
        let state_error = |error: String| {
            CliError::usage(format!(
                "--again {}: {error}; give the folder that `hermod chaos --keep` has left",
                path.display()
            ))
        };
        let json = fs::read(&path).map_err(|error| state_error(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| state_error(error.to_string()))
    }

    /// Writes the state into the folder.
    pub(super) fn write(&self, folder: &TestFolder) -> Result<(), CliError> {
        let path = folder.state_file();
        let json = serde_json::to_vec(self).map_err(io::Error::from).at(&path)?;
        Ok(fs::write(&path, json).at(&path)?)
    }

    /// Checks every run by the folder's current content; returns the findings of the whole test.
    pub(super) async fn check_runs(&mut self, folder: &TestFolder) -> Result<Findings, CliError> {
        let (plan, mut counts) = (Workload::new(self.commands), self.counts);
        let journals = read_journals(&folder.state(), &folder.copy(), 1..=self.journals.len()).await?;
        for (seen, (number, records)) in self.journals.iter_mut().zip(&journals) {
            counts += seen.check(records, &[]);
            counts += check_run(&plan, records, &folder.lines(*number)?);
        }
        Ok(counts)
    }
}

/// The journals of runs, by run number.
pub(super) type RunJournals = BTreeMap<usize, Vec<(Seq, Record)>>;

/// The session key of the run with this number.
pub(super) fn session_key(number: usize) -> String {
    format!("chaos-{number}")
}

/// The journals of these runs on disk; a missing one is empty.
pub(super) async fn read_journals(
    state: &Path,
    copy: &Path,
    numbers: impl Iterator<Item = usize>,
) -> Result<RunJournals, CliError> {
    copy_state(state, copy)?;
    let reader = StoreReader::new(host::open(copy, Durability::Strict)?);
    let mut journals = RunJournals::new();
    for number in numbers {
        let mut records = Vec::new();
        let key = session_key(number);
        if let Some(session) = reader.read(|rows| rows.session_of_key(&key)).await? {
            let collect = |seq, record| records.push((seq, Arc::unwrap_or_clone(record)));
            reader.records(session.id, 1, collect).await?;
        }
        journals.insert(number, records);
    }
    Ok(journals)
}

/// Copies the files of a state directory and links its folders: a read needs only the blobs there, and no blob changes.
fn copy_state(state: &Path, copy: &Path) -> Result<(), PathError> {
    remove_tree(copy).and_then(|()| fs::create_dir(copy)).at(copy)?;
    // There is no folder if the process was killed before it created it.
    for entry in fs::read_dir(state).if_exists().at(state)?.into_iter().flatten() {
        let entry = entry.at(state)?;
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        let kind = entry.file_type().at(&from)?;
        if kind.is_dir() {
            symlink(&from, &to).at(&from)?;
        } else if kind.is_file() {
            fs::copy(&from, &to).at(&from)?;
        }
    }
    Ok(())
}
