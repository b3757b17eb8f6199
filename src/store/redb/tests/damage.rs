//! Tests with random damage to the engine's file. Each way of using the store gives the answer of the undamaged store,
//! or an error. `HERMOD_DAMAGES=2000` damages more often, `HERMOD_SEED=N` repeats one seed.

use std::{
    fmt::Debug,
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{Artifact, CallEnd, EffectClass, RunId, SessionId},
    port::{Presence, Tool},
};
use hermod_testkit::{ScriptedTool, VirtualClock, world};
use tokio::{sync::Notify, time::timeout};

use super::{
    chance::Chance,
    power::number,
    power_of_runs::{on_runtime, provider},
};
use crate::store::redb::{Durability, RedbJournal, check, inspect, open::STORE_FILE};

/// Runs in the store, in sessions of four each.
const RUNS: usize = 24;
/// Number of damages without `HERMOD_DAMAGES`.
const DAMAGES: u64 = 60;
/// Time limit of an answer.
const LONG: Duration = Duration::from_secs(100);
const PAGE: usize = 4096;
/// Bytes of the engine's header.
const HEADER: usize = 320;

/// The answer of one way of using the store, with errors as texts.
type Answer = Result<String, String>;

/// Files of a store.
#[derive(Clone)]
struct Image {
    file: Vec<u8>,
    /// Earlier contents of the same file, the latest last.
    earlier: Vec<Vec<u8>>,
    blobs: Arc<tempfile::TempDir>,
}

/// Tools, one of which does not end while `hold` is set.
fn tools(hold: &Arc<AtomicBool>, held: &Arc<Notify>) -> Vec<Arc<dyn Tool>> {
    let tool = |name: &'static str, holds: bool| {
        let (hold, held) = (Arc::clone(hold), Arc::clone(held));
        ScriptedTool::new(name, EffectClass::Pure, move |invocation| {
            let (hold, held) = (Arc::clone(&hold), Arc::clone(&held));
            async move {
                let iteration = invocation.call.iteration;
                if holds && iteration == 3 && hold.load(Ordering::Relaxed) {
                    held.notify_one();
                    std::future::pending::<()>().await;
                }
                let length = if iteration == 2 { 18_000 } else { 700 };
                CallEnd::ok(format!("{} {}", invocation.call, "x".repeat(length)))
            }
        })
    };
    vec![Arc::new(tool("read", false)), Arc::new(tool("write", true))]
}

async fn start(dir: &Path, (hold, held): (&Arc<AtomicBool>, &Arc<Notify>)) -> Result<Runtime, String> {
    let journal = RedbJournal::open(dir, Durability::Strict).map_err(|error| error.to_string())?;
    let life = fs::metadata(dir.join(STORE_FILE)).map_or(0, |file| file.len());
    let clock = Arc::new(VirtualClock::new(life));
    let world = RuntimeDependencies { clock, ..world(Arc::new(journal), provider(), tools(hold, held)) };
    Runtime::start(world).await.map_err(|error| error.to_string())
}

fn idle() -> (Arc<AtomicBool>, Arc<Notify>) {
    (Arc::default(), Arc::default())
}

/// A store with runs, one of which has not ended. The process that wrote it ended normally, or was killed.
fn image(is_killed: bool) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let mut earlier = Vec::new();
    let (hold, held) = idle();
    let snap = || fs::read(dir.path().join(STORE_FILE)).unwrap();
    let file = on_runtime(async {
        let runtime = start(dir.path(), (&hold, &held)).await.unwrap();
        let request = |n: usize| RunRequest {
            session: SessionChoice::Key(format!("s{}", n / 4).into()),
            ..RunRequest::new(format!("task {n}"))
        };
        for n in 0..RUNS {
            runtime.run(request(n)).await.unwrap();
            earlier.push(snap());
        }
        hold.store(true, Ordering::Relaxed);
        runtime.submit(request(RUNS)).await.unwrap();
        timeout(LONG, held.notified()).await.unwrap();
        let killed = snap();
        runtime.suspend().await;
        killed
    });
    let file = if is_killed { file } else { snap() };
    fs::remove_file(dir.path().join(STORE_FILE)).unwrap();
    Image { file, earlier, blobs: Arc::new(dir) }
}

impl Image {
    /// A folder with this store.
    fn folder(&self) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        copy_all(self.blobs.path(), dir.path()).unwrap();
        fs::write(dir.path().join(STORE_FILE), &self.file).unwrap();
        dir
    }

    fn answers(&self) -> Vec<(&'static str, Answer)> {
        let mut answers = on_runtime(read(self.folder().path()));
        answers.push(("check", checked(self.folder().path())));
        answers.push(("backup", backup(self.folder().path())));
        answers.push(("resume", on_runtime(resume(self.folder().path()))));
        answers
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy_all(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn text<T: Debug, E: ToString>(answer: Result<T, E>) -> Answer {
    answer.map(|answer| format!("{answer:?}")).map_err(|error| error.to_string())
}

/// `runs list`, `runs show`, `sessions list`, `journal`.
async fn read(dir: &Path) -> Vec<(&'static str, Answer)> {
    let (hold, held) = idle();
    let runtime = match start(dir, (&hold, &held)).await {
        Ok(runtime) => runtime,
        Err(error) => return vec![("open", Err(error))],
    };
    let mut answers = vec![
        ("list", text(runtime.list(None, usize::MAX).await)),
        ("open runs", text(runtime.open_runs().await)),
        ("sessions", text(runtime.sessions(usize::MAX).await)),
    ];
    for run in runtime.list(None, usize::MAX).await.unwrap_or_default() {
        answers.push(("row", text(runtime.row(run.id).await)));
    }
    for session in runtime.sessions(usize::MAX).await.unwrap_or_default() {
        answers.push(("journal", text(runtime.journal(session.id, 1).await)));
    }
    runtime.suspend().await;
    answers
}

/// `runs resume --all --wait`.
async fn resume(dir: &Path) -> Answer {
    let (hold, held) = idle();
    let runtime = start(dir, (&hold, &held)).await?;
    let done = async {
        let open: Vec<RunId> = runtime.open_runs().await?.iter().map(|run| run.id).collect();
        runtime.revive_all().await?;
        let mut ends = Vec::new();
        for run in open {
            ends.push(runtime.wait(run, Some(LONG)).await?.text().map(str::to_owned));
        }
        Ok::<_, hermod_actors::RunError>(ends)
    };
    let done = timeout(LONG, done).await.unwrap_or_else(|_| panic!("resume hangs"));
    let answer = match done {
        Ok(ends) if ends.contains(&None) => Err("a run has not completed".to_owned()),
        done => text(done),
    };
    runtime.suspend().await;
    answer
}

/// `store check`.
fn checked(dir: &Path) -> Answer {
    let missing = |_: SessionId, _: &Artifact| Ok(Presence::Missing);
    let checked = check(dir, &missing).map_err(|error| error.to_string())?;
    match checked.damages.first() {
        Some(damage) => Err(damage.to_string()),
        None => Ok(format!("{:?}", crate::store::redb::StoreCounts { bytes: 0, ..checked.counts })),
    }
}

/// `backup create`, and what is in the backup.
fn backup(dir: &Path) -> Answer {
    let journal = RedbJournal::open(dir, Durability::Strict).map_err(|error| error.to_string())?;
    let copy = dir.join("copy");
    let copied = journal.snapshot().and_then(|snapshot| snapshot.copy(&copy, &mut |_| Ok(())));
    copied.map_err(|error| error.to_string())?;
    let found = inspect(&copy, &dir.join("blobs"), &mut |_| Ok(())).map_err(|error| error.to_string())?;
    match found.checked.damages.first() {
        Some(damage) => Err(damage.to_string()),
        None => Ok(format!("{:?}", crate::store::redb::StoreCounts { bytes: 0, ..found.checked.counts })),
    }
}

/// Damages the file; returns a description.
fn damage(image: &mut Image, chance: &mut Chance) -> String {
    match chance.below(11) {
        0..=4 => damage_byte(&mut image.file, chance),
        5..=8 => damage_page(image, chance),
        _ => damage_length(&mut image.file, chance),
    }
}

fn any_byte(chance: &mut Chance) -> u8 {
    u8::try_from(chance.below(256)).unwrap()
}

fn damage_byte(file: &mut [u8], chance: &mut Chance) -> String {
    let bit = 1 << chance.below(8);
    let byte = match chance.below(5) {
        0 => chance.below(file.len() / PAGE) * PAGE + chance.below(256),
        1 => chance.below(HEADER),
        _ => chance.below(file.len()),
    };
    if chance.one_in(5) {
        file[byte] = any_byte(chance);
        return format!("byte {byte} is another one");
    }
    file[byte] ^= bit;
    format!("bit {bit:#x} of byte {byte} is flipped")
}

fn damage_page(image: &mut Image, chance: &mut Chance) -> String {
    let file = &mut image.file;
    let pages = file.len() / PAGE;
    let at = chance.below(pages) * PAGE;
    match chance.below(4) {
        0 => {
            file[at..at + PAGE].fill(0);
            format!("the page at {at} is zeroed")
        }
        1 => {
            file[at..at + PAGE].fill_with(|| any_byte(chance));
            format!("the page at {at} is overwritten")
        }
        2 => {
            let other = chance.below(pages) * PAGE;
            let (one, two) = (file[at..at + PAGE].to_vec(), file[other..other + PAGE].to_vec());
            file[at..at + PAGE].copy_from_slice(&two);
            file[other..other + PAGE].copy_from_slice(&one);
            format!("the pages at {at} and {other} are swapped")
        }
        _ => {
            // An older header would be valid, and nothing would show that it is not the latest.
            let at = at.max(PAGE);
            let versions: Vec<_> = image.earlier.iter().filter_map(|old| old.get(at..at + PAGE)).collect();
            let old = versions.get(chance.below(versions.len().max(1))).copied().unwrap_or(&[0; PAGE]);
            file[at..at + PAGE].copy_from_slice(old);
            format!("the page at {at} is an older one")
        }
    }
}

fn damage_length(file: &mut Vec<u8>, chance: &mut Chance) -> String {
    if chance.one_in(2) {
        let len = chance.below(file.len());
        let len = if chance.one_in(2) { len / PAGE * PAGE } else { len };
        file.truncate(len);
        return format!("the file is cut to {len} bytes");
    }
    let more = if chance.one_in(2) { PAGE * (1 + chance.below(300)) } else { 1 + chance.below(9_000) };
    file.resize(file.len() + more, if chance.one_in(2) { 0 } else { 0xa5 });
    format!("the file is {more} bytes longer")
}

#[derive(Debug, Default)]
struct Tally {
    damages: u64,
    /// All answers are those of the undamaged store.
    identical: u64,
    /// Some or all answers are errors.
    errors: u64,
    /// The check found the damage.
    checked: u64,
}

/// Tries one damage; the error says which answer is wrong.
fn seed(seed: u64, images: &[(Image, Vec<(&'static str, Answer)>)], tally: &mut Tally) -> Result<(), String> {
    let mut chance = Chance::of(seed);
    let (image, expected) = &images[chance.below(images.len())];
    let mut image = image.clone();
    let how = damage(&mut image, &mut chance);
    let (done, answers) = mpsc::sync_channel(1);
    let work = thread::spawn(move || drop(done.send(image.answers())));
    let answers = match answers.recv_timeout(LONG * 2) {
        Ok(answers) => answers,
        Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("{how}: it hangs")),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = work.join().err();
            let text = panic.as_ref().and_then(|panic| panic.downcast_ref::<String>()).cloned();
            return Err(format!("{how}: a panic: {}", text.unwrap_or_default()));
        }
    };
    tally.damages += 1;
    let is_failed = answers.iter().any(|(_, answer)| answer.is_err());
    tally.errors += u64::from(is_failed);
    tally.identical += u64::from(!is_failed);
    let check = answers.iter().find(|(what, _)| *what == "check");
    tally.checked += u64::from(check.is_some_and(|(_, answer)| answer.is_err()));
    for (n, (what, answer)) in answers.iter().filter(|(_, answer)| answer.is_ok()).enumerate() {
        if !expected.iter().any(|one| one == &(*what, answer.clone())) {
            return Err(format!("{how}: answer {n} ({what}) is silently another one: {answer:?}"));
        }
    }
    if !is_failed && answers != *expected {
        return Err(format!("{how}: {} answers, not {}", answers.len(), expected.len()));
    }
    if let Some((_, Ok(_))) = check
        && is_failed
    {
        let first = answers.iter().find(|(_, answer)| answer.is_err());
        return Err(format!("{how}: the check finds nothing, and {first:?}"));
    }
    Ok(())
}

#[test]
fn damage_is_an_error_and_never_another_answer() {
    let images = [false, true].map(|is_killed| {
        let image = image(is_killed);
        let expected = image.answers();
        for (what, answer) in &expected {
            assert!(answer.is_ok(), "{what}: {answer:?}");
        }
        (image, expected)
    });
    let (first, most) = match number("HERMOD_SEED") {
        Some(only) => (only, 1),
        None => (1, number("HERMOD_DAMAGES").unwrap_or(DAMAGES)),
    };
    let (mut tally, mut wrong, began) = (Tally::default(), Vec::new(), tokio::time::Instant::now());
    for number in first..first + most {
        if let Err(why) = seed(number, &images, &mut tally) {
            wrong.push(format!("HERMOD_SEED={number}: {why:.600}"));
        }
    }
    println!("{tally:?} in {:.1} s", began.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{} of {most}:\n{}", wrong.len(), wrong.join("\n"));
}
