//! A runner that runs several commands of its run, one after the other.

use super::*;

fn attempt(attempt: u32) -> SpoolName {
    SpoolName { attempt, ..name() }
}

impl Place {
    async fn start_attempt(&self, n: u32, command: &str) -> LiveRunner {
        self.runner.start(attempt(n), self.command(command)).await.unwrap()
    }

    async fn run_attempt(&self, n: u32, command: &str) -> ExitRecord {
        ended(end(self.start_attempt(n, command).await).await)
    }

    /// The runner of an attempt, by its file `started`.
    fn runner_of(&self, n: u32) -> Pid {
        let started = fs::read(self.spool().join(attempt(n).to_string()).join("started")).unwrap();
        let started: serde_json::Value = serde_json::from_slice(&started).unwrap();
        Pid::from_raw(started["pid"].as_i64().unwrap().try_into().unwrap()).unwrap()
    }

    async fn attach_attempt(&self, n: u32) -> AttachedRunner {
        timeout(SOON, self.runner.attach(attempt(n), Boot::Same)).await.expect("it is found soon")
    }

    fn running(&self) -> Vec<SpoolName> {
        self.runner.running_commands().unwrap().into_iter().map(|(name, _)| name).collect()
    }
}

/// Says the output of an attempt that is over.
fn output(found: AttachedRunner) -> String {
    match found {
        AttachedRunner::Over(left) => told(ended(left)).3,
        AttachedRunner::Alive(watched) => panic!("it is over: {watched:?}"),
    }
}

#[tokio::test]
async fn further_commands_of_a_run_have_the_same_runner_and_each_its_own_end() {
    let place = Place::new();
    let first = place.command("echo $X; export Y=1; cd /; exit 3");
    let first = Command { variables: vec![("X".into(), "one".into())], ..first };
    let watched = place.runner.start(attempt(1), first).await.unwrap();
    let (_, code, _, out, _) = told(ended(end(watched).await));
    assert_eq!((code, out.as_str()), (Some(3), "one\n"));
    let runner = place.runner_of(1);
    assert_eq!((idle_runners(&place), runners(&place)), (vec![runner], vec![]));
    // A runner that waits runs nothing.
    assert_eq!(place.running(), []);
    assert!(!place.runner.is_alive(attempt(1)).unwrap());
    assert_eq!(output(place.attach_attempt(1).await), "one\n");
    assert_eq!(
        told(place.run_attempt(2, "echo $X-$Y; pwd; echo two >&2").await).3,
        format!("-\n{}\n", place.work("").canonicalize().unwrap().display())
    );
    assert_eq!(place.runner_of(2), runner);
    // The first one stays over while the runner has another command, also if its folder is gone.
    for is_removed in [false, true] {
        let n = if is_removed { 4 } else { 3 };
        fs::remove_file(place.work("ran")).unwrap_or_default();
        let watched = place.start_attempt(n, WAITS).await;
        place.begun();
        assert_eq!((place.runner_of(n), place.running()), (runner, vec![attempt(n)]));
        if is_removed {
            let found = place.attach_attempt(1).await;
            assert!(matches!(found, AttachedRunner::Over(RunnerOutcome::Unknown)), "{found:?}");
        } else {
            assert_eq!(output(place.attach_attempt(1).await), "one\n");
        }
        place.runner.forget(attempt(1));
        place.runner.forget(attempt(2));
        timeout(SOON, place.runner.wait_cleared()).await.unwrap();
        assert_eq!(place.running(), [attempt(n)]);
        place.release();
        assert_eq!(told(ended(end(watched).await)).3, "begun\nreleased\n");
        fs::remove_file(place.work("release")).unwrap();
    }
}

#[tokio::test]
async fn a_stop_of_a_further_command_ends_it_and_its_runner() {
    let place = Place::new();
    place.run_attempt(1, "true").await;
    let runner = place.runner_of(1);
    let watched = place.start_attempt(2, WAITS).await;
    place.begun();
    assert_eq!(place.runner_of(2), runner);
    assert_eq!(told(ended(stop(watched).await)).0, ExitCause::Cancel);
    until("the runner has ended", || is_gone(runner));
    assert_eq!(told(place.run_attempt(3, "echo third").await).3, "third\n");
}

#[tokio::test]
async fn a_later_owner_finds_a_further_command_and_its_runner_ends_with_it() {
    let mut place = Place::new();
    place.run_attempt(1, "echo first").await;
    drop(place.start_attempt(2, WAITS).await);
    place.begun();
    let runner = place.runner_of(2);
    assert_eq!(place.runner_of(1), runner);
    place.runner = Runner::new(HERMOD, &place.dir.path().join("state"));
    assert_eq!(place.running(), [attempt(2)]);
    assert_eq!(output(place.attach_attempt(1).await), "first\n");
    // What is left of the first one is cleared, and the second one is not touched.
    place.runner.forget(attempt(1));
    timeout(SOON, place.runner.wait_cleared()).await.unwrap();
    let AttachedRunner::Alive(watched) = place.attach_attempt(2).await else { panic!("it runs") };
    place.release();
    assert_eq!(told(ended(end(*watched).await)).3, "begun\nreleased\n");
    until("the runner has ended", || is_gone(runner));
}

#[tokio::test]
async fn a_killed_runner_of_a_further_command_leaves_nothing() {
    let place = Place::new();
    place.run_attempt(1, "true").await;
    let watched = place.start_attempt(2, &format!("(sleep 1000 & echo $! > child); {WAITS}")).await;
    place.begun();
    kill_process(place.runner_of(2), Signal::KILL).unwrap();
    let left = end(watched).await;
    assert!(matches!(left, RunnerOutcome::Unknown), "{left:?}");
    for pid in [place.pid("ran"), place.pid("child")] {
        until("it is gone", || is_gone(pid));
    }
    let found = place.attach_attempt(1).await;
    assert!(matches!(found, AttachedRunner::Over(RunnerOutcome::Ended(_))), "{found:?}");
}

#[tokio::test]
async fn one_that_waits_ends_with_its_owner() {
    let mut place = Place::new();
    place.run_attempt(1, "true").await;
    let runner = place.runner_of(1);
    place.runner = Runner::new(HERMOD, &place.dir.path().join("state"));
    until("the runner has ended", || is_gone(runner));
}

#[tokio::test]
async fn one_that_was_killed_while_it_waited_is_replaced() {
    let place = Place::new();
    place.run_attempt(1, "true").await;
    let runner = place.runner_of(1);
    kill_process(runner, Signal::KILL).unwrap();
    until("it is gone", || is_gone(runner));
    assert_eq!(told(place.run_attempt(2, "echo once | tee -a ran").await).3, "once\n");
    // It may also be killed when it has the request and has not accepted it.
    let runner = place.runner_of(2);
    kill_process(runner, Signal::STOP).unwrap();
    let watched = place.start_attempt(3, "echo once | tee -a ran").await;
    kill_process(runner, Signal::KILL).unwrap();
    assert_eq!(told(ended(end(watched).await)).3, "once\n");
    assert_eq!(place.times_run(), 2);
}

#[tokio::test]
async fn one_that_does_not_answer_is_replaced_and_runs_nothing_later() {
    let place = Place::new();
    place.run_attempt(1, "true").await;
    let runner = place.runner_of(1);
    kill_process(runner, Signal::STOP).unwrap();
    let watched = place.start_attempt(2, "echo once | tee -a ran").await;
    assert_eq!(told(ended(end(watched).await)).3, "once\n");
    assert_ne!(place.runner_of(2), runner);
    kill_process(runner, Signal::CONT).unwrap();
    until("the late one has ended", || is_gone(runner));
    assert_eq!(place.times_run(), 1);
    // A stop does not wait for one.
    let runner = place.runner_of(2);
    kill_process(runner, Signal::STOP).unwrap();
    let watched = place.start_attempt(3, "echo once >> ran").await;
    let start = Instant::now();
    let left = stop(watched).await;
    assert!(matches!(left, RunnerOutcome::NeverBegun(_)), "{left:?}");
    assert!(start.elapsed() < 2 * STOP_TIMEOUT, "{:?}", start.elapsed());
    kill_process(runner, Signal::CONT).unwrap();
    until("the late one has ended", || is_gone(runner));
    assert_eq!(place.times_run(), 1);
}

#[tokio::test]
async fn only_commands_of_the_same_run_share_a_runner_and_only_after_a_plain_end() {
    let place = Place::new();
    place.start_server().await;
    let other = idle_runners(&place);
    place.run_attempt(1, "true").await;
    let runner = place.runner_of(1);
    assert!(other.len() == 1 && other[0] != runner);
    let late = Command { timeout: Duration::from_millis(50), ..place.command("sleep 1000") };
    let watched = place.runner.start(attempt(2), late).await.unwrap();
    assert_eq!(told(ended(end(watched).await)).0, ExitCause::Timeout);
    assert_eq!(place.runner_of(2), runner);
    until("the runner has ended", || is_gone(runner));
    // What the system does not start is no plain end either.
    let none = Command { program: "/does/not/exist".into(), ..place.command("") };
    let watched = place.runner.start(attempt(3), none).await.unwrap();
    ended(end(watched).await).end.unwrap_err();
    let runner = place.runner_of(3);
    until("the runner has ended", || is_gone(runner));
    // A process that has left its group is ended before the next command.
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' & while ! [ -s away ]; do sleep 0.01; done";
    place.run_attempt(4, script).await;
    assert!(is_gone(place.pid("away")));
}

#[tokio::test]
async fn many_commands_one_after_the_other_need_few_runners() {
    let place = Place::new();
    let mut seen = Vec::new();
    for n in 1..=150 {
        assert_eq!(told(place.run_attempt(n, &format!("echo {n}")).await).3, format!("{n}\n"));
        seen.push(place.runner_of(n));
    }
    seen.dedup();
    assert_eq!(seen.len(), 2, "a runner has 100 commands");
    // At once they have one each, and few of these stay.
    let all = (1_000..1_020).map(|n| place.run_attempt(n, "echo at once; sleep 0.2"));
    futures::future::join_all(all).await;
    until("few runners wait", || idle_runners(&place).len() <= 8);
    assert!(!idle_runners(&place).is_empty());
}
