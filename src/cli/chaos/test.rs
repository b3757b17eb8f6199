//! The sequence of the test: processes that submit or resume runs and are killed, with a check of the store after each.

use std::{collections::BTreeMap, fs, time::Duration};

use hermod_actors::model::RunId;

use super::{
    process::{ProcessEnd, ProcessRun, ProgramUnderTest},
    progress_lines::{ProgressLine, ReportedStep, parse},
    schedule::Schedule,
    seen_journal::SeenJournal,
    store_copy::{read_journals, session_key, unusable},
    test_state::{TestFolder, TestState},
};
use crate::{
    cli::{exit::CliError, output::StatusLine},
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
    pub(super) schedule: Schedule,
    pub(super) notes: TestState,
    pub(super) status: StatusLine,
}

impl ChaosTest {
    /// Starts and kills processes until `kills` is reached, with `runs` unfinished runs at a time; then lets all runs
    /// end.
    pub(super) async fn run(&mut self, kills: u32, runs: u32) -> Result<(), CliError> {
        let mut to_submit = 0;
        while self.notes.kills < kills && self.notes.abnormal_ends.len() < MAX_BAD_ENDS {
            if to_submit == 0 && self.open().is_empty() {
                to_submit = runs;
            }
            let before = self.notes.kills;
            if to_submit > 0 {
                to_submit -= u32::from(self.submit().await?);
            } else {
                let life = Some(self.next_uptime());
                self.resume(life).await?;
            }
            if self.notes.kills > before
                && (self.status.is_live() || self.notes.kills.is_multiple_of(KILLS_PER_LINE))
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
        self.notes.journals.iter().filter(|book| !book.ended).filter_map(|book| book.run).collect()
    }

    fn next_uptime(&mut self) -> Duration {
        let longest = self.notes.progress_ms.iter().max();
        let wait = longest.map_or(INITIAL_WAIT, |ms| Duration::from_millis(*ms));
        self.schedule.next(2 * (wait + EXTRA_UPTIME))
    }

    /// Runs a process that submits a new run; true if the run was accepted.
    async fn submit(&mut self) -> Result<bool, CliError> {
        self.notes.journals.push(SeenJournal::default());
        let number = self.notes.journals.len();
        let workspace = self.folder.workspace(number);
        fs::create_dir_all(&workspace).map_err(|error| unusable(&workspace, &error))?;
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
        let until = self.next_uptime();
        let life = self.program.run(&args, Some(until)).await?;
        self.on_process_end(life, Some(number)).await?;
        Ok(self.notes.journals.last().is_some_and(|book| book.run.is_some()))
    }

    /// Runs a process that resumes the unfinished runs.
    async fn resume(&mut self, until: Option<Duration>) -> Result<(), CliError> {
        let life = self.program.run(&resume_arguments(), until).await?;
        self.notes.progress_ms.extend(life.progress.map(millis));
        self.on_process_end(life, None).await
    }

    /// Records the observations of a process, and checks the journals it left on disk.
    async fn on_process_end(&mut self, life: ProcessRun, number: Option<usize>) -> Result<(), CliError> {
        self.notes.starts += 1;
        match life.end {
            ProcessEnd::Killed => self.notes.kills += 1,
            ProcessEnd::Expected => {}
            ProcessEnd::Abnormal(how) => self.notes.abnormal_ends.push(how),
        }
        let said = self.reported_steps(&life.lines, number);
        let unfinished =
            (1..).zip(&self.notes.journals).filter(|(_, book)| !book.ended).map(|(number, _)| number);
        let journals = read_journals(&self.folder.state(), &self.folder.copy(), unfinished).await?;
        for (number, records) in &journals {
            let said = said.get(number).map_or(&[][..], Vec::as_slice);
            self.notes.counts += self.notes.journals[number - 1].check(records, said);
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
                    if let Some(book) = number.and_then(|number| self.notes.journals.get_mut(number - 1)) {
                        book.run = run.parse().ok();
                    }
                }
                Some(ProgressLine::Resumed(run)) => current = self.number_of(run),
                Some(ProgressLine::Step(run, step)) => {
                    if let Some(number) = run.map_or(current, |end| self.number_of(end)) {
                        steps.entry(number).or_default().push(step);
                    }
                }
                None => {}
            }
        }
        steps
    }

    /// The number of the run whose id ends with `end`.
    fn number_of(&self, end: &str) -> Option<usize> {
        let is = |book: &SeenJournal| book.run.is_some_and(|run| run.to_string().ends_with(end));
        self.notes.journals.iter().position(is).map(|at| at + 1)
    }

    fn print_progress(&self, kills: u32) {
        let ended = self.notes.journals.iter().filter(|book| book.ended).count();
        let TestState { kills: killed, counts, .. } = &self.notes;
        let wrong = counts.lost + counts.changed + counts.gaps;
        let wrong = if wrong == 0 { String::new() } else { format!(", {wrong} records lost or changed") };
        self.status.show(&format!("chaos     killed {killed} of {kills}, {ended} runs have ended{wrong}"));
    }
}

/// The arguments that resume unfinished runs.
fn resume_arguments() -> Vec<String> {
    ["runs", "resume", "--all", "--wait"].map(str::to_owned).to_vec()
}
