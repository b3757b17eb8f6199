//! Events as server-sent events. Only records have an `id`, the number of the record in its session: a client that
//! reconnects with `Last-Event-ID` gets each record once, in order. Deltas are in between. The feed has the sessions that
//! the client reaches.

use std::{convert::Infallible, str::FromStr, time::Duration};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use hermod_actors::{
    RecordFeed, RunError, Watch,
    model::{Body, EventBody, RunId, RunRow, RunState, Seq, SessionEvent, SessionId},
    port::FeedCursor,
};
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
#[allow(dead_code)] // only the document has it
pub(super) struct SeenRecord {
    /// The `id` of the last record that the client has seen.
    #[param(rename = "Last-Event-ID", value_type = schema::RecordNumber, required = false)]
    last: u64,
}

/// The events of a session, or of one of its runs until that ends.
struct WatchedEvents {
    watch: Watch,
    run: Option<RunId>,
    reader: StreamReader,
    is_over: bool,
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
    async fn wait<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        let service = self.reach.service();
        let event = tokio::select! {
            biased;
            () = service.closing.cancelled() => return None,
            event = event => event,
        };
        // A token that is revoked meanwhile reads nothing more.
        service.tokens.is_valid(self.reach.token()).then_some(event)
    }
}

/// The events of a run, until its end. A client that has seen the end gets status 204, with which browsers stop
/// reconnecting.
pub(super) fn of_run(reach: Reach, row: &RunRow, headers: &HeaderMap) -> Result<Response, Problem> {
    let seen: Option<Seq> = last_event_id(headers)?;
    if row.state == RunState::Ended && seen.is_some_and(|seen| seen >= row.last) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let from = seen.map_or(row.first, |seen| seen.saturating_add(1));
    Ok(watch(reach, row.session, from, Some(row.id)))
}

/// The events of a session, from the record after the last seen one on; all of them if none was seen.
pub(super) fn of_session(reach: Reach, session: SessionId, headers: &HeaderMap) -> Result<Response, Problem> {
    let from = last_event_id(headers)?.map_or(1, |seen: Seq| seen.saturating_add(1));
    Ok(watch(reach, session, from, None))
}

fn watch(reach: Reach, session: SessionId, from: Seq, run: Option<RunId>) -> Response {
    let watch = reach.service().runtime.watch(session, from);
    let events = WatchedEvents { watch, run, reader: StreamReader::new(reach), is_over: false };
    respond(events.stream())
}

fn last_event_id<T: FromStr>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = id.to_str().unwrap_or_default();
    id.parse().map(Some).map_err(|_| {
        Problem::bad_request(format!("the header Last-Event-ID is `{id}`; it is the `id` of an event before"))
    })
}

impl WatchedEvents {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut events| async move {
            let event = events.next().await?;
            Some((Ok(event), events))
        })
    }

    /// The next event; `None` after the end of the run, and when the service stops.
    async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            match self.reader.wait(self.watch.next()).await? {
                Ok(event) if self.run.is_none() || event.run == self.run => {
                    self.is_over = self.ends(&event).await;
                    return Some(encode(&event));
                }
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    return Some(Event::default().event("error").data(error.to_string()));
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
    let cursor = match seen {
        Some(cursor) => cursor,
        None => reach.service().runtime.feed_end().await.map_err(RunError::Read)?,
    };
    let feed = reach.service().runtime.feed(cursor);
    let feed = FeedEvents { feed, reader: StreamReader::new(reach), is_over: false };
    Ok(respond(stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        Some((Ok(event), feed))
    })))
}

/// The events of all sessions.
struct FeedEvents {
    feed: RecordFeed,
    reader: StreamReader,
    is_over: bool,
}

impl FeedEvents {
    /// The next event that the client reaches; `None` when the service stops.
    async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let entry = loop {
            match self.reader.wait(self.feed.next()).await? {
                Ok(entry) => match self.reader.reach.sees_session(entry.session).await {
                    Ok(true) => break Ok(entry),
                    Ok(false) => {}
                    Err(problem) => break Err(problem.detail().to_owned()),
                },
                Err(error) => break Err(error.to_string()),
            }
        };
        let encoded = entry.and_then(|entry| {
            let value = feed_entry(&entry).map_err(|error| error.to_string())?;
            let name = if entry.record.is_ok() { "record" } else { "unreadable" };
            Ok(Event::default().event(name).id(entry.cursor.to_string()).data(value.to_string()))
        });
        Some(encoded.unwrap_or_else(|error| {
            self.is_over = true;
            Event::default().event("error").data(error)
        }))
    }
}

fn respond(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let heartbeat = KeepAlive::new().interval(HEARTBEAT_INTERVAL);
    Sse::new(events).keep_alive(heartbeat).into_response()
}

fn encode(event: &SessionEvent) -> Event {
    let name = event.body.name();
    let encoded = Event::default().event(name);
    let is_record = matches!(&event.body, EventBody::Recorded { .. });
    let encoded = if is_record { encoded.id(event.seq.to_string()) } else { encoded };
    match stream_event(event) {
        Ok(value) => encoded.data(value.to_string()),
        Err(error) => Event::default().event("error").data(error.to_string()),
    }
}
