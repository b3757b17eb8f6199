use std::{collections::BTreeSet, fmt, ops::Range, sync::Arc};

use super::{
    book::Violation,
    judge::{self, judge, kinds},
    life::lives,
    outside::Outside,
    plan::Plan,
    quiet::Quiet,
};
use crate::{
    model::{Hash, Kind, SessionId, Timestamp, encode},
    testkit::{MemoryJournal, clock::BEGINNING},
};

/// What came of a plan.
#[derive(Debug)]
pub struct Report {
    /// The plan.
    pub plan: Plan,
    /// What must not be; empty if all is well.
    pub violations: Vec<Violation>,
    /// The kinds of the records of each session, with their times.
    pub journals: Vec<(SessionId, Vec<(Timestamp, Kind)>)>,
    /// How each life ended.
    pub lives: Vec<String>,
    /// What went wrong, of [`WRONGS`](super::WRONGS).
    pub wrongs: BTreeSet<&'static str>,
    /// How many runs were accepted.
    pub runs: usize,
    /// A hash of every byte in the store's journals.
    pub digest: Hash,
}

/// Lets a plan happen, on this thread alone.
pub fn simulate(plan: &Plan) -> Report {
    let quiet = Quiet::begin();
    let (outside, store) = (Outside::new(plan.seed()), MemoryJournal::new());
    lives(&Arc::new(plan.clone()), &outside, &store);
    judge(&outside, &store);
    for panic in quiet.end() {
        outside.accuse("nobody panics unasked", panic);
    }
    let journals = judge::journals(&store).unwrap_or_default();
    let bytes: Vec<u8> = journals.values().flatten().flat_map(|record| encode(record)).collect();
    let mut inner = outside.lock();
    Report {
        plan: plan.clone(),
        violations: std::mem::take(&mut inner.book.violations),
        runs: journals.values().flatten().filter(|record| record.body.kind() == Kind::RunAccepted).count(),
        journals: journals.iter().map(|(session, records)| (*session, kinds(records))).collect(),
        lives: std::mem::take(&mut inner.book.lives),
        wrongs: std::mem::take(&mut inner.book.wrongs),
        digest: Hash::of(&bytes),
    }
}

/// The first of these seeds with a violation, and what came of it; on this thread alone.
pub fn first_violation(seeds: Range<u64>) -> Option<(u64, Report)> {
    seeds.map(|seed| (seed, simulate(&Plan::of(seed)))).find(|(_, report)| !report.violations.is_empty())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        writeln!(f, "lives: {}; journals: {}", self.lives.join(", "), self.digest)?;
        for (session, kinds) in &self.journals {
            let told = |(at, kind): &(Timestamp, Kind)| format!("{}@{}", kind.name(), at.0 - BEGINNING);
            let told: Vec<String> = kinds.iter().map(told).collect();
            writeln!(f, "journal of {session}: {}", told.join(" "))?;
        }
        for Violation { invariant, what } in &self.violations {
            writeln!(f, "VIOLATED: {invariant}: {what}")?;
        }
        write!(f, "again: HERMOD_SEED={} cargo test --test simulation", self.plan.replay())
    }
}
