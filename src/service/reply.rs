//! The reply of a run as a chat surface gets it: the events of the run, shaped. `actors/core/policy/shaping/` decides what
//! is sent; here are its settings, the clock, and where a client goes on.

use std::collections::VecDeque;

use hermod_actors::{
    SharedEvent, Watch,
    model::{EventBody, RunRow, Seq, SessionEvent},
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

/// The pieces of a run's reply, until the final one.
pub(super) struct ReplyEvents {
    watch: Watch,
    row: RunRow,
    /// The last record that the client has seen whole.
    seen: Seq,
    shaper: ReplyShaper,
    ready: VecDeque<StreamEvent>,
    reader: StreamReader,
    since: Instant,
    is_over: bool,
}

impl ReplyEvents {
    /// The reply of a run, behind what the client has seen. What the reply depends on is read from the run's beginning.
    pub(super) fn new(reach: Reach, row: &RunRow, query: ReplyQuery, seen: Option<Seq>) -> Self {
        let shaper = ReplyShaper::new(query.options(&reach, row));
        Self {
            watch: reach.service().runtime.watch(row.session, row.first),
            row: row.clone(),
            seen: seen.unwrap_or(0),
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

    /// The next piece; `None` after the final one, when the service stops, and when the token is revoked.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let idle_at = self.shaper.idle_at_ms();
            let event = tokio::select! {
                event = self.reader.wait(self.watch.next_shared()) => event?,
                () = sleep_until(self.since, idle_at) => {
                    let pieces = self.shaper.on_time(self.now_ms());
                    self.push(pieces, (self.seen, false));
                    continue;
                }
            };
            match event {
                Ok(event) if event.event().run == Some(self.row.id) => self.take(&event).await,
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    self.ready.push_back(StreamEvent::failed(error));
                }
            }
        }
    }

    /// Shapes an event of the run.
    async fn take(&mut self, event: &SharedEvent) {
        let event: &SessionEvent = event.event();
        let mut pieces = self.shaper.on_event(&event.body, self.now_ms());
        let is_record = matches!(event.body, EventBody::Recorded { .. });
        if pieces.iter().any(|piece| matches!(piece, ReplyPiece::Final(_))) {
            self.is_over = has_ended_for_good(self.reader.reach(), self.row.id, event.seq).await;
            // A run that went on with a larger budget has its final piece at its last end.
            pieces.retain(|piece| self.is_over || !matches!(piece, ReplyPiece::Final(_)));
        }
        let is_seen = if is_record { event.seq <= self.seen } else { event.seq < self.seen };
        if !is_seen {
            self.push(pieces, (event.seq, is_record));
        }
    }

    /// Queues pieces. The last one of a record tells where a client goes on.
    fn push(&mut self, pieces: Vec<ReplyPiece>, (seq, is_record): (Seq, bool)) {
        let ids = EventIds { session: self.row.session, run: Some(self.row.id), seq };
        let last = pieces.len().saturating_sub(1);
        let events = pieces.iter().enumerate().map(|(n, piece)| {
            let id = (is_record && n == last).then_some(seq);
            StreamEvent::of_reply(reply_event_name(piece), id, reply_event(ids, piece))
        });
        self.ready.extend(events);
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
