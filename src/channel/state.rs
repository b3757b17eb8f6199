//! What a channel keeps over restarts: which updates it has handled, where each chat is in its conversations, and the
//! messages that it may still edit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use hermod_actors::model::QueueMode;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{
    clock,
    files::{self, IoResult as _, off_thread},
};

/// Size limit of the file.
const MAX_BYTES: u64 = 16 << 20;
/// Replies whose messages are remembered after their end, so that a repeated delivery edits them.
const MAX_REPLIES: usize = 256;
/// Senders that are remembered as refused. Further ones get no answer.
const MAX_REFUSED: usize = 1_000;
/// The age after which the number of the next update means nothing: after a week without one, Telegram begins anew.
const MAX_NUMBER_AGE_MS: u64 = 6 * 24 * 60 * 60 * 1_000;

/// What a channel keeps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChannelState {
    /// The bot; what is kept of another one means nothing.
    pub(super) bot: Option<String>,
    /// The number of the first update that is not handled.
    next: Option<i64>,
    /// When that was kept, in milliseconds since 1970.
    at: i64,
    /// The update with which a process has begun, and how many have begun with it.
    trying: Option<(i64, u32)>,
    /// The update that answers a question with its text, and the call that asks.
    pub(super) answering: Option<(i64, String)>,
    /// The chats, by address.
    pub(super) chats: BTreeMap<String, ChatRecord>,
    /// The messages of replies, the newest last.
    replies: Vec<(String, Vec<String>)>,
    /// The questions that wait for a press, by call.
    pub(super) questions: BTreeMap<String, AskedQuestion>,
    refused: BTreeSet<String>,
}

/// What is kept of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChatRecord {
    /// The number of the update that has begun its present conversation.
    pub(super) generation: Option<i64>,
    /// What happens to its messages while a run is under way.
    pub(super) mode: Option<QueueMode>,
}

/// A question that stands in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AskedQuestion {
    /// The address of the chat.
    pub(super) chat: String,
    /// The message with the question.
    pub(super) message: String,
    /// Its text.
    pub(super) text: String,
    /// Whether it is answered with text.
    pub(super) wants_text: bool,
}

impl ChannelState {
    /// The number of the first update that is not handled; `None` if any may be it.
    pub(super) fn next_update(&self) -> Option<i64> {
        let age = u64::try_from(clock::now().0.saturating_sub(self.at)).unwrap_or(0);
        self.next.filter(|_| age < MAX_NUMBER_AGE_MS)
    }

    /// The update of this number is handled.
    pub(super) fn pass(&mut self, number: i64) {
        (self.next, self.at) = (Some(number.saturating_add(1)), clock::now().0);
        (self.trying, self.answering) = (None, None);
    }

    /// Counts the processes that have begun with this update.
    pub(super) fn begin_with(&mut self, number: i64) -> u32 {
        let tries = match self.trying {
            Some((known, tries)) if known == number => tries.saturating_add(1),
            Some(_) | None => 1,
        };
        self.trying = Some((number, tries));
        tries
    }

    /// Forgets what belongs to another bot.
    pub(super) fn belong_to(&mut self, bot: &str) {
        if self.bot.as_deref() != Some(bot) {
            *self = Self { bot: Some(bot.to_owned()), ..Self::default() };
        }
    }

    /// The messages of a reply.
    pub(super) fn reply(&self, key: &str) -> Option<&Vec<String>> {
        self.replies.iter().find(|(known, _)| known == key).map(|(_, messages)| messages)
    }

    /// Remembers the messages of a reply.
    pub(super) fn keep_reply(&mut self, key: &str, messages: &[String]) {
        self.replies.retain(|(known, _)| known != key);
        self.replies.push((key.to_owned(), messages.to_vec()));
        let surplus = self.replies.len().saturating_sub(MAX_REPLIES);
        self.replies.drain(..surplus);
    }

    /// Whether a sender is refused for the first time, and is remembered.
    pub(super) fn refuse(&mut self, sender: &str) -> bool {
        self.refused.len() < MAX_REFUSED && self.refused.insert(sender.to_owned())
    }
}

/// The file of a channel's state. Each change is on disk when it returns.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    state: Mutex<ChannelState>,
}

impl StateFile {
    /// Reads the file. One that cannot be read is an error: without it, commands would be carried out again.
    pub(super) fn open(folder: &Path, channel: &str) -> io::Result<Self> {
        files::make_folder(folder)?;
        let path = folder.join(format!("{channel}.json"));
        let bytes = files::read_regular(&path, MAX_BYTES).if_exists()?;
        let state = match bytes {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?,
            None => ChannelState::default(),
        };
        Ok(Self { path, state: Mutex::new(state) })
    }

    /// Looks at the state.
    pub(super) async fn read<T>(&self, read: impl FnOnce(&ChannelState) -> T) -> T {
        read(&*self.state.lock().await)
    }

    /// Changes the state, durably if anything is different then. After an error it is as before.
    pub(super) async fn change<T>(&self, change: impl FnOnce(&mut ChannelState) -> T) -> io::Result<T> {
        let mut state = self.state.lock().await;
        let mut changed = state.clone();
        let result = change(&mut changed);
        if changed != *state {
            let bytes = serde_json::to_vec(&changed).map_err(io::Error::other)?;
            let (path, part) = (self.path.clone(), self.path.with_extension("json.part"));
            off_thread(move || files::replace(&path, &part, &bytes)).await?;
            *state = changed;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_kept_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::open(folder.path(), "home").unwrap();
        file.change(|state| {
            state.belong_to("bot");
            state.pass(7);
            state.keep_reply("run", &["1".to_owned()]);
            state.chats.entry("17".to_owned()).or_default().generation = Some(7);
            assert!(state.refuse("3") && !state.refuse("3"));
        })
        .await
        .unwrap();
        let again = StateFile::open(folder.path(), "home").unwrap();
        let (first, second) = (file.read(Clone::clone).await, again.read(Clone::clone).await);
        assert_eq!(first, second);
        assert_eq!((second.next_update(), second.reply("run").map(Vec::len)), (Some(8), Some(1)));
        let mut other = second;
        other.belong_to("bot");
        assert_eq!(other, first);
        other.belong_to("another");
        assert_eq!(other.next_update(), None);
        std::fs::write(folder.path().join("home.json"), "{").unwrap();
        assert!(StateFile::open(folder.path(), "home").is_err());
    }

    #[test]
    fn an_update_is_tried_by_few_processes() {
        let mut state = ChannelState::default();
        assert_eq!([state.begin_with(7), state.begin_with(7), state.begin_with(7)], [1, 2, 3]);
        assert_eq!(state.begin_with(8), 1);
        state.pass(8);
        assert_eq!((state.next_update(), state.begin_with(8)), (Some(9), 1));
        state.at = 0;
        assert_eq!(state.next_update(), None, "it is too old");
    }

    #[test]
    fn the_newest_replies_are_remembered() {
        let mut state = ChannelState::default();
        for n in 0..300 {
            state.keep_reply(&n.to_string(), &[]);
        }
        assert_eq!((state.replies.len(), state.reply("299").is_some()), (MAX_REPLIES, true));
        assert_eq!(state.reply("0"), None);
    }
}
