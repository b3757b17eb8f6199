//! Tells one hook of what has happened. It reads the feed of records with a place of its own, so that it is told of each
//! event at least once, and no run waits for it.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RecordFeed, RunError, Runtime, SharedEntry,
    model::{Body, CallEnded, CallStatus, Outcome, Record, RunEnded},
    port::{FeedEntry, Journal, ReadError},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    hook::Hook,
    names::{HookName, HookRole, ObservedEvent},
};
use crate::{
    feed_cursor::CursorFile,
    view::{ResultView, feed_entry},
};

/// Pauses before an event is told again. After the last one it is given up.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
/// The tool whose calls send messages to people.
const MESSAGE: &str = "message";
/// Records before the end of a call among which its admission is looked for.
const MAX_LOOKED_AT: usize = 256;
/// Limit of reading the result of a run that has ended.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells a hook of the records of the feed.
pub(super) struct Observer {
    pub(super) hook: Arc<Hook>,
    pub(super) feed: RecordFeed,
    pub(super) cursor: CursorFile,
    pub(super) runtime: Arc<Runtime>,
    pub(super) journal: Arc<dyn Journal>,
    /// Fires when the process ends: the observer ends when it has told of all that is durable then.
    pub(super) finishing: CancellationToken,
    /// Events in a row that were given up. Meanwhile the place is not kept, so that they are told again at the next start.
    pub(super) failed_in_row: u32,
}

/// What came of a page of the feed.
#[derive(PartialEq, Eq)]
enum Page {
    /// There may be more.
    Told,
    /// There was none.
    Empty,
    /// The hook has failed so often that it is told no more.
    Disabled,
}

impl Observer {
    /// Tells until the process ends, or until the hook is disabled.
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
                    Ok(Page::Disabled) => return,
                    Err(error) => {
                        tracing::error!(hook = %self.hook.name, %error, "the hook is told of no more events");
                        return;
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
            let mut was_told = false;
            for name in &self.hook.on.clone() {
                let HookRole::Observes(event) = name.role else { continue };
                let Some(details) = self.details(event, entry, record).await? else { continue };
                let told = self.tell(&event_json(name, &self.hook.name, entry, details)).await;
                was_told |= told;
                self.failed_in_row = if told { 0 } else { self.failed_in_row + 1 };
                if !told && self.hook.skip_event(self.failed_in_row) {
                    return Ok(Page::Disabled);
                }
            }
            if was_told && self.failed_in_row == 0 {
                self.cursor.write(entry.cursor);
            }
        }
        if self.failed_in_row == 0 {
            self.cursor.write(last);
        }
        Ok(Page::Told)
    }

    /// Tells of an event, several times if need be. False if it is given up.
    async fn tell(&self, event: &Value) -> bool {
        for pause in PAUSES {
            if self.hook.tell(event).await.is_ok() {
                return true;
            }
            sleep(pause).await;
        }
        self.hook.tell(event).await.is_ok()
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
                Some(self.result(ended).await.map_or_else(|| json!({}), |result| json!({ "result": result })))
            }
            (Event::MessageSent, Body::RunEnded(ended)) => self.answer(ended).await?,
            (Event::MessageSent, Body::CallEnded(ended)) => {
                self.is_message(entry, ended).await?.then(|| json!({ "call": ended.call.to_string() }))
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
