//! What sessions cost that are only stored, and what it costs to bring them back.
//!
//! `cargo bench --bench stored -- [--only NAME] [--stored N] [--sessions N] [--rounds N] [--records N] [--messages N]`:
//! - `start`: a process on a store with so many finished sessions beside one on an empty store, in turns: medians and ratios;
//! - `fold`: from a session's records on disk to its state;
//! - `rest`: so many live sessions that are put to rest and revived, several times;
//! - `resume`: from the start of a process to the request of a run whose process was killed in a model call, with so many
//!   messages in its session beside none, in turns. Nothing is compressed: the runs have no `compression`.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{
    env, fs,
    future::{self, Future},
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    journal::Watched,
    load::{Counted, Local, Ticks, endless, remote},
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
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{AssistantMessage, FinishReason, ModelAnswer, ModelProfile, SessionId, Usage, decode, encode},
    open_approvals,
    port::{DeltaSink, Encoder, Journal, ModelProvider, ModelRequest},
};
use hermod_testkit::PlainEncoder;
use tempfile::TempDir;

/// In the environment of a process that is measured: the state directory.
const STATE: &str = "HERMOD_BENCH_STATE";
/// In the environment of a process that is killed: after how many answers its model says nothing more.
const ANSWERS: &str = "HERMOD_BENCH_ANSWERS";
/// In the environment of a process that goes on: where its model is.
const MODEL: &str = "HERMOD_BENCH_MODEL";
/// Sessions that are made at once.
const WAVE: usize = 2_000;
/// After this nobody waits for a session to rest any more.
const LONG: Duration = Duration::from_mins(2);

/// A model that answers at once, and when it was asked first.
#[derive(Debug, Default)]
struct Saying {
    encoder: Arc<PlainEncoder>,
    first: Mutex<Option<Cost>>,
}

impl ModelProvider for Saying {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::<PlainEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        _: ModelRequest,
        _: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, hermod_actors::model::Failure>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Cost::now);
        let message = AssistantMessage { text: "It is done. ".repeat(20), ..AssistantMessage::default() };
        let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
        async move { Ok(ModelAnswer { message, finish: FinishReason::Stop, usage }) }.boxed()
    }
}

async fn start(journal: Arc<dyn Journal>, provider: Arc<dyn ModelProvider>, idle: Duration) -> Runtime {
    let clock = Arc::new(SystemClock::default());
    let world = RuntimeDependencies { clock, idle, ..endless(journal, provider, 1) };
    Runtime::start(world).await.expect("the runtime starts")
}

fn request(n: usize) -> RunRequest {
    RunRequest { session: SessionChoice::Key(format!("session {n}").into()), ..RunRequest::new("Tick.") }
}

/// Runs a task in each of these sessions.
async fn run_each(runtime: &Runtime, sessions: impl Iterator<Item = usize>) -> Vec<SessionId> {
    let runs = sessions.map(async |n| runtime.run(request(n)).await.expect("it ends").session);
    join_all(runs).await
}

/// Waits until no session is live.
async fn rest(runtime: &Runtime) {
    let resting = async {
        while !runtime.supervision_tree().await.expect("the runtime is alive").sessions.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, resting).await.expect("all come to rest");
}

/// Fills a store with so many finished sessions.
async fn fill(state: &Path, sessions: usize) {
    let journal = RedbJournal::open(state, Durability::Relaxed).expect("a store");
    let runtime = start(Arc::new(journal), Arc::<Saying>::default(), Duration::from_millis(200)).await;
    for from in (0..sessions).step_by(WAVE) {
        run_each(&runtime, from..sessions.min(from + WAVE)).await;
    }
    runtime.suspend().await;
}

/// Starts on a store, and prints when it was ready, when its first model was asked, and what memory it took: ms, ms, KiB.
async fn measured_start(begin: Cost, state: &Path) {
    let journal = RedbJournal::open(state, Durability::Strict).expect("a store");
    let provider = Arc::<Saying>::default();
    let runtime = start(Arc::new(journal), Arc::<Saying>::clone(&provider) as _, LONG).await;
    assert_eq!(runtime.revive_all().await.expect("its runs"), 0);
    let (ready, memory) = (begin.spent(), resident());
    let accepted = runtime.submit(RunRequest::new("Tick.")).await.expect("it is accepted");
    runtime.wait(accepted.run, None).await.expect("it ends");
    let first = provider.first.lock().unwrap_or_else(PoisonError::into_inner).expect("it was asked") - begin;
    println!("{} {} {memory} {}", ms(ready), ms(first), resident());
    runtime.suspend().await;
}

/// What a start took on each of two stores, in turns.
fn compare_starts(sessions: usize, rounds: usize) {
    let (none, many) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let begin = Cost::now();
    for (dir, sessions) in [(&none, 0), (&many, sessions)] {
        block_on(fill(dir.path(), sessions));
    }
    rustix::fs::sync();
    let size = fs::metadata(many.path().join("hermod.redb")).expect("its file").len();
    println!("\nstart: {sessions} finished sessions ({} MB) beside none, {rounds} rounds", size >> 20);
    println!("  (the store was filled in {:.0} s)", begin.spent().wall.as_secs_f64());
    let names = ["ready, ms", "first request, ms", "resident when ready, KiB", "resident after a run, KiB"];
    print_ratios(&names, rounds, |is_many| {
        let dir = if is_many { &many } else { &none };
        let mut child = Command::new(env::current_exe().expect("a program knows its file"));
        let output = child.arg("--bench").env(STATE, dir.path()).output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    });
    let script = many.path().join("script.json");
    fs::write(&script, r#"{"name":"t","scripts":[{"steps":[{"say":"done"}]}]}"#).expect("written");
    print_ratios(&["`hermod run`, whole, ms"], rounds, |is_many| {
        let dir = if is_many { &many } else { &none };
        let work = TempDir::new().expect("a folder");
        let mut run = Command::new(env!("CARGO_BIN_EXE_hermod"));
        run.env_clear().env("HERMOD_HOME", dir.path()).current_dir(work.path());
        run.arg("run").arg(format!("--rehearse={}", script.display())).arg("hello");
        let begin = Cost::now();
        let output = run.output().expect("hermod starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        vec![ms(begin.spent())]
    });
}

/// A model that asks for so many ticks and then says nothing more.
#[derive(Debug)]
struct Halting {
    inner: Local,
    left: AtomicUsize,
    halted: Ticks,
}

impl ModelProvider for Halting {
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder> {
        self.inner.encoder(model, traits)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, hermod_actors::model::Failure>> {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return self.inner.call(request, deltas);
        }
        self.halted.tick();
        future::pending().boxed()
    }
}

/// Runs until the model says nothing more, and says so; to be killed then.
async fn halt(state: &Path, answers: usize) {
    let journal = RedbJournal::open(state, Durability::Strict).expect("a store");
    let (inner, left) = (Local::new(Duration::ZERO, 1), AtomicUsize::new(answers));
    let provider = Arc::new(Halting { inner, left, halted: Ticks::default() });
    let runtime = start(Arc::new(journal), Arc::<Halting>::clone(&provider) as _, LONG).await;
    let (accepted, ()) = futures::join!(runtime.submit(RunRequest::new("Tick.")), provider.halted.after(1));
    let session = accepted.expect("it is accepted").session;
    println!("{}", runtime.journal(session, 1).await.expect("its journal").len());
    future::pending::<()>().await;
}

/// Goes on with the run that is there; to be killed when it has asked its model.
async fn go_on(state: &Path, base_url: &str) {
    let journal = RedbJournal::open(state, Durability::Strict).expect("a store");
    let runtime = start(Arc::new(journal), Arc::new(remote(base_url)), LONG).await;
    assert_eq!(runtime.revive_all().await.expect("its runs"), 1);
    future::pending::<()>().await;
}

/// A process of this program on a store, with more in its environment; it is killed.
struct Killed(Child);

impl Killed {
    fn start(state: &Path, (name, value): (&str, &str)) -> Self {
        let mut command = Command::new(env::current_exe().expect("a program knows its file"));
        command.arg("--bench").env(STATE, state).env(name, value).stdout(Stdio::piped());
        Self(command.spawn().expect("a process"))
    }

    /// Milliseconds of the processor that its threads have taken.
    fn cpu(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it is alive");
        let nanos = threads.map(|thread| {
            let path = thread.expect("a thread").path().join("schedstat");
            // Empty if the thread has just ended.
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().next().map_or(0.0, |nanos| nanos.parse::<f64>().expect("a number"))
        });
        nanos.sum::<f64>() / 1e6
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("it has not ended");
        self.0.wait().expect("it ends");
    }
}

/// Reads a whole model call and answers nothing; its bytes. A request for the list of models is refused.
fn read_model_call(model: &TcpListener) -> usize {
    loop {
        let (stream, _) = model.accept().expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut length = None;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a line of the head");
            if line.trim().is_empty() {
                break;
            }
            let line = line.to_ascii_lowercase();
            let announced =
                line.strip_prefix("content-length:").map(|text| text.trim().parse().expect("a number"));
            length = length.or(announced);
        }
        let Some(length) = length else {
            let refusal = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(refusal).expect("the list is refused");
            continue;
        };
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("the whole body");
        return body.len();
    }
}

/// What a process takes until the run is asked for again that the last one has left, in turns with an empty session.
fn compare_resumes(messages: usize, rounds: usize) {
    let (none, many) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut records = String::new();
    for (dir, messages) in [(&none, 0), (&many, messages)] {
        let answers = (messages / 2).to_string();
        let mut child = Killed::start(dir.path(), (ANSWERS, &answers));
        records.clear();
        let stdout = child.0.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut records).expect("it says that it waits");
    }
    rustix::fs::sync();
    let model = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let base_url = format!("http://{}/v1", model.local_addr().expect("its address"));
    let mut bytes = 0;
    println!(
        "\nresume: a run in a session of {messages} messages ({} records) beside none, {rounds} rounds; target 50 ms",
        records.trim()
    );
    print_ratios(&["first request, ms", "processor by then, ms"], rounds, |is_many| {
        let dir = if is_many { &many } else { &none };
        let begin = Cost::now();
        let child = Killed::start(dir.path(), (MODEL, &base_url));
        bytes = read_model_call(&model);
        vec![ms(begin.spent()), child.cpu()]
    });
    println!("  (its body has {:.3} MB)", bytes as f64 / 1e6);
}

/// Measures without and with stored sessions in turns, and prints the medians of both and their ratio.
fn print_ratios(names: &[&str], rounds: usize, mut measure: impl FnMut(bool) -> Vec<f64>) {
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for is_many in [false, true] {
            let sample = measure(is_many);
            // The first of each reads its store from disk.
            if round > 0 || rounds == 1 {
                samples[usize::from(is_many)].push(sample);
            }
        }
    }
    for (at, name) in names.iter().enumerate() {
        let [none, many] = samples.each_ref().map(|of| quantile(of.iter().map(|sample| sample[at]), 0.5));
        println!("  {name:<26} {none:>9.1} {many:>9.1}   ratio {:.3}", many / none);
    }
}

/// Opens a store that was closed just now: its thread may still be about to let it go.
async fn open_again(store: &Path) -> RedbJournal {
    let opened = tokio::time::timeout(LONG, async {
        loop {
            if let Ok(journal) = RedbJournal::open(store, Durability::Relaxed) {
                return journal;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    opened.await.expect("the store is let go")
}

/// From the records of a session to its state.
async fn fold(records: usize, rounds: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = dir.path();
    let journal: Arc<dyn Journal> = Arc::new(RedbJournal::open(store, Durability::Relaxed).expect("a store"));
    let provider = Counted::new(Local::new(Duration::ZERO, 1));
    let runtime = start(Arc::clone(&journal), Arc::<Counted<Local>>::clone(&provider), LONG).await;
    let accepted = runtime.submit(RunRequest::new("Tick.")).await.expect("it is accepted");
    provider.ticks.after(records / 5).await;
    runtime.stop(accepted.run, hermod_actors::model::StopReason::Command).await.expect("it stops");
    runtime.wait(accepted.run, None).await.expect("it ends");
    let session = accepted.session;
    let stored = runtime.journal(session, 1).await.expect("its journal").len();
    runtime.suspend().await;
    drop(journal);
    let (mut read, mut decoded, mut folded, mut opened) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let journal: Arc<dyn Journal> = Arc::new(open_again(store).await);
        let (mut records, begin) = (Vec::new(), Cost::now());
        loop {
            let page = journal.records(session, records.len() as u64 + 1, 1_000).await.expect("records");
            if page.is_empty() {
                break;
            }
            records.extend(page.into_iter().map(|stored| stored.record));
        }
        read.push(ms(begin.spent()));
        let bytes: Vec<_> = records.iter().map(|record| encode(record)).collect();
        let begin = Cost::now();
        assert!(bytes.iter().all(|bytes| decode(bytes).is_ok()));
        decoded.push(ms(begin.spent()));
        let begin = Cost::now();
        assert!(open_approvals(session, records.iter().map(|record| &**record)).is_empty());
        folded.push(ms(begin.spent()));
        drop(records);
        let runtime = start(Arc::clone(&journal), Arc::<Saying>::default(), LONG).await;
        let before = runtime.journal(session, 1).await.expect("its journal").len() as u64;
        let begin = Cost::now();
        runtime.revive(session).expect("it is there");
        // It is awake when its first record is there.
        while journal.records(session, before + 1, 1).await.expect("records").is_empty() {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        opened.push(ms(begin.spent()));
        runtime.suspend().await;
    }
    let median = |of: Vec<f64>| quantile(of.into_iter(), 0.5);
    println!("\nfold: a session of {stored} records, median of {rounds}");
    let (read, decoded) = (median(read), median(decoded));
    println!("  read and decode, ms  {read:>8.2}");
    println!("    decode, ms         {decoded:>8.2}");
    println!("  fold, ms             {:>8.2}", median(folded));
    println!("  revive to awake, ms  {:>8.2}", median(opened));
}

/// Live sessions, put to rest and revived, several times.
async fn passivate(sessions: usize, rounds: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let (idle, late) = (Duration::from_secs(5), Duration::from_secs(5) / 8);
    let before = resident();
    let journal = Watched::new(RedbJournal::open(dir.path(), Durability::Strict).expect("a store"));
    let runtime =
        start(Arc::<Watched>::clone(&journal) as Arc<dyn Journal>, Arc::<Saying>::default(), idle).await;
    println!("\nrest: {sessions} sessions, each with a run behind it");
    println!("  round  live, MB  KiB each  resting, MB  rest, ms  CPU µs each  revive and run, CPU µs each");
    for round in 1..=rounds {
        let begin = Cost::now();
        run_each(&runtime, 0..sessions).await;
        let running = begin.spent().each(sessions);
        let live = resident();
        let count = runtime.supervision_tree().await.expect("the runtime is alive").sessions.len();
        // All of them only if none was idle for so long that it rests already.
        let (begin, closes) = (Cost::now(), journal.counts()[1]);
        while journal.counts()[1] == closes && begin.spent().wall < idle + late * 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begin = Cost::now();
        rest(&runtime).await;
        let resting = begin.spent();
        println!(
            "  {round:>5} {:>9.1} {:>9.1} {:>12.1} {:>9.0} {:>12.1} {:>12.1}   ({count} live)",
            live as f64 / 1024.0,
            live.saturating_sub(before) as f64 / sessions as f64,
            resident() as f64 / 1024.0,
            ms(resting),
            resting.each(sessions).cpu,
            running.cpu,
        );
    }
    let mut accepted = [Vec::new(), Vec::new()];
    for n in 0..sessions.min(1_000) {
        // First it is revived, then it is live.
        for of in &mut accepted {
            let begin = Cost::now();
            let run = runtime.submit(request(n)).await.expect("it is accepted");
            of.push(ms(begin.spent()));
            runtime.wait(run.run, None).await.expect("it ends");
        }
    }
    for (what, of) in ["accepted when resting", "accepted when live"].iter().zip(&accepted) {
        let at = |q| quantile(of.iter().copied(), q);
        println!("  {what:<22} p50 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.99));
    }
    rest(&runtime).await;
    runtime.suspend().await;
}

fn ms(cost: Cost) -> f64 {
    cost.wall.as_secs_f64() * 1e3
}

fn block_on(work: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime").block_on(work);
}

fn main() {
    let begin = Cost::now();
    if let Ok(state) = env::var(STATE) {
        let state = state.as_ref();
        return match (env::var(ANSWERS), env::var(MODEL)) {
            (Ok(answers), _) => block_on(halt(state, answers.parse().expect("a number"))),
            (Err(_), Ok(base_url)) => block_on(go_on(state, &base_url)),
            (Err(_), Err(_)) => block_on(measured_start(begin, state)),
        };
    }
    // A test only sees that it works.
    let size = |name, measured, tried| match common::is_measured() {
        true => common::option(name, measured),
        false => tried,
    };
    let rounds = size("--rounds", 9, 1);
    if common::is_wanted("fold") {
        block_on(fold(size("--records", 10_000, 50), rounds));
    }
    if common::is_wanted("rest") {
        let sessions = size("--sessions", 10_000, 20);
        block_on(passivate(sessions, size("--rounds", 5, 1)));
    }
    if common::is_wanted("resume") {
        compare_resumes(size("--messages", 10_000, 50), rounds);
    }
    if common::is_wanted("start") {
        compare_starts(size("--stored", 100_000, 50), rounds);
    }
}
