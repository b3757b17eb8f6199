//! Tells one hook of what has happened. It reads the feed of records with a place of its own, so that it is told of each
//! event at least once, and no run waits for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hermod_actors::{
    MESSAGE, RecordFeed, RunError, Runtime, SharedEntry,
    model::{Body, CallEnded, CallId, CallStatus, Outcome, Record, RunEnded},
    port::{FeedCursor, FeedEntry, Journal, ReadError},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    hook::Hook,
    names::{HookName, HookRole, ObservedEvent},
    teller::{Teller, Told},
};
use crate::{
    feed_cursor::CursorFile,
    view::{ResultView, feed_entry},
};

/// Records before the end of a call among which its admission is looked for, if that was not in the feed.
const MAX_LOOKED_AT: usize = 256;
/// Most bytes of a result that is told with its messages.
const MAX_RESULT_BYTES: usize = 4 << 20;
/// Pause after the store could not be read.
const READ_PAUSE: Duration = Duration::from_secs(2);
/// Limit of reading the result of a run that has ended.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells a hook of the records of the feed.
pub(super) struct Observer {
    pub(super) hook: Arc<Hook>,
    pub(super) feed: RecordFeed,
    pub(super) cursor: CursorFile,
    /// The place that is kept. It stays where it is while events are given up, so that a restart tells of them again.
    pub(super) kept: FeedCursor,
    pub(super) teller: Teller,
    pub(super) runtime: Arc<Runtime>,
    pub(super) journal: Arc<dyn Journal>,
    /// Fires when the process ends: the observer ends when it has told of all that is durable then.
    pub(super) finishing: CancellationToken,
    /// The calls under way whose admission was in the feed, and whether each sends a message.
    pub(super) calls: BTreeMap<CallId, bool>,
}

/// What came of a page of the feed.
#[derive(PartialEq, Eq)]
enum Page {
    /// There may be more.
    Told,
    /// There was none.
    Empty,
    /// The process ends, and the hook is in a long pause.
    Ending,
}

impl Observer {
    /// Tells until the process ends.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                () = self.feed.next_commit() => {}
                () = self.finishing.cancelled() => {}
            }
            let is_last = self.finishing.is_cancelled();
            loop {
                match self.tell_page().await {
                    Ok(Page::Told) => {}
                    Ok(Page::Empty) => break,
                    Ok(Page::Ending) => return,
                    Err(error) => {
                        tracing::error!(hook = %self.hook.name, %error, "a hook is told of no events for a while");
                        if self.finishing.run_until_cancelled(sleep(READ_PAUSE)).await.is_none() {
                            return;
                        }
                        self.feed = self.runtime.feed(self.kept);
                    }
                }
            }
            if is_last {
                return;
            }
        }
    }

    async fn tell_page(&mut self) -> Result<Page, RunError> {
        let page = self.feed.next_page().await?;
        let Some(last) = page.last().map(|shared| shared.entry().cursor) else { return Ok(Page::Empty) };
        for entry in page.iter().map(SharedEntry::entry) {
            let Ok(record) = &entry.record else { continue };
            self.track_calls(&record.body);
            let mut is_event = false;
            for name in &self.hook.on.clone() {
                let HookRole::Observes(event) = name.role else { continue };
                let Some(details) = self.details(event, entry, record).await? else { continue };
                match self.teller.tell(event_json(name, &self.hook.name, entry, details)).await {
                    Told::Yes | Told::GivenUp => {}
                    Told::Disabled => {
                        self.feed = self.runtime.feed(self.kept);
                        return Ok(Page::Told);
                    }
                    Told::Ending => return Ok(Page::Ending),
                }
                is_event = true;
            }
            if is_event {
                self.keep(entry.cursor);
            }
        }
        self.keep(last);
        Ok(Page::Told)
    }

    /// Keeps a place, unless events before it were given up.
    fn keep(&mut self, place: FeedCursor) {
        if self.teller.is_even() && place != self.kept {
            self.kept = place;
            self.cursor.write(place);
        }
    }

    /// Keeps which calls under way send messages.
    fn track_calls(&mut self, body: &Body) {
        // A call is forgotten with its run: its end is still to be told.
        if let Body::CallAdmitted(admitted) = body {
            self.calls.insert(admitted.call, *admitted.tool == *MESSAGE);
        } else if let Body::RunEnded(ended) = body {
            self.calls.retain(|call, _| call.run != ended.run);
        }
    }

    /// What is told of this event beside its record; `None` if the record is no such event.
    async fn details(
        &self,
        event: ObservedEvent,
        entry: &FeedEntry,
        record: &Record,
    ) -> Result<Option<Value>, RunError> {
        use ObservedEvent as Event;
        Ok(match (event, &record.body) {
            (Event::SessionStart, Body::SessionOpened(_)) => Some(json!({ "reason": "new" })),
            (Event::SessionStart | Event::SessionEnd, Body::ContextCompacted(compacted)) => {
                Some(json!({ "reason": "compaction", "lineage": compacted.lineage.to_string() }))
            }
            (Event::MessageReceived, Body::RunAccepted(accepted)) if accepted.parent.is_none() => {
                Some(json!({}))
            }
            (Event::SubagentStart, Body::RunAccepted(accepted)) if accepted.parent.is_some() => {
                Some(json!({}))
            }
            (Event::AfterCompaction, Body::ContextCompacted(_))
            | (Event::MessageReceived, Body::MessageSteered(_))
            | (Event::AfterModelCall, Body::ModelAnswered(_))
            | (Event::SubagentEnd, Body::ChildEnded(_))
            | (Event::ApprovalRequested, Body::ApprovalRequested(_))
            | (Event::ApprovalAnswered, Body::ApprovalAnswered(_)) => Some(json!({})),
            (Event::RunEnd, Body::RunEnded(ended)) => {
                Some(self.result(ended).await.map_or_else(|| json!({}), |result| result_json(&result)))
            }
            (Event::MessageSent, Body::RunEnded(ended)) => self.answer(ended).await?,
            (Event::MessageSent, Body::CallEnded(ended)) => {
                let is_message = match self.calls.get(&ended.call) {
                    Some(is_message) => *is_message && ended.end.status == CallStatus::Ok,
                    None => self.is_message(entry, ended).await?,
                };
                is_message.then(|| json!({ "call": ended.call.to_string() }))
            }
            _ => None,
        })
    }

    /// The result of a run; `None` if it cannot be read any more.
    async fn result(&self, ended: &RunEnded) -> Option<ResultView> {
        match self.runtime.wait(ended.run, Some(RESULT_TIMEOUT)).await {
            Ok(result) => Some(ResultView::from(&result)),
            Err(error) => {
                tracing::debug!(run = %ended.run, %error, "the result of a run cannot be told");
                None
            }
        }
    }

    /// The answer of a run that a user has submitted; `None` if it has none.
    async fn answer(&self, ended: &RunEnded) -> Result<Option<Value>, RunError> {
        let row = self.journal.rows().run(ended.run).await?;
        if ended.ended.outcome != Outcome::Completed || row.is_none_or(|row| row.parent.is_some()) {
            return Ok(None);
        }
        let answer = self.result(ended).await.and_then(|result| result.answer);
        Ok(answer.map(|text| json!({ "text": text })))
    }

    /// Whether this is the end of a call that has sent a message.
    async fn is_message(&self, entry: &FeedEntry, ended: &CallEnded) -> Result<bool, ReadError> {
        if ended.end.status != CallStatus::Ok {
            return Ok(false);
        }
        let from = entry.seq.saturating_sub(MAX_LOOKED_AT as u64).max(1);
        let before = self.journal.records(entry.session, from, MAX_LOOKED_AT).await?;
        Ok(before.iter().rev().any(|stored| {
            matches!(&stored.record.body, Body::CallAdmitted(admitted)
                if admitted.call == ended.call && *admitted.tool == *MESSAGE)
        }))
    }
}

/// The result of a run as it is told: without its messages if they are too long.
fn result_json(result: &ResultView) -> Value {
    let mut event = json!({ "result": result });
    if event.to_string().len() > MAX_RESULT_BYTES
        && let Some(result) = event["result"].as_object_mut()
    {
        result.remove("messages");
        result.insert("messages_left_out".to_owned(), true.into());
    }
    event
}

/// The event as the hook gets it. Its id is the same whenever it is told.
fn event_json(name: &HookName, hook: &str, entry: &FeedEntry, details: Value) -> Value {
    let run = entry.record.as_ref().ok().and_then(|record| record.body.run());
    let record = feed_entry(entry).unwrap_or_else(|error| json!({ "reason": error.to_string() }));
    let mut event = json!({
        "id": format!("{}/{}/{}", entry.session, entry.seq, name.name),
        "name": name.name,
        "hook": hook,
        "session": entry.session.to_string(),
        "run": run.map(|run| run.to_string()),
        "seq": entry.seq,
        "record": record,
    });
    if let (Value::Object(event), Value::Object(details)) = (&mut event, details) {
        event.extend(details);
    }
    event
}
