//! Server-sent events of an answer: the first ones at once, the others when the run has ended. Nothing is sent that a
//! retry of a model call would have to take back.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{StreamExt as _, stream};

/// Interval of comments that tell a client that the stream lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Characters of a text in one event.
const MAX_PIECE_CHARS: usize = 200;

/// A stream of the first events, and of those that the end of the run gives.
pub(super) fn respond(
    first: Vec<Event>,
    rest: impl Future<Output = Vec<Event>> + Send + 'static,
) -> Response {
    let rest = stream::once(rest).flat_map(stream::iter);
    let events = stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
    let heartbeat = KeepAlive::new().interval(HEARTBEAT_INTERVAL);
    Sse::new(events).keep_alive(heartbeat).into_response()
}

/// The text in pieces; none is empty.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(MAX_PIECE_CHARS).map_or(rest.len(), |(end, _)| end);
        let (piece, left) = rest.split_at(end);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_between_characters() {
        let check = |text: &str, expect: &[usize]| {
            let found: Vec<&str> = pieces(text).collect();
            assert_eq!(found.concat(), text);
            let chars: Vec<usize> = found.iter().map(|piece| piece.chars().count()).collect();
            assert_eq!(chars, expect);
        };
        check("", &[]);
        check("a", &[1]);
        check(&"ä".repeat(200), &[200]);
        check(&"😀".repeat(401), &[200, 200, 1]);
    }
}
