//! Views of channels: how each is connected.

use hermod_actors::model::Timestamp;
use serde::{Deserialize, Serialize};

use super::encoding;

/// A channel: `{name, kind, bot, state, since, error}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelView {
    /// Its name.
    pub name: String,
    /// `telegram`.
    pub kind: String,
    /// The name of the bot, once it is known.
    pub bot: Option<String>,
    /// How it is.
    pub state: ChannelStateView,
    /// Since when it is so.
    #[serde(with = "encoding::time")]
    pub since: Timestamp,
    /// The last error; `null` if there is none.
    pub error: Option<String>,
}

/// How a channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ChannelStateView {
    /// The service has not answered yet.
    Connecting,
    /// Updates are received.
    Connected,
    /// The service does not answer, or refuses. It is tried again.
    Failing,
    /// It cannot be used as it is configured.
    Unusable,
}
