//! What is noted while the test goes on, and kept in its folder so that it can be judged once more.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    book::Book,
    judge::{Counts, judge},
    look::{look, unusable},
    plan::{LINES, Plan},
};
use crate::cli::{exit::Failure, run::Durability};

/// The folder of a test: what is in it.
#[derive(Debug, Clone)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
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
    fn lines(&self, number: usize) -> Result<String, Failure> {
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
pub(super) struct Notes {
    pub(super) seed: u32,
    /// Commands of each run.
    pub(super) commands: u32,
    pub(super) durability: Durability,
    /// SIGKILLs that found a living process.
    pub(super) kills: u32,
    /// Processes that were started.
    pub(super) starts: u32,
    /// How processes ended that ended neither by our hand nor well.
    pub(super) bad_ends: Vec<String>,
    /// Milliseconds from each restart that got so far to the first step of a run.
    pub(super) progress_ms: Vec<u64>,
    /// Milliseconds that all of it took.
    pub(super) took_ms: u64,
    /// What was found between the lives.
    pub(super) counts: Counts,
    /// The journal of each submission, from number 1 on.
    pub(super) books: Vec<Book>,
}

impl Notes {
    /// Reads those of an earlier test.
    pub(super) fn read(folder: &Folder) -> Result<Self, Failure> {
        let path = folder.notes();
        let wrong = |error: String| {
            Failure::usage(format!(
                "--again {}: {error}; give the folder that `hermod chaos --keep` has left",
                path.display()
            ))
        };
        let json = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| wrong(error.to_string()))
    }

    /// Keeps them.
    pub(super) fn write(&self, folder: &Folder) -> Result<(), Failure> {
        let path = folder.notes();
        let json = serde_json::to_vec(self).map_err(|error| unusable(&path, &error))?;
        fs::write(&path, json).map_err(|error| unusable(&path, &error))
    }

    /// Judges every run by what is in the folder now: what was found, over all lives.
    pub(super) async fn judge(&mut self, folder: &Folder) -> Result<Counts, Failure> {
        let (plan, mut counts) = (Plan::new(self.commands), self.counts);
        let journals = look((&folder.state(), &folder.copy()), 1..=self.books.len()).await?;
        for (book, (number, records)) in self.books.iter_mut().zip(&journals) {
            counts += book.look(records, &[]);
            counts += judge(&plan, records, &folder.lines(*number)?);
        }
        Ok(counts)
    }
}
