//! A command from its start to its end, watched or alone.

use super::*;

#[tokio::test]
async fn a_command_is_told_as_it_ended() {
    for (command, expected) in [
        ("echo out; echo err >&2; exit 3", (ExitCause::Exit, Some(3), None, "out\n", "err\n")),
        ("kill -KILL $$", (ExitCause::Exit, None, Some(9), "", "")),
        ("cat; echo done", (ExitCause::Exit, Some(0), None, "done\n", "")),
    ] {
        let place = Place::new();
        let exit = ended(end(place.start(command).await).await);
        let both = exit.inline_output.len();
        let (cause, code, signal, out, err) = told(exit);
        assert_eq!((cause, code, signal, out.as_str(), err.as_str()), expected, "{command}");
        assert_eq!(both, out.len() + err.len());
        assert!(!place.file("output").exists(), "it is short");
        // And so it is found later, on whatever boot.
        for boot in [Boot::Same, Boot::Other] {
            assert_eq!(told(ended(place.over(boot).await)).1, code);
        }
    }
}

#[tokio::test]
async fn it_sees_the_clean_environment_and_its_name_and_no_terminal() {
    let place = Place::new();
    let command = "env; ps -o sid=,pgid= -p $$ | { read s p; [ $s != $p ] && echo own-group; }; tty";
    let (_, _, _, out, _) = told(ended(end(place.start(command).await).await));
    let allowed = [
        "PATH", "HOME", "LANG", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL",
        "_", VARIABLE,
    ];
    let names: Vec<_> = out.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let names: Vec<_> = names.into_iter().filter(|name| !name.starts_with("LC_")).collect();
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(out.contains(&format!("{VARIABLE}={}\n", name())) && out.contains("own-group"), "{out}");
    assert!(out.ends_with("not a tty\n"), "{out}");
    // Nobody else may look.
    for path in [place.spool(), place.folder()] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[tokio::test]
async fn what_the_system_does_not_run_is_told() {
    let place = Place::new();
    let command = Command { program: "/does/not/exist".into(), ..place.command("") };
    let watched = place.runner.start(name(), command).await.unwrap();
    assert!(ended(end(watched).await).end.unwrap_err().contains("No such file"), "it says why");
}

#[tokio::test]
async fn it_goes_on_alone_and_is_found_again() {
    let place = Place::new();
    place.left_alone().await;
    // Found, left, and found again; then it ends while it is watched.
    drop(place.alive().await);
    let watched = place.alive().await;
    place.release();
    let (cause, code, _, out, _) = told(ended(end(watched).await));
    assert_eq!((cause, code, out.as_str()), (ExitCause::Exit, Some(0), "begun\nreleased\n"));
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn it_ends_at_its_deadline_though_nobody_comes_back() {
    let place = Place::new();
    let command = Command { timeout: Duration::from_millis(300), ..place.command(WAITS) };
    drop(place.runner.start(name(), command).await.unwrap());
    place.begun();
    let pid = place.pid("ran");
    until("the command is ended", || is_gone(pid));
    until("the runner has ended", || {
        fs::read(place.file("exit")).is_ok_and(|exit| exit.starts_with(b"hermod-exit"))
    });
    assert_eq!(told(ended(place.found().await)).0, ExitCause::Timeout);
}

#[tokio::test]
async fn a_stop_ends_it_whoever_asks() {
    let command = format!("trap 'echo cleaned; exit 7' TERM; {WAITS}");
    for found_again in [false, true] {
        let place = Place::new();
        let mut watched = place.start(&command).await;
        place.begun();
        if found_again {
            drop(watched);
            watched = place.alive().await;
        }
        let start = Instant::now();
        let (cause, code, _, out, _) = told(ended(stop(watched).await));
        assert_eq!((cause, code, out.as_str()), (ExitCause::Cancel, Some(7), "begun\ncleaned\n"));
        assert!(start.elapsed() < STOP_TIMEOUT, "{:?}", start.elapsed());
        assert!(is_gone(place.pid("ran")));
    }
}

#[tokio::test]
async fn a_stop_kills_a_runner_that_does_not_answer_and_all_that_it_started() {
    for found_again in [false, true] {
        let place = Place::new();
        let mut watched = place.start(&format!("(sleep 1000 & echo $! > child); {WAITS}")).await;
        place.begun();
        if found_again {
            drop(watched);
            watched = place.alive().await;
        }
        kill_process(place.runner_pid(), Signal::STOP).unwrap();
        let left = stop(watched).await;
        assert!(matches!(left, RunnerOutcome::Killed), "{left:?}");
        for pid in [place.pid("ran"), place.pid("child"), place.runner_pid()] {
            until("it is gone", || is_gone(pid));
        }
    }
}

#[tokio::test]
async fn a_killed_runner_leaves_nothing_and_nothing_is_known() {
    for while_watched in [false, true] {
        let place = Place::new();
        let watched = place.start(&format!("(sleep 1000 & echo $! > child); {WAITS}")).await;
        place.begun();
        let runner = place.runner_pid();
        let left = if while_watched {
            kill_process(runner, Signal::KILL).unwrap();
            end(watched).await
        } else {
            drop(watched);
            kill_process(runner, Signal::KILL).unwrap();
            until("the runner is gone", || is_gone(runner));
            place.found().await
        };
        assert!(matches!(left, RunnerOutcome::Unknown), "{left:?}");
        for pid in [place.pid("ran"), place.pid("child")] {
            until("it is gone", || is_gone(pid));
        }
    }
}

#[tokio::test]
async fn who_leaves_the_session_is_a_stranger_and_who_leaves_the_name_is_not() {
    let place = Place::new();
    let start =
        "setsid sh -c 'echo $$ > away; exec sleep 1000' & env -i sh -c 'echo $$ > other; exec sleep 1000' &";
    drop(
        place
            .start(&format!("{start} while ! [ -s away ] || ! [ -s other ]; do sleep 0.01; done; {WAITS}"))
            .await,
    );
    place.begun();
    let runner = place.runner_pid();
    kill_process(runner, Signal::KILL).unwrap();
    assert!(matches!(place.found().await, RunnerOutcome::Unknown));
    for path in ["ran", "other"] {
        until("the command is gone", || is_gone(place.pid(path)));
    }
    let away = place.pid("away");
    assert!(!is_gone(away));
    kill_process(away, Signal::KILL).unwrap();
}

#[tokio::test]
async fn where_nobody_has_the_name_nobody_is_killed() {
    let place = Place::new();
    let command = format!("exec env -i /bin/sh -c '{WAITS}'");
    drop(place.start(&command).await);
    until("it says so", || fs::read(place.file("output")).is_ok_and(|output| output == b"begun\n"));
    kill_process(place.runner_pid(), Signal::KILL).unwrap();
    assert!(matches!(place.found().await, RunnerOutcome::Unknown));
    assert!(!is_gone(place.pid("ran")));
    place.release();
    until("it ends by itself", || is_gone(place.pid("ran")));
}

#[tokio::test]
async fn a_runner_that_misses_its_deadline_is_ended_with_its_command() {
    for answers in [true, false] {
        let place = Place::new();
        place.left_alone().await;
        let watched = place.alive().await;
        assert_eq!(watched.timeout().await, Some(SOON), "as the command was started");
        if !answers {
            kill_process(place.runner_pid(), Signal::STOP).unwrap();
        }
        let limit = Duration::from_millis(50);
        let left = timeout(SOON, watched.wait_within(limit, &CancellationToken::new())).await.unwrap();
        match left {
            RunnerOutcome::Ended(exit) => assert_eq!((told(*exit).0, answers), (ExitCause::Timeout, true)),
            RunnerOutcome::Unknown => assert!(!answers),
            RunnerOutcome::NeverBegun(_) | RunnerOutcome::Killed => panic!("{left:?}"),
        }
        until("it is gone", || is_gone(place.pid("ran")));
    }
}

#[tokio::test]
async fn a_command_that_ended_while_its_runner_was_stopped_is_told_as_it_ended() {
    let place = Place::new();
    let limit = Duration::from_secs(1);
    let command =
        Command { timeout: limit, ..place.command("echo $$ >> ran; echo out; sleep 0.3; echo last; exit 3") };
    let watched = place.runner.start(name(), command).await.unwrap();
    place.begun();
    let (runner, command) = (place.runner_pid(), place.pid("ran"));
    kill_process(runner, Signal::STOP).unwrap();
    until("the command ends", || is_gone(command));
    // Longer than the command may take.
    tokio::time::sleep(2 * limit).await;
    kill_process(runner, Signal::CONT).unwrap();
    let (cause, code, _, out, _) = told(ended(end(watched).await));
    assert_eq!((cause, code, out.as_str()), (ExitCause::Exit, Some(3), "out\nlast\n"));
}
