//! What one iteration of one session costs: a model call over HTTP to a second process that answers at once, and one
//! call of a tool that does nothing. Beside it, in turns with it, the floors: the same rows by redb alone (strict), and
//! the same request by reqwest alone.
//!
//! `cargo bench --bench iteration -- [--rounds N] [--iterations N] [--messages N] [--threads N] [--only TEXT]`;
//! with 0 threads all is on the thread of the caller; `--only` leaves out what has not that text in its name.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{path::Path, sync::Arc};

use common::{
    endpoint::{self, Endpoint},
    floor::{Bare, Exchange},
    load::{Counted, Local, Ticks, endless, remote},
    usage::{Cost, Each},
};
use hermod::{
    provider::HttpProvider,
    store::redb::{Durability, RedbJournal},
};
use hermod_actors::{
    RunRequest, Runtime, SessionChoice,
    model::{Body, Record, StopReason},
};
use tempfile::TempDir;

/// Iterations before each measurement: a new run encodes its head, a new client connects.
const WARM: usize = 5;
const KEY: &str = "history";

/// A runtime, and the session in which the next sample is taken.
struct Subject {
    name: String,
    runtime: Runtime,
    provider: Arc<Counted<HttpProvider>>,
    session: SessionChoice,
    _dir: TempDir,
}

impl Subject {
    async fn new(base_url: &str, durability: Durability, messages: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        if messages > 0 {
            fill(dir.path(), messages).await;
        }
        let journal = RedbJournal::open(dir.path(), durability).expect("a store");
        let provider = Counted::new(remote(base_url));
        let world = endless(Arc::new(journal), Arc::<Counted<_>>::clone(&provider), 2);
        Self {
            name: format!("{durability:?}, {messages} messages").to_lowercase(),
            runtime: Runtime::start(world).await.expect("the runtime starts"),
            provider,
            session: if messages > 0 { SessionChoice::Key(KEY.into()) } else { SessionChoice::New },
            _dir: dir,
        }
    }

    async fn sample(&self, iterations: usize) -> Each {
        let request = RunRequest { session: self.session.clone(), ..RunRequest::new("Tick.") };
        let run = self.runtime.submit(request).await.expect("it is accepted").run;
        self.provider.ticks.after(WARM).await;
        let begin = Cost::now();
        self.provider.ticks.after(iterations).await;
        let spent = begin.spent();
        self.provider.keep();
        stop(&self.runtime, &self.provider.ticks, run).await;
        spent.each(iterations)
    }

    /// The records of the two appends of an iteration.
    async fn appends(&self) -> [Vec<Record>; 2] {
        let session = self.runtime.sessions(1).await.expect("a session").remove(0).id;
        let records = self.runtime.journal(session, 1).await.expect("its journal");
        let answered = |record: &Record| matches!(record.body, Body::ModelAnswered(_));
        let first = records.iter().position(|(_, record)| answered(record)).expect("an answer");
        let iteration = records[first..first + 5].iter().map(|(_, record)| Record::clone(record));
        let mut answer: Vec<_> = iteration.collect();
        let results = answer.split_off(3);
        [answer, results]
    }
}

/// Makes a session with a history.
async fn fill(dir: &Path, messages: usize) {
    let journal = Arc::new(RedbJournal::open(dir, Durability::Relaxed).expect("a store"));
    let provider = Counted::new(Local::new(std::time::Duration::ZERO, 1));
    let world = endless(Arc::<RedbJournal>::clone(&journal), Arc::<Counted<_>>::clone(&provider), 1);
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let session = SessionChoice::Key(KEY.into());
    let request = RunRequest { session, ..RunRequest::new("Tick.") };
    let run = runtime.submit(request).await.expect("it is accepted").run;
    provider.ticks.after(messages / 2).await;
    stop(&runtime, &provider.ticks, run).await;
    runtime.suspend().await;
    // Tasks on other threads may hold the store a moment longer.
    while Arc::strong_count(&journal) > 1 {
        tokio::task::yield_now().await;
    }
}

async fn stop(runtime: &Runtime, ticks: &Ticks, run: hermod_actors::model::RunId) {
    ticks.after(1).await;
    runtime.stop(run, StopReason::Command).await.expect("it stops");
    runtime.wait(run, None).await.expect("it ends");
}

struct Row {
    name: String,
    each: Each,
}

async fn measure(base_url: &str, messages: usize, rounds: usize, iterations: usize) -> Vec<Row> {
    let strict = Subject::new(base_url, Durability::Strict, messages).await;
    let relaxed = Subject::new(base_url, Durability::Relaxed, messages).await;
    strict.sample(1).await;
    relaxed.sample(1).await;
    let appends = strict.appends().await;
    let exchange = Exchange::new(base_url, strict.provider.body());
    let mut bare = Bare::new();
    exchange.make().await;
    let mut samples: [Vec<Each>; 4] = Default::default();
    for _ in 0..rounds {
        if common::is_wanted("bare commits") {
            let begin = Cost::now();
            (0..iterations).for_each(|_| appends.iter().for_each(|records| bare.commit(1, records)));
            samples[0].push(begin.spent().each(iterations));
        }
        if common::is_wanted("bare exchange") {
            let begin = Cost::now();
            for _ in 0..iterations {
                exchange.make().await;
            }
            samples[1].push(begin.spent().each(iterations));
        }
        for (subject, samples) in [&relaxed, &strict].into_iter().zip(&mut samples[2..]) {
            if common::is_wanted(&subject.name) {
                samples.push(subject.sample(iterations).await);
            }
        }
    }
    let size = exchange.bytes() as f64 / 1e6;
    let names =
        ["2 bare commits".into(), format!("1 bare exchange of {size:.3} MB"), relaxed.name, strict.name];
    let row = |(name, samples): (String, &Vec<Each>)| Row { name, each: Each::median(samples) };
    names.into_iter().zip(&samples).map(row).collect()
}

fn print(rows: &[Row]) {
    println!("\n{:<32} {:>10} {:>10}", "per iteration, medians in µs", "CPU", "wall");
    for Row { name, each } in rows {
        println!("{name:<32} {:>10.0} {:>10.0}", each.cpu, each.wall);
    }
    let [commits, exchange, relaxed, strict] = rows else { return };
    let floor = commits.each.cpu + exchange.each.cpu;
    println!("strict / (2 bare commits + 1 bare exchange), CPU: {:.2}", strict.each.cpu / floor);
    println!("relaxed - exchange, CPU: {:.0} µs", relaxed.each.cpu - exchange.each.cpu);
    let added = strict.each.wall - relaxed.each.wall;
    println!("(strict - relaxed) / 2 bare commits, wall: {:.2}", added / commits.each.wall);
}

fn main() {
    if endpoint::play_if_asked() {
        return;
    }
    let measured = common::is_measured();
    let rounds = common::option("--rounds", if measured { 20 } else { 2 });
    let iterations = common::option("--iterations", 20);
    let messages = common::option("--messages", if measured { 5_000 } else { 100 });
    let mut builder = match common::option("--threads", 0) {
        0 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime = builder.enable_all().build().expect("a runtime");
    let endpoint = Endpoint::start(&endpoint::script("0ms"));
    runtime.block_on(async {
        print(&measure(&endpoint.base_url, 0, rounds, iterations).await);
        print(&measure(&endpoint.base_url, messages, rounds, iterations).await);
    });
}
