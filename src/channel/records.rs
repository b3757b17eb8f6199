//! Watches the records of all sessions for what chats are shown: runs that begin, questions, and messages that were
//! dropped.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RecordFeed, RunError,
    model::{Body, MessageDropped, RunId, SessionId},
    port::FeedEntry,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{chat_channel::Channel, questions, stream::show_run};

/// Pause after the feed could not be read.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// Watches until `closing` fires.
pub(super) async fn watch(channel: Arc<Channel>, closing: CancellationToken) {
    let (ended, watched) = (closing.clone(), Records { channel, closing });
    // Dropped at the end: what it was doing is done again by the next process.
    let _ended = ended.run_until_cancelled(watched.run()).await;
}

struct Records {
    channel: Arc<Channel>,
    /// Ends what this starts.
    closing: CancellationToken,
}

impl Records {
    async fn run(self) {
        let mut feed = loop {
            match self.begin().await {
                Ok(feed) => break feed,
                Err(error) => self.on_unreadable(&error.to_string()).await,
            }
        };
        loop {
            match feed.next().await {
                Ok(shared) => {
                    if let Err(error) = self.take(shared.entry()).await {
                        tracing::warn!(channel = &*self.channel.name, %error, "a chat is not told of a record");
                    }
                }
                Err(error) => self.on_unreadable(&error.to_string()).await,
            }
        }
    }

    async fn on_unreadable(&self, error: &str) {
        tracing::error!(channel = &*self.channel.name, error, "the records cannot be read now");
        sleep(READ_PAUSE).await;
    }

    /// Goes on with what earlier processes have left, and returns the feed from there on.
    async fn begin(&self) -> Result<RecordFeed, RunError> {
        let end = self.channel.runtime().feed_end().await.map_err(RunError::Read)?;
        let feed = self.channel.runtime().feed(end);
        for row in self.channel.runtime().open_runs().await? {
            if self.channel.is_own(&row) {
                self.show_run(row.id).await?;
            }
            for request in questions::pending_of(&self.channel, &row).await? {
                let channel = Arc::clone(&self.channel);
                self.spawn(async move { questions::ask(&channel, &request).await });
            }
        }
        for call in questions::answered_meanwhile(&self.channel).await? {
            let channel = Arc::clone(&self.channel);
            self.spawn(async move { questions::settle(&channel, &call, None).await });
        }
        Ok(feed)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no chat is told of other records")]
    async fn take(&self, entry: &FeedEntry) -> Result<(), RunError> {
        let Ok(record) = &entry.record else { return Ok(()) };
        match &record.body {
            Body::RunAccepted(accepted) if accepted.spec.deliver_to.contains(&self.channel.target) => {
                self.show_run(accepted.run).await
            }
            Body::ApprovalRequested(request) => {
                let (channel, request) = (Arc::clone(&self.channel), request.clone());
                self.spawn(async move { questions::ask(&channel, &request).await });
                Ok(())
            }
            Body::ApprovalAnswered(answered) => {
                let (channel, answered) = (Arc::clone(&self.channel), answered.clone());
                self.spawn(async move {
                    questions::settle(&channel, &answered.call.to_string(), Some(&answered)).await;
                });
                Ok(())
            }
            Body::RunEnded(ended) => self.settle_questions_of(ended.run).await,
            Body::MessageDropped(dropped) => self.tell_of(entry.session, dropped).await,
            _ => Ok(()),
        }
    }

    /// Shows a run in its chat from now on.
    async fn show_run(&self, run: RunId) -> Result<(), RunError> {
        let row = self.channel.runtime().row(run).await?;
        if let Some(at) = self.channel.chat_of_session(row.session).await? {
            self.spawn(show_run(Arc::clone(&self.channel), row, at));
        }
        Ok(())
    }

    /// A run has ended: nothing that it has asked is answered any more.
    async fn settle_questions_of(&self, run: RunId) -> Result<(), RunError> {
        let prefix = format!("{run}.");
        let calls = self.channel.state.read(|state| {
            state.questions.keys().filter(|call| call.starts_with(&prefix)).cloned().collect::<Vec<_>>()
        });
        for call in calls.await {
            let channel = Arc::clone(&self.channel);
            self.spawn(async move { questions::settle(&channel, &call, None).await });
        }
        Ok(())
    }

    /// Tells a chat that one of its messages gets no answer.
    async fn tell_of(&self, session: SessionId, dropped: &MessageDropped) -> Result<(), RunError> {
        let Some(at) = self.channel.chat_of_session(session).await? else { return Ok(()) };
        let which = dropped.excerpt.as_ref().map(|text| format!(" “{text}”")).unwrap_or_default();
        let text = format!("A message was dropped: {}{which}", dropped.reason);
        let channel = Arc::clone(&self.channel);
        self.spawn(async move { channel.say(&at, &text).await });
        Ok(())
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        tokio::spawn(async move {
            let _ended = closing.run_until_cancelled(work).await;
        });
    }
}
