//! The test itself: life after life, with a look into the store between any two.

use std::{collections::BTreeMap, fs, time::Duration};

use hermod_actors::model::RunId;

use super::{
    book::Book,
    life::{Death, Life, Program},
    look::{key, look, unusable},
    notes::{Folder, Notes},
    said::{Said, Step, read},
    schedule::Schedule,
};
use crate::cli::{exit::Failure, output::Status, words::millis};

/// A life may last so much longer than the longest wait for a first step, twice: several commands run then.
const MORE: Duration = Duration::from_millis(150);
/// What that wait is taken for as long as it is not known.
const FIRST_GUESS: Duration = Duration::from_millis(500);
/// After so many ends that are neither ours nor good, there is nothing more to find out.
const BAD_ENDS: usize = 3;
/// Without a terminal, a line for so many kills.
const EACH: u32 = 10;

/// A test that goes on.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) folder: Folder,
    pub(super) program: Program,
    pub(super) schedule: Schedule,
    pub(super) notes: Notes,
    pub(super) status: Status,
}

impl Trial {
    /// Kills so often, with so many unfinished runs at a time; then lets all end.
    pub(super) async fn run(&mut self, kills: u32, runs: u32) -> Result<(), Failure> {
        let mut to_submit = 0;
        while self.notes.kills < kills && self.notes.bad_ends.len() < BAD_ENDS {
            if to_submit == 0 && self.open().is_empty() {
                to_submit = runs;
            }
            let before = self.notes.kills;
            if to_submit > 0 {
                to_submit -= u32::from(self.submit().await?);
            } else {
                let life = Some(self.next_life());
                self.go_on(life).await?;
            }
            if self.notes.kills > before && (self.status.is_live() || self.notes.kills.is_multiple_of(EACH)) {
                self.tell(kills);
            }
        }
        // One that ended badly has its outcome or gets none.
        let mut left = usize::MAX;
        while (1..left).contains(&self.open().len()) {
            left = self.open().len();
            self.go_on(None).await?;
        }
        Ok(())
    }

    /// The unfinished runs.
    fn open(&self) -> Vec<RunId> {
        self.notes.books.iter().filter(|book| !book.ended).filter_map(|book| book.run).collect()
    }

    fn next_life(&mut self) -> Duration {
        let longest = self.notes.progress_ms.iter().max();
        let wait = longest.map_or(FIRST_GUESS, |ms| Duration::from_millis(*ms));
        self.schedule.next(2 * (wait + MORE))
    }

    /// A life that begins with a new run; whether that was accepted.
    async fn submit(&mut self) -> Result<bool, Failure> {
        self.notes.books.push(Book::default());
        let number = self.notes.books.len();
        let workspace = self.folder.workspace(number);
        fs::create_dir_all(&workspace).map_err(|error| unusable(&workspace, &error))?;
        let args = [
            "run".into(),
            format!("--rehearse={}", self.folder.script().display()),
            format!("--workspace={}", workspace.display()),
            format!("--session={}", key(number)),
            // An attempt that was cut off counts, and what the operator has set is not for this test.
            "--budget=iterations=1000000".into(),
            "--timeout=1d".into(),
            format!("write the lines of run {number}"),
        ];
        let until = self.next_life();
        let life = self.program.live(&args, Some(until)).await?;
        self.take(life, Some(number)).await?;
        Ok(self.notes.books.last().is_some_and(|book| book.run.is_some()))
    }

    /// A life in which what is unfinished goes on.
    async fn go_on(&mut self, until: Option<Duration>) -> Result<(), Failure> {
        let life = self.program.live(&going_on(), until).await?;
        self.notes.progress_ms.extend(life.progress.map(millis));
        self.take(life, None).await
    }

    /// Takes in what was seen of a life, and what it has left on disk.
    async fn take(&mut self, life: Life, number: Option<usize>) -> Result<(), Failure> {
        self.notes.starts += 1;
        match life.death {
            Death::Killed => self.notes.kills += 1,
            Death::Natural => {}
            Death::Bad(how) => self.notes.bad_ends.push(how),
        }
        let said = self.said(&life.lines, number);
        let unfinished =
            (1..).zip(&self.notes.books).filter(|(_, book)| !book.ended).map(|(number, _)| number);
        let journals = look((&self.folder.state(), &self.folder.copy()), unfinished).await?;
        for (number, records) in &journals {
            let said = said.get(number).map_or(&[][..], Vec::as_slice);
            self.notes.counts += self.notes.books[number - 1].look(records, said);
        }
        Ok(())
    }

    /// The steps that were said to be on disk, by the numbers of their runs.
    fn said(&mut self, lines: &[String], number: Option<usize>) -> BTreeMap<usize, Vec<Step>> {
        let mut steps: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
        let mut current = None;
        for line in lines {
            match read(line) {
                Some(Said::Accepted(run)) => {
                    current = number;
                    if let Some(book) = number.and_then(|number| self.notes.books.get_mut(number - 1)) {
                        book.run = run.parse().ok();
                    }
                }
                Some(Said::GoesOn(run)) => current = self.numbered(run),
                Some(Said::Step(run, step)) => {
                    if let Some(number) = run.map_or(current, |end| self.numbered(end)) {
                        steps.entry(number).or_default().push(step);
                    }
                }
                None => {}
            }
        }
        steps
    }

    /// The number of the run whose id ends so.
    fn numbered(&self, end: &str) -> Option<usize> {
        let is = |book: &Book| book.run.is_some_and(|run| run.to_string().ends_with(end));
        self.notes.books.iter().position(is).map(|at| at + 1)
    }

    fn tell(&self, kills: u32) {
        let ended = self.notes.books.iter().filter(|book| book.ended).count();
        let Notes { kills: killed, counts, .. } = &self.notes;
        let wrong = counts.lost + counts.changed + counts.gaps;
        let wrong = if wrong == 0 { String::new() } else { format!(", {wrong} records lost or changed") };
        self.status.show(&format!("chaos     killed {killed} of {kills}, {ended} runs have ended{wrong}"));
    }
}

/// The arguments with which unfinished runs go on.
fn going_on() -> Vec<String> {
    ["runs", "resume", "--all", "--wait"].map(str::to_owned).to_vec()
}
