//! Tests of a full disk. If the disk is full for a while, at any write of a run, the run waits and its records are the
//! same. If the disk stays full until the process ends, the next process finds all that was acknowledged, and resumes.

use std::{
    collections::BTreeMap,
    env, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hermod_actors::{
    RunRequest, Runtime,
    model::{CallEnd, CallId, EffectClass, Kind, Outcome, RunId, SessionId, WaitKind},
    port::Journal,
};
use hermod_testkit::{ScriptedProvider, ScriptedTool, calls, says, world};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, backends::InMemoryBackend};
use rustix::io::Errno;
use serde_json::json;
use tokio::time::sleep;

use super::{
    blobs::{Blobs, Spiller},
    disk_full_wait::DiskFullWait,
    engine::EngineFile,
    files::OsFileSystem,
    journal::{Durability, RedbJournal},
    open::OpenStore,
    preallocated_file::PreallocatedFile,
    tables::{META, Tables},
};

/// How much an attempt writes before it finds the disk full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trip {
    /// It writes nothing.
    Before,
    /// It writes one half.
    Half,
    /// It writes all, and reports that the disk is full.
    After,
}

const TRIPS: [Trip; 3] = [Trip::Before, Trip::Half, Trip::After];

#[derive(Debug, Default)]
struct Plan {
    /// The first attempt that fails, the number of failing ones, and how; `None` if none fails.
    full: Option<(usize, usize, Trip)>,
    attempts: usize,
    halved: bool,
}

/// Decides which attempts find the disk full.
#[derive(Debug, Clone, Default)]
pub(super) struct Trips(Arc<Mutex<Plan>>);

impl Trips {
    fn with<T>(&self, work: impl FnOnce(&mut Plan) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn around<T>(&self, attempt: &mut impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let trip = self.with(|plan| {
            plan.attempts += 1;
            let (at, times, trip) = plan.full?;
            (at..at.saturating_add(times)).contains(&plan.attempts).then_some(trip)
        });
        match trip {
            None => attempt(),
            Some(Trip::Before) => Err(Errno::NOSPC.into()),
            Some(Trip::After) => attempt().and_then(|_| Err(Errno::NOSPC.into())),
            Some(Trip::Half) => {
                self.with(|plan| plan.halved = true);
                let done = attempt();
                self.with(|plan| plan.halved = false);
                done.and_then(|_| Err(Errno::NOSPC.into()))
            }
        }
    }

    /// The delay between two attempts, if not the usual one.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.with(|plan| plan.full).map(|_| Duration::ZERO)
    }
}

/// The content of the disk, which outlives processes.
#[derive(Debug, Clone, Default)]
struct Stored(Arc<InMemoryBackend>, Trips);

impl StorageBackend for Stored {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let half = self.1.with(|plan| plan.halved);
        self.0.write(offset, if half { &data[..data.len() / 2] } else { data })
    }
}

/// Opens the store on that disk as a process does; afterwards the disk is full as `full` says.
fn journal(stored: &Stored, dir: &Path, full: Option<(usize, usize, Trip)>) -> (Arc<RedbJournal>, Trips) {
    let trips = stored.1.clone();
    trips.with(|plan| *plan = Plan::default());
    let disk_wait = Arc::new(DiskFullWait::tripping(trips.clone()));
    let disk = PreallocatedFile::new(stored.clone(), None, &dir.join("hermod.redb"), Arc::clone(&disk_wait));
    let db = EngineFile::new(&dir.join("hermod.redb")).open(disk, 256 << 20).unwrap();
    let txn = db.begin_write().unwrap();
    let epoch = {
        let mut meta = txn.open_table(META).unwrap();
        let epoch = meta.get("epoch").unwrap().map_or(1, |epoch| epoch.value() + 1);
        meta.insert("epoch", epoch).unwrap();
        epoch
    };
    let last_position = Tables::of(&txn).create().unwrap();
    txn.commit().unwrap();
    let blobs = Blobs::new(dir.join("blobs"));
    std::fs::create_dir_all(dir.join("blobs")).unwrap();
    let spiller = Spiller::new(blobs, Box::new(OsFileSystem), Arc::clone(&disk_wait));
    let store = OpenStore { dir: dir.to_owned(), db, epoch, last_position, spiller, disk_wait };
    trips.with(|plan| *plan = Plan { full, ..Plan::default() });
    (Arc::new(RedbJournal::start(store, Durability::Strict).unwrap()), trips)
}

/// Number of executions of each call.
type Done = Arc<Mutex<BTreeMap<CallId, u32>>>;

const ROUNDS: usize = 3;
/// Characters of a text that is too long to be stored inline.
const LONG: usize = 20_000;

async fn start(journal: &Arc<RedbJournal>, done: &Done) -> Runtime {
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let round = view.iter().filter(|message| message["role"] == "tool").count();
        let argument = format!("{round}").repeat(3_000);
        Ok(if round < ROUNDS { calls(&[("work", json!({ "with": argument }))]) } else { says("done") })
    });
    let done = Arc::clone(done);
    let tool = ScriptedTool::new("work", EffectClass::Once, move |invocation| {
        *done.lock().unwrap().entry(invocation.call).or_default() += 1;
        let n = invocation.call.iteration;
        std::future::ready(CallEnd::ok(format!("{n}").repeat(LONG)))
    });
    Runtime::start(world(Arc::clone(journal) as _, provider, vec![Arc::new(tool)])).await.unwrap()
}

fn request() -> RunRequest {
    RunRequest { idempotency_key: Some("once".into()), ..RunRequest::new("do it") }
}

/// The kinds of a session's records; asserts that there is no gap.
async fn kinds(journal: &RedbJournal, session: SessionId) -> Vec<Kind> {
    let rows = journal.records(session, 1, 10_000).await.unwrap();
    assert!(rows.iter().map(|row| row.seq).eq(1..=rows.len() as u64), "gaps");
    rows.iter().map(|row| row.record.body.kind()).collect()
}

/// Runs in a runtime of its own, whose drop ends all its tasks, as the end of a process does.
fn process<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

#[track_caller]
fn check_whole(stored: &Stored, context: &str) {
    let mut db: Database = Builder::new().create_with_backend(stored.clone()).unwrap();
    assert!(db.check_integrity().unwrap(), "{context}");
    drop(db.begin_read().unwrap());
}

/// The records of a whole run, and the number of attempts to write.
fn whole_run(full: Option<(usize, usize, Trip)>) -> (Vec<Kind>, usize) {
    let (stored, dir, done) = (Stored::default(), tempfile::tempdir().unwrap(), Done::default());
    let context = format!("{full:?}");
    let came = process(async {
        let (journal, trips) = journal(&stored, dir.path(), full);
        let runtime = start(&journal, &done).await;
        let result = runtime.run(request()).await.unwrap();
        assert_eq!(result.ended.outcome, Outcome::Completed, "{context}");
        assert_eq!(journal.disk_full(), None, "{context}");
        (kinds(&journal, result.session).await, trips.with(|plan| plan.attempts))
    });
    let done = done.lock().unwrap();
    assert!(done.len() == ROUNDS && done.values().all(|times| *times == 1), "{context}: {done:?}");
    check_whole(&stored, &context);
    came
}

/// The attempts to write that a test makes fail: each fifth, or all of them with `just full-disk`. Five is coprime with the
/// periods of the faults, so each fault meets some.
fn tried(attempts: usize) -> impl Iterator<Item = usize> {
    let all = env::var_os("HERMOD_FULL_DISK_ROUNDS").is_some();
    (1..=attempts).step_by(if all { 1 } else { 5 })
}

#[test]
fn a_run_comes_to_the_same_wherever_the_disk_is_full_for_a_while() {
    let (expected, attempts) = whole_run(None);
    assert!(attempts > 100, "{attempts} attempts are few");
    for at in tried(attempts) {
        let full = (at, 1 + at % 4, TRIPS[at % 3]);
        assert_eq!(whole_run(Some(full)).0, expected, "{full:?}");
    }
}

/// Waits until the run has ended or the disk is full for good; returns the run, if it was accepted.
async fn until_full(runtime: &Runtime, journal: &RedbJournal) -> Option<(RunId, SessionId)> {
    let full = async {
        while journal.disk_full().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let accepted = tokio::select! {
        accepted = runtime.submit(request()) => accepted.unwrap(),
        () = full => return None,
    };
    let full = async {
        while journal.disk_full().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        let waits = runtime.waits(accepted.run).await.unwrap();
        let is_told =
            |wait: &hermod_actors::model::RunWait| matches!(wait.kind, WaitKind::Disk { full: Some(_) });
        assert!(waits.iter().any(is_told), "{waits:?}");
    };
    tokio::select! {
        _ = runtime.wait(accepted.run, None) => {}
        () = full => {}
    }
    Some((accepted.run, accepted.session))
}

#[test]
fn a_process_that_ends_on_a_full_disk_leaves_all_that_it_has_acknowledged() {
    let (_, attempts) = whole_run(None);
    for at in tried(attempts) {
        let (stored, dir, done) = (Stored::default(), tempfile::tempdir().unwrap(), Done::default());
        let trip = TRIPS[at % 3];
        let before = process(async {
            let (journal, _) = journal(&stored, dir.path(), Some((at, usize::MAX, trip)));
            let runtime = start(&journal, &done).await;
            match until_full(&runtime, &journal).await {
                Some((run, session)) => Some((run, session, kinds(&journal, session).await)),
                None => None,
            }
        });
        process(async {
            let (journal, _) = journal(&stored, dir.path(), None);
            let runtime = start(&journal, &done).await;
            if let Some((_, session, before)) = &before {
                let after = kinds(&journal, *session).await;
                assert!(after.starts_with(before), "{at}: {before:?} became {after:?}");
            }
            runtime.revive_all().await.unwrap();
            let result = runtime.run(request()).await.unwrap();
            assert!(before.is_none_or(|(run, ..)| run == result.run), "{at}");
            assert_eq!(result.ended.outcome, Outcome::Completed, "{at}: {}", result.ended);
        });
        let done = done.lock().unwrap();
        assert!(done.values().all(|times| *times == 1), "{at}: {done:?}");
        check_whole(&stored, &format!("{at}, {trip:?}"));
    }
}

#[test]
fn only_the_writer_waits_and_it_waits_no_more_when_all_is_over() {
    let full = || Err::<(), _>(Errno::NOSPC.into());
    let disk_wait = Arc::new(DiskFullWait::default());
    let path = Path::new("/s/hermod.redb");
    // No thread was made the one that waits.
    assert!(disk_wait.retry_until_space(path, 1, full).is_err());
    let writer = Arc::clone(&disk_wait);
    let waiting = std::thread::spawn(move || {
        writer.wait_on_this_thread();
        writer.retry_until_space(path, 4_096, full)
    });
    while disk_wait.missing().is_none() {
        std::thread::yield_now();
    }
    assert!(disk_wait.may_block_readers());
    let missing = disk_wait.missing().unwrap();
    assert_eq!((missing.path.as_str(), missing.needed_bytes), ("/s/hermod.redb", 4_096));
    assert!(disk_wait.retry_until_space(path, 1, full).is_err(), "another thread waits too");
    disk_wait.stop_waiting();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(crate::disk_space::is_full(&error), "{error}");
    // Other errors are returned at once.
    disk_wait.wait_on_this_thread();
    assert_eq!(
        disk_wait.retry_until_space(path, 1, || Err::<(), _>(Errno::IO.into())).unwrap_err().raw_os_error(),
        Some(5)
    );
}
