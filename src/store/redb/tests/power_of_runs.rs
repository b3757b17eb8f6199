//! Tests of power cuts under whole runtimes: several sessions, the real Persistence actor, the real committer. After
//! each cut the store has what was acknowledged, nothing in it is damaged, and its runs end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{CallEnd, EffectClass, RunState, Seq, SessionId},
    port::{Journal, JournalError, ReadFuture, RowReader, StoredRecord, Tool, WriteOp, WriteOutcome},
};
use hermod_testkit::{ScriptedProvider, ScriptedTool, VirtualClock, calls, says, world};
use serde_json::json;
use tokio::time::timeout;

use super::{
    chance::Chance,
    model::Book,
    power::{Disk, number},
};
use crate::store::redb::{
    Durability, RedbJournal,
    check::{ReferencedFiles, check_over},
    open::OpenStore,
};

/// Number of runs that are submitted to a runtime.
const RUNS: usize = 5;
/// Time limit of a run.
const LONG: Duration = Duration::from_mins(1);

/// A journal that records what it acknowledges.
#[derive(Debug)]
struct Noted {
    inner: RedbJournal,
    book: Arc<Mutex<Book>>,
}

impl Journal for Noted {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let book = Arc::clone(&self.book);
        noted(&book, |book| book.begins(&batch));
        let commit = self.inner.commit(batch);
        commit
            .inspect(move |written| {
                if let Ok(written) = written {
                    noted(&book, |book| book.acknowledged(written));
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

fn noted<T>(book: &Mutex<Book>, with: impl FnOnce(&mut Book) -> T) -> T {
    with(&mut book.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Three iterations with two calls each, one of which has a long result; then an answer.
pub(super) fn provider() -> ScriptedProvider {
    ScriptedProvider::new(Duration::ZERO, |view| {
        match view.iter().filter(|message| message["role"] == "tool").count() {
            seen if seen < 6 => Ok(calls(&[("read", json!({"n": seen})), ("write", json!({"n": seen}))])),
            seen => Ok(says(&format!("{seen} results"))),
        }
    })
}

fn tools() -> Vec<Arc<dyn Tool>> {
    let read = ScriptedTool::new("read", EffectClass::Pure, |invocation| async move {
        let length = if invocation.call.iteration == 2 { 18_000 } else { 500 };
        CallEnd::ok(format!("{} {}", invocation.call, "x".repeat(length)))
    });
    vec![Arc::new(read), Arc::new(ScriptedTool::fixed("write", EffectClass::Once, "written"))]
}

async fn start(store: OpenStore, book: &Arc<Mutex<Book>>) -> Runtime {
    let epoch = store.epoch;
    let inner = RedbJournal::start(store, Durability::Strict).expect("a thread");
    let journal = Noted { inner, book: Arc::clone(book) };
    // Each process draws ids of its own.
    let clock = Arc::new(VirtualClock::new(epoch));
    let world = RuntimeDependencies { clock, ..world(Arc::new(journal), provider(), tools()) };
    Runtime::start(world).await.expect("the runtime starts")
}

/// Resumes unfinished runs and accepts new ones, until the power is lost or all is done.
async fn work(store: OpenStore, book: &Arc<Mutex<Book>>, life: u64) {
    let runtime = start(store, book).await;
    let work = async {
        runtime.revive_all().await?;
        let requests = (0..RUNS).map(|n| RunRequest {
            session: SessionChoice::Key(format!("s{}", n % 3).into()),
            ..RunRequest::new(format!("task {n} of life {life}"))
        });
        let runs = join_all(requests.map(|request| runtime.run(request))).await;
        runs.into_iter().collect::<Result<Vec<_>, _>>()
    };
    // A refusal means that the store is gone. Its content is checked afterwards.
    let done = timeout(LONG, work).await.expect("neither an end nor a loss");
    if done.is_ok() {
        runtime.suspend().await;
    }
}

/// Brings all runs to their ends.
async fn finish(store: OpenStore, book: &Arc<Mutex<Book>>) -> Result<(), String> {
    let runtime = start(store, book).await;
    runtime.revive_all().await.map_err(|error| error.to_string())?;
    let rows = runtime.list(None, usize::MAX).await.map_err(|error| error.to_string())?;
    for row in rows {
        let ended = runtime.wait(row.id, Some(LONG)).await.map_err(|error| format!("{}: {error}", row.id))?;
        if ended.text() != Some("6 results") {
            return Err(format!("{} came to {}", row.id, ended.ended));
        }
    }
    let rows = runtime.list(None, usize::MAX).await.map_err(|error| error.to_string())?;
    let open = rows.iter().filter(|row| row.state != RunState::Ended).count();
    runtime.suspend().await;
    if open == 0 { Ok(()) } else { Err(format!("{open} runs have not ended")) }
}

/// Runs on an async runtime of its own, whose end drops every task, and the store with them.
pub(super) fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
    runtime.block_on(work)
}

/// Cuts the power twice, checks all of the store, and lets all runs end.
fn seed(seed: u64, cuts: &mut u64) -> Result<(), String> {
    let mut chance = Chance::of(seed);
    let mut disk = Disk::new(Vec::new());
    let book = Arc::<Mutex<Book>>::default();
    for life in 1..=2 {
        let spinning = disk.spin(Some(30 + chance.next() % 900));
        match disk.open(&spinning, life) {
            Ok(store) => on_runtime(work(store, &book, life)),
            Err(_) if spinning.is_lost() => {}
            Err(error) => return Err(format!("life {life}: it does not open: {error}")),
        }
        *cuts += 1;
        disk.cut(&spinning, &mut chance);
        let (_, journal) = disk.reopen(life)?;
        noted(&book, |book| book.settle(book.strict().into(), &journal))
            .map_err(|why| format!("life {life}: {why}"))?;
    }
    let spinning = disk.spin(None);
    let store = disk.open(&spinning, 9).map_err(|error| error.to_string())?;
    on_runtime(finish(store, &book))?;
    disk.cut(&spinning, &mut chance);
    let mut store = disk.open(&disk.spin(None), 9).map_err(|error| error.to_string())?;
    let missing = |_, _: &hermod_actors::model::Artifact| Ok(hermod_actors::port::Presence::Missing);
    let references = ReferencedFiles { blobs: &store.spiller.blobs, artifacts: Some(&missing) };
    let checked = check_over(&mut store.db, references).map_err(|error| error.to_string())?;
    match &checked.damages[..] {
        [] => Ok(()),
        [first, ..] => Err(format!("{first}, and {} more", checked.damages.len() - 1)),
    }
}

#[test]
fn runs_come_to_their_ends_when_the_power_is_lost() {
    let (first, most) = match number("HERMOD_SEED") {
        Some(only) => (only, 1),
        None => (1, number("HERMOD_CUTS").map_or(24, |cuts| cuts / 20)),
    };
    let (mut cuts, began) = (0, tokio::time::Instant::now());
    for number in first.. {
        seed(number, &mut cuts).unwrap_or_else(|why| panic!("HERMOD_SEED={number}: {why}"));
        if cuts >= most {
            break;
        }
    }
    println!("{cuts} power cuts under runtimes in {:.1} s", began.elapsed().as_secs_f64());
}
