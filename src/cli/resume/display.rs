//! Shows resumed runs at standard error, each line with the end of the run's id before it. It is the observer that
//! `host/resume` tells of records and ends.

use std::collections::BTreeMap;

use hermod_actors::model::{Record, RunId, RunRow};

use crate::{
    cli::{
        display::{DisplayArgs, ProgressDisplay},
        format::seconds,
        progress::ProgressLines,
        terminal::{Charset, Tone},
    },
    discovery::Variables,
    host::ResumeObserver,
};

/// Characters of a run's id before its lines: the last ones, which are random.
const ID_SUFFIX_CHARS: usize = 6;

/// The display of resumed runs.
#[derive(Debug)]
pub(super) struct ResumeDisplay {
    display: ProgressDisplay,
    progress: BTreeMap<RunId, ProgressLines>,
}

impl ResumeDisplay {
    /// Shows nothing yet.
    pub(super) fn new(args: &DisplayArgs, variables: &Variables) -> Self {
        Self { display: ProgressDisplay::new(args, false, variables), progress: BTreeMap::new() }
    }

    fn print_line(&mut self, run: RunId, tone: Tone, line: &str) {
        let id = run.to_string();
        let ellipsis = Charset::current().ellipsis();
        self.display.line(tone, &format!("{ellipsis}{} {line}", &id[id.len() - ID_SUFFIX_CHARS..]));
    }
}

impl ResumeObserver for ResumeDisplay {
    fn on_record(&mut self, run: RunId, record: &Record, is_new: bool) {
        // Earlier records are only read for the names of calls.
        let progress = self.progress.entry(run).or_insert_with(|| ProgressLines::new(run));
        let (line, tone) = (progress.line(record), progress.tone(record));
        let output = progress.output(record, self.display.verbosity());
        if !is_new {
            return;
        }
        if let Some(line) = line {
            self.print_line(run, tone, &line);
        }
        self.display.output(&output);
    }

    fn on_end(&mut self, row: &RunRow) {
        self.print_line(row.id, Tone::Quiet, &format_end(row));
    }

    fn on_disk(&mut self, line: &str) {
        self.display.line(Tone::Action, line);
    }

    fn on_trial(&mut self, run: RunId, line: &str) {
        self.print_line(run, Tone::Quiet, line);
    }
}

fn format_end(row: &RunRow) -> String {
    let outcome = row.ended.as_ref().map_or_else(|| "without an outcome".to_owned(), ToString::to_string);
    let took = row.started_at.zip(row.ended_at);
    let took = took.map_or_else(String::new, |(start, end)| format!(", {}", seconds(end.ms_since(start))));
    format!("ended     {outcome}: iterations {}, tokens {}{took}", row.iterations, row.usage.total())
}
