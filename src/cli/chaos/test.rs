//! The sequence of the test: processes that submit or resume runs and are killed, with a check of the store after each.

use std::{collections::BTreeMap, fs, time::Duration};

use hermod_actors::model::RunId;

use super::{
    kill_times::KillTimes,
    process::{ProcessEnd, ProcessRun, ProgramUnderTest},
    progress_lines::{ProgressLine, ReportedStep, parse},
    seen_journal::SeenJournal,
    test_state::{TestFolder, TestState, read_journals, session_key},
};
use crate::{
    cli::{CliError, output::StatusLine},
    files::IoResult as _,
    host::millis,
};

/// Slack added to the longest wait for a first step. Twice the sum bounds a process's time, which is enough for
/// several commands.
const EXTRA_UPTIME: Duration = Duration::from_millis(150);
/// The assumed wait for a first step until one is measured.
const INITIAL_WAIT: Duration = Duration::from_millis(500);
/// After this many abnormal ends, no more processes are killed; more ends would show nothing new.
const MAX_BAD_ENDS: usize = 3;
/// Without a terminal, one line of progress per this many kills.
const KILLS_PER_LINE: u32 = 10;

/// A test in progress.
#[derive(Debug)]
pub(super) struct ChaosTest {
    pub(super) folder: TestFolder,
    pub(super) program: ProgramUnderTest,
    pub(super) kill_times: KillTimes,
    pub(super) state: TestState,
    pub(super) status: StatusLine,
}

impl ChaosTest {
    /// Starts and kills processes until `kills` is reached, with `runs` unfinished runs at a time; then lets all runs
    /// end.
    pub(super) async fn run(&mut self, kills: u32, runs: u32) -> Result<(), CliError> {
        let mut to_submit = 0;
        while self.state.kills < kills && self.state.abnormal_ends.len() < MAX_BAD_ENDS {
            if to_submit == 0 && self.open().is_empty() {
                to_submit = runs;
            }
            let before = self.state.kills;
            if to_submit > 0 {
                to_submit -= u32::from(self.submit().await?);
            } else {
                let uptime = Some(self.next_uptime());
                self.resume(uptime).await?;
            }
            if self.state.kills > before
                && (self.status.is_live() || self.state.kills.is_multiple_of(KILLS_PER_LINE))
            {
                self.print_progress(kills);
            }
        }
        // Ends when a pass ends no run: after an abnormal end a run may never get its outcome.
        let mut left = usize::MAX;
        while (1..left).contains(&self.open().len()) {
            left = self.open().len();
            self.resume(None).await?;
        }
        Ok(())
    }

    /// The unfinished runs.
    fn open(&self) -> Vec<RunId> {
        self.state.journals.iter().filter(|seen| !seen.ended).filter_map(|seen| seen.run).collect()
    }

    fn next_uptime(&mut self) -> Duration {
        let longest = self.state.progress_ms.iter().max();
        let wait = longest.map_or(INITIAL_WAIT, |ms| Duration::from_millis(*ms));
        self.kill_times.next(2 * (wait + EXTRA_UPTIME))
    }

    /// Runs a process that submits a new run; true if the run was accepted.
    async fn submit(&mut self) -> Result<bool, CliError> {
        self.state.journals.push(SeenJournal::default());
        let number = self.state.journals.len();
        let workspace = self.folder.workspace(number);
        fs::create_dir_all(&workspace).at(&workspace)?;
        let args = [
            "run".into(),
            format!("--rehearse={}", self.folder.script().display()),
            format!("--workspace={}", workspace.display()),
            format!("--session={}", session_key(number)),
            // Aborted attempts count as iterations, and the operator's configured limits must not apply to the test.
            "--budget=iterations=1000000".into(),
            "--timeout=1d".into(),
            format!("write the lines of run {number}"),
        ];
        let uptime = self.next_uptime();
        let process = self.program.run(&args, Some(uptime)).await?;
        self.on_process_end(process, Some(number)).await?;
        Ok(self.state.journals.last().is_some_and(|seen| seen.run.is_some()))
    }

    /// Runs a process that resumes the unfinished runs.
    async fn resume(&mut self, uptime: Option<Duration>) -> Result<(), CliError> {
        let args = ["runs", "resume", "--all", "--wait"].map(str::to_owned);
        let process = self.program.run(&args, uptime).await?;
        self.state.progress_ms.extend(process.progress.map(millis));
        self.on_process_end(process, None).await
    }

    /// Records the observations of a process, and checks the journals it left on disk.
    async fn on_process_end(&mut self, process: ProcessRun, number: Option<usize>) -> Result<(), CliError> {
        self.state.starts += 1;
        match process.end {
            ProcessEnd::Killed => self.state.kills += 1,
            ProcessEnd::Expected => {}
            ProcessEnd::Abnormal(end) => self.state.abnormal_ends.push(end),
        }
        let reported = self.reported_steps(&process.lines, number);
        let unfinished =
            (1..).zip(&self.state.journals).filter(|(_, seen)| !seen.ended).map(|(number, _)| number);
        let journals = read_journals(&self.folder.state(), &self.folder.copy(), unfinished).await?;
        for (number, records) in &journals {
            let reported = reported.get(number).map_or(&[][..], Vec::as_slice);
            self.state.counts += self.state.journals[number - 1].check(records, reported);
        }
        Ok(())
    }

    /// The steps reported as durable, by run number.
    fn reported_steps(
        &mut self,
        lines: &[String],
        number: Option<usize>,
    ) -> BTreeMap<usize, Vec<ReportedStep>> {
        let mut steps: BTreeMap<usize, Vec<ReportedStep>> = BTreeMap::new();
        let mut current = None;
        for line in lines {
            match parse(line) {
                Some(ProgressLine::Accepted(run)) => {
                    current = number;
                    if let Some(seen) = number.and_then(|number| self.state.journals.get_mut(number - 1)) {
                        seen.run = run.parse().ok();
                    }
                }
                Some(ProgressLine::Resumed(run)) => current = self.number_of(run),
                Some(ProgressLine::Step(run, step)) => {
                    if let Some(number) = run.map_or(current, |suffix| self.number_of(suffix)) {
                        steps.entry(number).or_default().push(step);
                    }
                }
                None => {}
            }
        }
        steps
    }

    /// The number of the run whose id ends with `suffix`.
    fn number_of(&self, suffix: &str) -> Option<usize> {
        let matches = |seen: &SeenJournal| seen.run.is_some_and(|run| run.to_string().ends_with(suffix));
        self.state.journals.iter().position(matches).map(|index| index + 1)
    }

    fn print_progress(&self, kills: u32) {
        let ended = self.state.journals.iter().filter(|seen| seen.ended).count();
        let TestState { kills: killed, counts, .. } = &self.state;
        let damage = counts.lost + counts.changed + counts.gaps;
        let damage = if damage == 0 { String::new() } else { format!(", {damage} records lost or changed") };
        self.status.show(&format!("chaos     killed {killed} of {kills}, {ended} runs have ended{damage}"));
    }
}
