//! Shows a reply while it is made: a message that is edited, at most once in an interval. The whole reply is delivered by
//! `outbox.rs`, so a preview may be late or fail.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    model::{CallId, EventBody, RunRow},
    shaping::{ReplyPiece, ReplyShaper},
};
use tokio::time::{Instant, sleep_until};

use super::{
    address::ChatAddress,
    chat_channel::Channel,
    outbox::{options, reply_key},
    port::ChatError,
    replies::{Reply, ReplyStage},
    text,
};
use crate::config::StreamMode;

/// The least time between two edits if nothing else is configured.
const EDIT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the first words wait for more.
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// How long a sign that an answer is being written is shown.
const TYPING_INTERVAL: Duration = Duration::from_secs(5);
/// Lines about tool calls that are shown.
const MAX_TOOL_LINES: usize = 5;
/// What stands in place of a text that is void.
const NOTHING: &str = "…";

/// The text under way.
#[derive(Debug, Default)]
struct Draft {
    /// The model call with which the message begins.
    message: Option<CallId>,
    text: String,
    tools: Vec<String>,
    /// Whether the chat does not have it yet.
    has_news: bool,
    /// Whether anything was shown.
    is_shown: bool,
}

impl Draft {
    fn take(&mut self, piece: ReplyPiece) {
        match piece {
            ReplyPiece::Delta { message, text, .. } => {
                if self.message != Some(message) {
                    (self.message, self.text) = (Some(message), String::new());
                }
                self.text.push_str(&text);
                self.has_news = true;
            }
            ReplyPiece::Tool(summary) => {
                self.tools.push(summary.text);
                let surplus = self.tools.len().saturating_sub(MAX_TOOL_LINES);
                self.tools.drain(..surplus);
                self.has_news = true;
            }
            ReplyPiece::Retry { message, at, .. } => {
                let is_under_way = self.message == Some(message);
                let kept =
                    usize::try_from(at).ok().filter(|at| is_under_way && self.text.is_char_boundary(*at));
                self.text.truncate(kept.unwrap_or(0));
                self.has_news |= self.is_shown;
            }
            ReplyPiece::Block { .. } | ReplyPiece::Reasoning { .. } | ReplyPiece::Final(_) => {}
        }
    }

    /// The messages that show it; none if there is nothing to show or to replace.
    fn messages(&self) -> Vec<String> {
        let tools = self.tools.join("\n");
        let parts = [tools.as_str(), &self.text].into_iter().filter(|part| !part.is_empty());
        let texts = text::messages(&parts.collect::<Vec<_>>().join("\n\n"));
        match texts.is_empty() && self.is_shown {
            true => vec![NOTHING.to_owned()],
            false => texts,
        }
    }
}

/// A run that is shown in its chat.
struct ShownRun {
    channel: Arc<Channel>,
    at: ChatAddress,
    reply: Arc<Reply>,
    draft: Draft,
    /// When the draft may be shown again.
    next_at: Instant,
    typing_at: Instant,
}

/// Shows a run until its end, or until its records cannot be read.
pub(super) async fn show_run(channel: Arc<Channel>, row: RunRow, at: ChatAddress) {
    let settings = channel.door.submitter.settings();
    let verbose = channel.agent_config(&settings.config, Some(row.agent.as_str())).replies.verbose.0;
    drop(settings);
    let mut shaper = ReplyShaper::new(options(verbose));
    let mut watch = channel.runtime().watch(row.session, row.first);
    let reply = channel.replies.get(&reply_key(row.id, row.leg));
    let now = Instant::now();
    let mut run = ShownRun { channel, at, reply, draft: Draft::default(), next_at: now, typing_at: now };
    loop {
        let event = tokio::select! {
            biased;
            () = sleep_until(run.next_at), if run.draft.has_news => {
                run.show().await;
                continue;
            }
            event = watch.next_shared() => event,
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(run = %row.id, %error, "a run is not shown any more");
                return;
            }
        };
        let event = event.event();
        if event.run != Some(row.id) {
            continue;
        }
        for piece in shaper.on_event(&event.body, 0) {
            if matches!(piece, ReplyPiece::Final(_)) {
                return;
            }
            run.take(piece);
        }
        run.signal_typing(&event.body);
    }
}

impl ShownRun {
    fn interval(&self) -> Duration {
        self.channel.section.edit_interval.map_or(EDIT_INTERVAL, |interval| interval.0)
    }

    fn take(&mut self, piece: ReplyPiece) {
        let had_news = self.draft.has_news;
        self.draft.take(piece);
        if self.channel.section.stream == StreamMode::Off {
            self.draft.has_news = false;
        } else if self.draft.has_news && !had_news {
            let wait = if self.draft.is_shown { Duration::ZERO } else { FIRST_WAIT.min(self.interval()) };
            self.next_at = self.next_at.max(Instant::now() + wait);
        }
    }

    async fn show(&mut self) {
        self.draft.has_news = false;
        let texts = self.draft.messages();
        if texts.is_empty() {
            return;
        }
        let shown = self.reply.show(&self.channel, &self.at, &texts, ReplyStage::Preview).await;
        self.next_at = Instant::now() + self.interval();
        match shown {
            Ok(()) => self.draft.is_shown = true,
            Err(ChatError::RateLimited(pause)) => {
                self.draft.has_news = true;
                self.next_at = Instant::now() + pause;
            }
            Err(error) => tracing::debug!(%error, "a preview is not shown"),
        }
    }

    /// Shows that the run goes on, while nothing of its text is seen.
    fn signal_typing(&mut self, event: &EventBody) {
        let is_work = matches!(
            event,
            EventBody::ThinkingStart { .. }
                | EventBody::ReasoningDelta { .. }
                | EventBody::ToolStart { .. }
                | EventBody::ToolProgress { .. }
        );
        if is_work && Instant::now() >= self.typing_at {
            self.typing_at = Instant::now() + TYPING_INTERVAL;
            let (channel, at) = (Arc::clone(&self.channel), self.at.clone());
            tokio::spawn(async move {
                // It is a courtesy, and no preview waits for it.
                let (Ok(()) | Err(_)) = channel.transport.signal_typing(&at).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;

    use super::*;

    #[test]
    fn a_draft_is_the_message_under_way() {
        let call = |iteration| CallId { run: RunId::from_bits(1), iteration, n: 0 };
        let delta = |iteration, text: &str| ReplyPiece::Delta {
            message: call(iteration),
            call: call(iteration),
            attempt: 1,
            text: text.to_owned(),
        };
        let mut draft = Draft::default();
        let check = |draft: &Draft, expect: &[&str]| assert_eq!(draft.messages(), expect);
        check(&draft, &[]);
        draft.take(delta(1, "I lo"));
        draft.take(delta(1, "ok"));
        check(&draft, &["I look"]);
        draft.take(delta(2, "done"));
        check(&draft, &["done"]);
        let retry = |at| ReplyPiece::Retry { call: call(2), message: call(2), at };
        draft.take(retry(2));
        check(&draft, &["do"]);
        draft.take(retry(0));
        check(&draft, &[]);
        draft.is_shown = true;
        draft.take(retry(0));
        assert!(draft.has_news);
        check(&draft, &["…"]);
        draft.take(delta(2, "fine"));
        check(&draft, &["fine"]);
    }
}
