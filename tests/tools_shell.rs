//! The shell tool with real processes.

use std::{fs, path::PathBuf, time::Duration};

use hermod::tool::{Settings, TOOLS};
use hermod_actors::{
    model::{CallEnd, CallStatus},
    port::{Invocation, Tool},
    testkit::invocation,
};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine, shorter than what would be a hang.
const SOON: Duration = Duration::from_secs(20);

struct World {
    folder: TempDir,
    cancel: CancellationToken,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder"), cancel: CancellationToken::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn start(&self, arguments: Value) -> impl Future<Output = CallEnd> + use<> {
        let workspace = self.folder.path().to_str().expect("a path in UTF-8");
        let cancel = self.cancel.clone();
        shell().run(Invocation { cancel, ..invocation(workspace, arguments) })
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

fn shell() -> std::sync::Arc<dyn Tool> {
    let (_, make) = TOOLS.iter().find(|(name, _)| *name == "shell").expect("the shell tool");
    make(Settings::default())
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
    let (status, told) = World::new().run(json!({"command": command})).await;
    let expected = json!({"exit_code": exit_code, "signal": null, "timed_out": false, "stdout": stdout, "stderr": stderr});
    assert_eq!((status, told), (CallStatus::Ok, expected), "{command}");
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
    let (status, told) = World::new().run(json!({"command": "kill -KILL $$"})).await;
    assert_eq!(status, CallStatus::Ok);
    assert_eq!((&told["exit_code"], &told["signal"]), (&Value::Null, &json!(9)));
}

#[tokio::test]
async fn it_runs_in_the_workspace_or_a_folder_of_it() {
    let world = World::new();
    fs::create_dir(world.at("inside")).unwrap();
    let real = world.folder.path().canonicalize().unwrap();
    for (workdir, expected) in [(Value::Null, real.clone()), (json!("inside"), real.join("inside"))] {
        let (_, told) = world.run(json!({"command": "pwd -P", "workdir": workdir})).await;
        assert_eq!(told["stdout"], json!(format!("{}\n", expected.display())));
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
    let bad = shell().plan(&json!({"command": "shutdown now"}), "/nowhere").unwrap_err();
    assert_eq!(bad.error, "`command` \"shutdown now\" is never run: it stops or restarts the machine");
}

#[tokio::test]
async fn the_environment_is_clean() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the test has a variable to leak");
    let (_, told) = World::new().run(json!({"command": "env"})).await;
    let names = told["stdout"].as_str().unwrap().lines().filter_map(|line| Some(line.split_once('=')?.0));
    let allowed = [
        "PATH", "HOME", "LANG", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL",
        "_",
    ];
    let names: Vec<_> = names.filter(|name| !name.starts_with("LC_")).collect();
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(names.contains(&"PATH") && told["stdout"].as_str().unwrap().contains("TERM=dumb\n"));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_hold_the_call() {
    let world = World::new();
    let (status, told) = world.run(json!({"command": "sleep 1000 & echo $! > pid; echo started"})).await;
    assert_eq!((status, &told["stdout"]), (CallStatus::Ok, &json!("started\n")));
    gone(world.pid("pid").await).await;
}

#[tokio::test]
async fn a_grandchild_that_writes_for_ever_does_not_hold_the_call() {
    let world = World::new();
    let (status, told) = world.run(json!({"command": "yes & echo $! > pid"})).await;
    assert_eq!((status, &told["exit_code"]), (CallStatus::Ok, &json!(0)));
    gone(world.pid("pid").await).await;
}

#[tokio::test]
async fn endless_output_ends_with_the_timeout() {
    let (status, told) = World::new().run(json!({"command": "yes", "timeout": 1})).await;
    assert_eq!(status, CallStatus::Error);
    assert_eq!((&told["timed_out"], &told["signal"]), (&json!(true), &json!(15)));
    assert!(told["stdout"].as_str().unwrap().starts_with("y\ny\n"));
}

#[tokio::test]
async fn a_command_that_ignores_the_request_to_end_is_killed() {
    let world = World::new();
    let command = "trap '' TERM; echo $$ > pid; echo here; while :; do sleep 1; done";
    let start = Instant::now();
    let (status, told) = world.run(json!({"command": command, "timeout": 1})).await;
    assert!(start.elapsed() >= Duration::from_secs(3), "killed after {:?}", start.elapsed());
    assert_eq!(status, CallStatus::Error);
    assert_eq!((&told["signal"], &told["stdout"]), (&json!(9), &json!("here\n")));
    reaped(world.pid("pid").await).await;
}

#[tokio::test]
async fn a_command_may_clean_up_when_it_is_stopped() {
    let world = World::new();
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

#[tokio::test]
async fn a_stopped_call_leaves_no_member_of_its_group() {
    let world = World::new();
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

#[tokio::test]
async fn a_call_that_is_stopped_before_it_starts_runs_nothing() {
    let world = World::new();
    world.cancel.cancel();
    let (status, _) = world.run(json!({"command": "touch ran"})).await;
    assert_eq!(status, CallStatus::Stopped);
    assert!(!world.at("ran").exists());
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
    let world = World::new();
    let meet = |mine: &str, other: &str| {
        let command = format!("touch {mine}.up; while ! [ -e {other}.up ]; do sleep 0.01; done");
        tokio::spawn(world.start(json!({"command": command})))
    };
    let (one, two) = (meet("one", "two"), meet("two", "one"));
    let both = timeout(SOON, async { (one.await.unwrap(), two.await.unwrap()) })
        .await
        .expect("neither waits for the other");
    assert_eq!((both.0.status, both.1.status), (CallStatus::Ok, CallStatus::Ok));
}
