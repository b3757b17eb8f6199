//! Output of any size and kind: bounded memory, bounded time, and a true result; of this process's own commands, and of
//! a detached runner's.
//!
//! What measures memory runs in a process of its own, because the kernel counts the peak of a whole process.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hermod::{
    artifacts::FileArtifacts,
    process::runner::Runner,
    tool::{Settings, TOOLS},
};
use hermod_actors::{
    model::{CallEnd, CallStatus, MAX_RESULT_BYTES},
    port::{Artifacts, AttemptArtifacts, Invocation},
};
use hermod_testkit::{MemoryArtifacts, invocation, run_call};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::own_process::in_own_process;

/// Longer than anything here takes on a busy machine, shorter than what would be a hang.
const SOON: Duration = Duration::from_mins(1);

/// A workspace, and a place for artifacts.
struct World {
    folder: TempDir,
    artifacts: Arc<dyn Artifacts>,
    cancel: CancellationToken,
    settings: Settings,
    calls: AtomicU32,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let artifacts = Arc::new(FileArtifacts::open(&folder.path().join("state")).expect("a place"));
        fs::create_dir(folder.path().join("work")).expect("a workspace");
        let (cancel, settings, calls) = (CancellationToken::new(), Settings::default(), AtomicU32::new(1));
        Self { folder, artifacts, cancel, settings, calls }
    }

    fn both() -> [Self; 2] {
        let mut detached = Self::new();
        let state = detached.folder.path().join("state");
        detached.settings.runner = Some(Runner::new(env!("CARGO_BIN_EXE_hermod"), &state));
        [Self::new(), detached]
    }

    async fn call(&self, tool: &str, arguments: Value) -> CallEnd {
        let (_, make) = TOOLS.iter().find(|(name, _)| *name == tool).expect("a tool");
        let workspace = self.folder.path().join("work");
        let attempt = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = invocation(workspace.to_str().expect("a path in UTF-8"));
        let shelf =
            AttemptArtifacts::new(Arc::clone(&self.artifacts), call.artifacts.name()).for_attempt(attempt);
        let call = Invocation { artifacts: shelf, attempt, cancel: self.cancel.clone(), ..call };
        let end = run_call(&*make(self.settings.clone()), &arguments, call);
        timeout(SOON, end).await.expect("the call ends soon")
    }

    async fn shell(&self, command: &str) -> (CallEnd, Value) {
        let end = self.call("shell", json!({"command": command})).await;
        assert!(end.content.len() <= MAX_RESULT_BYTES, "{} bytes", end.content.len());
        let told = serde_json::from_str(&end.content).expect("content is JSON");
        (end, told)
    }

    /// All bytes of an artifact.
    async fn kept(&self, end: &CallEnd) -> Vec<u8> {
        let artifact = end.artifact.as_ref().expect("an artifact");
        let shelf = AttemptArtifacts::new(Arc::clone(&self.artifacts), invocation("/").artifacts.name());
        let mut all = Vec::new();
        loop {
            let excerpt = shelf.read(&artifact.handle, all.len() as u64, 1 << 20).await.expect("it is there");
            assert_eq!(excerpt.total, artifact.bytes);
            if excerpt.bytes.is_empty() {
                return all;
            }
            all.extend_from_slice(&excerpt.bytes);
        }
    }
}

/// The most memory that this process has had, in kilobytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_hundred_megabytes_take_little_memory_and_are_kept_whole() {
    let test = "tools::output::a_hundred_megabytes_take_little_memory_and_are_kept_whole";
    in_own_process(&[], test, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        World::both().iter().for_each(|world| runtime.block_on(keeps_a_hundred_megabytes(world)));
    });
}

async fn keeps_a_hundred_megabytes(world: &World) {
    {
        let before = peak();
        let (end, told) = world.shell("echo first; yes 0123456789 | head -c 100000000; echo last").await;
        let grown = peak() - before;
        assert!(grown < 32 << 10, "{grown} kB more");
        assert_eq!((end.status, &told["exit_code"]), (CallStatus::Ok, &json!(0)));
        let stdout = told["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("first\n0123456789\n") && stdout.ends_with("0last\n"), "{stdout}");
        let kept = world.kept(&end).await;
        assert_eq!(kept.len(), 100_000_000 + 11);
        assert_eq!(told["artifact"], json!({"handle": end.artifact.unwrap().handle, "bytes": kept.len()}));
        let left_out =
            stdout.split("[… ").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
        let marker = format!("\n[… {left_out} bytes left out …]\n");
        assert_eq!(stdout.len() - marker.len() + left_out, kept.len());
        assert!(kept.starts_with(b"first\n0123") && kept.ends_with(b"0last\n"));
    }
}

#[tokio::test]
async fn both_streams_are_kept_as_they_came() {
    for world in World::both() {
        let (end, told) =
            world.shell("echo one; sleep 0.2; echo two >&2; sleep 0.2; yes | head -c 60000").await;
        assert_eq!(told["stderr"], json!("two\n"));
        let kept = world.kept(&end).await;
        assert!(kept.starts_with(b"one\ntwo\ny\ny\n"));
        assert_eq!(kept.len(), 60_008);
        // And paged, as the model would.
        let handle = &told["artifact"]["handle"];
        let page = world.call("read_artifact", json!({"handle": handle, "offset": 4, "limit": 6})).await;
        assert_eq!(*page.content, *"two\ny\n\n[bytes 4-10 of 60008; call again with offset 10]");
    }
}

#[tokio::test]
async fn each_stream_has_its_share_of_the_room() {
    for world in World::both() {
        let (end, told) = world.shell("yes out | head -c 40000; yes err | head -c 40000 >&2").await;
        for (stream, word) in [("stdout", "out\n"), ("stderr", "err\n")] {
            let text = told[stream].as_str().unwrap();
            assert!(
                text.starts_with(word) && text.ends_with(word) && text.contains("bytes left out"),
                "{text}"
            );
            assert!(text.len() > 10_000, "{} bytes of {stream}", text.len());
        }
        assert_eq!(world.kept(&end).await.len(), 80_000);
        let (end, told) = world.shell("yes out | head -c 36000; echo err >&2").await;
        assert_eq!((told["stdout"].as_str().unwrap().len(), &told["stderr"]), (36_000, &json!("err\n")));
        assert_eq!((end.artifact, told.get("artifact")), (None, None));
    }
}

#[tokio::test]
async fn binary_output_is_made_visible_and_kept_as_it_is() {
    for world in World::both() {
        // All bytes, many times over: NUL, escapes, invalid UTF-8.
        let all: Vec<_> = (0..=255).map(|byte| format!("\\{byte:03o}")).collect();
        let all = all.concat();
        let command = format!("printf '{all}' > all; for i in $(seq 400); do cat all; done");
        let (end, told) = world.shell(&command).await;
        let stdout = told["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("␀␁␂") && stdout.contains("~␡��"), "{stdout}");
        assert!(!stdout.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        let kept = world.kept(&end).await;
        assert_eq!(kept, (0..=255).collect::<Vec<u8>>().repeat(400));
        // Short, it needs no artifact.
        let (end, told) = world.shell("cat all").await;
        assert_eq!((end.artifact, told["exit_code"].as_i64()), (None, Some(0)));
    }
}

#[tokio::test]
async fn a_full_disk_ends_no_command_and_is_told() {
    let artifacts = || -> Arc<dyn Artifacts> { Arc::new(MemoryArtifacts::full_after(100_000)) };
    for world in World::both().map(|world| World { artifacts: artifacts(), ..world }) {
        let (end, told) = world.shell("yes | head -c 10000000; echo done").await;
        assert_eq!((end.status, &told["exit_code"], end.artifact), (CallStatus::Ok, &json!(0), None));
        assert!(told["stdout"].as_str().unwrap().ends_with("y\ndone\n"));
        let error = told["artifact"]["error"].as_str().unwrap();
        assert_eq!(error, "the whole output could not be kept: no space left on device");
    }
}

#[tokio::test]
async fn endless_output_is_stopped_in_time() {
    for world in World::both() {
        let call = async { world.shell("trap '' TERM; echo y; echo y; touch started; yes").await };
        let stop = async {
            // By then it has written something.
            let started = world.folder.path().join("work/started");
            while !started.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            world.cancel.cancel();
            Instant::now()
        };
        let ((end, told), stopped) = tokio::join!(call, stop);
        assert_eq!((end.status, &told["signal"]), (CallStatus::Stopped, &json!(9)));
        assert!(stopped.elapsed() < Duration::from_secs(4), "{:?}", stopped.elapsed());
        assert!(told["stdout"].as_str().unwrap().starts_with("y\ny\n"));
        assert!(told["artifact"].is_object(), "kept or not, it is told");
    }
}

#[tokio::test]
async fn a_handle_that_is_none_is_refused() {
    let world = World::new();
    for handle in ["", "../../../etc/passwd", "01KDVN6P0000000000000000AA.1.1-1"] {
        let end = world.call("read_artifact", json!({"handle": handle})).await;
        let told: Value = serde_json::from_str(&end.content).unwrap();
        assert_eq!((end.status, &told["field"]), (CallStatus::Error, &json!("handle")));
        assert_eq!(told["error"], json!(format!("this session has no artifact `{handle}`")));
    }
}
