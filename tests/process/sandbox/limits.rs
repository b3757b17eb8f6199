//! The limits of a command and its runner, which writes files of its own.

use super::*;

async fn check(cell: &Cell, runner: &Runner, attempt: u32, script: &str) -> Ended {
    let started = runner.start(SpoolName { attempt, ..name() }, cell.command(script)).await.unwrap();
    match timeout(SOON, started.wait(&cell.cancel)).await.expect("it ends soon") {
        RunnerOutcome::Ended(exit) => ended(exit.end.expect("it starts")),
        other @ (RunnerOutcome::NeverBegun(_) | RunnerOutcome::Unknown | RunnerOutcome::Killed) => {
            panic!("{attempt}: {other:?}")
        }
    }
}

#[tokio::test]
async fn a_small_limit_of_files_costs_no_outcome() {
    let mut cell = Cell::new();
    cell.rules.limits.file_size = Some(10_000);
    let runner = Runner::new(HERMOD, &cell.at("state"));
    for attempt in 1..=3 {
        let end = check(&cell, &runner, attempt, "head -c 100000 /dev/zero | tr '\\0' x").await;
        assert!(end.code == Some(0) && end.stdout.len() > 10_000, "{attempt}: {:?}", end.code);
    }
}

#[tokio::test]
async fn a_long_ledger_does_not_keep_the_next_command_of_a_run_from_starting() {
    let mut cell = Cell::new();
    cell.rules.limits.file_size = Some(1 << 20);
    let runner = Runner::new(HERMOD, &cell.at("state"));
    for attempt in 1..=3 {
        assert_eq!(check(&cell, &runner, attempt, "echo out").await.stdout, "out\n", "{attempt}");
        if attempt == 1 {
            let ledger = cell.at("state/begun");
            fs::write(&ledger, cell.text("state/begun") + &"\n".repeat(2 << 20)).unwrap();
        }
    }
}
