//! From the start of a process to the progress of every unfinished run in its store; strict, with the model in another
//! process.
//!
//! `cargo bench --bench restart -- [--runs N] [--records N] [--calls N] [--delay MS] [--threads N]`: without `--runs` 1, 100
//! and 10,000. `--records` are those of each run; half of the runs were interrupted in a model call, half in a call of a
//! pure tool. `--calls` is how many model calls may be under way, `--delay` what each takes.
#![allow(clippy::cast_precision_loss, clippy::unchecked_time_subtraction)] // figures are read to three digits

mod common;

use std::{
    collections::BTreeMap,
    env, future,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

use common::{
    endpoint::{self, Endpoint},
    journal::Watched,
    load::{Local, Ticks, endless, remote},
    usage::{Cost, quantile, resident},
};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hermod::{
    clock::SystemClock,
    store::redb::{Durability, RedbJournal},
};
use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies,
    model::{Body, CallEnd, CallId, EffectClass, Failure, ModelAnswer, ModelProfile, Seq, SessionId},
    port::{
        DeltaSink, Encoder, Journal, JournalError, ModelProvider, ModelRequest, ReadFuture, RowReader,
        StoredRecord, WriteOp, WriteOutcome,
    },
};
use hermod_testkit::ScriptedTool;

/// In the environment of the process that is measured: the store, and where the model is.
const STORE: &str = "HERMOD_BENCH_STORE";
const MODEL: &str = "HERMOD_BENCH_MODEL";
/// Records of one iteration.
const EACH: usize = 5;

/// Whether the run is interrupted in this call: half of them in one of a model, half in one of a tool.
fn is_last(call: CallId, iterations: u32) -> bool {
    let asking = call.run.to_string().ends_with(|last: char| "02468ACEGJMPRTWY".contains(last));
    if asking { call.iteration > iterations } else { call.n > 0 && call.iteration == iterations }
}

/// A model that does not answer any more when a run is long enough.
#[derive(Debug)]
struct Halting {
    inner: Local,
    iterations: u32,
    halted: Arc<Ticks>,
}

impl ModelProvider for Halting {
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder> {
        self.inner.encoder(model, traits)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        if is_last(request.call, self.iterations) {
            self.halted.tick();
            return future::pending().boxed();
        }
        self.inner.call(request, deltas)
    }
}

/// Fills a store with so many runs that are under way.
async fn fill(dir: &Path, runs: usize, iterations: u32) {
    let journal = Arc::new(RedbJournal::open(dir, Durability::Relaxed).expect("a store"));
    let halted = Arc::<Ticks>::default();
    let model =
        Halting { inner: Local::new(std::time::Duration::ZERO, 1), iterations, halted: Arc::clone(&halted) };
    let ticks = Arc::clone(&halted);
    let tick = ScriptedTool::new("tick", EffectClass::Pure, move |invocation| {
        let halts = is_last(invocation.call, iterations);
        if halts {
            ticks.tick();
        }
        async move {
            if halts {
                future::pending::<()>().await;
            }
            CallEnd::ok("0123456789".repeat(20))
        }
    });
    let world = RuntimeDependencies { tools: vec![Arc::new(tick)], ..endless(journal, Arc::new(model), 1) };
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let submits = join_all((0..runs).map(|_| runtime.submit(RunRequest::new("Tick."))));
    let ((), accepted) = futures::join!(halted.after(runs), submits);
    assert!(accepted.iter().all(Result::is_ok), "all are accepted");
    runtime.suspend().await;
}

/// When each session had the first answer of a model on disk.
#[derive(Debug)]
struct Progress {
    inner: Arc<Watched>,
    begin: Cost,
    first: Arc<Mutex<BTreeMap<SessionId, Cost>>>,
    progressed: Arc<Ticks>,
}

impl Journal for Progress {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let answered = |write: &WriteOp| match write {
            WriteOp::Append(append) => {
                let is_answer =
                    append.records.iter().any(|record| matches!(record.body, Body::ModelAnswered(_)));
                is_answer.then_some(append.session)
            }
            WriteOp::Open(_)
            | WriteOp::Close(..)
            | WriteOp::Deliver(..)
            | WriteOp::UpdateDelivery(_)
            | WriteOp::RetryDelivery(..)
            | WriteOp::Schedule(_)
            | WriteOp::RemoveSchedule(..) => None,
        };
        let sessions: Vec<_> = batch.iter().filter_map(answered).collect();
        let (begin, first, progressed) = (self.begin, Arc::clone(&self.first), Arc::clone(&self.progressed));
        let commit = self.inner.commit(batch);
        commit
            .inspect(move |written| {
                assert!(written.is_ok(), "{written:?}");
                let spent = begin.spent();
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                for session in sessions {
                    first.entry(session).or_insert_with(|| {
                        progressed.tick();
                        spent
                    });
                }
            })
            .boxed()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.inner.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.inner.rows()
    }
}

/// Starts on a store, revives all, and prints how long it took until each went on.
async fn restart(begin: Cost, dir: &Path, base_url: &str) {
    let inner = Watched::new(RedbJournal::open(dir, Durability::Strict).expect("a store"));
    let opened = begin.spent();
    let first = Arc::<Mutex<BTreeMap<_, _>>>::default();
    let progressed = Arc::<Ticks>::default();
    let watched = Arc::clone(&inner);
    let journal = Progress { inner, begin, first: Arc::clone(&first), progressed: Arc::clone(&progressed) };
    let world = endless(Arc::new(journal), Arc::new(remote(base_url)), 2);
    let providers = world.providers.into_iter();
    let calls = common::option("--calls", 64);
    let providers = providers.map(|(name, provider, _)| (name, provider, calls)).collect();
    let world = RuntimeDependencies { providers, clock: Arc::new(SystemClock::default()), ..world };
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let rows = runtime.open_runs().await.expect("its runs");
    let listed = begin.spent();
    let ((), revived) = futures::join!(progressed.after(rows.len()), runtime.revive_all());
    let revived = revived.expect("they are revived");
    assert_eq!(revived, rows.len());
    let (all, [commits, writes, written]) = (begin.spent(), watched.counts());
    let records = runtime.journal(rows[0].session, 1).await.expect("its journal");
    let is_revived = |record: &Body| matches!(record, Body::SessionRevived(_));
    let before = records.iter().position(|(_, record)| is_revived(&record.body)).unwrap_or(0);
    let ms = |cost: Cost| cost.wall.as_secs_f64() * 1e3;
    let first = first.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |q| quantile(first.values().map(|at| ms(*at)), q);
    println!("\n{revived} unfinished runs, {before} records in one of them; {calls} calls at once");
    println!("  store open, ms            {:>8.1}", ms(opened));
    println!("  runs known, ms            {:>8.1}", ms(listed));
    println!("  first progress, ms        {:>8.1}", of(0.0));
    println!("  p50, ms                   {:>8.1}", of(0.5));
    println!("  p99, ms                   {:>8.1}", of(0.99));
    println!("  all, ms                   {:>8.1}", of(1.0));
    println!("  records for each          {:>8.1}", written as f64 / revived as f64);
    println!("  writes for each           {:>8.1}", writes as f64 / revived as f64);
    println!("  writes per commit         {:>8.1}", writes as f64 / commits as f64);
    println!("  commits/s                 {:>8.0}", commits as f64 / (all.wall - listed.wall).as_secs_f64());
    println!("  processors busy           {:>8.2}", all.cpu.as_secs_f64() / all.wall.as_secs_f64());
    println!("  resident, MB              {:>8.1}", resident() as f64 / 1024.0);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = match common::option("--threads", 2) {
        0 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    builder.enable_all().build().expect("a runtime")
}

fn main() {
    let begin = Cost::now();
    if endpoint::play_if_asked() {
        return;
    }
    if let (Ok(dir), Ok(base_url)) = (env::var(STORE), env::var(MODEL)) {
        return runtime().block_on(restart(begin, dir.as_ref(), &base_url));
    }
    // A test only sees that it works.
    let sizes = match (common::option("--runs", 0), common::is_measured()) {
        (0, true) => vec![1, 100, 10_000],
        (0, false) => vec![1, 5],
        (runs, _) => vec![runs],
    };
    let iterations = (common::option("--records", 50) / EACH).max(1);
    let endpoint = Endpoint::start(&endpoint::script(&format!("{}ms", common::option("--delay", 0))));
    for runs in sizes {
        let dir = tempfile::tempdir().expect("a folder");
        let iterations = u32::try_from(iterations).expect("not so many records");
        // Its end closes the store.
        runtime().block_on(fill(dir.path(), runs, iterations));
        // Else its next owner would wait for what was written here.
        rustix::fs::sync();
        let exe = env::current_exe().expect("a program knows its file");
        let mut measured = Command::new(exe);
        measured.args(env::args_os().skip(1)).env(STORE, dir.path()).env(MODEL, &endpoint.base_url);
        assert!(measured.status().expect("a process").success(), "it was measured");
    }
}
