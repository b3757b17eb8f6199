//! A record that could not be read back is not written, and its cause is reported. On virtual time.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use hermod_actors::{
    RunError, RunRequest, Runtime, SessionChoice, SubmitError,
    model::{
        AssistantMessage, Body, DecodeError, FinishReason, ModelAnswer, OpaqueState, Outcome, OutcomeCause,
        Record, Seq, SessionId,
    },
    port::{Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome, WriteRefusal},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, says, world};
use serde_json::json;

/// A message whose opaque state nests too deep for the decoder of records. Only deserialization can make one.
fn too_deep() -> AssistantMessage {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let origin = json!({ "provider": "p", "wire": "w", "model": "m" });
    let opaque: OpaqueState = serde_json::from_value(json!({ "origin": origin, "parts": [deep] }))
        .expect("a value has no limit of depth");
    AssistantMessage { text: "deep".into(), opaque: Some(Arc::new(opaque)), ..AssistantMessage::default() }
}

async fn start(journal: &MemoryJournal) -> Runtime {
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    let provider = ScriptedProvider::new(Duration::from_millis(1), |view| {
        let is_deep = view.iter().any(|message| message["text"].as_str() == Some("go deep"));
        Ok(if is_deep {
            ModelAnswer { message: too_deep(), finish: FinishReason::Stop, usage: None }
        } else {
            says("done")
        })
    });
    Runtime::start(world(journal, provider, vec![])).await.expect("the runtime starts")
}

async fn is_readable(journal: &MemoryJournal, session: SessionId) -> bool {
    journal.records(session, 1, usize::MAX).await.is_ok_and(|records| !records.is_empty())
}

/// A store that refuses to accept one task, as if its record could not be read back.
#[derive(Debug)]
struct Refusing(MemoryJournal);

impl Journal for Refusing {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let is_bad = |record: &Arc<Record>| matches!(&record.body, Body::RunAccepted(accepted) if &*accepted.input == "bad");
        match &batch[..] {
            [WriteOp::Append(append)] if append.records.iter().any(is_bad) => {
                let error = DecodeError::Malformed("it is bad".into());
                let refusal = WriteRefusal::Unreadable { kind: "run.accepted", error };
                ready(Ok(vec![WriteOutcome::Refused(refusal)])).boxed()
            }
            _ => self.0.commit(batch),
        }
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.0.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.0.rows()
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_could_not_be_read_back_is_refused_and_its_session_goes_on() {
    let journal = MemoryJournal::new();
    let provider = ScriptedProvider::new(Duration::from_millis(1), |_| Ok(says("done")));
    let refusing: Arc<dyn Journal> = Arc::new(Refusing(journal.clone()));
    let runtime = Runtime::start(world(refusing, provider, vec![])).await.expect("the runtime starts");
    let to = |text: &str| RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new(text) };
    for before in ["first", "second"] {
        let refused = runtime.submit(to("bad")).await.unwrap_err();
        let RunError::NotAccepted(SubmitError::Unreadable(why)) = &refused else { panic!("{refused}") };
        assert_eq!(why, "record run.accepted could not be read back: not a record: it is bad");
        let next = runtime.run(to(before)).await.unwrap();
        assert_eq!(next.ended.outcome, Outcome::Completed);
        assert!(is_readable(&journal, next.session).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_read_back_ends_its_run_alone() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let failed = runtime.run(RunRequest::new("go deep")).await.unwrap();
    assert_eq!(failed.ended.outcome, Outcome::Failed);
    let Some(OutcomeCause::CrashLoop { error }) = &failed.ended.cause else { panic!("{}", failed.ended) };
    assert!(error.contains("record model.answered could not be read back"), "{error}");
    assert!(is_readable(&journal, failed.session).await);
    let other = runtime.run(RunRequest::new("go on")).await.unwrap();
    assert_eq!(other.ended.outcome, Outcome::Completed);
}
