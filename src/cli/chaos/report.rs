//! What the operator reads.

use serde_json::{Value, json};

use super::{judge::Counts, notes::Notes};
use crate::cli::{run::Durability, table, words::seconds};

/// What came of a test.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) notes: Notes,
    pub(super) counts: Counts,
    /// The folder, if it is left.
    pub(super) folder: Option<String>,
}

impl Report {
    /// Whether all is as it must be. A relaxed store may lose what it has acknowledged, and then does not know that a
    /// command ran.
    pub(super) fn is_ok(&self) -> bool {
        self.found().iter().all(|(_, _, count, fails)| *count == 0 || !fails)
    }

    /// What could be found: its name in JSON and in words, how often it was found, and whether that is a failure.
    fn found(&self) -> [(&'static str, &'static str, usize, bool); 10] {
        let (counts, strict) = (&self.counts, self.notes.durability == Durability::Strict);
        [
            ("lost", "of them lost", counts.lost, strict),
            ("changed", "records on disk gone or changed", counts.changed, true),
            ("gaps", "gaps in journals", counts.gaps, true),
            ("twice", "commands run twice", counts.twice, strict),
            ("missing", "lines missing", counts.missing, strict),
            ("unasked", "lines of no command", counts.unasked, true),
            ("unrecorded", "commands run without a record", counts.unrecorded, strict),
            ("not_completed", "runs not completed", counts.not_completed, true),
            ("ended_twice", "runs with two outcomes", counts.ended_twice, true),
            ("bad_ends", "processes that ended badly", self.notes.bad_ends.len(), true),
        ]
    }

    fn runs(&self) -> usize {
        self.notes.books.iter().filter(|book| book.run.is_some()).count()
    }

    fn records(&self) -> usize {
        self.notes.books.iter().map(super::book::Book::len).sum()
    }

    fn commands(&self) -> u64 {
        u64::from(self.notes.commands) * self.runs() as u64
    }

    /// The median and the longest time from a restart to the first step.
    fn progress(&self) -> Option<[u64; 2]> {
        let mut times = self.notes.progress_ms.clone();
        times.sort_unstable();
        Some([*times.get(times.len() / 2)?, *times.last()?])
    }

    /// As one object.
    pub(super) fn json(&self) -> Value {
        let Notes { seed, durability, kills, starts, took_ms, .. } = &self.notes;
        let mut report = json!({
            "ok": self.is_ok(),
            "seed": seed,
            "durability": durability.name(),
            "kills": kills,
            "starts": starts,
            "runs": self.runs(),
            "commands": self.commands(),
            "records": self.records(),
            "acknowledged": self.counts.acknowledged,
        });
        for (name, _, count, _) in self.found() {
            report[name] = json!(count);
        }
        report["bad_ends"] = json!(self.notes.bad_ends);
        report["in_doubt"] = json!(self.counts.in_doubt);
        report["in_doubt_without_line"] = json!(self.counts.in_doubt_without_line);
        let progress = self.progress();
        report["first_step_ms"] =
            json!(progress.map(|[median, longest]| json!({ "median": median, "longest": longest })));
        report["took_ms"] = json!(took_ms);
        report["folder"] = json!(self.folder);
        report
    }

    /// As a table, and the verdict.
    pub(super) fn text(&self) -> String {
        let doubts = match self.counts {
            Counts { in_doubt: 0, .. } => "0".to_owned(),
            Counts { in_doubt, in_doubt_without_line, .. } => {
                format!("{in_doubt}, of which {in_doubt_without_line} have no line")
            }
        };
        let first_step = self.progress().map_or_else(
            || "never seen".to_owned(),
            |[median, longest]| format!("{} median, {} at most", seconds(median), seconds(longest)),
        );
        let Notes { seed, kills, starts, took_ms, .. } = &self.notes;
        let mut rows = vec![
            ["SIGKILLs".into(), format!("{kills} of {starts} processes, seed {seed}")],
            [
                "runs".into(),
                format!("{}, {}, {} records", self.runs(), self.notes.durability.name(), self.records()),
            ],
            ["commands".into(), self.commands().to_string()],
            ["acknowledged records".into(), self.counts.acknowledged.to_string()],
        ];
        let found = |(_, what, count, fails): (_, &str, usize, bool)| {
            let mark = match (count, fails) {
                (0, _) => "",
                (_, true) => "  !",
                (_, false) => "  (relaxed)",
            };
            [what.to_owned(), format!("{count}{mark}")]
        };
        rows.extend(self.found().map(found));
        rows.push(["calls in doubt, as the model was told".into(), doubts]);
        rows.push(["restart to first step".into(), first_step]);
        rows.push(["took".into(), seconds(*took_ms)]);
        let mut text = table::render(["COUNTED", ""], &rows);
        text.extend(self.notes.bad_ends.iter().map(|how| format!("ended badly: {how}\n")));
        text.extend(self.folder.iter().map(|folder| format!("left in {folder}\n")));
        text.push_str(if self.is_ok() { "ok\n" } else { "FAILED\n" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(durability: Durability, counts: Counts, bad_ends: &[&str]) -> Report {
        let notes = Notes {
            seed: 7,
            commands: 20,
            durability,
            kills: 2,
            starts: 3,
            bad_ends: bad_ends.iter().map(|&how| how.to_owned()).collect(),
            progress_ms: vec![30, 10, 20],
            took_ms: 1_500,
            counts: Counts::default(),
            books: Vec::new(),
        };
        Report { notes, counts, folder: None }
    }

    #[test]
    fn each_finding_fails_and_is_told() {
        let check = |counts: Counts, strict: bool, relaxed: bool| {
            for (durability, expect) in [(Durability::Strict, strict), (Durability::Relaxed, relaxed)] {
                let report = report(durability, counts, &[]);
                assert_eq!(report.is_ok(), expect, "{durability:?}: {counts:?}");
                assert_eq!(report.json()["ok"], expect);
                assert!(report.text().ends_with(if expect { "\nok\n" } else { "\nFAILED\n" }));
            }
        };
        let none = Counts::default();
        check(none, true, true);
        check(Counts { in_doubt: 3, in_doubt_without_line: 1, ..none }, true, true);
        check(Counts { lost: 1, ..none }, false, true);
        check(Counts { twice: 1, ..none }, false, true);
        check(Counts { missing: 1, ..none }, false, true);
        check(Counts { unrecorded: 1, ..none }, false, true);
        check(Counts { changed: 1, ..none }, false, false);
        check(Counts { gaps: 1, ..none }, false, false);
        check(Counts { unasked: 1, ..none }, false, false);
        check(Counts { not_completed: 1, ..none }, false, false);
        check(Counts { ended_twice: 1, ..none }, false, false);
    }

    #[test]
    fn a_bad_end_fails_and_is_told() {
        let report = report(Durability::Strict, Counts::default(), &["exit status: 74; said last: x"]);
        assert!(!report.is_ok());
        assert_eq!(report.json()["bad_ends"], json!(["exit status: 74; said last: x"]));
        assert!(report.text().contains("ended badly: exit status: 74; said last: x\n"), "{}", report.text());
    }

    #[test]
    fn times_are_told_by_median_and_longest() {
        let mut report = report(Durability::Strict, Counts::default(), &[]);
        assert_eq!(report.json()["first_step_ms"], json!({ "median": 20, "longest": 30 }));
        assert!(report.text().contains("20 ms median, 30 ms at most"), "{}", report.text());
        report.notes.progress_ms.clear();
        assert_eq!(report.json()["first_step_ms"], Value::Null);
    }
}
