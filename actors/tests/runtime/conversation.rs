//! Pages of conversations: that they are parts of the whole, and what they cost. On virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    AcceptedRun, ConversationPage, RunRequest, Runtime, SessionChoice,
    model::{Amounts, EffectClass, LimitIncrease, Message, RunRow, Seq, SessionId},
    port::{Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

/// A journal that counts the records that are read.
#[derive(Debug)]
struct CountingJournal {
    journal: MemoryJournal,
    read: Arc<AtomicUsize>,
}

impl Journal for CountingJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        self.journal.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        let (reading, read) = (self.journal.records(session, from, max), Arc::clone(&self.read));
        Box::pin(async move {
            let records = reading.await?;
            read.fetch_add(records.len(), Ordering::SeqCst);
            Ok(records)
        })
    }

    fn rows(&self) -> &dyn RowReader {
        self.journal.rows()
    }
}

/// A runtime whose model calls a tool twice in each run, and the number of the records that were read.
async fn start(journal: &MemoryJournal) -> (Runtime, Arc<AtomicUsize>) {
    let provider = ScriptedProvider::new(Duration::from_millis(10), |view| {
        let answered = view.iter().rev().take_while(|message| message["role"] != "user");
        match answered.filter(|message| message["role"] == "tool").count() {
            0 | 1 => Ok(calls(&[("look", json!({}))])),
            _ => Ok(says("found")),
        }
    });
    let look = ScriptedTool::fixed("look", EffectClass::Pure, "content");
    let read = Arc::<AtomicUsize>::default();
    let counting = CountingJournal { journal: journal.clone(), read: Arc::clone(&read) };
    let mut world = world(Arc::new(counting), provider, vec![Arc::new(look)]);
    world.defaults.spec.loop_guard = false;
    (Runtime::start(world).await.expect("the runtime starts"), read)
}

fn request(input: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new(input) }
}

/// A session of runs of all kinds: alone, queued, with a message too early or too late, exhausted and reopened.
async fn converse(runtime: &Runtime, rounds: usize) -> AcceptedRun {
    let mut accepted = None;
    for n in 0..rounds {
        let first = runtime.submit(request(&format!("run {n}"))).await.unwrap();
        accepted = Some(first);
        let last = match n % 8 {
            1 => runtime.submit(request("queued")).await.unwrap().run,
            2 => {
                runtime.steer(first.run, "look elsewhere").await.unwrap();
                first.run
            }
            3 => {
                tokio::time::sleep(Duration::from_millis(25)).await;
                runtime.steer(first.run, "too late").await.unwrap().next
            }
            _ => first.run,
        };
        runtime.wait(first.run, None).await.unwrap();
        // A message that was read in time became no run.
        let (Ok(_) | Err(_)) = runtime.wait(last, None).await;
        if n % 8 == 5 {
            let budget = Amounts { iterations: Some(1), ..Amounts::default() };
            let exhausted = runtime.run(RunRequest { budget, ..request("exhausted") }).await.unwrap().run;
            let more = Amounts { iterations: Some(5), ..Amounts::default() };
            runtime.raise(exhausted, LimitIncrease { budget: more, wall_ms: None }).await.unwrap();
            runtime.wait(exhausted, None).await.unwrap();
        }
    }
    accepted.expect("a run")
}

async fn whole(runtime: &Runtime, of: AcceptedRun) -> Vec<Message> {
    let row = RunRow { last: Seq::MAX, ..runtime.row(of.run).await.unwrap() };
    runtime.messages_until(&row).await.unwrap()
}

async fn check_pages(runtime: &Runtime, of: AcceptedRun, max: usize) {
    let session = of.session;
    let whole = whole(runtime, of).await;
    let (mut messages, mut has_more) = (Vec::new(), true);
    while has_more {
        let page: ConversationPage = runtime.messages_page(session, messages.len(), max).await.unwrap();
        has_more = page.has_more;
        assert!(page.messages.len() == max || !has_more, "a page is full");
        messages.extend(page.messages);
    }
    assert_eq!(messages, whole, "in pages of {max}");
    let newest = runtime.newest_messages(session, max).await.unwrap();
    assert_eq!(newest.total, whole.len());
    assert_eq!(newest.messages, whole[whole.len().saturating_sub(max)..], "the newest {max}");
}

#[tokio::test(start_paused = true)]
async fn pages_are_parts_of_the_conversation() {
    let journal = MemoryJournal::new();
    let (runtime, _) = start(&journal).await;
    let accepted = converse(&runtime, 60).await;
    let session = accepted.session;
    // The last run is under way.
    runtime.submit(request("last")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(25)).await;
    runtime.suspend().await;
    let journal = journal.reopened();
    let count = {
        let (runtime, _) = start(&journal).await;
        whole(&runtime, accepted).await.len()
    };
    assert!(count > 300, "several marks: {count}");
    for max in [1, 7, 100, 250, count, count + 1] {
        // Without marks, and then with the marks of the pages before.
        let (runtime, _) = start(&journal.reopened()).await;
        let newest = runtime.newest_messages(session, max).await.unwrap();
        assert_eq!(newest.total, count);
        check_pages(&runtime, accepted, max).await;
        check_pages(&runtime, accepted, max).await;
        let behind = runtime.messages_page(session, count + 5, 3).await.unwrap();
        assert!(behind.messages.is_empty() && !behind.has_more);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_reads_the_records_that_it_needs() {
    let journal = MemoryJournal::new();
    let (runtime, read) = start(&journal).await;
    let accepted = converse(&runtime, 100).await;
    let session = accepted.session;
    let records = runtime.journal(session, 1).await.unwrap().len();
    let count = whole(&runtime, accepted).await.len();
    assert!(records > 2_000, "{records}");
    let cost = || read.swap(0, Ordering::SeqCst);
    cost();
    let (mut first, mut most) = (0, 0);
    while first < count {
        first += runtime.messages_page(session, first, 50).await.unwrap().messages.len();
        most = most.max(cost());
    }
    // 150 messages and two runs are about 500 records, and records are read in pages of 500.
    assert!(most <= 1_000, "a page in order read {most} of {records} records");
    runtime.messages_page(session, count / 2, 50).await.unwrap();
    let middle = cost();
    assert!(middle <= 1_000, "a page out of order read {middle} of {records} records");
    runtime.newest_messages(session, 50).await.unwrap();
    let newest = cost();
    assert!(newest <= 1_000, "the newest messages read {newest} of {records} records");
}
