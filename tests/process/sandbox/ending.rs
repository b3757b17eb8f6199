//! What ends with a command, and the limits of what it may use.

use std::{fs, time::Duration};

use hermod::process::sandbox::SandboxLimits;
use rustix::process::{Pid, test_kill_process};

use super::Cell;
use crate::running::until;

/// Starts a process that has left its group and session, and whose parent has ended.
const ESCAPE: &str =
    "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > escaped.part; mv escaped.part escaped; while :; do sleep 1; done' \
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
async fn a_process_that_left_its_session_ends_with_its_command() {
    let cell = Cell::new();
    cell.allows(ESCAPE).await;
    until("it ends", || has_ended(escaped(&cell)));
    fs::remove_file(cell.at("work/escaped")).unwrap();
    assert_eq!(cell.run_detached(ESCAPE).await.code, Some(0));
    assert!(has_ended(escaped(&cell)), "the runner ends after it");
}

#[tokio::test]
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
