//! What one iteration of one session costs: a model call over HTTP to a second process that answers at once, and one
//! call of a tool that does nothing; in a session with nothing before, and in those with so many messages. Beside it, in
//! turns with it, the floors: the same rows by redb alone (strict), and the same requests by reqwest alone. Nothing is
//! compressed: the runs have no `compression`.
//!
//! `cargo bench --bench iteration -- [--rounds N] [--iterations N] [--messages N,N] [--threads N] [--only TEXT]`;
//! with 0 threads all is on the thread of the caller; `--only` leaves out what has not that text in its name.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{iter, sync::Arc};

use common::{
    endpoint::{self, Endpoint},
    floor::{Bare, Exchange},
    load::{Counted, endless, remote},
    usage::{Cost, Each, quantile},
};
use hermod::{
    provider::HttpProvider,
    store::redb::{Durability, RedbJournal},
};
use hermod_actors::{
    RunRequest, Runtime,
    model::{AssistantMessage, Body, Message, Record, StopReason, ToolCall},
};
use tempfile::TempDir;

/// Iterations before each measurement: a new run encodes its head, a new client connects.
const WARM: usize = 5;
/// What a history may add to an iteration at most: microseconds of the processor for each MB of body.
const TARGET: f64 = 250.0;
/// MB from which on microseconds for each of them say something.
const ENOUGH: f64 = 0.05;

/// A runtime, and the conversation with which each sample begins.
struct Subject {
    name: String,
    runtime: Runtime,
    provider: Arc<Counted<HttpProvider>>,
    history: Vec<Message>,
    samples: Vec<Each>,
    _dir: TempDir,
}

impl Subject {
    async fn new(base_url: &str, durability: Durability, messages: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let journal = RedbJournal::open(dir.path(), durability).expect("a store");
        let provider = Counted::new(remote(base_url));
        let world = endless(Arc::new(journal), Arc::<Counted<_>>::clone(&provider), 2);
        Self {
            name: format!("{durability:?}, {messages} messages").to_lowercase(),
            runtime: Runtime::start(world).await.expect("the runtime starts"),
            provider,
            history: history(messages),
            samples: Vec::new(),
            _dir: dir,
        }
    }

    /// What an iteration costs in a new session; its request in the middle is kept.
    async fn sample(&self, iterations: usize) -> Each {
        let (runtime, ticks) = (&self.runtime, &self.provider.ticks);
        let request = RunRequest { history: self.history.clone(), ..RunRequest::new("Tick.") };
        let run = runtime.submit(request).await.expect("it is accepted").run;
        ticks.after(WARM).await;
        let begin = Cost::now();
        ticks.after(iterations / 2).await;
        self.provider.keep();
        ticks.after(iterations - iterations / 2).await;
        let spent = begin.spent();
        runtime.stop(run, StopReason::Command).await.expect("it stops");
        runtime.wait(run, None).await.expect("it ends");
        spent.each(iterations)
    }

    async fn take(&mut self, iterations: usize) {
        if common::is_wanted(&self.name) {
            let sample = self.sample(iterations).await;
            self.samples.push(sample);
        }
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

/// What was said before: one task with its calls and results.
fn history(messages: usize) -> Vec<Message> {
    let Some(within) = messages.checked_sub(2) else { return Vec::new() };
    let pair = |n: usize| {
        let id = format!("h{n}");
        let arguments = format!(r#"{{"text":"{}"}}"#, "0123456789".repeat(6));
        let result = Message::Tool {
            call: id.as_str().into(),
            name: "tick".into(),
            content: "0123456789".repeat(20).into(),
        };
        let calls = vec![ToolCall { id, name: "tick".into(), arguments }];
        [Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() }.into()), result]
    };
    let done = AssistantMessage { text: "It is done.".into(), ..AssistantMessage::default() };
    let pairs = (0..within / 2).flat_map(pair);
    iter::once(Message::User("Tick.".into())).chain(pairs).chain([Message::Assistant(done.into())]).collect()
}

/// Sessions with so many messages, and their request by reqwest alone.
struct Size {
    exchange: Exchange,
    exchanges: Vec<Each>,
    /// Relaxed and strict.
    subjects: [Subject; 2],
}

impl Size {
    async fn new(base_url: &str, messages: usize, iterations: usize) -> Self {
        let relaxed = Subject::new(base_url, Durability::Relaxed, messages).await;
        let strict = Subject::new(base_url, Durability::Strict, messages).await;
        relaxed.sample(iterations).await;
        strict.sample(iterations).await;
        let exchange = Exchange::new(base_url, strict.provider.body());
        exchange.make().await;
        Self { exchange, exchanges: Vec::new(), subjects: [relaxed, strict] }
    }

    async fn take(&mut self, iterations: usize) {
        if common::is_wanted("bare exchange") {
            let begin = Cost::now();
            for _ in 0..iterations {
                self.exchange.make().await;
            }
            self.exchanges.push(begin.spent().each(iterations));
        }
        for subject in &mut self.subjects {
            subject.take(iterations).await;
        }
    }

    fn megabytes(&self) -> f64 {
        self.exchange.bytes() as f64 / 1e6
    }

    fn print(&self, commits: Option<Each>) {
        let exchange = line(&format!("1 bare exchange of {:.3} MB", self.megabytes()), &self.exchanges);
        let [relaxed, strict] = self.subjects.each_ref().map(|of| line(&of.name, &of.samples));
        let (Some(commits), Some(exchange), Some(relaxed), Some(strict)) =
            (commits, exchange, relaxed, strict)
        else {
            return;
        };
        let floor = commits.cpu + exchange.cpu;
        println!("  strict / (2 bare commits + 1 bare exchange), CPU: {:.2}", strict.cpu / floor);
        println!("  relaxed - exchange, CPU: {:.0} µs", relaxed.cpu - exchange.cpu);
        let added = strict.wall - relaxed.wall;
        println!("  (strict - relaxed) / 2 bare commits, wall: {:.2}", added / commits.wall);
    }

    /// What is measured, by name.
    fn samples(&self) -> [(&str, &[Each]); 3] {
        let [relaxed, strict] = self.subjects.each_ref().map(|of| (of.name.as_str(), &*of.samples));
        [("1 bare exchange", &self.exchanges), relaxed, strict]
    }

    /// What the history adds to what the empty session takes.
    fn print_beside(&self, empty: &Self) {
        let megabytes = self.megabytes() - empty.megabytes();
        for ((name, with), (_, without)) in self.samples().into_iter().zip(empty.samples()) {
            let pairs = with.iter().zip(without);
            let more: Vec<f64> = pairs.map(|(with, without)| with.cpu - without.cpu).collect();
            if more.is_empty() {
                continue;
            }
            let more = quantile(more.into_iter(), 0.5);
            let each = if megabytes < ENOUGH { "-".into() } else { format!("{:.0}", more / megabytes) };
            let [with, without] = [with, without].map(|samples| Each::median(samples).cpu);
            println!(
                "{name:<26} {megabytes:>9.3} {without:>9.0} {with:>9.0} {more:>9.0} {:>9.0} {each:>9}",
                TARGET * megabytes,
            );
        }
    }
}

/// Prints the medians, if there are any.
fn line(name: &str, samples: &[Each]) -> Option<Each> {
    let each = (!samples.is_empty()).then(|| Each::median(samples))?;
    println!("{name:<32} {:>10.0} {:>10.0}", each.cpu, each.wall);
    Some(each)
}

async fn measure(base_url: &str, messages: &[usize], rounds: usize, iterations: usize) {
    let mut empty = Size::new(base_url, 0, iterations).await;
    let mut sizes = Vec::new();
    for messages in messages {
        sizes.push(Size::new(base_url, *messages, iterations).await);
    }
    let appends = empty.subjects[1].appends().await;
    let (mut bare, mut commits) = (Bare::new(), Vec::new());
    for _ in 0..rounds {
        if common::is_wanted("bare commits") {
            let begin = Cost::now();
            (0..iterations).for_each(|_| appends.iter().for_each(|records| bare.commit(1, records)));
            commits.push(begin.spent().each(iterations));
        }
        empty.take(iterations).await;
        for size in &mut sizes {
            size.take(iterations).await;
        }
    }
    println!("\n{:<32} {:>10} {:>10}", "per iteration, medians in µs", "CPU", "wall");
    let commits = line("2 bare commits", &commits);
    empty.print(commits);
    sizes.iter().for_each(|size| size.print(commits));
    println!(
        "\nCPU that a history adds: medians in µs; the target is {TARGET:.0} for each MB that it adds to a body"
    );
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "MB", "empty", "with it", "more", "target", "per MB"
    );
    sizes.iter().for_each(|size| size.print_beside(&empty));
}

fn main() {
    if endpoint::play_if_asked() {
        return;
    }
    let measured = common::is_measured();
    let rounds = common::option("--rounds", if measured { 20 } else { 2 });
    let iterations = common::option("--iterations", 20);
    let messages = common::options("--messages", if measured { &[10, 1_000, 5_000] } else { &[10, 300] });
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
    runtime.block_on(measure(&endpoint.base_url, &messages, rounds, iterations));
}
