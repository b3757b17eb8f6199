//! What the HTTP door costs: runs of one iteration that clients submit and wait for, or follow as they stream, beside the
//! same runs by the library in a process of its own; in turns. The model is in a process of its own.
//!
//! `cargo bench --bench service_door -- [--runs N] [--clients N] [--rounds N]`
#![allow(clippy::cast_precision_loss, clippy::unchecked_time_subtraction)] // figures are read to three digits

mod common;

use std::{
    env,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{
    endpoint::{Endpoint, play_if_asked},
    is_measured, option,
    served::{Client, Installation, Served},
    usage::{Cost, quantile},
};
use futures::future::join_all;
use hermod::Builder;
use hermod_actors::{
    RunRequest, Runtime,
    model::{Body, EventBody},
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// In the environment of the process of the library: its state directory, and where the model is.
const STATE: &str = "HERMOD_BENCH_STATE";
const MODEL: &str = "HERMOD_BENCH_MODEL";
/// In its environment: whether each run is watched.
const IS_STREAMED: &str = "HERMOD_BENCH_STREAMED";
/// Bytes of an answer, which is streamed in pieces of `PIECE`.
const ANSWER: usize = 2_000;
const PIECE: usize = 40;
/// Runs before those that are measured.
const WARM_UP: usize = 50;

fn script() -> Value {
    let steps = [json!({ "say": "0123456789".repeat(ANSWER / 10), "chunk": PIECE })];
    json!({ "name": "door", "scripts": [{ "steps": steps }] })
}

/// Does something `runs` times, at most `clients` of them at once.
async fn repeat<F: Future<Output = ()>>((runs, clients): (usize, usize), work: impl Fn(usize) -> F) {
    let next = AtomicUsize::new(0);
    let share = async |client: usize| {
        while next.fetch_add(1, Ordering::Relaxed) < runs {
            work(client).await;
        }
    };
    join_all((0..clients).map(share)).await;
}

/// A run by the library, to its end.
async fn run_by_library(runtime: &Runtime, is_streamed: bool) {
    let accepted = runtime.submit(RunRequest::new("go")).await.expect("it is accepted");
    if !is_streamed {
        runtime.wait(accepted.run, None).await.expect("it ends");
        return;
    }
    let mut watch = runtime.watch(accepted.session, 1);
    loop {
        let event = watch.next().await.expect("its events");
        if let EventBody::Recorded { record } = event.body
            && matches!(record.body, Body::RunEnded(_))
        {
            return;
        }
    }
}

/// Measures the library, and prints the microseconds of a run, if this process was started for that.
async fn measure_library(sizes: (usize, usize)) -> bool {
    let (Ok(state), Ok(base_url)) = (env::var(STATE), env::var(MODEL)) else { return false };
    let is_streamed = env::var_os(IS_STREAMED).is_some();
    let model = "bench/load".parse().expect("a model");
    let builder = Builder::new(&state)
        .model(model, &base_url, None)
        .workspace(Path::new(&state).with_file_name("work"));
    let runtime = builder.start().await.expect("the runtime starts");
    repeat((WARM_UP, sizes.1), async |_| run_by_library(&runtime, is_streamed).await).await;
    let begin = Cost::now();
    repeat(sizes, async |_| run_by_library(&runtime, is_streamed).await).await;
    println!("{}", begin.spent().each(sizes.0).cpu);
    true
}

fn library(installation: &Installation, model: &Endpoint, is_streamed: bool) -> f64 {
    let mut process = Command::new(env::current_exe().expect("a program knows its file"));
    process.args(env::args().skip(1)).env(STATE, installation.path("state")).env(MODEL, &model.base_url);
    if is_streamed {
        process.env(IS_STREAMED, "1");
    }
    let output = process.output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// Follows the events of a new run to its end, on a connection of its own.
async fn stream(served: &Served, client: &mut Client) {
    let accepted = client.ask("POST", "/v1/runs", r#"{"input":"go"}"#).await;
    let mut events = Client::connect(served).await;
    let run = accepted["run"].as_str().expect("an id");
    events.send("GET", &format!("/v1/runs/{run}/events"), "").await;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        assert!(events.stream.read_buf(&mut text).await.expect("events") > 0, "they end with the run");
    }
    assert!(String::from_utf8_lossy(&text).contains("run.ended"), "its events are complete");
}

/// The microseconds of a run at the service.
async fn service(served: &Served, sizes: (usize, usize), is_streamed: bool) -> f64 {
    let clients = join_all((0..sizes.1).map(|_| Client::connect(served))).await;
    let clients: Vec<_> =
        clients.into_iter().map(|client| Arc::new(tokio::sync::Mutex::new(client))).collect();
    let run = async |client: usize| {
        let mut client = clients[client].lock().await;
        if is_streamed {
            stream(served, &mut client).await;
        } else {
            client.run().await;
        }
    };
    repeat((WARM_UP, sizes.1), run).await;
    let before = served.cpu();
    repeat(sizes, run).await;
    (served.cpu() - before) * 1e6 / sizes.0 as f64
}

async fn measure() {
    let full = is_measured();
    let sizes =
        (option("--runs", if full { 2_000 } else { 3 }), option("--clients", if full { 8 } else { 2 }));
    if measure_library(sizes).await {
        return;
    }
    let rounds = option("--rounds", if full { 7 } else { 1 });
    let model = Endpoint::start(&script().to_string());
    // The library's runs have no tools either.
    let installations = [(); 2].map(|()| Installation::new(&model.base_url, "[tools]\ninclude = []\n"));
    let served = installations[0].serve();
    for is_streamed in [false, true] {
        let (mut by_service, mut by_library) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            by_library.push(library(&installations[1], &model, is_streamed));
            by_service.push(service(&served, sizes, is_streamed).await);
        }
        let median = |values: &[f64]| quantile(values.iter().copied(), 0.5);
        let (service, library) = (median(&by_service), median(&by_library));
        println!(
            "{}: {service:.0} us CPU a run by the service, {library:.0} by the library: {:.0} more, {:.2} times",
            if is_streamed { "submit, and stream 50 deltas" } else { "submit and wait" },
            service - library,
            service / library,
        );
    }
}

fn main() {
    if !play_if_asked() {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(measure());
    }
}
