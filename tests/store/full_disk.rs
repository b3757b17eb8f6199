//! A disk that is full at any instant: the real binary on a small file system of its own, in a mount namespace of its own.
//!
//! `just full-disk 100` tries that many instants.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    own_process::in_own_process,
    running::{Running, until},
    world::{World, object, stderr},
};

const ROUNDS: &str = "HERMOD_FULL_DISK_ROUNDS";
const STEPS: usize = 6;

/// Does `work` where it may mount; where that is not allowed, says that it does not.
#[track_caller]
fn alone(test: &str, work: impl FnOnce()) {
    for options in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let tmpfs = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"];
        let tried = Command::new("unshare").args(options).args(tmpfs).stderr(Stdio::null()).status();
        if !tried.is_ok_and(|status| status.success()) {
            continue;
        }
        return in_own_process(&[&["unshare"], options].concat(), &format!("full_disk::{test}"), work);
    }
    // A macro's words would be shown of a failed test only.
    let said = format!("skipped: {test} (this user may not mount)\n");
    io::stderr().write_all(said.as_bytes()).unwrap();
}

/// A world whose state directory is a file system of this size.
struct Small(World);

impl Small {
    fn new(size: &str) -> Self {
        let world = World::new();
        fs::create_dir(world.state()).unwrap();
        let size = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(world.state());
        assert!(mount.status().unwrap().success());
        Self(world)
    }

    fn ballast(&self) -> PathBuf {
        self.0.state().join("ballast")
    }

    /// Takes all the room that there is.
    fn fill(&self) {
        let mut ballast = OpenOptions::new().append(true).create(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 4_096, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Leaves about so many bytes.
    fn leave(&self, bytes: u64) {
        self.fill();
        let ballast = OpenOptions::new().write(true).open(self.ballast()).unwrap();
        ballast.set_len(ballast.metadata().unwrap().len() - bytes).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn hermod(&self, args: &[&str]) -> Command {
        let mut command = self.0.hermod(args);
        command.env("HERMOD_STORE__RESERVE", "none").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::new(self.hermod(args).spawn().unwrap())
    }

    /// A script whose commands note that they ran, and say so much that it is kept outside of the store's file.
    fn script(&self) -> String {
        let step = |n: usize| {
            let length = if n.is_multiple_of(2) { 30_000 } else { 80_000 };
            let command = format!("echo {n} >> ran; head -c {length} /dev/zero | tr '\\0' {n}");
            json!({ "say": format!("{n}").repeat(20_000), "call": [{ "tool": "shell", "arguments": { "command": command } }] })
        };
        let mut steps: Vec<Value> = (1..=STEPS).map(step).collect();
        steps.push(json!({ "say": "done".repeat(6_000) }));
        self.0.script(&json!(steps))
    }

    fn ran(&self) -> Vec<String> {
        let ran = fs::read_to_string(self.0.work().join("ran")).unwrap_or_default();
        ran.lines().map(str::to_owned).collect()
    }

    /// Whether another process is told that the run waits for room.
    fn waits_for_room(&self) -> bool {
        let shown = self.hermod(&["runs", "show", "last", "--json"]).output().unwrap();
        let Ok(shown) = serde_json::from_slice::<Value>(&shown.stdout) else { return false };
        let waits = shown["waits"].as_array().cloned().unwrap_or_default();
        waits.iter().any(|wait| wait["what"] == "disk" && wait["full"]["path"].is_string())
    }

    /// Every command ran once, or its result says that it was not run; the journal has no gap, and the store is whole.
    #[track_caller]
    fn check(&self, context: &str) {
        let ran = self.ran();
        let records = self.0.journal("last");
        let seqs = records.iter().map(|record| record["seq"].as_u64().unwrap());
        assert!(seqs.eq(1..=records.len() as u64), "{context}: gaps");
        assert_eq!(records.last().unwrap()["kind"], "run.ended", "{context}");
        for n in 1..=STEPS {
            let times = ran.iter().filter(|line| **line == n.to_string()).count();
            let ends = records.iter().filter(|record| record["kind"] == "call.ended");
            let end = ends.map(Value::to_string).find(|end| end.contains(&format!(".{n}.1\"")));
            let end = end.unwrap_or_else(|| panic!("{context}: call {n} has no end: {records:?}"));
            let not_run = end.contains("the command was not run: No space left on device");
            assert!(times == usize::from(!not_run), "{context}: command {n} ran {times} times: {end}");
        }
        let copy = tempfile::tempdir().unwrap();
        let file = copy.path().join("hermod.redb");
        fs::copy(self.0.state().join("hermod.redb"), &file).unwrap();
        let mut store = redb::Database::open(&file).unwrap();
        assert!(store.check_integrity().unwrap(), "{context}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // What a failed test has left there goes with the namespace.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.state()).status();
        assert!(unmounted.unwrap().success() || std::thread::panicking());
    }
}

/// What happens while the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Room,
    End(Signal, Option<i32>),
}

/// Fills the disk at an instant: after some commands, and some time. Whether the run had to wait for room.
fn round(n: usize) -> bool {
    let small = Small::new("12m");
    let script = small.script();
    let (commands, pause) = (n % STEPS, Duration::from_millis((n * 7 % 50) as u64));
    let then = match n % 3 {
        0 => Then::Room,
        1 => Then::End(Signal::TERM, Some(143)),
        _ => Then::End(Signal::KILL, None),
    };
    let context = format!("round {n}: after {commands} commands and {pause:?}, {then:?}");
    let running = small.start(&["run", &script, "go"]);
    until("it is under way", || small.ran().len() > commands);
    sleep(pause);
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    until("the run waits for room, or has ended", || {
        small.fill();
        small.waits_for_room() || has_ended()
    });
    let waited = !has_ended();
    let ended = match then {
        Then::End(signal, code) if waited => {
            let at = Instant::now();
            running.signal(signal);
            let output = running.end();
            assert_eq!(output.status.code(), code, "{context}: {}", stderr(&output));
            assert!(at.elapsed() < Duration::from_secs(3), "{context}: {:?}", at.elapsed());
            // Who looks at a store whose disk is full is told, and does not hang.
            let shown = small.hermod(&["runs", "show", "last"]).output().unwrap();
            assert!(matches!(shown.status.code(), Some(0 | 74)), "{context}: {}", stderr(&shown));
            small.empty();
            small.start(&["run", "--resume", "last"]).end()
        }
        Then::Room | Then::End(..) => {
            small.empty();
            running.end()
        }
    };
    assert_eq!(ended.status.code(), Some(0), "{context}: {}", stderr(&ended));
    small.check(&context);
    waited
}

#[test]
fn whenever_the_disk_is_full_runs_wait_and_go_on_when_it_is_not() {
    alone("whenever_the_disk_is_full_runs_wait_and_go_on_when_it_is_not", || {
        let rounds = env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(6);
        // Whether a run waits or ends before the disk is full depends on the machine, so more rounds may be needed.
        let (mut tried, mut waited) = (0, 0);
        while tried < rounds || waited <= rounds / 2 {
            assert!(tried < 4 * rounds, "{waited} of {tried}");
            waited += usize::from(round(tried));
            tried += 1;
        }
        println!("{waited} of {tried} runs waited for room");
    });
}

#[test]
fn too_little_room_refuses_new_runs_and_no_accepted_one() {
    alone("too_little_room_refuses_new_runs_and_no_accepted_one", || {
        let small = Small::new("32m");
        let script = small.script();
        let with_reserve = |args: &[&str]| {
            let mut command = small.hermod(args);
            command.env("HERMOD_STORE__RESERVE", "16MiB");
            command
        };
        let first = Running::new(with_reserve(&["run", "--key", "first", &script, "go"]).spawn().unwrap());
        until("it is under way", || !small.ran().is_empty());
        small.leave(12 << 20);
        let first = first.end();
        assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
        small.check("the accepted run");
        let refused = with_reserve(&["run", &script, "go"]).output().unwrap();
        let error = stderr(&refused);
        assert_eq!(refused.status.code(), Some(74), "{error}");
        let state = small.0.state();
        for part in [state.to_str().unwrap(), "free", "16.0 MiB", "store.reserve"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        // What is known already is no new run.
        let known = with_reserve(&["run", "--json", "--key", "first", &script, "go"]).output().unwrap();
        assert_eq!(known.status.code(), Some(0), "{}", stderr(&known));
        assert_eq!(object(&String::from_utf8_lossy(&known.stdout))["outcome"], "completed");
    });
}

#[test]
fn a_store_is_not_opened_on_a_full_disk() {
    alone("a_store_is_not_opened_on_a_full_disk", || {
        let small = Small::new("8m");
        small.fill();
        let at = Instant::now();
        let output = small.hermod(&["run", &small.script(), "go"]).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
        assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
        assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
        // Nothing is left that hinders.
        small.empty();
        let output = small.hermod(&["run", &small.script(), "go"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        drop(File::open(small.0.state().join("hermod.redb")).unwrap());
    });
}

#[test]
fn a_backup_and_a_restore_leave_room_for_records() {
    alone("a_backup_and_a_restore_leave_room_for_records", || {
        let small = Small::new("48m");
        let state = small.0.state();
        let script = small.0.script(&json!([{ "say": "done" }]));
        let output = small.hermod(&["run", &script, "go"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        for n in 0..4 {
            fs::write(state.join(format!("scripts/{n}.json")), vec![b'x'; 4 << 20]).unwrap();
        }
        let refused = |args: &[&str]| {
            let output = small.hermod(args).output().unwrap();
            let told = stderr(&output);
            assert!(
                output.status.code() == Some(74) && told.contains("bytes are missing on its disk"),
                "{told}"
            );
        };
        let narrow = state.with_file_name("narrow");
        fs::create_dir(&narrow).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"]).arg(&narrow);
        assert!(mount.status().unwrap().success());
        refused(&["backup", "create", narrow.join("backup").to_str().unwrap()]);
        assert_eq!(fs::read_dir(&narrow).unwrap().count(), 0);
        let backup = state.with_file_name("backup");
        let output = small.hermod(&["backup", "create", backup.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        small.leave(18 << 20);
        refused(&["backup", "restore", backup.to_str().unwrap(), "--replace"]);
        assert!(!state.join("restore.part").exists());
        small.empty();
        let output =
            small.hermod(&["backup", "restore", backup.to_str().unwrap(), "--replace"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    });
}
