//! The fork server: it may be killed, stopped or left by its owner at any time.

use super::*;

/// The fork server of a place.
fn fork_server(place: &Place) -> Pid {
    fork_servers(place).pop().expect("it runs")
}

#[tokio::test]
async fn a_killed_one_takes_no_command_with_it_and_is_replaced() {
    let place = Place::new();
    let watched = place.start(WAITS).await;
    place.begun();
    let server = fork_server(&place);
    kill_process(server, Signal::KILL).unwrap();
    until("it is gone", || is_gone(server));
    let other = SpoolName { attempt: 2, ..name() };
    let second = place.runner.start(other, place.command("echo second")).await.unwrap();
    assert_eq!(told(ended(end(second).await)).3, "second\n");
    assert_ne!(fork_server(&place), server);
    place.release();
    assert_eq!(told(ended(end(watched).await)).3, "begun\nreleased\n");
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn a_request_that_a_killed_one_has_not_served_is_made_again() {
    let place = Place::new();
    place.start_server().await;
    let server = fork_server(&place);
    kill_process(server, Signal::STOP).unwrap();
    let other = SpoolName { attempt: 2, ..name() };
    let watched = place.runner.start(other, place.command("echo once | tee -a ran")).await.unwrap();
    kill_process(server, Signal::KILL).unwrap();
    assert_eq!(told(ended(end(watched).await)).3, "once\n");
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn one_that_does_not_answer_is_replaced() {
    let place = Place::new();
    place.start_server().await;
    let server = fork_server(&place);
    kill_process(server, Signal::STOP).unwrap();
    let other = SpoolName { attempt: 2, ..name() };
    let watched = place.runner.start(other, place.command("echo once | tee -a ran")).await.unwrap();
    assert_eq!(told(ended(end(watched).await)).3, "once\n");
    // The runner of the late one finds the attempt taken.
    kill_process(server, Signal::CONT).unwrap();
    until("the late one has ended", || is_gone(server));
    until("no runner is left", || runners(&place).is_empty());
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn one_that_does_not_answer_is_replaced_also_if_its_socket_is_full() {
    let place = Place::new();
    place.start_server().await;
    let server = fork_server(&place);
    kill_process(server, Signal::STOP).unwrap();
    let all = (2..10).map(|attempt| {
        let variables = vec![("X".into(), "x".repeat(100_000).into())];
        let command = Command { variables, ..place.command("echo once >> ran") };
        let started = place.runner.start(SpoolName { attempt, ..name() }, command);
        async { ended(end(timeout(SOON, started).await.expect("it starts soon").unwrap()).await) }
    });
    futures::future::join_all(all).await;
    assert_eq!(place.times_run(), 8);
    kill_process(server, Signal::CONT).unwrap();
    until("the late one has ended", || is_gone(server));
}

#[tokio::test]
async fn a_stop_does_not_wait_for_one_that_does_not_answer() {
    let place = Place::new();
    place.start_server().await;
    let server = fork_server(&place);
    kill_process(server, Signal::STOP).unwrap();
    let other = SpoolName { attempt: 2, ..name() };
    let watched = place.runner.start(other, place.command("echo once >> ran")).await.unwrap();
    let start = Instant::now();
    let left = stop(watched).await;
    assert!(matches!(left, RunnerOutcome::NeverBegun(_)), "{left:?}");
    assert!(start.elapsed() < 2 * STOP_TIMEOUT, "{:?}", start.elapsed());
    // The late runner finds the attempt revoked.
    kill_process(server, Signal::CONT).unwrap();
    let third = SpoolName { attempt: 3, ..name() };
    let watched = place.runner.start(third, place.command("echo third")).await.unwrap();
    assert_eq!(told(ended(end(watched).await)).3, "third\n");
    until("no runner is left", || runners(&place).is_empty());
    assert_eq!(place.times_run(), 0);
}

#[tokio::test]
async fn it_ends_with_its_owner_and_its_runners_do_not() {
    let mut place = Place::new();
    place.left_alone().await;
    let (server, runner) = (fork_server(&place), place.runner_pid());
    let state = place.dir.path().join("state");
    place.runner = Runner::new(HERMOD, &state);
    until("the fork server has ended", || is_gone(server));
    assert!(!is_gone(runner));
    let watched = place.alive().await;
    place.release();
    assert_eq!(told(ended(end(watched).await)).3, "begun\nreleased\n");
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn further_variables_reach_the_command_and_no_file() {
    let place = Place::new();
    let variables = vec![("DEPLOY_TOKEN".into(), "hunter2 ä\n=x".into())];
    let command = Command {
        variables,
        ..place.command("printf %s \"$DEPLOY_TOKEN\"; while [ ! -e release ]; do sleep 0.02; done")
    };
    let watched = place.runner.start(name(), command).await.unwrap();
    until("it writes", || place.file("output").exists());
    assert!(!String::from_utf8_lossy(&fs::read(place.file("task")).unwrap()).contains("hunter2"));
    let environment = fs::read(format!("/proc/{}/environ", place.runner_pid())).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("hunter2"), "other commands can read it");
    place.release();
    assert_eq!(told(ended(end(watched).await)).3, "hunter2 ä\n=x");
    let too_long = vec![("X".into(), "x".repeat(200_000).into())];
    let command = Command { variables: too_long, ..place.command("echo once >> ran") };
    let other = SpoolName { attempt: 2, ..name() };
    let error = place.runner.start(other, command).await.unwrap_err();
    assert!(error.to_string().contains("at most 131072"), "{error}");
    assert_eq!(place.times_run(), 0);
}

/// Kills of the fork server, a runner or a command at any time: no command runs twice, what has ended is known, and what
/// was not begun never is. More rounds with `HERMOD_KILLS`.
#[tokio::test]
async fn kills_at_any_time_run_nothing_twice() {
    let rounds = std::env::var("HERMOD_KILLS").map_or(30, |kills| kills.parse().expect("a number"));
    let place = Place::new();
    let (mut begun, mut known) = (0, 0);
    for round in 0..rounds {
        let name = SpoolName { attempt: round + 1, ..name() };
        let ran = format!("ran{round}");
        let command = place.command(&format!("echo once >> {ran}; sleep 0.003; echo done"));
        let watched = place.runner.start(name, command).await.unwrap();
        tokio::time::sleep(Duration::from_micros(u64::from(round % 40) * 300)).await;
        let victims = match round % 3 {
            0 => fork_servers(&place),
            1 => runners(&place),
            _ => commands(&place),
        };
        // It may just have ended.
        victims.into_iter().for_each(|pid| kill_process(pid, Signal::KILL).unwrap_or_default());
        let left = end(watched).await;
        let times = fs::read_to_string(place.work(&ran)).map_or(0, |text| text.lines().count());
        begun += times;
        match &left {
            RunnerOutcome::Ended(exit) => {
                known += 1;
                let was_hit = matches!(&exit.end, Ok(result) if result.signal == Some(9));
                assert!(times == 1 || times == 0 && was_hit, "round {round}: {times}, {exit:?}");
            }
            RunnerOutcome::NeverBegun(_) => assert_eq!(times, 0, "round {round}"),
            RunnerOutcome::Unknown => assert!(times <= 1, "round {round}"),
            RunnerOutcome::Killed => panic!("round {round}: nobody stopped it"),
        }
        let again = match place.runner.attach(name, Boot::Same).await {
            AttachedRunner::Over(left) => left,
            AttachedRunner::Alive(watched) => panic!("round {round}: {watched:?}"),
        };
        assert_eq!(
            std::mem::discriminant(&left),
            std::mem::discriminant(&again),
            "round {round}: {left:?}, {again:?}"
        );
        let later = fs::read_to_string(place.work(&ran)).map_or(0, |text| text.lines().count());
        assert_eq!(later, times, "round {round}: it ran after its end");
    }
    println!("{rounds} kills: {begun} commands ran, the end of {known} is known");
    assert!(begun > 0 && known > 0);
}

/// The shells of commands of a place.
fn commands(place: &Place) -> Vec<Pid> {
    let work = place.work("");
    let entries =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_command = |pid: &Pid| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == work)
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sh\n")
    };
    entries.filter_map(Pid::from_raw).filter(is_command).collect()
}
