//! The findings as lines for people.

use super::check::{CheckResult, Finding};
use crate::cli::terminal::Tone;

/// The lines of a report: each finding, its remedy below it, and the number of each result.
pub(super) fn lines(findings: &[Finding]) -> Vec<(Option<Tone>, String)> {
    let mut lines = Vec::new();
    for Finding { check, subject, result, value, remedy } in findings {
        let tone = match result {
            CheckResult::Ok => None,
            CheckResult::Skipped => Some(Tone::Quiet),
            CheckResult::Warn => Some(Tone::Action),
            CheckResult::Fail => Some(Tone::Bad),
        };
        let name: &'static str = result.into();
        let subject = if subject == check { String::new() } else { format!("{subject}: ") };
        let value = value.replace('\n', "\n                        ");
        lines.push((tone, format!("{name:<8}{check:<16}{subject}{value}")));
        lines.extend(remedy.iter().map(|remedy| (None, format!("{:8}{:16}remedy: {remedy}", "", ""))));
    }
    let count = |result| findings.iter().filter(|finding| finding.result == result).count();
    let (ok, warn, fail) = (count(CheckResult::Ok), count(CheckResult::Warn), count(CheckResult::Fail));
    let tone = (fail > 0).then_some(Tone::Bad);
    lines.push((tone, format!("\n{ok} ok, {warn} warnings, {fail} failed")));
    lines
}
