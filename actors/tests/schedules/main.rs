//! Schedules: requests about them, and their simulation, which finds nothing wrong, and finds each mutant.
//!
//! `HERMOD_SEEDS=10000 cargo test -p hermod-actors --test schedules` tries more seeds.

#![allow(clippy::unwrap_used)] // a test ends where it fails

mod requests;

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use hermod_actors::mutants::Mutant;
use hermod_testkit::{ScheduleReport, simulate_schedules};

/// The default number of seeds.
const SEEDS: u64 = 30;
/// The number of seeds within which each mutant is found.
const SEEDS_OF_MUTANTS: u64 = 100;

fn seeds() -> u64 {
    env::var("HERMOD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn each_occurrence_has_one_fate() {
    let (seeds, next) = (seeds(), AtomicU64::new(0));
    let simulate = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return reports;
            }
            reports.push((seed, simulate_schedules(seed)));
        }
    };
    let reports = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(simulate)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut all = ScheduleReport::default();
    for (seed, report) in reports {
        for violation in report.violations {
            all.violations.push(format!("seed {seed}: {violation}"));
        }
        (all.ran, all.missed) = (all.ran + report.ran, all.missed + report.missed);
        (all.skipped, all.kills) = (all.skipped + report.skipped, all.kills + report.kills);
        (all.jumps, all.pauses) = (all.jumps + report.jumps, all.pauses + report.pauses);
    }
    let ScheduleReport { violations, ran, missed, skipped, kills, jumps, pauses } = all;
    println!(
        "{seeds} seeds: {ran} ran, {missed} missed, {skipped} skipped, {kills} kills, {jumps} jumps, {pauses} pauses"
    );
    assert!(
        violations.is_empty(),
        "{} violations:\n{}",
        violations.len(),
        violations[..violations.len().min(40)].join("\n")
    );
    assert!([ran, kills, jumps, pauses].iter().all(|count| *count > 0) && missed > 0 && skipped > 0);
}

#[test]
fn the_simulation_of_schedules_finds_what_is_planted() {
    let found = Mutant::OF_SCHEDULES.map(|mutation| {
        let found = (0..SEEDS_OF_MUTANTS).find_map(|seed| {
            let report = mutation.run_with(|| simulate_schedules(seed));
            report.violations.first().map(|violation| format!("seed {seed}: {violation}"))
        });
        println!("{mutation:?}: {found:?}");
        found
    });
    assert!(found.iter().all(Option::is_some), "a mutant is not found");
}
