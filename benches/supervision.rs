//! What comes of faults, as a table: kind × (panic, error, freeze), what happened, and the time to the next progress.
//!
//! `cargo bench --bench supervision`. Faults that wait for a limit are played on virtual time, and marked so; of the others
//! the median of several is shown.

use std::time::Duration;

use hermod_testkit::{FAULT_SCENARIOS, FaultScenario, NO_FREEZE, ObservedOutcome};
use tokio::runtime::Builder;

/// Times that a drill is done.
const TIMES: usize = 9;

/// Does a drill often enough, and gives the one of median length.
fn median(drill: &FaultScenario, times: usize) -> ObservedOutcome {
    let mut seen: Vec<ObservedOutcome> = (0..times).map(|_| once(drill)).collect();
    seen.sort_by_key(|seen| seen.progress);
    seen.remove(times / 2)
}

fn once(drill: &FaultScenario) -> ObservedOutcome {
    let runtime = match drill.waits {
        true => Builder::new_current_thread().enable_all().start_paused(true).build(),
        false => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    runtime.expect("a runtime").block_on(drill.run())
}

fn print(drill: &FaultScenario, seen: &ObservedOutcome) {
    let FaultScenario { kind, fault, how, what, .. } = drill;
    let restarted = match &seen.restarted[..] {
        [] => "–".to_owned(),
        restarted => {
            let each = restarted.iter().map(|(part, times)| format!("{part} × {times}"));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    let siblings = match seen.siblings.iter().all(|outcome| outcome == "completed") {
        true => "go on",
        false => "DISTURBED",
    };
    let ended = seen.terminated.as_ref().map(|reason| format!("; runtime: {reason}")).unwrap_or_default();
    let (progress, outcome) = (time(seen.progress, drill.waits), &seen.outcome);
    println!(
        "| {kind} | {fault} | {how} | {what}{ended} | {restarted} | {outcome} | {siblings} | {progress} |"
    );
}

fn time(time: Duration, is_virtual: bool) -> String {
    match time {
        _ if is_virtual => format!("{:.1} s (virtual)", time.as_secs_f64()),
        time if time < Duration::from_millis(1) => format!("{} µs", time.as_micros()),
        time => format!("{:.1} ms", time.as_secs_f64() * 1e3),
    }
}

fn main() {
    // The panics are wanted.
    std::panic::set_hook(Box::new(|_| {}));
    // A test only sees that it works.
    let times = if std::env::args().any(|argument| argument == "--bench") { TIMES } else { 1 };
    println!(
        "| kind | fault | how | what happens | started again | its run | siblings | to the next progress |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (at, drill) in FAULT_SCENARIOS.iter().enumerate() {
        print(drill, &median(drill, if drill.waits { 1 } else { times }));
        let is_last = FAULT_SCENARIOS.get(at + 1).is_none_or(|next| next.kind != drill.kind);
        if let Some((kind, why)) = NO_FREEZE.iter().find(|(kind, _)| is_last && *kind == drill.kind) {
            println!("| {kind} | freeze | – | no input can bring it about: {why} | – | – | – | – |");
        }
    }
}
