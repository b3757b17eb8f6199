//! The reply of a run as a chat surface gets it: the events of the run, shaped. `actors/core/policy/shaping/` decides what
//! is sent; here are its settings, the clock, and where a client goes on.

use std::collections::VecDeque;

use hermod_actors::{
    SharedEvent, Watch,
    model::{Body, EventBody, RunRow, Seq, SessionEvent},
    shaping::{
        BlockBreak, BlockSettings, BlockSizes, ReasoningMode, ReplyOptions, ReplyPiece, ReplyShape,
        ReplyShaper, Verbosity,
    },
};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::{
    events::{StreamReader, has_ended_for_good},
    reach::Reach,
    stream_event::StreamEvent,
};
use crate::{
    host::millis,
    view::{EventIds, reply_event, reply_event_name, schema},
};

/// What a client sets of a reply; the rest is as the agent of the run is configured.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReplyQuery {
    /// `deltas` as they are streamed, which is the default, or whole `blocks`.
    #[param(required = false)]
    pub(super) shape: Option<ShapeName>,
    /// When blocks are sent.
    #[param(value_type = schema::BlockBreakName, required = false)]
    pub(super) block_break: Option<BlockBreak>,
    /// Whether and how reasoning is part of the reply.
    #[param(value_type = schema::ReasoningName, required = false)]
    pub(super) reasoning: Option<ReasoningMode>,
    /// Which summaries of tool calls are part of the reply.
    #[param(value_type = schema::VerboseName, required = false)]
    pub(super) verbose: Option<Verbosity>,
}

/// How the text of a reply arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShapeName {
    Deltas,
    Blocks,
}

impl ReplyQuery {
    /// The options of a reply of this run.
    fn options(self, reach: &Reach, row: &RunRow) -> ReplyOptions {
        let settings = reach.service().submitter.settings();
        let config = settings.config.for_agent(&row.agent).unwrap_or(&settings.config);
        let replies = &config.replies;
        let max_chars = replies.block_max_chars.0 as usize;
        let blocks = BlockSettings {
            sizes: BlockSizes { min_chars: (replies.block_min_chars.0 as usize).min(max_chars), max_chars },
            break_at: self.block_break.unwrap_or(replies.block_break.0),
            idle_ms: millis(replies.block_idle.0),
        };
        ReplyOptions {
            shape: match self.shape {
                Some(ShapeName::Blocks) => ReplyShape::Blocks(blocks),
                Some(ShapeName::Deltas) | None => ReplyShape::Deltas,
            },
            reasoning: self.reasoning.unwrap_or(replies.reasoning.0),
            verbose: self.verbose.unwrap_or(replies.verbose.0),
        }
    }
}

/// A piece of a reply, with where it stands.
#[derive(Debug)]
pub(super) struct ShapedPiece {
    pub(super) piece: ReplyPiece,
    ids: EventIds,
    /// Where a client goes on behind it.
    pub(super) id: Option<Seq>,
}

/// The pieces of a run's reply, until the final one.
pub(super) struct ReplyEvents {
    watch: Watch,
    row: RunRow,
    /// The last record that the client has seen whole.
    seen: Seq,
    /// The last record before the present event, or with it.
    seq: Seq,
    /// The event that is to be shaped.
    event: Option<SharedEvent>,
    shaper: ReplyShaper,
    ready: VecDeque<Result<ShapedPiece, String>>,
    reader: StreamReader,
    since: Instant,
    is_over: bool,
}

impl ReplyEvents {
    /// A reply as OpenClaw's clients show it: deltas without anything beside them, and the final one.
    pub(super) const CHAT: ReplyQuery = ReplyQuery {
        shape: Some(ShapeName::Deltas),
        block_break: None,
        reasoning: Some(ReasoningMode::Off),
        verbose: Some(Verbosity::Off),
    };

    /// The reply of a run, behind what the client has seen. What the reply depends on is read from the run's beginning.
    pub(super) fn new(reach: Reach, row: &RunRow, query: ReplyQuery, seen: Option<Seq>) -> Self {
        let shaper = ReplyShaper::new(query.options(&reach, row));
        Self {
            watch: reach.service().runtime.watch(row.session, row.first),
            row: row.clone(),
            seen: seen.unwrap_or(0),
            seq: row.first,
            event: None,
            shaper,
            ready: VecDeque::new(),
            reader: StreamReader::new(reach),
            since: Instant::now(),
            is_over: false,
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.reader.is_cut_off()
    }

    /// The next piece as an event.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        Some(match self.next_piece().await? {
            Ok(ShapedPiece { piece, ids, id }) => {
                StreamEvent::of_reply(reply_event_name(&piece), id, reply_event(ids, &piece))
            }
            Err(reason) => StreamEvent::failed(reason),
        })
    }

    /// The next piece, or why there are no more; `None` after the final one, when the service stops, and when the token is
    /// revoked. May be cancelled at any time.
    pub(super) async fn next_piece(&mut self) -> Option<Result<ShapedPiece, String>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            if self.is_over {
                return None;
            }
            if let Some(event) = self.event.clone() {
                self.take(event).await;
                continue;
            }
            let idle_at = self.shaper.idle_at_ms();
            let event = tokio::select! {
                event = self.reader.wait(self.watch.next_shared()) => event?,
                () = sleep_until(self.since, idle_at) => {
                    let pieces = self.shaper.on_time(self.now_ms());
                    self.push(pieces, false);
                    continue;
                }
            };
            match event {
                Ok(event) => self.event = Some(event).filter(|event| event.event().run == Some(self.row.id)),
                Err(error) => {
                    self.is_over = true;
                    self.ready.push_back(Err(error.to_string()));
                }
            }
        }
    }

    /// Shapes an event of the run.
    async fn take(&mut self, event: SharedEvent) {
        let event: &SessionEvent = event.event();
        let record = if let EventBody::Recorded { record } = &event.body { Some(record) } else { None };
        let is_end = record.is_some_and(|record| matches!(record.body, Body::RunEnded(_)));
        let is_over = is_end && has_ended_for_good(self.reader.reach(), self.row.id, event.seq).await;
        // From here on the event is not taken again.
        self.event = None;
        self.is_over = is_over;
        self.seq = event.seq;
        let mut pieces = self.shaper.on_event(&event.body, self.now_ms());
        // A run that went on with a larger budget has its final piece at its last end.
        pieces.retain(|piece| is_over || !matches!(piece, ReplyPiece::Final(_)));
        let is_seen = if record.is_some() { event.seq <= self.seen } else { event.seq < self.seen };
        if !is_seen {
            self.push(pieces, record.is_some());
        }
    }

    /// Queues pieces. The last one of a record tells where a client goes on.
    fn push(&mut self, pieces: Vec<ReplyPiece>, is_record: bool) {
        let seq = self.seq;
        let ids = EventIds { session: self.row.session, run: Some(self.row.id), seq };
        let last = pieces.len().saturating_sub(1);
        let shaped = pieces.into_iter().enumerate().map(|(n, piece)| {
            let id = (is_record && n == last).then_some(seq);
            Ok(ShapedPiece { piece, ids, id })
        });
        self.ready.extend(shaped);
    }

    fn now_ms(&self) -> u64 {
        millis(self.since.elapsed())
    }
}

/// Sleeps until a time, counted in milliseconds; forever without one.
async fn sleep_until(since: Instant, at_ms: Option<u64>) {
    match at_ms {
        Some(at_ms) => tokio::time::sleep_until(since + std::time::Duration::from_millis(at_ms)).await,
        None => std::future::pending().await,
    }
}
