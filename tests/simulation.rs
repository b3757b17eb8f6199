//! Whole runtimes under seeded schedules of faults, on virtual time: nothing that must hold is violated.
//!
//! `HERMOD_SEEDS=50000 cargo test --release --test simulation` tries more seeds; `HERMOD_SEED=17 cargo test --test simulation
//! -- --nocapture` replays one.
#![allow(clippy::unwrap_used)] // a test ends where it fails

use std::{
    collections::BTreeSet,
    env,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use hermod_actors::{
    model::Kind,
    testkit::simulation::{Plan, WRONGS, shrunk, simulate},
};
use tokio::time::Instant;

/// How many seeds are tried if nothing else is said.
const SEEDS: u64 = 2_000;
/// Seeds that a thread takes at once.
const BLOCK: u64 = 16;

#[test]
fn no_seed_violates_an_invariant() {
    if let Ok(replay) = env::var("HERMOD_SEED") {
        let report = simulate(&replay.parse().unwrap());
        println!("{report}");
        assert!(report.violations.is_empty(), "see above");
        return;
    }
    let seeds = env::var("HERMOD_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (next, failed, began) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    let (failures, reached): (Vec<Vec<Plan>>, Vec<BTreeSet<&str>>) = thread::scope(|scope| {
        let work = || {
            let (mut failures, mut reached) = (Vec::new(), BTreeSet::new());
            while !failed.load(Ordering::Relaxed) {
                let first = next.fetch_add(BLOCK, Ordering::Relaxed);
                for seed in first..(first + BLOCK).min(seeds) {
                    let plan = Plan::of(seed);
                    let report = simulate(&plan);
                    let kinds = report.journals.iter().flat_map(|(_, records)| records);
                    reached.extend(kinds.map(|(_, kind)| kind.name()).chain(report.wrongs));
                    if !report.violations.is_empty() {
                        failed.store(true, Ordering::Relaxed);
                        failures.push(plan);
                    }
                }
                if first + BLOCK >= seeds {
                    break;
                }
            }
            (failures, reached)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
    });
    if let Some(plan) = failures.iter().flatten().next() {
        let shortest = simulate(&shrunk(plan));
        panic!("seed {} fails; what is left of it when it is shrunk:\n{shortest}", plan.seed());
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{seeds} seeds on {threads} threads in {seconds:.1} s");
    let reached: BTreeSet<&str> = reached.into_iter().flatten().collect();
    let wanted: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).chain(WRONGS).collect();
    let (missed, strange): (Vec<_>, Vec<_>) =
        (wanted.difference(&reached).collect(), reached.difference(&wanted).collect());
    assert!(strange.is_empty(), "records and faults that nobody knows: {strange:?}");
    assert!(seeds < SEEDS || missed.is_empty(), "records and faults of which none came about: {missed:?}");
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..40 {
        let [one, other] = [simulate(&Plan::of(seed)), simulate(&Plan::of(seed))];
        assert_eq!(
            (one.digest, one.lives, one.violations),
            (other.digest, other.lives, other.violations),
            "{seed}"
        );
    }
}
