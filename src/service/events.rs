//! Streams of events, and their form as server-sent events. Only records have an `id`, the number of the record in its
//! session: a client that reconnects with `Last-Event-ID` gets each record once, in order. Deltas are in between. The feed
//! has the sessions that the client reaches.

use std::{convert::Infallible, str::FromStr, time::Duration};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::stream;
use hermod_actors::{
    RecordFeed, RunError, Watch,
    model::{Body, EventBody, RunId, RunRow, RunState, Seq, SessionEvent, SessionId},
    port::FeedCursor,
};
use serde_json::Value;
use utoipa::IntoParams;

use super::{metrics::Counted, problem::Problem, reach::Reach};
use crate::view::{feed_entry, schema, stream_event};

/// Interval of comments that tell a client that the stream lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
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

/// An event of a stream, before it is encoded for a transport.
pub(super) struct StreamEvent {
    /// The name; `error` for a failure after which nothing follows.
    pub(super) name: &'static str,
    /// Where the stream resumes after this event; only records have one.
    pub(super) id: Option<String>,
    /// The event's object; a text if it is an error.
    pub(super) data: Value,
}

/// A stream of events, which ends with its run, and when its reader may read no more.
pub(super) enum EventSource {
    Watched(Box<WatchedEvents>),
    Feed(Box<FeedEvents>),
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
struct StreamReader {
    reach: Reach,
    /// Counts the stream.
    _open: Counted,
}

impl StreamReader {
    fn new(reach: Reach) -> Self {
        let open = reach.service().metrics.streams.enter();
        Self { reach, _open: open }
    }

    /// What an event becomes, if the client may still read when it comes; `None` also when the service stops.
    async fn wait<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        let event = tokio::select! {
            biased;
            () = self.reach.service().closing.cancelled() => return None,
            event = event => event,
        };
        // A token that is revoked meanwhile reads nothing more.
        (!self.is_cut_off()).then_some(event)
    }

    fn is_cut_off(&self) -> bool {
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

    /// True if no more events come because the service stops or the token is revoked.
    pub(super) fn is_cut_off(&self) -> bool {
        match self {
            Self::Watched(events) => events.reader.is_cut_off(),
            Self::Feed(events) => events.reader.is_cut_off(),
        }
    }

    /// The next event; `None` after the end of the run, when the service stops, and when the token is revoked.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        match self {
            Self::Watched(events) => events.next().await,
            Self::Feed(events) => events.next().await,
        }
    }
}

impl StreamEvent {
    fn error(text: impl ToString) -> Self {
        Self { name: "error", id: None, data: Value::String(text.to_string()) }
    }

    fn of_session(event: &SessionEvent) -> Self {
        let id = matches!(&event.body, EventBody::Recorded { .. }).then(|| event.seq.to_string());
        match stream_event(event) {
            Ok(data) => Self { name: event.body.name(), id, data },
            Err(error) => Self::error(error),
        }
    }
}

impl WatchedEvents {
    async fn next(&mut self) -> Option<StreamEvent> {
        while !self.is_over {
            match self.reader.wait(self.watch.next()).await? {
                Ok(event) if self.run.is_none() || event.run == self.run => {
                    self.is_over = self.ends(&event).await;
                    return Some(StreamEvent::of_session(&event));
                }
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    return Some(StreamEvent::error(error));
                }
            }
        }
        None
    }

    /// True for the record of the watched run's end, unless the run was reopened since.
    async fn ends(&self, event: &SessionEvent) -> bool {
        let (EventBody::Recorded { record }, Some(run)) = (&event.body, self.run) else { return false };
        if !matches!(&record.body, Body::RunEnded(ended) if ended.run == run) {
            return false;
        }
        let row = self.reader.reach.service().runtime.row(run).await;
        row.is_ok_and(|row| row.state == RunState::Ended && row.last <= event.seq)
    }
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
        let entry = loop {
            match self.reader.wait(self.feed.next()).await? {
                Ok(entry) => match self.reader.reach.sees_session(entry.session).await {
                    Ok(true) => break Ok(entry),
                    Ok(false) => {}
                    Err(problem) => break Err(StreamEvent::error(problem.detail())),
                },
                Err(error) => break Err(StreamEvent::error(error)),
            }
        };
        let event = entry.and_then(|entry| {
            let data = feed_entry(&entry).map_err(StreamEvent::error)?;
            let name = if entry.record.is_ok() { "record" } else { "unreadable" };
            Ok(StreamEvent { name, id: Some(entry.cursor.to_string()), data })
        });
        self.is_over = event.is_err();
        Some(event.unwrap_or_else(|error| error))
    }
}

fn respond(source: EventSource) -> Response {
    let events = stream::unfold(source, |mut source| async move {
        let event = source.next().await?;
        Some((Ok::<_, Infallible>(encode(event)), source))
    });
    let heartbeat = KeepAlive::new().interval(HEARTBEAT_INTERVAL);
    Sse::new(events).keep_alive(heartbeat).into_response()
}

fn encode(event: StreamEvent) -> Event {
    let encoded = Event::default().event(event.name);
    let encoded = match event.id {
        Some(id) => encoded.id(id),
        None => encoded,
    };
    // The text of an error is no JSON.
    match event.data.as_str() {
        Some(text) => encoded.data(text),
        None => encoded.data(event.data.to_string()),
    }
}
