//! What ends with a command, and the limits of what it may use.

use std::{fs, time::Duration};

use hermod::process::{runner::RunnerOutcome, sandbox::SandboxLimits};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::timeout;

use super::{Cell, HERMOD, SOON, name};
use crate::running::until;

/// Starts a process that has left its group and session, and whose parent has ended.
const ESCAPE: &str = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > escaped.part; mv escaped.part escaped; while :; do sleep 1; done' \
     >/dev/null 2>&1 &) ; while [ ! -e escaped ]; do sleep 0.01; done";

fn escaped(cell: &Cell) -> Pid {
    Pid::from_raw(cell.text("work/escaped").trim().parse().unwrap()).unwrap()
}

/// A zombie, which its new parent has not reaped yet, has ended as well.
fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.contains(") Z ")
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_process_that_left_its_session_ends_with_its_command() {
    let cell = Cell::new();
    cell.allows(ESCAPE).await;
    until("it ends", || has_ended(escaped(&cell)));
    fs::remove_file(cell.at("work/escaped")).unwrap();
    assert_eq!(cell.run_detached(ESCAPE).await.code, Some(0));
    assert!(has_ended(escaped(&cell)), "the runner ends after it");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_process_that_left_its_session_ends_with_a_stop() {
    let cell = Cell::new();
    let script = format!("{ESCAPE}; sleep 1000");
    let stop = async {
        while !super::exists(&cell.at("work/escaped")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cell.cancel.cancel();
    };
    let (end, ()) = tokio::join!(cell.run_detached(&script), stop);
    assert_ne!(end.code, Some(0));
    assert!(has_ended(escaped(&cell)));
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_process_that_left_its_session_ends_with_a_dropped_command() {
    let cell = Cell::new();
    let script = format!("{ESCAPE}; sleep 1000");
    let started = async {
        while !super::exists(&cell.at("work/escaped")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = cell.run(&script) => panic!("{end:?}"),
        () = started => {}
    }
    until("it ends", || has_ended(escaped(&cell)));
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn without_a_sandbox_a_runner_ends_what_left_its_session() {
    let mut cell = Cell::new();
    cell.is_on = false;
    assert_eq!(cell.run_detached(ESCAPE).await.code, Some(0));
    assert!(has_ended(escaped(&cell)), "the runner ends after it");
}

/// The owner finds the process by its environment.
#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn what_left_the_session_of_a_killed_runner_is_ended() {
    let cell = Cell::new();
    let runner = cell.start(HERMOD.as_ref(), &format!("{ESCAPE}; sleep 1000")).await;
    until("it leaves", || super::exists(&cell.at("work/escaped")));
    let started = cell.text(&format!("state/spool/{}/started", name()));
    let pid = serde_json::from_str::<serde_json::Value>(&started).unwrap()["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    let end = timeout(SOON, runner.wait(&cell.cancel)).await.unwrap();
    assert!(matches!(end, RunnerOutcome::Unknown), "{end:?}");
    until("it ends", || has_ended(escaped(&cell)));
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn limits_hold() {
    let mut cell = Cell::new();
    cell.rules.limits.file_size = Some(1 << 20);
    cell.rules.limits.open_files = Some(64);
    cell.rules.limits.memory = Some(512 << 20);
    cell.rules.limits.cpu_seconds = Some(1);
    for script in [
        "head -c 2000000 /dev/zero > big",
        "ulimit -n 65",
        "ulimit -f unlimited",
        "ulimit -c 1",
        "python3 -c 'x = bytearray(600 << 20)'",
        "while :; do :; done",
    ] {
        let end = cell.run_detached(script).await;
        assert_ne!(end.code, Some(0), "{script}: {end:?}");
        fs::remove_dir_all(cell.at("state/spool")).unwrap();
    }
    assert_eq!(fs::metadata(cell.at("work/big")).unwrap().len(), 1 << 20);
    cell.rules.limits = SandboxLimits::default();
    let end = cell.run_detached("ulimit -n 65 && python3 -c 'x = bytearray(600 << 20)'").await;
    assert_eq!(end.code, Some(0), "{end:?}");
}
