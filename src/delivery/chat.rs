//! The chats of this process's channels, as targets. A channel registers its output while it runs.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::model::OutboxMessage;
use tokio_util::sync::CancellationToken;

use super::{attachments::AttachedFile, verdict::SendResult};

/// Pause of messages for a channel that is not there.
const ABSENT_PAUSE: Duration = Duration::from_secs(1);

/// Sends messages to the chats of one channel.
pub trait ChatOutput: fmt::Debug + Send + Sync {
    /// Makes one attempt; `chat` is the configured one, without which it is that of the message's session. A repeat edits
    /// what an earlier attempt has sent, as far as that is known.
    fn send<'a>(
        &'a self,
        chat: Option<&'a str>,
        message: &'a OutboxMessage,
        files: &'a [AttachedFile],
    ) -> BoxFuture<'a, SendResult>;
}

type Outputs = BTreeMap<Arc<str>, Arc<dyn ChatOutput>>;

/// The outputs of the channels by name. Messages wait until the first are there.
#[derive(Debug, Default)]
pub struct ChatOutputs {
    outputs: RwLock<Outputs>,
    started: CancellationToken,
}

impl ChatOutputs {
    /// Sends to these channels from now on.
    pub fn exchange(&self, outputs: BTreeMap<Arc<str>, Arc<dyn ChatOutput>>) {
        *self.outputs.write().unwrap_or_else(PoisonError::into_inner) = outputs;
        self.started.cancel();
    }

    pub(super) async fn send(
        &self,
        channel: &str,
        chat: Option<&str>,
        (message, files): (&OutboxMessage, &[AttachedFile]),
    ) -> SendResult {
        self.started.cancelled().await;
        let output = self.outputs.read().unwrap_or_else(PoisonError::into_inner).get(channel).cloned();
        let Some(output) = output else {
            let why = format!("the channel {channel} is not connected");
            return SendResult::Temporary { why, pause: Some(ABSENT_PAUSE) };
        };
        output.send(chat, message, files).await
    }
}
