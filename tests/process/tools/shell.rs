//! The shell tool with real processes: as commands of this process, and by a detached runner.

use std::{fs, path::PathBuf, time::Duration};

use hermod::{
    process::runner::Runner,
    tool::{Settings, TOOLS},
};
use hermod_actors::{
    model::{CallEnd, CallId, CallStatus, RunId},
    port::{AttachOutcome, Boot, Invocation, ProgressReporter, Tool},
};
use hermod_testkit::{invocation, run_call};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine, shorter than what would be a hang.
const SOON: Duration = Duration::from_mins(1);

struct World {
    folder: TempDir,
    cancel: CancellationToken,
    settings: Settings,
    /// The state directory, if commands have one.
    state: Option<TempDir>,
}

impl World {
    /// Where commands are this process's own.
    fn new() -> Self {
        let settings = Settings::default();
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, cancel: CancellationToken::new(), settings, state: None }
    }

    /// Where they are a runner's.
    fn detached() -> Self {
        let state = tempfile::tempdir().expect("a temporary folder");
        let runner = Some(Runner::new(env!("CARGO_BIN_EXE_hermod"), state.path()));
        Self { settings: Settings { runner, ..Settings::default() }, state: Some(state), ..Self::new() }
    }

    fn both() -> [Self; 2] {
        [Self::new(), Self::detached()]
    }

    fn shell(&self) -> std::sync::Arc<dyn Tool> {
        let (_, make) = TOOLS.iter().find(|(name, _)| *name == "shell").expect("the shell tool");
        make(self.settings.clone())
    }

    fn invocation(&self) -> Invocation {
        let workspace = self.folder.path().to_str().expect("a path in UTF-8");
        Invocation { cancel: self.cancel.clone(), ..invocation(workspace) }
    }

    async fn attach(&self, invocation: Invocation, boot: Boot) -> AttachOutcome {
        let call = self.shell().prepare(&json!({"command": WAITS}), "/nowhere").expect("it is accepted");
        timeout(SOON, call.work.attach(invocation, boot)).await.expect("it is found soon")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn start(&self, arguments: Value) -> impl Future<Output = CallEnd> + use<> {
        run_call(&*self.shell(), &arguments, self.invocation())
    }

    async fn run(&self, arguments: Value) -> (CallStatus, Value) {
        let end = timeout(SOON, self.start(arguments)).await.expect("the call ends soon");
        (end.status, serde_json::from_str(&end.content).expect("content is JSON"))
    }

    /// The process id that a command wrote to `path`, once it is there.
    async fn pid(&self, path: &str) -> Pid {
        let read = || fs::read_to_string(self.at(path)).ok()?.strip_suffix('\n')?.parse().ok();
        let id = until(read).await;
        Pid::from_raw(id).expect("a process id")
    }
}

/// Waits until `probe` gives something.
async fn until<T>(mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a process is gone, or dead and waits for whoever inherited it.
async fn gone(pid: Pid) {
    let is_dead = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(stat.rsplit_once(')')?.1.trim_start().starts_with('Z'))
    };
    until(|| (test_kill_process(pid).is_err() || is_dead() == Some(true)).then_some(())).await;
}

/// Waits until a process is gone and reaped.
async fn reaped(pid: Pid) {
    until(|| test_kill_process(pid).is_err().then_some(())).await;
}

/// A command that exits by itself.
async fn check(command: &str, exit_code: i32, stdout: &str, stderr: &str) {
    for world in World::both() {
        let (status, told) = world.run(json!({"command": command})).await;
        let expected = json!({"exit_code": exit_code, "signal": null, "timed_out": false, "stdout": stdout, "stderr": stderr});
        assert_eq!((status, told), (CallStatus::Ok, expected), "{command}");
    }
}

async fn check_refused(arguments: Value, field: &str, what: &str) {
    let world = World::new();
    fs::create_dir(world.at("inside")).expect("a folder");
    std::os::unix::fs::symlink("/", world.at("link")).expect("a symlink");
    let (status, told) = world.run(arguments.clone()).await;
    assert_eq!((status, &told["field"]), (CallStatus::Error, &json!(field)), "{arguments}");
    assert!(told["error"].as_str().is_some_and(|error| error.contains(what)), "{told}");
}

#[tokio::test]
async fn a_command_is_told_as_it_ended() {
    check("echo out; echo err >&2", 0, "out\n", "err\n").await;
    check("exit 3", 3, "", "").await;
    check("cat; echo done", 0, "done\n", "").await;
    check(r"printf 'ok\377\033[31m\r\n'", 0, "ok�␛[31m␍\n", "").await;
}

#[tokio::test]
async fn a_signal_is_told() {
    for world in World::both() {
        let (status, told) = world.run(json!({"command": "kill -KILL $$"})).await;
        assert_eq!(status, CallStatus::Ok);
        assert_eq!((&told["exit_code"], &told["signal"]), (&Value::Null, &json!(9)));
    }
}

#[tokio::test]
async fn it_runs_in_the_workspace_or_a_folder_of_it() {
    for world in World::both() {
        fs::create_dir(world.at("inside")).unwrap();
        let real = world.folder.path().canonicalize().unwrap();
        for (workdir, expected) in [(Value::Null, real.clone()), (json!("inside"), real.join("inside"))] {
            let (_, told) = world.run(json!({"command": "pwd -P", "workdir": workdir})).await;
            assert_eq!(told["stdout"], json!(format!("{}\n", expected.display())));
        }
    }
}

#[tokio::test]
async fn what_is_not_acceptable_is_refused() {
    for workdir in ["..", "/", "link", "link/tmp", "inside/../.."] {
        check_refused(json!({"command": "pwd", "workdir": workdir}), "workdir", "leads out").await;
    }
    check_refused(json!({"command": "pwd", "workdir": "none"}), "workdir", "does not exist").await;
    check_refused(json!({"command": " "}), "command", "is empty").await;
    check_refused(json!({"command": "a\0b"}), "command", "NUL").await;
    check_refused(json!({"command": "sudo rm -rf /"}), "command", "deletes the whole system").await;
    check_refused(json!({"command": "ls", "timeout": 0}), "timeout", "less than the minimum").await;
    let bad = World::new().shell().prepare(&json!({"command": "shutdown now"}), "/nowhere").unwrap_err();
    assert_eq!(bad.error, "`command` \"shutdown now\" is never run: it stops or restarts the machine");
}

#[tokio::test]
async fn the_environment_is_clean() {
    for world in World::both() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the test has a variable to leak");
        let (_, told) = world.run(json!({"command": "env"})).await;
        let names = told["stdout"].as_str().unwrap().lines().filter_map(|line| Some(line.split_once('=')?.0));
        let allowed = [
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "TZ",
            "USER",
            "LOGNAME",
            "SHELL",
            "TMPDIR",
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
            "HERMOD_CALL",
        ];
        let names: Vec<_> = names.filter(|name| !name.starts_with("LC_")).collect();
        assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
        assert!(names.contains(&"PATH") && told["stdout"].as_str().unwrap().contains("TERM=dumb\n"));
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_hold_the_call() {
    for world in World::both() {
        let (status, told) = world.run(json!({"command": "sleep 1000 & echo $! > pid; echo started"})).await;
        assert_eq!((status, &told["stdout"]), (CallStatus::Ok, &json!("started\n")));
        gone(world.pid("pid").await).await;
    }
}

#[tokio::test]
async fn a_grandchild_that_writes_for_ever_does_not_hold_the_call() {
    for world in World::both() {
        let (status, told) = world.run(json!({"command": "yes & echo $! > pid"})).await;
        assert_eq!((status, &told["exit_code"]), (CallStatus::Ok, &json!(0)));
        gone(world.pid("pid").await).await;
    }
}

#[tokio::test]
async fn endless_output_ends_with_the_timeout() {
    for world in World::both() {
        let (status, told) = world.run(json!({"command": "yes", "timeout": 1})).await;
        assert_eq!(status, CallStatus::Error);
        assert_eq!((&told["timed_out"], &told["signal"]), (&json!(true), &json!(15)));
        assert!(told["stdout"].as_str().unwrap().starts_with("y\ny\n"));
    }
}

#[tokio::test]
async fn a_command_that_ignores_the_request_to_end_is_killed() {
    for world in World::both() {
        let command = "trap '' TERM; echo $$ > pid; echo here; while :; do sleep 1; done";
        let start = Instant::now();
        let (status, told) = world.run(json!({"command": command, "timeout": 1})).await;
        assert!(start.elapsed() >= Duration::from_secs(3), "killed after {:?}", start.elapsed());
        assert_eq!(status, CallStatus::Error);
        assert_eq!((&told["signal"], &told["stdout"]), (&json!(9), &json!("here\n")));
        reaped(world.pid("pid").await).await;
    }
}

#[tokio::test]
async fn a_command_may_clean_up_when_it_is_stopped() {
    for world in World::both() {
        let command = "trap 'echo cleaned; exit 7' TERM; echo $$ > pid; while :; do sleep 0.01; done";
        let call = tokio::spawn(world.start(json!({"command": command})));
        let pid = world.pid("pid").await;
        world.cancel.cancel();
        let end = timeout(SOON, call).await.expect("the call ends soon").expect("it does not panic");
        let told: Value = serde_json::from_str(&end.content).unwrap();
        assert_eq!(end.status, CallStatus::Stopped);
        assert_eq!((&told["exit_code"], &told["timed_out"]), (&json!(7), &json!(false)));
        assert_eq!(told["stdout"], json!("cleaned\n"));
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_stopped_call_leaves_no_member_of_its_group() {
    for world in World::both() {
        let command = "(trap '' TERM; echo $$ > /dev/null; sh -c 'echo $$ > deep; exec sleep 1000') & echo $! > child; \
            trap '' TERM; echo $$ > leader; wait; sleep 1000";
        let call = tokio::spawn(world.start(json!({"command": command})));
        let pids = [world.pid("deep").await, world.pid("child").await, world.pid("leader").await];
        world.cancel.cancel();
        assert_eq!(timeout(SOON, call).await.unwrap().unwrap().status, CallStatus::Stopped);
        for pid in pids {
            gone(pid).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_stopped_before_it_starts_runs_nothing() {
    for world in World::both() {
        world.cancel.cancel();
        let (status, _) = world.run(json!({"command": "touch ran"})).await;
        assert_eq!(status, CallStatus::Stopped);
        assert!(!world.at("ran").exists());
    }
}

#[tokio::test]
async fn dropping_the_call_kills_the_group() {
    let world = World::new();
    let command = "trap '' TERM; sleep 1000 & echo $! > child; echo $$ > leader; wait";
    let call = tokio::spawn(world.start(json!({"command": command})));
    let (child, leader) = (world.pid("child").await, world.pid("leader").await);
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gone(child).await;
    reaped(leader).await;
}

#[tokio::test]
async fn calls_run_side_by_side() {
    for world in World::both() {
        let meet = |attempt, mine: &str, other: &str| {
            let command = format!("touch {mine}.up; while ! [ -e {other}.up ]; do sleep 0.01; done");
            let call = Invocation { attempt, ..world.invocation() };
            tokio::spawn(run_call(&*world.shell(), &json!({"command": command}), call))
        };
        let (one, two) = (meet(1, "one", "two"), meet(2, "two", "one"));
        let both = timeout(SOON, async { (one.await.unwrap(), two.await.unwrap()) })
            .await
            .expect("neither waits for the other");
        assert_eq!((both.0.status, both.1.status), (CallStatus::Ok, CallStatus::Ok));
    }
}

/// A command that waits until it is released, or the workspace is gone.
const WAITS: &str =
    "echo $$ > pid; echo begun; while [ -e pid ] && [ ! -e release ]; do sleep 0.02; done; echo end";

#[tokio::test]
async fn dropping_the_call_lets_a_detached_command_go_on() {
    let world = World::detached();
    let call = tokio::spawn(world.start(json!({"command": WAITS})));
    let pid = world.pid("pid").await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let notes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let progress = {
        let notes = std::sync::Arc::clone(&notes);
        ProgressReporter::new(move |note| notes.lock().unwrap().push(note.to_owned()))
    };
    let again = world.attach(Invocation { progress, ..world.invocation() }, Boot::Same);
    let release = async {
        until(|| (!notes.lock().unwrap().is_empty()).then_some(())).await;
        fs::write(world.at("release"), "").unwrap();
    };
    let (found, ()) = timeout(SOON, async { tokio::join!(again, release) }).await.unwrap();
    let AttachOutcome::Ended(end) = found else { panic!("{found:?}") };
    let told: Value = serde_json::from_str(&end.content).unwrap();
    assert_eq!((end.status, &told["exit_code"]), (CallStatus::Ok, &json!(0)));
    assert_eq!(told["stdout"], json!("begun\nend\n"));
    assert_eq!(notes.lock().unwrap()[0], "begun");
    gone(pid).await;
}

#[tokio::test]
async fn what_became_of_an_earlier_call_is_found() {
    let attach = async |world: &World, boot| world.attach(world.invocation(), boot).await;
    // Nothing is known of commands that were this process's own.
    assert_eq!(attach(&World::new(), Boot::Same).await, AttachOutcome::Unknown);
    let world = World::detached();
    assert_eq!(attach(&world, Boot::Other).await, AttachOutcome::Unknown);
    assert_eq!(
        attach(&world, Boot::Same).await,
        AttachOutcome::Unknown,
        "no ledger says that it was not begun"
    );
    world.settings.runner.as_ref().unwrap().sweep(|_| true).await;
    assert_eq!(
        attach(&world, Boot::Same).await,
        AttachOutcome::Unknown,
        "its run may be older than the ledger"
    );
    // Of a run that was accepted long after the ledger was made.
    let invocation = world.invocation();
    let call = CallId { run: RunId::from_bits(7 | 1 << 127), ..invocation.call };
    let found = world.attach(Invocation { call, ..invocation }, Boot::Same).await;
    assert_eq!(found, AttachOutcome::NeverStarted);
    // A stop that comes when it is over has killed nothing.
    world.cancel.cancel();
    assert_eq!(attach(&world, Boot::Other).await, AttachOutcome::Unknown);
    // A stop ends one that is found alive.
    let world = World::detached();
    let call = tokio::spawn(world.start(json!({"command": WAITS})));
    world.pid("pid").await;
    call.abort();
    world.cancel.cancel();
    let AttachOutcome::Ended(end) = attach(&world, Boot::Same).await else { panic!("it is alive") };
    assert_eq!(end.status, CallStatus::Stopped);
    for boot in [Boot::Same, Boot::Other] {
        let found = attach(&world, boot).await;
        assert!(matches!(&found, AttachOutcome::Ended(again) if *again == end), "{found:?}");
    }
    // What is forgotten is found no more.
    let call = world.invocation();
    world.shell().forget(call.call, call.attempt);
    let spool = world.state.as_ref().unwrap().path().join("spool");
    until(|| (fs::read_dir(&spool).unwrap().count() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_command_that_cannot_be_kept_is_not_run_and_says_so() {
    let world = World::detached();
    fs::write(world.state.as_ref().unwrap().path().join("spool"), "in the way").unwrap();
    let (status, told) = world.run(json!({"command": "touch ran"})).await;
    assert_eq!(status, CallStatus::Error);
    assert!(told["error"].as_str().unwrap().starts_with("the command was not run: "), "{told}");
    assert!(!world.at("ran").exists());
}
