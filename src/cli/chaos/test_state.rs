//! The folder of a test with its paths; and the state of the test, stored there so that its runs can be checked again.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    findings::{Findings, check_run},
    seen_journal::SeenJournal,
    store_copy::{read_journals, unusable},
    workload::{LINES, Workload},
};
use crate::cli::{exit::CliError, run::DurabilityArg};

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
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(unusable(&path, &error)),
        }
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
        let json = serde_json::to_vec(self).map_err(|error| unusable(&path, &error))?;
        fs::write(&path, json).map_err(|error| unusable(&path, &error))
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
