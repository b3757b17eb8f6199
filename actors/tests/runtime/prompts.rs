//! When a system prompt is built, and what follows if it cannot be built. On virtual time.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    Defaults, RunError, RunRequest, Runtime, SessionChoice, SubmitError,
    model::{Body, Seq, SessionId},
    port::{
        Journal, JournalError, PromptLayer, PromptRequest, ReadFuture, RowReader, StoredRecord, SystemPrompt,
        SystemPromptBuilder, SystemPromptError, WriteOp, WriteOutcome,
    },
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, says, world};
use tokio::time::Instant;

/// The result of a prompt builder.
#[derive(Debug, Clone, Copy)]
enum Comes {
    Built,
    Failed,
    Panic,
    Never,
}

/// A prompt builder that records its requests.
#[derive(Debug)]
struct Engine {
    comes: Comes,
    asked: Mutex<Vec<PromptRequest>>,
}

impl Engine {
    fn new(comes: Comes) -> Arc<Self> {
        Arc::new(Self { comes, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<PromptRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SystemPromptBuilder for Engine {
    fn build(&self, occasion: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(occasion);
        let layer = |text: String| PromptLayer { name: "l".into(), text, original_bytes: None };
        let prompt =
            SystemPrompt { layers: vec![layer(format!("prompt {}", asked.len())), layer("end".into())] };
        match self.comes {
            Comes::Built => async { Ok(prompt) }.boxed(),
            Comes::Failed => async { Err(SystemPromptError::Failed("SOUL.md: unreadable".into())) }.boxed(),
            Comes::Panic => async { panic!("the engine panics") }.boxed(),
            Comes::Never => futures::future::pending().boxed(),
        }
    }
}

async fn start(journal: impl Journal, engine: &Arc<Engine>) -> Runtime {
    let provider = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("done")));
    let mut world = world(Arc::new(journal), provider, Vec::new());
    world.defaults =
        Defaults { prompt: Arc::clone(engine) as Arc<dyn SystemPromptBuilder>, ..world.defaults };
    Runtime::start(world).await.expect("the runtime starts")
}

fn keyed(key: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new("do it") }
}

/// The prompts that the sessions of a journal were opened with.
async fn prompts(journal: &MemoryJournal, session: SessionId) -> Vec<String> {
    let records = journal.records(session, 1, 1_000).await.expect("its records");
    let opened = records.iter().filter_map(|stored| {
        let Body::SessionOpened(opened) = &stored.record.body else { return None };
        Some(opened.prompt.to_string())
    });
    opened.collect()
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_built_once_for_a_session() {
    let (journal, engine) = (MemoryJournal::new(), Engine::new(Comes::Built));
    let runtime = start(journal.clone(), &engine).await;
    let first = runtime.run(keyed("k")).await.unwrap();
    assert_eq!(runtime.run(keyed("k")).await.unwrap().session, first.session);
    let again = RunRequest { session: SessionChoice::Id(first.session), ..RunRequest::new("again") };
    runtime.run(again).await.unwrap();
    assert_eq!(engine.asked().len(), 1);
    assert_eq!(prompts(&journal, first.session).await, ["prompt 1\n\nend"]);
    let own = RunRequest { prompt: Some("own".into()), ..RunRequest::new("with a prompt") };
    let own = runtime.run(own).await.unwrap();
    assert_eq!(prompts(&journal, own.session).await, ["own"]);
    assert_eq!(engine.asked().len(), 1, "a prompt that is given is not built");
    let second = runtime.run(RunRequest::new("anew")).await.unwrap();
    assert_eq!(prompts(&journal, second.session).await, ["prompt 2\n\nend"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_built_for_what_the_run_is_given() {
    let engine = Engine::new(Comes::Built);
    let runtime = start(MemoryJournal::new(), &engine).await;
    let mut spec = runtime.defaults().spec.clone();
    (spec.workspace, spec.tools) = ("/elsewhere".into(), vec!["a".into(), "b".into()]);
    runtime.run(RunRequest { spec: Some(spec), ..RunRequest::new("do it") }).await.unwrap();
    let [occasion] = &engine.asked()[..] else { panic!("{:?}", engine.asked()) };
    assert_eq!((occasion.workspace.as_str(), occasion.tools.join(" ").as_str()), ("/elsewhere", "a b"));
    assert_eq!(occasion.model.as_ref().map(ToString::to_string).as_deref(), Some("test/model"));
    assert!(occasion.day.len() == 10 && occasion.day.starts_with("20"), "{}", occasion.day);
}

#[tokio::test(start_paused = true)]
async fn without_a_prompt_no_run_is_accepted() {
    let check = async |comes: Comes, part: &str, most: Duration| {
        let (journal, engine) = (MemoryJournal::new(), Engine::new(comes));
        let runtime = start(journal.clone(), &engine).await;
        let since = Instant::now();
        let error = runtime.submit(keyed("k")).await.unwrap_err();
        assert!(matches!(error, RunError::NotAccepted(SubmitError::NoPrompt(_))), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(since.elapsed() <= most, "{:?}", since.elapsed());
        assert_eq!(runtime.sessions(10).await.unwrap(), []);
        // A failed build does not affect the next submission.
        let own = RunRequest { prompt: Some("own".into()), ..keyed("k") };
        let run = runtime.run(own).await.unwrap();
        assert_eq!(prompts(&journal, run.session).await, ["own"]);
    };
    check(Comes::Failed, "cannot be built: SOUL.md: unreadable", Duration::ZERO).await;
    check(Comes::Panic, "panicked", Duration::ZERO).await;
    check(Comes::Never, "longer than 5 s", Duration::from_secs(6)).await;
}

/// A journal that shows the rows of another one until the first session is opened, as if that session was removed
/// meanwhile.
#[derive(Debug, Clone)]
struct Stale {
    journal: MemoryJournal,
    before: MemoryJournal,
    opened: Arc<Mutex<Vec<SessionId>>>,
}

impl Stale {
    fn opened(&self) -> MutexGuard<'_, Vec<SessionId>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Stale {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        self.opened().extend(batch.iter().filter_map(|write| match write {
            WriteOp::Open(session) => Some(*session),
            WriteOp::Append(_)
            | WriteOp::Close(..)
            | WriteOp::Deliver(..)
            | WriteOp::UpdateDelivery(_)
            | WriteOp::RetryDelivery(..)
            | WriteOp::Schedule(_)
            | WriteOp::RemoveSchedule(..) => None,
        }));
        self.journal.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.journal.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        if self.opened().is_empty() { &self.before } else { &self.journal }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_removed_meanwhile_is_begun_anew() {
    let (journal, engine) = (MemoryJournal::new(), Engine::new(Comes::Built));
    let before = MemoryJournal::new();
    let earlier = start(before.clone(), &Engine::new(Comes::Built)).await;
    // The ids of a runtime begin again, so the removed session must not be the first one.
    earlier.run(keyed("first")).await.unwrap();
    let removed = earlier.run(keyed("k")).await.unwrap();
    let stale = Stale { journal: journal.clone(), before, opened: Arc::default() };
    let runtime = start(stale.clone(), &engine).await;
    let run = runtime.run(keyed("k")).await.unwrap();
    assert_eq!(stale.opened()[..], [removed.session, run.session]);
    assert_eq!(prompts(&journal, run.session).await, ["prompt 1\n\nend"]);
    assert_eq!(runtime.sessions(10).await.unwrap().len(), 1);
}
