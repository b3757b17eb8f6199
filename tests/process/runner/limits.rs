//! Full disks and much output.

use super::*;

#[tokio::test]
async fn where_nothing_can_be_kept_nothing_is_run() {
    // No folder.
    let place = Place::new();
    fs::write(place.dir.path().join("state"), "in the way").unwrap();
    place.runner.start(name(), place.command("echo once >> ran")).await.unwrap_err();
    assert_eq!(place.times_run(), 0);
    // No room for `exit`: a file may have 8 kB.
    let place = Place::wrapped("ulimit -f 16");
    let left = end(place.start("echo once >> ran").await).await;
    let RunnerOutcome::NeverBegun(Some(reason)) = &left else { panic!("{left:?}") };
    assert_eq!(reason.kind(), std::io::ErrorKind::FileTooLarge);
    assert_eq!(place.times_run(), 0);
    let again = place.over(Boot::Same).await;
    assert!(matches!(again, RunnerOutcome::NeverBegun(_)), "{again:?}");
    // No program.
    let place = Place::with(|dir| dir.join("none"));
    place.runner.start(name(), place.command("echo once >> ran")).await.unwrap_err();
    assert!(matches!(place.over(Boot::Same).await, RunnerOutcome::NeverBegun(_)));
}

#[tokio::test]
async fn a_full_disk_ends_no_command_and_is_counted() {
    // A file may have a megabyte, as if the disk were full then.
    let place = Place::wrapped("ulimit -f 2048");
    let exit = ended(end(place.start("yes | head -c 3000000; echo done; exit 5").await).await);
    let kept = exit.output;
    assert_eq!(fs::metadata(place.file("output")).unwrap().len(), kept.bytes);
    assert_eq!(kept.bytes + kept.left_out, 3_000_005);
    assert!(kept.bytes > 0 && kept.left_out > 1_000_000, "{kept:?}");
    let (cause, code, _, out, _) = told(exit);
    assert_eq!((cause, code), (ExitCause::Exit, Some(5)));
    assert!(out.ends_with("y\ndone\n"));
}

/// The most memory that a process has had, in kilobytes.
fn peak(pid: impl std::fmt::Display) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_hundred_megabytes_take_little_memory_on_both_sides() {
    let place = Place::new();
    let before = peak("self");
    let watched = place.start(&format!("yes 0123456789 | head -c 100000000; {WAITS}")).await;
    let (tee, mut pieces) = Tee::new();
    let output = place.runner.output(name());
    let cancel = CancellationToken::new();
    let over = follow(watched.wait(&cancel), &output, tee);
    let take = async {
        let (mut total, mut of_runner) = (0, 0);
        while let Some(piece) = pieces.recv().await {
            total += piece.bytes.len();
            if total > 100_000_000 && of_runner == 0 {
                of_runner = peak(place.runner_pid());
                place.release();
            }
        }
        (total, of_runner)
    };
    let (left, (total, of_runner)) =
        timeout(Duration::from_mins(2), async { tokio::join!(over, take) }).await.unwrap();
    assert_eq!(total, 100_000_000 + "begun\nreleased\n".len());
    assert_eq!(ended(left).output.left_out, 0);
    let grown = peak("self") - before;
    assert!(grown < 32 << 10, "{grown} kB more here");
    assert!(of_runner < 64 << 10, "{of_runner} kB there");
}
