//! The simulation finds each mutant: it tries seeds until the first violation.
//!
//! `just mutations 50000` tries more seeds for each mutant.

use std::{collections::BTreeSet, env, thread};

use hermod_actors::mutants::Mutant;
use hermod_testkit::simulation::{SimulationReport, first_violation};

/// The number of seeds within which each mutant is found.
const SEEDS: u64 = 500;

/// The first seed that has a violation with this mutant, and none without it.
fn find(mutation: Mutant, seeds: u64) -> Option<(u64, SimulationReport)> {
    let mut from = 0;
    loop {
        let (seed, report) = mutation.run_with(|| first_violation(from..seeds))?;
        match first_violation(seed..seed + 1) {
            None => return Some((seed, report)),
            Some((_, sound)) => println!("sound: {:?} of {seed}", sound.violations),
        }
        from = seed + 1;
    }
}

#[test]
fn the_simulation_finds_what_is_planted() {
    let seeds = env::var("HERMOD_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let found = |mutation: Mutant| (mutation, find(mutation, seeds));
    let found = thread::scope(|scope| {
        let threads: Vec<_> =
            Mutant::ALL.into_iter().map(|mutation| scope.spawn(move || found(mutation))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut missed = Vec::new();
    for (mutation, first) in found {
        let Some((seed, report)) = first else {
            missed.push(mutation);
            continue;
        };
        let broken: BTreeSet<_> = report.violations.iter().map(|violation| violation.invariant).collect();
        println!("{mutation:?}: {} seeds; {}", seed + 1, broken.into_iter().collect::<Vec<_>>().join("; "));
    }
    assert!(missed.is_empty(), "not found within {seeds} seeds: {missed:?}");
}
