//! The service under load: runs submitted and waited for over HTTP by clients with a connection each, against a scripted
//! model with a delay. Of the service: iterations a second, added latency, memory, processor time; and what it costs at rest.
//!
//! `cargo bench --bench service -- [--sessions N] [--iterations N] [--delay MS] [--watchers N]`
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    is_measured, option,
    served::{Client, Installation},
    usage::{Cost, quantile},
};
use futures::future::join_all;
use hermod::rehearsal::{Rehearsal, Script};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

fn script(iterations: usize, delay: usize) -> Value {
    let call = json!({ "call": [{ "tool": "todo", "arguments": {} }] });
    let mut steps = vec![call; iterations - 1];
    steps.push(json!({ "say": "done" }));
    json!({ "name": "load", "delay": format!("{delay}ms"), "scripts": [{ "steps": steps }] })
}

#[tokio::main]
async fn main() {
    let full = is_measured();
    let sessions = option("--sessions", if full { 1_000 } else { 3 });
    let iterations = option("--iterations", if full { 10 } else { 2 });
    let delay = option("--delay", if full { 200 } else { 1 });
    let watchers = option("--watchers", if full { 1_000 } else { 3 });
    let script = Script::parse(script(iterations, delay).to_string().as_bytes()).expect("a script");
    let model = Rehearsal::start("127.0.0.1:0", Arc::new(script)).await.expect("a model");
    let settings = "[tools]\ncalls = 10000\n[agent]\nloop_guard = false\n";
    let served = Installation::new(&model.base_url, settings).serve();
    println!("at rest: {} KiB", served.memory().0);
    let mut clients = join_all((0..sessions).map(|_| Client::connect(&served))).await;
    println!("{sessions} idle connections: {} KiB", served.memory().0);
    let (started, cpu) = (Cost::now(), served.cpu());
    let took = join_all(clients.iter_mut().map(Client::run)).await;
    let (wall, cpu) = (started.spent().wall.as_secs_f64(), served.cpu() - cpu);
    let total = (sessions * iterations) as f64;
    let ideal = Duration::from_millis((iterations * delay) as u64);
    let added = || took.iter().map(|took| took.saturating_sub(ideal).as_secs_f64() * 1e3);
    println!(
        "{sessions} sessions of {iterations} iterations, {delay} ms each: {:.0} iterations/s (ideal {:.0}); added to a run p50 \
         {:.0} ms, p99 {:.0} ms; {:.0} us CPU an iteration; {} KiB, at most {} KiB",
        total / wall,
        sessions as f64 / (delay as f64 / 1e3),
        quantile(added(), 0.5),
        quantile(added(), 0.99),
        cpu * 1e6 / total,
        served.memory().0,
        served.memory().1,
    );
    let (before, (memory, _)) = (served.cpu(), served.memory());
    let mut watching = join_all((0..watchers).map(|_| Client::connect(&served))).await;
    for watcher in &mut watching {
        watcher.send("GET", "/v1/events", "").await;
        let mut head = vec![0; 512];
        assert!(watcher.stream.read(&mut head).await.expect("an answer") > 0);
    }
    println!(
        "{watchers} idle watchers: {} KiB more, {:.0} us CPU each",
        served.memory().0.saturating_sub(memory),
        (served.cpu() - before) * 1e6 / watchers.max(1) as f64
    );
    let before = served.cpu();
    let took = Client::connect(&served).await.run().await;
    println!("a run beside them: {} ms, {:.0} ms CPU", took.as_millis(), (served.cpu() - before) * 1e3);
}
