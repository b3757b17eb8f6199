//! What is noted while the test goes on, and kept in its folder so that it can be judged once more.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    findings::{Findings, check_run},
    seen_journal::SeenJournal,
    store_copy::{read_journals, unusable},
    workload::{LINES, Workload},
};
use crate::cli::{exit::CliError, run::DurabilityArg};

/// The folder of a test: what is in it.
#[derive(Debug, Clone)]
pub(super) struct TestFolder(pub(super) PathBuf);

impl TestFolder {
    /// The state directory of the process that is tested.
    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// Where its store is copied to, to look into it.
    pub(super) fn copy(&self) -> PathBuf {
        self.0.join("look")
    }

    /// The script of all runs.
    pub(super) fn script(&self) -> PathBuf {
        self.0.join("script.json")
    }

    /// The workspace of a run.
    pub(super) fn workspace(&self, number: usize) -> PathBuf {
        self.0.join("work").join(number.to_string())
    }

    fn notes(&self) -> PathBuf {
        self.0.join("notes.json")
    }

    /// The lines that a run has written.
    fn lines(&self, number: usize) -> Result<String, CliError> {
        let path = self.workspace(number).join(LINES);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(unusable(&path, &error)),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TestState {
    pub(super) seed: u32,
    /// Commands of each run.
    pub(super) commands: u32,
    pub(super) durability: DurabilityArg,
    /// SIGKILLs that found a living process.
    pub(super) kills: u32,
    /// Processes that were started.
    pub(super) starts: u32,
    /// How processes ended that ended neither by our hand nor well.
    #[serde(rename = "bad_ends")]
    pub(super) abnormal_ends: Vec<String>,
    /// Milliseconds from each restart that got so far to the first step of a run.
    pub(super) progress_ms: Vec<u64>,
    /// Milliseconds that all of it took.
    pub(super) took_ms: u64,
    /// What was found between the lives.
    pub(super) counts: Findings,
    /// The journal of each submission, from number 1 on.
    #[serde(rename = "books")]
    pub(super) journals: Vec<SeenJournal>,
}

impl TestState {
    /// Reads those of an earlier test.
    pub(super) fn read(folder: &TestFolder) -> Result<Self, CliError> {
        let path = folder.notes();
        let wrong = |error: String| {
            CliError::usage(format!(
                "--again {}: {error}; give the folder that `hermod chaos --keep` has left",
                path.display()
            ))
        };
        let json = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| wrong(error.to_string()))
    }

    /// Keeps them.
    pub(super) fn write(&self, folder: &TestFolder) -> Result<(), CliError> {
        let path = folder.notes();
        let json = serde_json::to_vec(self).map_err(|error| unusable(&path, &error))?;
        fs::write(&path, json).map_err(|error| unusable(&path, &error))
    }

    /// Judges every run by what is in the folder now: what was found, over all lives.
    pub(super) async fn check_runs(&mut self, folder: &TestFolder) -> Result<Findings, CliError> {
        let (plan, mut counts) = (Workload::new(self.commands), self.counts);
        let journals = read_journals((&folder.state(), &folder.copy()), 1..=self.journals.len()).await?;
        for (book, (number, records)) in self.journals.iter_mut().zip(&journals) {
            counts += book.check(records, &[]);
            counts += check_run(&plan, records, &folder.lines(*number)?);
        }
        Ok(counts)
    }
}
