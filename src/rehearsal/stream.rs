//! The response body of an answer, with its scripted pauses and faults.

use std::{io, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio_util::sync::CancellationToken;

use super::{
    AnswerPace,
    script::{Cut, ScriptFault},
    wire::EventBuffer,
};

/// One action of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyAction {
    Send(Bytes),
    Wait(Duration),
    /// Yields once, so that the connection sends the data before it.
    Flush,
    Break,
}

/// The body of an answer. The body breaks when `stop` is cancelled, so that no pause outlives the server.
pub(super) fn body(
    events: EventBuffer,
    pace: AnswerPace,
    fault: Option<&ScriptFault>,
    stop: CancellationToken,
) -> Body {
    if fault.is_none() && pace.between.is_zero() {
        return events.joined().into();
    }
    let actions = body_actions(events, pace.between, fault).into_iter();
    Body::from_stream(stream::unfold((actions, stop), |(mut actions, stop)| async move {
        loop {
            let item = match actions.next()? {
                BodyAction::Send(bytes) => Ok(bytes),
                BodyAction::Break => Err(io::Error::other("the script cuts the stream here")),
                BodyAction::Flush => {
                    tokio::task::yield_now().await;
                    continue;
                }
                BodyAction::Wait(time) if wait(time, &stop).await => continue,
                BodyAction::Wait(_) => Err(io::Error::other("the rehearsal is over")),
            };
            return Some((item, (actions, stop)));
        }
    }))
}

/// True once `time` has passed; false as soon as `stop` is cancelled.
pub(super) async fn wait(time: Duration, stop: &CancellationToken) -> bool {
    if time.is_zero() {
        return true;
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

fn body_actions(events: EventBuffer, between: Duration, fault: Option<&ScriptFault>) -> Vec<BodyAction> {
    let mut actions = Vec::new();
    for (index, event) in events.split().into_iter().enumerate() {
        if index > 0 && !between.is_zero() {
            actions.push(BodyAction::Wait(between));
        }
        actions.push(BodyAction::Send(event));
    }
    let after = |count: usize| {
        let mut sent = 0;
        let found = actions.iter().position(|action| {
            sent += usize::from(matches!(action, BodyAction::Send(_)));
            sent > count
        });
        found.unwrap_or(actions.len())
    };
    match fault {
        None | Some(ScriptFault::Status { .. }) => {}
        Some(ScriptFault::Stall { after: count, time }) => {
            let at = after(*count);
            actions.insert(at, BodyAction::Wait(*time));
        }
        Some(ScriptFault::Cut { after: count, how }) => {
            let at = after(*count);
            actions.truncate(at);
            if *how == Cut::Reset {
                actions.extend([BodyAction::Flush, BodyAction::Break]);
            }
        }
    }
    actions
}
