//! Signals before anything is under way: the real binary, at a model server that never answers.

use std::{
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    running::{Running, texts},
    world::{World, object},
};

/// An Ollama that takes connections and says nothing. It is asked for its models for 2 s.
struct Mute(TcpListener);

impl Mute {
    fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn running(&self, world: &World, args: &[&str]) -> Running {
        let mut command = world.hermod(args);
        command.env("HERMOD_OLLAMA__ADDRESS", self.0.local_addr().unwrap().to_string());
        Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until something is asked; the connection lives as long as what is returned.
    fn asked(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    }
}

/// Sends a signal to a process that asks for the models, and returns what it printed: a JSON text, and its progress.
#[track_caller]
fn told(mute: &Mute, running: Running, (signal, code): (Signal, i32)) -> (Value, String) {
    let asked = mute.asked();
    running.signal(signal);
    let at = Instant::now();
    let output = running.end();
    let took = at.elapsed();
    drop(asked);
    let (json, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{progress}");
    assert!(took < Duration::from_secs(1), "{took:?}: {progress}");
    (object(&json), progress)
}

/// Leaves a run of the mute model behind, and says its id.
fn left(world: &World) -> String {
    let mute = Mute::listen();
    let mut running = mute.running(world, &["run", "--model", "ollama/x", "do it"]);
    let asked = mute.asked();
    let lines = BufReader::new(running.child().stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap).skip_while(|line| !line.contains("accepted  run "));
    let run = lines.next().unwrap().split(' ').nth(3).unwrap().to_owned();
    drop(asked);
    running.signal(Signal::KILL);
    running.end();
    run
}

const SIGNALS: [(Signal, i32); 2] = [(Signal::TERM, 143), (Signal::INT, 130)];

#[test]
fn a_signal_ends_the_start_of_a_run() {
    for signal in SIGNALS {
        let (world, mute) = (World::new(), Mute::listen());
        let running = mute.running(&world, &["run", "--json", "--model", "ollama/x", "do it"]);
        let (result, progress) = told(&mute, running, signal);
        assert_eq!((&result["run"], &result["outcome"]), (&Value::Null, &Value::Null), "{result}");
        let error = "the task was not accepted, as far as is known";
        assert_eq!(result["error"], error, "{result}");
        assert!(progress.contains(error) && !progress.contains("--resume"), "{progress}");
        assert!(!world.state().join("process.json").exists(), "it ended well");
        assert_eq!(object(&world.ok(&["runs", "list", "--json"])), json!([]));
    }
}

#[test]
fn a_signal_ends_the_start_of_what_goes_on() {
    let world = World::new();
    let run = left(&world);
    let mute = Mute::listen();
    for signal in SIGNALS {
        let running = mute.running(&world, &["runs", "resume", "--all", "--json"]);
        let (rows, progress) = told(&mute, running, signal);
        assert_eq!(rows[0]["id"], json!(run), "{rows} {progress}");
        let running = mute.running(&world, &["run", "--resume", "last", "--json"]);
        let (result, progress) = told(&mute, running, signal);
        assert_eq!((&result["run"], &result["error"]), (&json!(run), &json!("suspended")), "{result}");
        assert!(progress.contains(&format!("suspended run {run}")), "{progress}");
    }
}
