//! Whole runtimes under seeded schedules of faults, on virtual time: no invariant is violated.
//!
//! `just simulation 50000` tries more seeds, `just simulation 2000..50000` those from 2,000 on. `HERMOD_SEED=17 cargo
//! test --test runtime simulation:: -- --nocapture` replays one.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use hermod_actors::model::Kind;
use hermod_testkit::simulation::{FAULT_NAMES, SimulationPlan, shrink, simulate};
use tokio::time::Instant;

/// The default number of seeds.
const SEEDS: u64 = 1_000;
/// With at least this many seeds, every fault and every kind of record must occur. With fewer, this is required of the
/// default seeds only, which are always the same.
const CERTAIN: u64 = 20_000;
/// Seeds that a thread takes at once.
const BLOCK: u64 = 16;

/// Totals of the reports of seeds.
#[derive(Debug, Default)]
struct Seen {
    seeds: u64,
    failures: Vec<SimulationPlan>,
    /// The number of seeds in which each kind of record and each planned fault occurred.
    reached: BTreeMap<&'static str, u64>,
    /// The number of seeds with a fault.
    faulty: u64,
}

impl Seen {
    /// Simulates a seed and adds its report; true if no invariant is violated.
    fn sees(&mut self, seed: u64) -> bool {
        let plan = SimulationPlan::of(seed);
        let report = simulate(&plan);
        let is_sound = report.violations.is_empty();
        self.seeds += 1;
        self.faulty += u64::from(!report.fault_names.is_empty());
        let kinds = report.journals.iter().flat_map(|(_, records)| records);
        let met: BTreeSet<_> = kinds.map(|(_, kind)| kind.name()).chain(report.fault_names).collect();
        self.reaches(met.into_iter().map(|what| (what, 1)));
        if !is_sound {
            self.failures.push(plan);
        }
        is_sound
    }

    fn reaches(&mut self, what: impl Iterator<Item = (&'static str, u64)>) {
        what.for_each(|(what, times)| *self.reached.entry(what).or_default() += times);
    }

    fn and(mut self, other: Self) -> Self {
        self.failures.extend(other.failures);
        self.reaches(other.reached.into_iter());
        Self { seeds: self.seeds + other.seeds, faulty: self.faulty + other.faulty, ..self }
    }
}

/// The seeds that `HERMOD_SEEDS` names: a number of them, or a range.
fn seeds(text: &str) -> Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let seeds = match text.split_once("..") {
        Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| from..to),
        None => number(text).map(|seeds| 0..seeds),
    };
    let seeds = seeds.filter(|seeds| !seeds.is_empty());
    seeds.unwrap_or_else(|| {
        panic!("HERMOD_SEEDS is `{text}`; write a number, as 50000, or a range, as 2000..50000")
    })
}

/// Simulates the seeds on this number of threads, until one fails.
fn try_all(seeds: &Range<u64>, threads: usize) -> Seen {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        let mut seen = Seen::default();
        while !failed.load(Ordering::Relaxed) {
            let first = next.fetch_add(BLOCK, Ordering::Relaxed);
            for seed in first..(first + BLOCK).min(seeds.end) {
                if !seen.sees(seed) {
                    failed.store(true, Ordering::Relaxed);
                }
            }
            if first + BLOCK >= seeds.end {
                break;
            }
        }
        seen
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(Seen::default(), Seen::and)
    })
}

#[test]
fn no_seed_violates_an_invariant() {
    if let Ok(replay) = env::var("HERMOD_SEED") {
        let report = simulate(&replay.parse().unwrap());
        println!("{report}");
        assert!(report.violations.is_empty(), "see above");
        return;
    }
    let seeds = env::var("HERMOD_SEEDS").map_or(0..SEEDS, |text| seeds(&text));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let seen = try_all(&seeds, threads);
    if let Some(plan) = seen.failures.first() {
        let numbers: Vec<u64> = seen.failures.iter().map(SimulationPlan::seed).collect();
        let shortest = simulate(&shrink(plan));
        panic!("seeds {numbers:?} fail; what is left of the first when it is shrunk:\n{shortest}");
    }
    let wanted: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).chain(FAULT_NAMES).collect();
    let reached: BTreeSet<&str> = seen.reached.keys().copied().collect();
    let (missed, strange): (Vec<_>, Vec<_>) =
        (wanted.difference(&reached).collect(), reached.difference(&wanted).collect());
    let rarest = seen.reached.iter().min_by_key(|(_, times)| **times);
    let (seconds, tried) = (began.elapsed().as_secs_f64(), u32::try_from(seen.seeds).unwrap());
    println!(
        "{tried} seeds on {threads} threads in {seconds:.1} s, {:.0} a second; in {} of them something went wrong as planned; \
         {} of {} kinds of records and faults were met, the rarest in {rarest:?}",
        f64::from(tried) / seconds,
        seen.faulty,
        wanted.len() - missed.len(),
        wanted.len(),
    );
    assert!(strange.is_empty(), "records and faults that nobody knows: {strange:?}");
    let is_asked = (seeds.start == 0 && seeds.end >= SEEDS) || seen.seeds >= CERTAIN;
    assert!(!is_asked || missed.is_empty(), "records and faults of which none came about: {missed:?}");
}

#[test]
fn seeds_are_a_number_or_a_range() {
    assert_eq!(seeds("50000"), 0..50_000);
    assert_eq!(seeds("2000..20000"), 2_000..20_000);
    for wrong in ["", "many", "0", "7..7", "9..", "..9", "9..8", "1..2..3"] {
        assert!(std::panic::catch_unwind(|| seeds(wrong)).is_err(), "`{wrong}`");
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..40 {
        let [one, other] = [simulate(&SimulationPlan::of(seed)), simulate(&SimulationPlan::of(seed))];
        assert_eq!(
            (one.digest, one.lives, one.violations),
            (other.digest, other.lives, other.violations),
            "{seed}"
        );
    }
}
