//! A command that takes away, moves or replaces what is kept of it: it is never told as one that was not begun.

use std::os::unix::fs::symlink;

use super::*;

/// What a command can do to its own traces, in the shell; `$S` is the state directory, `$N` the attempt's name.
const DEEDS: [&str; 21] = [
    "true",
    "rm -rf $S/spool/$N",
    "rm -rf $S/spool",
    "rm $S/spool/$N/started",
    "rm $S/spool/$N/exit",
    "rm $S/spool/$N/output",
    "rm $S/spool/$N/task",
    "rm $S/spool/$N/*",
    "mv $S/spool/$N ../moved",
    "mv $S/spool ../moved",
    "mv $S/spool/$N ../moved; mkdir $S/spool/$N",
    "mv $S/spool/$N ../moved; ln -s $PWD/../moved $S/spool/$N",
    "mv $S/spool/$N ../moved; cp -r ../moved $S/spool/$N",
    "rm $S/spool/$N/exit; ln -s /dev/null $S/spool/$N/exit",
    "for f in started exit task output; do rm $S/spool/$N/$f; mkfifo $S/spool/$N/$f; done",
    "for f in started exit task output; do rm $S/spool/$N/$f; mkdir $S/spool/$N/$f; done",
    ": > $S/begun",
    "rm $S/begun",
    "head -n 1 $S/begun > cut; cat cut > $S/begun",
    "head -n 1 $S/begun > cut; cat cut > $S/begun; rm $S/spool/$N/started",
    "rm -rf $S/spool $S/begun",
];

/// Does that once it has begun, and says more behind it.
fn command(place: &Place, deed: &str) -> String {
    let state = place.dir.path().join("state");
    let written = "while [ ! -e $S/spool/$N/output ]; do sleep 0.01; done";
    format!(
        "S='{}' N={}; echo first; {written}; {{ {deed}; }} && echo $$ >> ran; {AFTER}",
        state.display(),
        name()
    )
}

/// Waits to be released.
const AFTER: &str = "while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done; echo last; exit 3";

fn check_ended(left: RunnerOutcome, deed: &str) {
    let (cause, code, _, out, _) = told(ended(left));
    assert_eq!((cause, code, out.as_str()), (ExitCause::Exit, Some(3), "first\nlast\n"), "{deed}");
}

#[tokio::test]
async fn whoever_waits_for_it_learns_how_it_ended() {
    for deed in DEEDS {
        let place = Place::new();
        let watched = place.start(&command(&place, deed)).await;
        place.begun();
        place.release();
        check_ended(end(watched).await, deed);
        let output = fs::read_to_string(place.file("output")).unwrap();
        assert_eq!(output, "first\nlast\n", "{deed}");
        // And so it is found later.
        check_ended(place.over(Boot::Same).await, deed);
        assert_eq!(place.times_run(), 1, "{deed}");
    }
}

#[tokio::test]
async fn a_later_daemon_finds_it_under_way_or_in_doubt_and_never_not_begun() {
    for deed in DEEDS {
        let place = Place::new();
        drop(place.start(&command(&place, deed)).await);
        place.begun();
        let found = place.attach(Boot::Same).await;
        let runs_on = matches!(&found, AttachedRunner::Alive(_));
        // Without lock and ledger nothing tells that it lives.
        assert!(runs_on || deed.contains("$S/spool $S/begun"), "{deed}: {found:?}");
        place.release();
        match found {
            AttachedRunner::Alive(watched) => check_ended(end(*watched).await, deed),
            AttachedRunner::Over(left) => assert!(matches!(left, RunnerOutcome::Unknown), "{deed}: {left:?}"),
        }
        assert_eq!(place.times_run(), 1, "{deed}");
    }
}

#[tokio::test]
async fn a_killed_one_is_in_doubt_whatever_it_removed_before() {
    for deed in DEEDS {
        let place = Place::new();
        let mut watched = Some(place.start(&command(&place, deed)).await);
        place.begun();
        let runner = *runners(&place).first().unwrap();
        for is_watched in [true, false] {
            if is_watched {
                kill_process(runner, Signal::KILL).unwrap();
                let left = end(watched.take().unwrap()).await;
                assert!(matches!(left, RunnerOutcome::Unknown), "{deed}: {left:?}");
            } else {
                let left = place.found().await;
                assert!(matches!(left, RunnerOutcome::Unknown), "{deed}: {left:?}");
            }
        }
        // What was left of the command is gone, where its session is still known.
        if !deed.contains("$S/begun") || deed == "rm $S/begun" || deed == ": > $S/begun" {
            until("the command is gone", || is_gone(place.pid("ran")));
        }
        place.release();
        assert_eq!(place.times_run(), 1, "{deed}");
    }
}

#[tokio::test]
async fn a_stop_and_a_sweep_reach_it_all_the_same() {
    for deed in ["rm -rf $S/spool/$N", "rm -rf $S/spool", "mv $S/spool ../moved"] {
        let place = Place::new();
        drop(place.start(&command(&place, deed)).await);
        place.begun();
        assert_eq!(place.runner.running_commands().unwrap().len(), 1, "{deed}");
        let left = stop(place.alive().await).await;
        assert_eq!(told(ended(left)).0, ExitCause::Cancel, "{deed}");
        let place = Place::new();
        drop(place.start(&command(&place, deed)).await);
        place.begun();
        timeout(SOON, place.runner.sweep(|_| false)).await.unwrap();
        assert!(is_gone(place.pid("ran")), "{deed}");
        let place = Place::new();
        drop(place.start(&command(&place, deed)).await);
        place.begun();
        place.runner.forget(name());
        timeout(SOON, place.runner.wait_cleared()).await.unwrap();
        assert!(is_gone(place.pid("ran")), "{deed}");
    }
}

#[tokio::test]
async fn what_was_never_laid_out_is_only_known_by_a_ledger_that_is_older() {
    let place = Place::new();
    place.enter(&[]);
    assert!(matches!(place.over(Boot::Same).await, RunnerOutcome::NeverBegun(None)));
    for ledger in [None, Some(""), Some("hermod-begun 1 99999999999999999\n"), Some("hermod-begun 3 0\n")] {
        let place = Place::new();
        fs::create_dir(place.dir.path().join("state")).unwrap();
        if let Some(ledger) = ledger {
            fs::write(place.ledger(), ledger).unwrap();
        }
        let left = place.over(Boot::Same).await;
        assert!(matches!(left, RunnerOutcome::Unknown), "{ledger:?}: {left:?}");
    }
}

#[tokio::test]
async fn the_end_of_another_attempt_is_not_taken_for_its_own() {
    let place = Place::new();
    let exit = place.exit_of("echo other").await;
    let other = SpoolName { attempt: 2, ..name() };
    place.enter(&[]);
    let folder = place.spool().join(other.to_string());
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("exit"), exit).unwrap();
    fs::write(folder.join("started"), started_by(nobody())).unwrap();
    let text = format!("hermod-begun 1 0000000000000\n{other} {}\n", nobody());
    fs::write(place.ledger(), text).unwrap();
    let found = place.runner.attach(other, Boot::Same).await;
    assert!(matches!(found, AttachedRunner::Over(RunnerOutcome::Unknown)), "{found:?}");
    // A spool that was moved elsewhere and linked is the same.
    let place = Place::new();
    place.left_alone().await;
    let moved = place.dir.path().join("moved");
    fs::rename(place.spool(), &moved).unwrap();
    symlink(&moved, place.spool()).unwrap();
    let watched = place.alive().await;
    place.release();
    ended(end(watched).await);
}
