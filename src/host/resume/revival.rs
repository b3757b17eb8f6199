//! Lets all unfinished runs of a store go on, in a process that takes new runs meanwhile.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use hermod_actors::{
    Runtime,
    model::{Record, RunId, RunRow, SessionId, Timestamp},
};

use super::{
    ResumeObserver,
    execute::{endpoints, unfinished},
    probation::Probation,
    resumed_runs::ResumedRuns,
};
use crate::{
    clock,
    config::Config,
    control::StoreReader,
    crash_loop::CrashHistoryFile,
    discovery::Variables,
    host::{
        crash_trials::fail_crash_looping, endpoints::Endpoints, error::HostError, model_choice::OllamaProbe,
        notes::NoteSink,
    },
};

/// The unfinished runs of a store, which are to go on.
#[derive(Debug)]
pub struct Revival {
    rows: Vec<RunRow>,
    since: Timestamp,
}

impl Revival {
    /// Finds the unfinished runs. Their endpoints are for further runs too.
    pub async fn find(
        (config, variables): (&Config, &Variables),
        reader: &StoreReader,
        state: &Path,
        notes: &dyn NoteSink,
    ) -> Result<(Self, Endpoints), HostError> {
        let since = clock::now();
        let rows = unfinished(None, reader).await?;
        let probe = OllamaProbe::of(config);
        let endpoints = endpoints((config, variables), reader, (&rows, state), (probe, notes)).await?;
        Ok((Self { rows, since }, endpoints))
    }

    /// Number of the unfinished runs.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Keeps their places in the lanes until they go on.
    pub fn keep_places(&self, runtime: &Runtime) {
        runtime.keep_lane_places(&self.rows);
    }

    /// Lets them go on: all at once, or one at a time after repeated crashes of the process. Resolves when all go on.
    pub async fn execute(
        self,
        runtime: &Runtime,
        reader: &StoreReader,
        crash_history: &mut CrashHistoryFile,
        notes: &Arc<dyn NoteSink>,
    ) -> Result<(), HostError> {
        fail_crash_looping(runtime, &**notes, crash_history, &self.rows).await?;
        if crash_history.probation().is_none() {
            let sessions: BTreeSet<SessionId> = self.rows.iter().map(|row| row.session).collect();
            return Ok(sessions.into_iter().try_for_each(|session| runtime.revive(session))?);
        }
        let mut observer = NoteObserver(Arc::clone(notes));
        let mut runs = ResumedRuns::new(runtime, (self.rows, self.since), &mut observer);
        runs.refresh_running().await?;
        let mut trials = Probation::new(&runs, crash_history, notes);
        loop {
            trials.advance(&mut runs, reader, crash_history).await?;
            if trials.is_over() {
                return Ok(());
            }
            trials.next_step(&mut runs, crash_history).await?;
        }
    }
}

/// Shows only what is done about crashes.
#[derive(Debug)]
struct NoteObserver(Arc<dyn NoteSink>);

impl ResumeObserver for NoteObserver {
    fn on_record(&mut self, _: RunId, _: &Record, _: bool) {}

    fn on_end(&mut self, _: &RunRow) {}

    fn on_disk(&mut self, line: &str) {
        self.0.note(line);
    }

    fn on_trial(&mut self, run: RunId, line: &str) {
        self.0.note(&format!("run {run}: {line}"));
    }
}
