//! The start of a service: until it serves, with finished sessions in its store beside none; and until the last of many
//! unfinished runs goes on, after the service was killed. The model is in a process of its own.
//!
//! `cargo bench --bench service_start -- [--stored N] [--unfinished N] [--clients N] [--rounds N]`
#![allow(clippy::cast_precision_loss, clippy::unchecked_time_subtraction)] // figures are read to three digits

mod common;

use std::time::Duration;

use common::{
    endpoint::{Endpoint, play_if_asked},
    is_measured, option,
    served::{Client, Installation, Served},
    usage::{Cost, quantile},
};
use futures::future::join_all;
use serde_json::json;
use tokio::time::sleep;

/// Pause between two looks at the progress of runs.
const POLL: Duration = Duration::from_millis(50);

/// A model that answers after this time.
fn script(delay: &str) -> String {
    json!({ "name": "start", "delay": delay, "scripts": [{ "steps": [{ "say": "done" }] }] }).to_string()
}

/// Submits runs by clients with a connection each.
async fn submit(served: &Served, (clients, runs): (usize, usize)) {
    let submit_share = async |first: usize| {
        let mut client = Client::connect(served).await;
        for n in (first..runs).step_by(clients) {
            client.ask("POST", "/v1/runs", &json!({ "input": format!("go {n}") }).to_string()).await;
        }
    };
    join_all((0..clients).map(submit_share)).await;
}

/// Waits until the service has no work.
async fn rest(served: &Served) {
    loop {
        let before = served.cpu();
        sleep(10 * POLL).await;
        if served.cpu() <= before {
            return;
        }
    }
}

/// How many runs the service has completed since it started.
async fn completed(client: &mut Client) -> usize {
    let metrics = client.text("GET", "/metrics", "").await;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("hermod_runs_ended_total") && line.contains("\"completed\""));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<usize>().expect("a number")).sum()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints how long starts take with finished sessions in the store, in turns with an empty store.
async fn measure_stored(model: &Endpoint, (clients, stored): (usize, usize), rounds: usize) {
    let (none, many) = (Installation::new(&model.base_url, ""), Installation::new(&model.base_url, ""));
    {
        let served = many.serve();
        submit(&served, (clients, stored)).await;
        rest(&served).await;
    }
    // The first start after a kill may have more to do than others.
    drop(many.serve());
    let (mut without, mut with, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(ms(none.serve().ready_after));
        let served = many.serve();
        with.push(ms(served.ready_after));
        sleep(10 * POLL).await;
        memory.push(served.memory().0 as f64);
    }
    let median = |values: &[f64]| quantile(values.iter().copied(), 0.5);
    println!(
        "{stored} stored sessions: serves after {:.1} ms (at most {:.1}), beside {:.1} ms of an empty store; {:.0} KiB",
        median(&with),
        quantile(with.iter().copied(), 1.0),
        median(&without),
        median(&memory)
    );
}

/// Prints how long unfinished runs take to go on after the service was killed.
/// The first model answers none of them, so that they are queued for it or in a call; the other one answers at once.
async fn measure_unfinished(model: &Endpoint, (clients, unfinished): (usize, usize)) {
    let slow = Endpoint::start(&script("1h"));
    let installation = Installation::new(&slow.base_url, "");
    {
        let served = installation.serve();
        submit(&served, (clients, unfinished)).await;
        rest(&served).await;
    }
    installation.configure(&model.base_url, "");
    let started = Cost::now();
    let served = installation.serve();
    let mut client = Client::connect(&served).await;
    let (mut first, mut half) = (None, None);
    let last = loop {
        let done = completed(&mut client).await;
        let now = started.spent().wall;
        if done > 0 {
            first.get_or_insert(now);
        }
        if done * 2 >= unfinished {
            half.get_or_insert(now);
        }
        if done >= unfinished {
            break now;
        }
        sleep(POLL).await;
    };
    let (cpu, (_, memory)) = (served.cpu(), served.memory());
    println!(
        "{unfinished} unfinished runs: serves after {:.0} ms; answers of models are durable for the first run after {:.0} ms, \
         half of them {:.0} ms, the last {:.0} ms; {cpu:.2} s CPU, at most {memory} KiB",
        ms(served.ready_after),
        ms(first.unwrap_or(last)),
        ms(half.unwrap_or(last)),
        ms(last),
    );
}

fn main() {
    if !play_if_asked() {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(measure());
    }
}

async fn measure() {
    let full = is_measured();
    let stored = option("--stored", if full { 100_000 } else { 5 });
    let unfinished = option("--unfinished", if full { 10_000 } else { 5 });
    let clients = option("--clients", if full { 64 } else { 2 });
    let rounds = option("--rounds", if full { 9 } else { 1 });
    let model = Endpoint::start(&script("0ms"));
    if unfinished > 0 {
        measure_unfinished(&model, (clients, unfinished)).await;
    }
    if stored > 0 {
        measure_stored(&model, (clients, stored), rounds).await;
    }
}
