//! The report of `hermod chaos`, as a table and as JSON.

use serde_json::{Value, json};

use super::{findings::Findings, test_state::TestState};
use crate::cli::{format::seconds, run::DurabilityArg, table};

/// The result of a test.
#[derive(Debug)]
pub(super) struct ChaosReport {
    pub(super) state: TestState,
    pub(super) counts: Findings,
    /// The test's folder, if it is kept.
    pub(super) folder: Option<String>,
}

impl ChaosReport {
    /// True if no finding is a failure. A relaxed store may lose acknowledged records, and with them the records of
    /// executed commands.
    pub(super) fn is_ok(&self) -> bool {
        self.findings().iter().all(|(_, _, count, fails)| *count == 0 || !fails)
    }

    /// The findings: name in JSON, name in words, count, and whether a count above 0 is a failure.
    fn findings(&self) -> [(&'static str, &'static str, usize, bool); 10] {
        let (counts, strict) = (&self.counts, self.state.durability == DurabilityArg::Strict);
        [
            ("lost", "of them lost", counts.lost, strict),
            ("changed", "records on disk gone or changed", counts.changed, true),
            ("gaps", "gaps in journals", counts.gaps, true),
            ("twice", "commands run twice", counts.duplicated, strict),
            ("missing", "lines missing", counts.missing, strict),
            ("unasked", "lines of no command", counts.unexpected, true),
            ("unrecorded", "commands run without a record", counts.unrecorded, strict),
            ("not_completed", "runs not completed", counts.not_completed, true),
            ("ended_twice", "runs with two outcomes", counts.ended_twice, true),
            ("bad_ends", "processes that ended badly", self.state.abnormal_ends.len(), true),
        ]
    }

    fn runs(&self) -> usize {
        self.state.journals.iter().filter(|seen| seen.run.is_some()).count()
    }

    fn records(&self) -> usize {
        self.state.journals.iter().map(super::seen_journal::SeenJournal::len).sum()
    }

    fn commands(&self) -> u64 {
        u64::from(self.state.commands) * self.runs() as u64
    }

    /// The median and the maximum of the milliseconds from a restart to the first step.
    fn progress(&self) -> Option<[u64; 2]> {
        let mut waits_ms = self.state.progress_ms.clone();
        waits_ms.sort_unstable();
        Some([*waits_ms.get(waits_ms.len() / 2)?, *waits_ms.last()?])
    }

    /// The report as one JSON object.
    pub(super) fn json(&self) -> Value {
        let TestState { seed, durability, kills, starts, took_ms, .. } = &self.state;
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
        for (name, _, count, _) in self.findings() {
            report[name] = json!(count);
        }
        report["bad_ends"] = json!(self.state.abnormal_ends);
        report["in_doubt"] = json!(self.counts.in_doubt);
        report["in_doubt_without_line"] = json!(self.counts.in_doubt_without_line);
        let progress = self.progress();
        report["first_step_ms"] =
            json!(progress.map(|[median, longest]| json!({ "median": median, "longest": longest })));
        report["took_ms"] = json!(took_ms);
        report["folder"] = json!(self.folder);
        report
    }

    /// The report as a table, with the verdict.
    pub(super) fn text(&self) -> String {
        let in_doubt = match self.counts {
            Findings { in_doubt: 0, .. } => "0".to_owned(),
            Findings { in_doubt, in_doubt_without_line, .. } => {
                format!("{in_doubt}, of which {in_doubt_without_line} have no line")
            }
        };
        let first_step = self.progress().map_or_else(
            || "never seen".to_owned(),
            |[median, longest]| format!("{} median, {} at most", seconds(median), seconds(longest)),
        );
        let TestState { seed, kills, starts, took_ms, .. } = &self.state;
        let mut rows = vec![
            ["SIGKILLs".into(), format!("{kills} of {starts} processes, seed {seed}")],
            [
                "runs".into(),
                format!("{}, {}, {} records", self.runs(), self.state.durability.name(), self.records()),
            ],
            ["commands".into(), self.commands().to_string()],
            ["acknowledged records".into(), self.counts.acknowledged.to_string()],
        ];
        let row = |(_, what, count, fails): (_, &str, usize, bool)| {
            let mark = match (count, fails) {
                (0, _) => "",
                (_, true) => "  !",
                (_, false) => "  (relaxed)",
            };
            [what.to_owned(), format!("{count}{mark}")]
        };
        rows.extend(self.findings().map(row));
        rows.push(["calls in doubt, as the model was told".into(), in_doubt]);
        rows.push(["restart to first step".into(), first_step]);
        rows.push(["took".into(), seconds(*took_ms)]);
        let mut text = table::render(["COUNTED", ""], &rows);
        text.extend(self.state.abnormal_ends.iter().map(|end| format!("ended badly: {end}\n")));
        text.extend(self.folder.iter().map(|folder| format!("left in {folder}\n")));
        text.push_str(if self.is_ok() { "ok\n" } else { "FAILED\n" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(durability: DurabilityArg, counts: Findings, bad_ends: &[&str]) -> ChaosReport {
        let state = TestState {
            seed: 7,
            commands: 20,
            durability,
            kills: 2,
            starts: 3,
            abnormal_ends: bad_ends.iter().map(|&end| end.to_owned()).collect(),
            progress_ms: vec![30, 10, 20],
            took_ms: 1_500,
            counts: Findings::default(),
            journals: Vec::new(),
        };
        ChaosReport { state, counts, folder: None }
    }

    #[test]
    fn each_finding_fails_and_is_told() {
        let check = |counts: Findings, strict: bool, relaxed: bool| {
            for (durability, expect) in [(DurabilityArg::Strict, strict), (DurabilityArg::Relaxed, relaxed)] {
                let report = report(durability, counts, &[]);
                assert_eq!(report.is_ok(), expect, "{durability:?}: {counts:?}");
                assert_eq!(report.json()["ok"], expect);
                assert!(report.text().ends_with(if expect { "\nok\n" } else { "\nFAILED\n" }));
            }
        };
        let none = Findings::default();
        check(none, true, true);
        check(Findings { in_doubt: 3, in_doubt_without_line: 1, ..none }, true, true);
        check(Findings { lost: 1, ..none }, false, true);
        check(Findings { duplicated: 1, ..none }, false, true);
        check(Findings { missing: 1, ..none }, false, true);
        check(Findings { unrecorded: 1, ..none }, false, true);
        check(Findings { changed: 1, ..none }, false, false);
        check(Findings { gaps: 1, ..none }, false, false);
        check(Findings { unexpected: 1, ..none }, false, false);
        check(Findings { not_completed: 1, ..none }, false, false);
        check(Findings { ended_twice: 1, ..none }, false, false);
    }

    #[test]
    fn a_bad_end_fails_and_is_told() {
        let report = report(DurabilityArg::Strict, Findings::default(), &["exit status: 74; said last: x"]);
        assert!(!report.is_ok());
        assert_eq!(report.json()["bad_ends"], json!(["exit status: 74; said last: x"]));
        assert!(report.text().contains("ended badly: exit status: 74; said last: x\n"), "{}", report.text());
    }

    #[test]
    fn times_are_told_by_median_and_longest() {
        let mut report = report(DurabilityArg::Strict, Findings::default(), &[]);
        assert_eq!(report.json()["first_step_ms"], json!({ "median": 20, "longest": 30 }));
        assert!(report.text().contains("20 ms median, 30 ms at most"), "{}", report.text());
        report.state.progress_ms.clear();
        assert_eq!(report.json()["first_step_ms"], Value::Null);
    }
}
