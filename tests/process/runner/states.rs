//! What a kill can leave, on either side, and what a later daemon makes of it.

use super::*;

/// What an attempt is found to be whose folder was left in this state, with the lock free. The ledger tells of a runner if
/// the files do.
async fn check(boot: Boot, files: &[(&str, &[u8])], expected: &str) {
    let started = files.iter().find(|(name, _)| *name == "started").map(|(_, content)| *content);
    let is_revoked = started.is_some_and(|started| started.windows(7).any(|word| word == b"reviver"));
    let pid = started
        .and_then(|started| serde_json::from_slice::<serde_json::Value>(started).ok()?["pid"].as_u64());
    let runner = pid.map_or_else(nobody, |pid| pid.try_into().unwrap());
    let begun = if started.is_some() && !is_revoked { vec![runner] } else { vec![] };
    check_with(&begun, boot, files, expected).await;
}

async fn check_with(begun: &[u32], boot: Boot, files: &[(&str, &[u8])], expected: &str) {
    let place = Place::new();
    place.enter(begun);
    if !files.is_empty() {
        place.lay_out(files);
    }
    // Found so however often it is looked for.
    for _ in 0..2 {
        let left = place.over(boot).await;
        let found = match &left {
            RunnerOutcome::Ended(_) => "ended",
            RunnerOutcome::NeverBegun(_) => "never begun",
            RunnerOutcome::Unknown => "unknown",
            RunnerOutcome::Killed => "killed",
        };
        let names: Vec<_> = files.iter().map(|(name, _)| name).collect();
        assert_eq!(found, expected, "{boot:?} {names:?}");
    }
}

#[tokio::test]
async fn every_state_that_a_kill_can_leave_is_understood() {
    let exit = Place::new().exit_of("echo out").await;
    let zeros = vec![0; exit.len()];
    let torn = [&exit[..exit.len().min(150)], &zeros].concat();
    let dead = started_by(nobody());
    let task: (&str, &[u8]) = ("task", b"{}");
    let lock: (&str, &[u8]) = ("lock", b"");
    let prepared: [(&str, &[u8]); 4] = [task, lock, ("exit", &zeros), ("output", b"")];
    let with = |more: &[(&'static str, Vec<u8>)]| -> Vec<(&'static str, Vec<u8>)> {
        let all = prepared.iter().map(|(name, content)| (*name, content.to_vec()));
        all.chain(more.iter().cloned()).collect()
    };
    let revoked = br#"{"version":1,"by":"reviver"}"#.to_vec();
    let part = |bytes: &[u8]| ("started.runner", bytes.to_vec());
    let started = |bytes: &[u8]| ("started", bytes.to_vec());
    for (files, same, other) in [
        // The daemon was killed in step 1.
        (vec![], "never begun", "unknown"),
        (vec![("lock", vec![])], "never begun", "unknown"),
        (vec![("task", b"{\"ver".to_vec())], "never begun", "unknown"),
        // The runner was killed before or in step 2, in 3, in 4.
        (vec![("task", vec![]), ("lock", vec![])], "never begun", "unknown"),
        (with(&[]), "never begun", "unknown"),
        (with(&[part(b"{\"ver")]), "never begun", "unknown"),
        (with(&[part(&dead)]), "never begun", "unknown"),
        // A reviver was killed in its step 4, and after it.
        (with(&[("started.reviver", b"{".to_vec())]), "never begun", "unknown"),
        (with(&[started(&revoked)]), "never begun", "unknown"),
        // The runner was killed after step 4, in 5, in 6.
        (with(&[started(&dead)]), "unknown", "unknown"),
        (with(&[started(b"")]), "unknown", "unknown"),
        (with(&[started(&dead), ("output", b"ou".to_vec())]), "unknown", "unknown"),
        (with(&[started(&dead), ("exit", torn.clone())]), "unknown", "unknown"),
        (with(&[started(&dead), ("exit", exit[..20].to_vec())]), "unknown", "unknown"),
        // After step 6.
        (with(&[started(&dead), ("exit", exit.clone())]), "ended", "ended"),
    ] {
        let files: Vec<_> = files.iter().map(|(name, content)| (*name, content.as_slice())).collect();
        check(Boot::Same, &files, same).await;
        check(Boot::Other, &files, other).await;
    }
    // The runner was killed between `started` and its entry.
    let between = [task, lock, ("started", &*dead)];
    check_with(&[], Boot::Same, &between, "never begun").await;
    // A power loss took the others.
    check(Boot::Other, &[("exit", &exit)], "ended").await;
}

#[tokio::test]
async fn a_runner_that_comes_late_finds_itself_revoked() {
    let place = Place::wrapped("while [ ! -e go ]; do sleep 0.01; done");
    let watched = place.start("echo once >> ran").await;
    // The daemon was killed here: its runner has not even the lock.
    let revoked = place.over(Boot::Same).await;
    assert!(matches!(revoked, RunnerOutcome::NeverBegun(_)), "{revoked:?}");
    fs::write(place.dir.path().join("go"), "").unwrap();
    let late = end(watched).await;
    assert!(matches!(late, RunnerOutcome::NeverBegun(None)), "{late:?}");
    assert_eq!(place.times_run(), 0);
}

#[tokio::test]
async fn a_runner_whose_folder_is_gone_does_nothing() {
    let place = Place::wrapped("while [ ! -e go ]; do sleep 0.01; done");
    let watched = place.start("echo once >> ran").await;
    fs::remove_dir_all(place.folder()).unwrap();
    fs::write(place.dir.path().join("go"), "").unwrap();
    let late = end(watched).await;
    assert!(matches!(late, RunnerOutcome::NeverBegun(Some(_))), "{late:?}");
    assert_eq!(place.times_run(), 0);
}

#[tokio::test]
async fn a_runner_and_a_reviver_at_once_agree() {
    let (mut begun, mut revoked) = (0, 0);
    let place = Place::new();
    for round in 0..40 {
        fs::remove_dir_all(place.folder()).unwrap_or_default();
        place.enter(&[]);
        drop(place.start("echo once >> ran").await);
        // Each round a little later.
        tokio::time::sleep(Duration::from_micros(250 * round)).await;
        match place.found().await {
            RunnerOutcome::Ended(_) => begun += 1,
            RunnerOutcome::NeverBegun(_) => revoked += 1,
            RunnerOutcome::Unknown | RunnerOutcome::Killed => panic!("round {round}: nothing was killed"),
        }
        // A late one has looked by then.
        until("the runner has ended", || runners(&place).iter().all(|pid| is_gone(*pid)));
        assert_eq!(place.times_run(), begun, "round {round}");
    }
    assert_eq!(begun + revoked, 40);
    assert!(revoked > 0, "the first ones come before their runner");
}

#[tokio::test]
async fn a_runner_that_is_killed_at_any_time_runs_nothing_twice() {
    for round in 0..40 {
        let place = Place::new();
        let watched = place.start("echo once >> ran").await;
        tokio::time::sleep(Duration::from_micros(250 * round)).await;
        if let Some(pid) = runners(&place).first() {
            // It may just have ended.
            kill_process(*pid, Signal::KILL).unwrap_or_default();
        }
        let left = end(watched).await;
        let times = place.times_run();
        match &left {
            RunnerOutcome::Ended(exit) => {
                // Between its fork and its exec the command has the runner's command line, and may have been hit instead.
                let was_hit = matches!(&exit.end, Ok(ran) if ran.signal == Some(9));
                assert!(times == 1 || times == 0 && was_hit, "round {round}: {times}, {exit:?}");
            }
            RunnerOutcome::NeverBegun(_) => assert_eq!(times, 0),
            RunnerOutcome::Unknown => assert!(times <= 1),
            RunnerOutcome::Killed => panic!("nobody stopped it"),
        }
        // What was not begun never will be.
        let again = place.over(Boot::Same).await;
        assert_eq!(
            matches!(left, RunnerOutcome::NeverBegun(_)),
            matches!(again, RunnerOutcome::NeverBegun(_))
        );
    }
}

#[tokio::test]
async fn as_long_as_the_lock_is_held_it_lives_whatever_is_written() {
    let exit = Place::new().exit_of("echo out").await;
    let reused = stranger(None);
    for (started, whole, locked) in [
        (started_by(reused.pid()), true, "task"),
        (started_by(nobody()), true, "lock"),
        (b"".to_vec(), true, "task"),
        (started_by(reused.pid()), false, "lock"),
    ] {
        let place = Place::new();
        place.lay_out(&[("task", b"{}"), ("output", b"out\n"), ("started", &started)]);
        if whole {
            place.lay_out(&[("exit", &exit)]);
        }
        let lock = place.lock(locked);
        let watched = place.alive().await;
        let waited = timeout(Duration::from_millis(50), end(watched)).await;
        assert!(waited.is_err(), "{waited:?}");
        let watched = place.alive().await;
        drop(lock);
        assert_eq!(matches!(end(watched).await, RunnerOutcome::Ended(_)), whole);
    }
    // Who had the pid of a dead one was not touched.
    assert!(!is_gone(Pid::from_raw(reused.pid().try_into().unwrap()).unwrap()));
}

#[tokio::test]
async fn the_pid_of_a_dead_one_is_not_enough_to_be_killed() {
    for variable in [None, Some("another".to_owned()), Some(name().to_string() + "1")] {
        let stranger = stranger(variable);
        check(Boot::Same, &[("started", &started_by(stranger.pid()))], "unknown").await;
        assert!(!is_gone(Pid::from_raw(stranger.pid().try_into().unwrap()).unwrap()));
    }
    // One that carries the name is what is left, on the same boot.
    let mut left = stranger(Some(name().to_string()));
    check(Boot::Other, &[("started", &started_by(left.pid()))], "unknown").await;
    assert!(left.child().try_wait().unwrap().is_none());
    check(Boot::Same, &[("started", &started_by(left.pid()))], "unknown").await;
    assert_eq!(left.child().wait().unwrap().signal(), Some(9));
}
