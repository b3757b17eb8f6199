//! Tests of `runs.follow`: a reader that stops reading, a follower that comes late, and the end of the process.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    RunRequest, Runtime,
    model::{EffectClass, RunId, RunRow, ScheduleDefinition, Seq, SessionId},
    port::Journal,
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    commands::RuntimeSlot,
    error::RequestError,
    followed_event::{FollowedContent, FollowedEvent},
    follower_stream::follow,
    messages::MessageSubmission,
    protocol::ControlResponse,
    submission::{OwnerKind, RunSubmission, SubmissionService, SubmittedRun},
};
use crate::view::AgentView;

/// Tool calls of the run: more records than any buffer between the run and a follower has.
const CALLS: usize = 100;

/// Takes nothing: the runs of these tests go on by themselves.
#[derive(Debug)]
struct NoSubmissions;

impl SubmissionService for NoSubmissions {
    fn submit(&self, _: RunSubmission) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async { Err(RequestError::usage("none")) })
    }

    fn submit_file(&self, _: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async { Err(RequestError::usage("none")) })
    }

    fn send(&self, _: MessageSubmission) -> BoxFuture<'_, Result<RunId, RequestError>> {
        Box::pin(async { Err(RequestError::usage("none")) })
    }

    fn send_file(&self, _: String) -> BoxFuture<'_, Result<RunId, RequestError>> {
        Box::pin(async { Err(RequestError::usage("none")) })
    }

    fn check_schedule(&self, _: &ScheduleDefinition) -> Result<(), RequestError> {
        Ok(())
    }

    fn agents(&self) -> Vec<AgentView> {
        Vec::new()
    }

    fn resume(&self, _: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async { Err(RequestError::usage("none")) })
    }

    fn revive(&self, _: SessionId) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A run under way, and the slot that its followers use.
struct Followed {
    runtime: Arc<Runtime>,
    slot: Arc<RuntimeSlot>,
    _submissions: Arc<dyn SubmissionService>,
    run: RunId,
}

impl Followed {
    async fn new() -> Self {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::default());
        let provider = ScriptedProvider::new(Duration::from_millis(1), |messages| {
            let is_over = messages.len() > 2 * CALLS;
            Ok(if is_over { says("done") } else { calls(&[("look", json!({ "n": messages.len() }))]) })
        });
        let tool = ScriptedTool::fixed("look", EffectClass::Pure, "seen");
        let mut world = world(journal, provider, vec![Arc::new(tool)]);
        world.defaults.spec.limits.budget = hermod_actors::model::Amounts::default();
        world.defaults.spec.loop_guard = false;
        let runtime = Arc::new(Runtime::start(world).await.unwrap());
        let slot = Arc::new(RuntimeSlot::new(OwnerKind::Service));
        let submissions: Arc<dyn SubmissionService> = Arc::new(NoSubmissions);
        slot.attach(&runtime, &submissions);
        let run = runtime.submit(RunRequest::new("go")).await.unwrap().run;
        Self { runtime, slot, _submissions: submissions, run }
    }

    async fn row(&self) -> RunRow {
        self.runtime.row(self.run).await.unwrap()
    }

    /// A follower from `from` on, and the lines that it reads.
    async fn follow(&self, from: Seq) -> mpsc::Receiver<ControlResponse> {
        let (to, lines) = mpsc::channel(1);
        let (slot, row) = (Arc::clone(&self.slot), self.row().await);
        tokio::spawn(async move {
            if let Ok(Some(last)) = follow(&slot, row, (Some(from), true), &to).await {
                to.send(last).await.unwrap();
            }
        });
        lines
    }
}

/// The numbers of the records, and the last line.
async fn read(mut lines: mpsc::Receiver<ControlResponse>) -> (Vec<Seq>, Option<ControlResponse>) {
    let (mut numbers, mut last) = (Vec::new(), None);
    while let Some(line) = lines.recv().await {
        if let ControlResponse::Followed(FollowedEvent {
            seq,
            content: FollowedContent::Record { record },
            ..
        }) = &line
        {
            record.decode().unwrap();
            numbers.push(*seq);
        }
        last = Some(line);
    }
    (numbers, last)
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_reading_holds_no_run_up_and_misses_no_record() {
    let followed = Followed::new().await;
    let first = followed.row().await.first;
    let lines = followed.follow(first).await;
    let result = followed.runtime.wait(followed.run, None).await.unwrap();
    let last = followed.row().await.last;
    assert!(last > 3 * CALLS as u64, "{last} records are more than a buffer");
    let (numbers, end) = read(lines).await;
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>(), "each record once, in order");
    assert_eq!(end, Some(ControlResponse::RunEnded(Box::new(result))));
}

#[tokio::test(start_paused = true)]
async fn who_has_seen_the_end_gets_the_result_alone() {
    let followed = Followed::new().await;
    let result = followed.runtime.wait(followed.run, None).await.unwrap();
    let lines = followed.follow(followed.row().await.last + 1).await;
    assert_eq!(read(lines).await, (Vec::new(), Some(ControlResponse::RunEnded(Box::new(result)))));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_process_ends_followers_without_an_answer() {
    let followed = Followed::new().await;
    let mut lines = followed.follow(1).await;
    lines.recv().await.unwrap();
    // Followers are no commands under way: the process does not wait for them.
    followed.slot.drain().await;
    let (_, last) = read(lines).await;
    let is_end = matches!(last, Some(ControlResponse::RunEnded(_) | ControlResponse::RunParked { .. }));
    assert!(!is_end, "{last:?}");
}
