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

#[cfg(test)]
mod tests {
    use super::{
        super::plan::{CallPlan, Does, Event, Fault, House, Kind as Tool, Mishap, RunPlan, Step, What},
        *,
    };
    use crate::model::{Amounts, Limits, Raised, WhenInDoubt};

    const IDLE: u64 = 1_000;

    fn look() -> Step {
        let call = CallPlan { tool: Tool::Look, ms: 0, does: Does::Well, is_twin: false };
        Step { ms: 1, calls: vec![call], ..Step::default() }
    }

    /// Without limits, at the beginning.
    fn run(n: usize, steps: usize) -> RunPlan {
        RunPlan {
            n,
            session: n,
            at_ms: 0,
            keyed: true,
            limits: Limits { max_tokens: 300, ..Limits::default() },
            in_doubt: WhenInDoubt::Tell,
            patience_ms: 100,
            encoder_panics: false,
            delegation: None,
            more: None,
            steps: vec![look(); steps],
            last: Step { ms: 1, ..Step::default() },
        }
    }

    fn plan(runs: Vec<RunPlan>, faults: Vec<Fault>) -> Plan {
        let house =
            House { disk_ms: 0, links: 1, leases: 1, tool_calls: 1, is_watched: false, idle_ms: IDLE };
        Plan { seed: 0, house, runs, tasks: Vec::new(), faults, squeeze: None, is_whole: false }
    }

    /// How the last life ends, how often run 0 begins a leg, and which invariants do not hold.
    #[track_caller]
    fn check(plan: &Plan, (life, legs): (&str, usize), violated: &[&str]) {
        let Report { violations, lives, journals, .. } = simulate(plan);
        let is_leg = |(_, kind): &&(Timestamp, Kind)| matches!(kind, Kind::RunAccepted | Kind::RunReopened);
        let first = journals.first().map_or(0, |(_, records)| records.iter().filter(is_leg).count());
        let mut found: Vec<_> = violations.iter().map(|violation| violation.invariant).collect();
        found.dedup();
        assert_eq!((lives.last().map(String::as_str), first, &found[..]), (Some(life), legs, violated));
    }

    #[test]
    fn what_is_raised_at_rest_goes_on_though_its_session_was_put_to_rest() {
        let budget = Amounts { iterations: Some(1), ..Amounts::default() };
        let first = RunPlan { limits: Limits { budget, ..run(0, 2).limits }, ..run(0, 2) };
        let second = RunPlan { at_ms: IDLE * 20, ..run(1, 0) };
        let by = Raised { budget: Amounts { iterations: Some(9), ..Amounts::default() }, wall_ms: None };
        let raise = Fault { n: 0, what: What::At(IDLE * 10, Event::RaiseAtRest(0, by)) };
        check(&plan(vec![first, second], vec![raise]), ("Done", 2), &[]);
    }

    #[test]
    fn a_model_that_is_wrong_again_and_again_comes_to_an_end() {
        let mishaps = vec![Mishap::Malformed, Mishap::UnknownTool];
        let stubborn = RunPlan { last: Step { ms: 1, mishaps, ..Step::default() }, ..run(0, 0) };
        check(&plan(vec![stubborn], Vec::new()), ("Done", 1), &[]);
    }

    #[test]
    fn a_plan_that_goes_round_in_circles_is_told() {
        let endless = run(0, 2_000);
        check(&plan(vec![endless], Vec::new()), ("Done", 1), &["there is progress when faults stop"]);
    }
}
