//! Many sessions at once, strict.
//!
//! `cargo bench --bench sessions -- [--only NAME] [--sessions N] [--iterations N]`: `stops`, `remote`, `busy`, `records` or
//! `memory`; without a name all of them. `--iterations` are those of each session.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{future::Future, sync::Arc, time::Duration};

use common::{
    endpoint::{self, Endpoint},
    floor::Bare,
    journal::Watched,
    load::{Counted, Local, endless, remote},
    usage::{Cost, quantile, resident},
};
use futures::future::join_all;
use hermod::store::redb::{Durability, RedbJournal};
use hermod_actors::{
    RunRequest, Runtime,
    model::{Body, Record, RunId, StopReason},
    port::{Journal, ModelProvider},
};
use tempfile::TempDir;

/// How many runs are stopped while all run.
const STOPS: usize = 200;
/// Between two stops.
const PAUSE: Duration = Duration::from_millis(5);

/// A runtime with so many runs under way.
struct Crowd<P> {
    runtime: Arc<Runtime>,
    provider: Arc<Counted<P>>,
    journal: Arc<Watched>,
    runs: Vec<RunId>,
    _dir: TempDir,
}

impl<P: ModelProvider> Crowd<P> {
    async fn start(provider: P, durability: Durability, sessions: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let journal = Watched::new(RedbJournal::open(dir.path(), durability).expect("a store"));
        let provider = Counted::new(provider);
        let world = endless(
            Arc::<Watched>::clone(&journal) as Arc<dyn Journal>,
            Arc::<Counted<P>>::clone(&provider),
            1,
        );
        let runtime = Arc::new(Runtime::start(world).await.expect("the runtime starts"));
        let submits = (0..sessions).map(|_| runtime.submit(RunRequest::new("Tick.")));
        let accepted = join_all(submits).await.into_iter();
        let runs = accepted.map(|accepted| accepted.expect("it is accepted").run).collect();
        Self { runtime, provider, journal, runs, _dir: dir }
    }

    /// The cost of so many iterations of each session, when all are warm.
    async fn measure(&self, iterations: usize) -> Measured {
        let sessions = self.runs.len();
        self.provider.ticks.after(2 * sessions).await;
        let count = iterations * sessions;
        let (begin, commits) = (Cost::now(), self.journal.counts());
        self.provider.ticks.after(count).await;
        let spent = begin.spent();
        let after = self.journal.counts();
        let commits = std::array::from_fn(|at| after[at] - commits[at]);
        Measured { sessions, iterations: count, spent, commits }
    }
}

struct Measured {
    sessions: usize,
    iterations: usize,
    spent: Cost,
    /// Commits, writes, records.
    commits: [usize; 3],
}

impl Measured {
    fn print(&self, what: &str) {
        let Self { sessions, iterations, spent, commits: [commits, writes, records] } = *self;
        let wall = spent.wall.as_secs_f64();
        println!("\n{what}: {sessions} sessions, {iterations} iterations in {wall:.2} s");
        println!("  iterations/s          {:>8.0}", iterations as f64 / wall);
        println!("  CPU per iteration, µs {:>8.0}", spent.each(iterations).cpu);
        println!("  processors busy       {:>8.2}", spent.cpu.as_secs_f64() / wall);
        println!("  records/s             {:>8.0}", records as f64 / wall);
        println!("  appends per iteration {:>8.1}", writes as f64 / iterations as f64);
        println!("  appends per commit    {:>8.1}", writes as f64 / commits as f64);
        println!("  commits/s             {:>8.0}", commits as f64 / wall);
    }
}

/// 1,000 sessions, each answer with four calls; then some of them are stopped while the others go on.
async fn stops(sessions: usize, iterations: usize) {
    let model = Local::new(Duration::from_millis(20), 4);
    let crowd = Crowd::start(model, Durability::Strict, sessions).await;
    crowd.measure(iterations).await.print("stops: a model in this process, 20 ms, four calls");
    // 7919 is prime to the number of sessions, so that no run is stopped twice.
    let chosen = (0..STOPS.min(sessions / 2)).map(|n| crowd.runs[n * 7919 % sessions]);
    let mut stopping = Vec::new();
    for run in chosen {
        let runtime = Arc::clone(&crowd.runtime);
        stopping.push(tokio::spawn(async move {
            let begin = Cost::now();
            runtime.stop(run, StopReason::Command).await.expect("it stops");
            let answered = begin.spent().wall;
            runtime.wait(run, None).await.expect("it ends");
            (answered, begin.spent().wall)
        }));
        tokio::time::sleep(PAUSE).await;
    }
    let latencies = join_all(stopping).await;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let of = |q, pick: fn(&(Duration, Duration)) -> Duration| {
        quantile(latencies.iter().map(|both| ms(pick(both.as_ref().expect("no panic")))), q)
    };
    println!(
        "  stop is durable, ms    p50 {:.1}, p99 {:.1}",
        of(0.5, |both| both.0),
        of(0.99, |both| both.0)
    );
    println!(
        "  run has ended, ms      p50 {:.1}, p99 {:.1}",
        of(0.5, |both| both.1),
        of(0.99, |both| both.1)
    );
}

/// Sessions against a model in a second process.
async fn over_http(what: &str, delay: &str, sessions: usize, iterations: usize) {
    let endpoint = Endpoint::start(&endpoint::script(delay));
    let crowd = Crowd::start(remote(&endpoint.base_url), Durability::Strict, sessions).await;
    crowd.measure(iterations).await.print(what);
}

/// As many records as the disk takes, beside the bare engine with commits of the same size.
async fn records(sessions: usize, iterations: usize) {
    let crowd = Crowd::start(Local::new(Duration::ZERO, 1), Durability::Strict, sessions).await;
    let measured = crowd.measure(iterations).await;
    measured.print("records: a model in this process that answers at once");
    let session = crowd.runtime.sessions(1).await.expect("a session").remove(0).id;
    let journal = crowd.runtime.journal(session, 1).await.expect("its journal");
    let answered = |record: &Record| matches!(record.body, Body::ModelAnswered(_));
    let first = journal.iter().position(|(_, record)| answered(record)).expect("an answer");
    let five: Vec<_> = journal[first..first + 5].iter().map(|(_, record)| Record::clone(record)).collect();
    let [commits, writes, written] = measured.commits;
    drop(crowd);
    let batch = (writes as f64 / commits as f64).round() as usize;
    // Appends have three records and two in turns.
    let mut bare = Bare::new();
    let begin = Cost::now();
    for at in 0..commits {
        bare.commit(batch, if at % 2 == 0 { &five[..3] } else { &five[3..] });
    }
    let spent = begin.spent();
    let bare = (commits * batch) as f64 * 2.5 / spent.wall.as_secs_f64();
    let share = written as f64 / measured.spent.wall.as_secs_f64() / bare;
    println!("  bare store, records/s {bare:>8.0}");
    println!("  share of it           {share:>8.2}");
}

/// What a live session takes while its model is being asked.
async fn memory(sessions: usize, iterations: usize) {
    let before = resident();
    let model = Local::new(Duration::from_secs(2), 1);
    let crowd = Crowd::start(model, Durability::Strict, sessions).await;
    crowd.provider.ticks.after(iterations.max(1) * sessions).await;
    let after = resident();
    println!(
        "\nmemory: {sessions} live sessions, a model call of each under way, {iterations} iterations behind"
    );
    println!("  resident, MB          {:>8.1}", after as f64 / 1024.0);
    println!("  KiB for each          {:>8.1}", (after - before) as f64 / sessions as f64);
}

fn block_on(work: impl Future<Output = ()>) {
    let mut builder = match common::option("--threads", 2) {
        0 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    builder.enable_all().build().expect("a runtime").block_on(work);
}

fn main() {
    if endpoint::play_if_asked() {
        return;
    }
    // A test only sees that it works.
    let size = |sessions: usize, iterations: usize| match common::is_measured() {
        true => (common::option("--sessions", sessions), common::option("--iterations", iterations)),
        false => (sessions.min(20), 2),
    };
    if common::is_wanted("memory") {
        let (sessions, iterations) = size(10_000, 2);
        block_on(memory(sessions, iterations));
    }
    if common::is_wanted("stops") {
        let (sessions, iterations) = size(1_000, 20);
        block_on(stops(sessions, iterations));
    }
    if common::is_wanted("remote") {
        let (sessions, iterations) = size(100, 25);
        block_on(over_http("remote: a model over HTTP, 200 ms", "200ms", sessions, iterations));
    }
    if common::is_wanted("busy") {
        let (sessions, iterations) = size(1_000, 20);
        block_on(over_http("busy: a model over HTTP that answers at once", "0ms", sessions, iterations));
    }
    if common::is_wanted("records") {
        let (sessions, iterations) = size(64, 300);
        block_on(records(sessions, iterations));
    }
}
