//! The model in a process of its own, so that what it costs is not counted.

use std::{
    env,
    io::{BufRead, BufReader, Read, stdin},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use hermod::rehearsal::{Rehearsal, Script};

/// In the environment of the second process: the script it plays.
const SCRIPT: &str = "HERMOD_BENCH_SCRIPT";

/// A model that asks for the tool `tick` for ever, each time with another text; each answer has about five events.
pub(crate) fn script(delay: &str) -> String {
    let argument = "0123456789".repeat(6);
    format!(
        r#"{{"name":"bench","delay":"{delay}","chunk":40,"scripts":[{{"steps":[
            {{"repeat":"forever","call":[{{"tool":"tick","arguments":{{"text":"{argument}{{{{step}}}}"}}}}]}}]}}]}}"#
    )
}

/// A second process, which ends with this.
pub(crate) struct Endpoint {
    pub(crate) base_url: String,
    child: Child,
}

impl Endpoint {
    /// Starts this very program again, as the model.
    pub(crate) fn start(script: &str) -> Self {
        let exe = env::current_exe().expect("a program knows its file");
        let mut child = Command::new(exe)
            .env(SCRIPT, script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        Self { base_url: line.trim().to_owned(), child }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        self.child.wait().expect("the second process ends");
    }
}

/// Plays the model if this is the second process; to be called first.
pub(crate) fn play_if_asked() -> bool {
    let Ok(script) = env::var(SCRIPT) else { return false };
    let script = Arc::new(Script::parse(script.as_bytes()).expect("the benchmark's script is one"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let running = Rehearsal::start("127.0.0.1:0", script).await.expect("a free port");
        println!("{}", running.base_url);
        let parent = tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new()));
        parent.await.expect("no panic").expect("a pipe");
    });
    true
}
