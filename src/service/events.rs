//! Streams of events, and their form as server-sent events. Only records have an `id`, the number of the record in its
//! session: a client that reconnects with `Last-Event-ID` gets each record once, in order. Deltas are in between. The feed
//! has the sessions that the client reaches.

use std::{
    convert::Infallible,
    pin::Pin,
    str::FromStr,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::{Stream, StreamExt as _, stream};
use hermod_actors::{
    RecordFeed, RunError, Watch,
    model::{Body as RecordBody, EventBody, RunId, RunRow, RunState, Seq, SessionEvent, SessionId},
    port::FeedCursor,
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use utoipa::IntoParams;

use super::{
    chat_events::ChatEvents,
    metrics::Counted,
    problem::Problem,
    reach::Reach,
    reply::{ReplyEvents, ReplyQuery},
    stream_event::StreamEvent,
};
use crate::view::schema;

/// Interval of comments that tell a client that the stream lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The comment.
const HEARTBEAT: &[u8] = b":\n\n";
/// The header with the record that a client has seen last.
const LAST_EVENT_ID: &str = "last-event-id";

/// The header of a client that reconnects.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only the document has it")]
pub(super) struct SeenRecord {
    /// The `id` of the last record that the client has seen.
    #[param(rename = "Last-Event-ID", value_type = schema::RecordNumber, required = false)]
    last: u64,
}

/// A stream of events, which ends with its run, and when its reader may read no more.
pub(super) enum EventSource {
    Watched(Box<WatchedEvents>),
    Feed(Box<FeedEvents>),
    Reply(Box<ReplyEvents>),
    Chat(Box<ChatEvents>),
}

/// The events of a session, or of one of its runs until that ends.
pub(super) struct WatchedEvents {
    watch: Watch,
    run: Option<RunId>,
    reader: StreamReader,
    is_over: bool,
}

/// Whether the client has seen the end of a run.
fn has_seen_end(row: &RunRow, seen: Option<Seq>) -> bool {
    row.state == RunState::Ended && seen.is_some_and(|seen| seen >= row.last)
}

/// The client that reads a stream.
pub(super) struct StreamReader {
    reach: Reach,
    /// Counts the stream.
    _open: Counted,
}

impl StreamReader {
    pub(super) fn new(reach: Reach) -> Self {
        let open = reach.service().metrics.streams.enter();
        Self { reach, _open: open }
    }

    /// What an event becomes, if the client may still read when it comes; `None` also when the service stops.
    pub(super) async fn wait<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        let event = tokio::select! {
            biased;
            () = self.reach.service().closing.cancelled() => return None,
            event = event => event,
        };
        // A token that is revoked meanwhile reads nothing more.
        (!self.is_cut_off()).then_some(event)
    }

    pub(super) const fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(super) fn is_cut_off(&self) -> bool {
        let service = self.reach.service();
        service.closing.is_cancelled() || !service.tokens.is_valid(self.reach.token())
    }
}

/// The events of a run, until its end. A client that has seen the end gets status 204, with which browsers stop
/// reconnecting.
pub(super) fn of_run(reach: Reach, row: &RunRow, headers: &HeaderMap) -> Result<Response, Problem> {
    let seen: Option<Seq> = last_event_id(headers)?;
    if has_seen_end(row, seen) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(respond(EventSource::of_run(reach, row, seen)))
}

/// The reply of a run, until its final piece. A client that has seen that gets status 204.
pub(super) fn reply_of_run(
    reach: Reach,
    row: &RunRow,
    query: ReplyQuery,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let seen: Option<Seq> = last_event_id(headers)?;
    if has_seen_end(row, seen) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(respond(EventSource::reply_of_run(reach, row, query, seen)))
}

/// The events of a session, from the record after the last seen one on; all of them if none was seen.
pub(super) fn of_session(reach: Reach, session: SessionId, headers: &HeaderMap) -> Result<Response, Problem> {
    Ok(respond(EventSource::of_session(reach, session, last_event_id(headers)?)))
}

fn last_event_id<T: FromStr>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = id.to_str().unwrap_or_default();
    id.parse().map(Some).map_err(|_| {
        Problem::bad_request(format!("the header Last-Event-ID is `{id}`; it is the `id` of an event before"))
    })
}

impl EventSource {
    /// The events of a run until its end, after the record that was seen last.
    pub(super) fn of_run(reach: Reach, row: &RunRow, seen: Option<Seq>) -> Self {
        let from = seen.map_or(row.first, |seen| seen.saturating_add(1));
        Self::watch(reach, (row.session, Some(row.id)), from, has_seen_end(row, seen))
    }

    /// The reply of a run, behind the record that was seen last.
    pub(super) fn reply_of_run(reach: Reach, row: &RunRow, query: ReplyQuery, seen: Option<Seq>) -> Self {
        Self::Reply(Box::new(ReplyEvents::new(reach, row, query, seen)))
    }

    /// The reply of a run as OpenClaw's clients get it.
    pub(super) fn chat_of_run(reach: Reach, row: &RunRow, session_key: &str) -> Self {
        Self::Chat(Box::new(ChatEvents::new(reach, row, session_key)))
    }

    /// The events of a session, after the record that was seen last; all of them if none was.
    pub(super) fn of_session(reach: Reach, session: SessionId, seen: Option<Seq>) -> Self {
        Self::watch(reach, (session, None), seen.map_or(1, |seen| seen.saturating_add(1)), false)
    }

    /// The records of all sessions that the client reaches, after this place; without one, from now on.
    pub(super) async fn of_all(reach: Reach, after: Option<FeedCursor>) -> Result<Self, Problem> {
        let runtime = &reach.service().runtime;
        let cursor = match after {
            Some(cursor) => cursor,
            None => runtime.feed_end().await.map_err(RunError::Read)?,
        };
        let feed = runtime.feed(cursor);
        let reader = StreamReader::new(reach);
        Ok(Self::Feed(Box::new(FeedEvents { feed, reader, is_over: false })))
    }

    fn watch(reach: Reach, (session, run): (SessionId, Option<RunId>), from: Seq, is_over: bool) -> Self {
        let watch = reach.service().runtime.watch(session, from);
        let reader = StreamReader::new(reach);
        Self::Watched(Box::new(WatchedEvents { watch, run, reader, is_over }))
    }

    /// True for the events of OpenClaw's clients.
    pub(super) const fn is_chat(&self) -> bool {
        matches!(self, Self::Chat(_))
    }

    /// True if no more events come because the service stops or the token is revoked.
    pub(super) fn is_cut_off(&self) -> bool {
        match self {
            Self::Watched(events) => events.reader.is_cut_off(),
            Self::Feed(events) => events.reader.is_cut_off(),
            Self::Reply(events) => events.is_cut_off(),
            Self::Chat(events) => events.is_cut_off(),
        }
    }

    /// The next event; `None` after the end of the run, when the service stops, and when the token is revoked.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        match self {
            Self::Watched(events) => events.next().await,
            Self::Feed(events) => events.next().await,
            Self::Reply(events) => events.next().await,
            Self::Chat(events) => events.next().await,
        }
    }
}

impl WatchedEvents {
    async fn next(&mut self) -> Option<StreamEvent> {
        while !self.is_over {
            match self.reader.wait(self.watch.next_shared()).await? {
                Ok(event) if self.run.is_none() || event.event().run == self.run => {
                    self.is_over = self.ends(event.event()).await;
                    return Some(StreamEvent::of_session(&event));
                }
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    return Some(StreamEvent::failed(error));
                }
            }
        }
        None
    }

    /// True for the record of the watched run's end, unless the run was reopened since.
    async fn ends(&self, event: &SessionEvent) -> bool {
        let (EventBody::Recorded { record }, Some(run)) = (&event.body, self.run) else { return false };
        if !matches!(&record.body, RecordBody::RunEnded(ended) if ended.run == run) {
            return false;
        }
        has_ended_for_good(&self.reader.reach, run, event.seq).await
    }
}

/// True if the run has ended with this record, and was not reopened since. True also if its row cannot be read or was
/// removed: a stream must not wait for a run of which nothing follows.
pub(super) async fn has_ended_for_good(reach: &Reach, run: RunId, seq: Seq) -> bool {
    let row = reach.service().runtime.row(run).await;
    row.map_or(true, |row| row.state == RunState::Ended && row.last <= seq)
}

/// The records of all sessions in one durable order, after the place that the client has seen last or names; without
/// one, from now on.
pub(super) async fn of_all(
    reach: Reach,
    after: Option<FeedCursor>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let seen = last_event_id(headers)?.or(after);
    Ok(respond(EventSource::of_all(reach, seen).await?))
}

/// The events of all sessions.
pub(super) struct FeedEvents {
    feed: RecordFeed,
    reader: StreamReader,
    is_over: bool,
}

impl FeedEvents {
    /// The next event that the client reaches.
    async fn next(&mut self) -> Option<StreamEvent> {
        if self.is_over {
            return None;
        }
        let event = loop {
            match self.reader.wait(self.feed.next()).await? {
                // What the client does not reach is skipped before it is encoded.
                Ok(entry) => match self.reader.reach.sees_session(entry.entry().session).await {
                    Ok(true) => break StreamEvent::of_entry(&entry),
                    Ok(false) => {}
                    Err(problem) => break StreamEvent::failed(problem.detail()),
                },
                Err(error) => break StreamEvent::failed(error),
            }
        };
        self.is_over = matches!(event, StreamEvent::Failed(_));
        Some(event)
    }
}

fn respond(source: EventSource) -> Response {
    let events = stream::unfold(source, |mut source| async move {
        let event = source.next().await?;
        Some((event.into_text(), source))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(EventTexts::new(Box::pin(events)))).into_response()
}

/// The texts of a stream, with a comment whenever there was none for a while. Axum's `Sse` would copy each text.
struct EventTexts<S> {
    events: S,
    heartbeats: Interval,
}

impl<S> EventTexts<S> {
    fn new(events: S) -> Self {
        let mut heartbeats = interval_at(Instant::now() + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { events, heartbeats }
    }
}

impl<S: Stream<Item = Bytes> + Unpin> Stream for EventTexts<S> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(event) = self.events.poll_next_unpin(context) {
            self.heartbeats.reset();
            return Poll::Ready(event.map(Ok));
        }
        self.heartbeats.poll_tick(context).map(|_| Some(Ok(Bytes::from_static(HEARTBEAT))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_has_comments() {
        let (events, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let source = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let mut texts = EventTexts::new(Box::pin(source));
        let started = Instant::now();
        assert_eq!(texts.next().await, Some(Ok(Bytes::from_static(HEARTBEAT))));
        assert_eq!(started.elapsed(), HEARTBEAT_INTERVAL);
        tokio::time::advance(HEARTBEAT_INTERVAL / 2).await;
        events.send("a".into()).await.unwrap();
        assert_eq!(texts.next().await, Some(Ok("a".into())));
        assert_eq!(texts.next().await, Some(Ok(Bytes::from_static(HEARTBEAT))));
        assert_eq!(started.elapsed(), HEARTBEAT_INTERVAL * 5 / 2, "counted from the last event on");
        drop(events);
        assert_eq!(texts.next().await, None);
    }
}
