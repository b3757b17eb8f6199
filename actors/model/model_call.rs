use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Body;
use super::{
    Amounts, AssistantMessage, Attempt, CallId, Failure, FinishReason, Flaw, Hash, Incarnation, ModelRef,
    Price, Seq, Timestamp, UnansweredModel, Usage, UsageAnomaly,
};

/// See [`Body::ModelStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStarted {
    /// The call.
    pub call: CallId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Who is asked.
    pub model: ModelRef,
    /// The last record that the view covers: a retry or a revival renders the same view.
    #[serde(rename = "view")]
    pub view_seq: Seq,
    /// The hash of that view.
    #[serde(rename = "request")]
    pub request_hash: Hash,
    /// The bytes of what the model is to read, without what the wire format adds; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// The pictures of the view.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub images: u64,
    /// The output tokens asked for.
    pub max_tokens: u64,
    /// Why the request does not begin as the one before it did; absent if it does. A provider's cache is of no use then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<PrefixChange>,
    /// What is reserved for it.
    pub reserved: Amounts,
    /// What the model costs, as far as it is known; the money that is reserved is by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Who asks.
    pub incarnation: Incarnation,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
const fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Why a request does not begin with the bytes of the one before it in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixChange {
    /// There was none before it.
    First,
    /// Another model is asked.
    Model,
    /// The run brings another system message.
    System,
    /// The run has other tools.
    Tools,
    /// The model is told otherwise how much to think.
    Thinking,
}

/// See [`Body::ModelAnswered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswered {
    /// The call.
    pub call: CallId,
    /// The attempt that answered.
    pub attempt: Attempt,
    /// What was said.
    pub message: Arc<AssistantMessage>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<Flaw>,
    /// The link of the chain that is asked from now on, counted from 0, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
    /// What it used, if the provider said and can be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why what the provider said of its usage does not count: then all that was reserved is spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

/// See [`Body::ModelFailed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// The attempt that failed.
    pub attempt: Attempt,
    /// Why.
    pub failure: Failure,
    /// When the next attempt is due; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The link of the chain that is to be asked next, counted from 0, if the one that failed is given up for this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
}

/// See [`Body::ModelWaiting`]. What is waited does not count for limits of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelWaiting {
    /// The call.
    pub call: CallId,
    /// The attempt that waits; it has not started.
    pub attempt: Attempt,
    /// Until when.
    pub until: Timestamp,
    /// Who is not asked, and why.
    pub skipped: Arc<[UnansweredModel]>,
}

/// See [`Body::ModelLate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLate {
    /// The call.
    pub call: CallId,
    /// The attempt whose answer came late.
    pub attempt: Attempt,
    /// What it used.
    pub usage: Usage,
    /// What that cost, in nano-dollars; absent if it is not known, and then what was booked stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<u64>,
    /// What had been booked for it in the meantime.
    pub booked: Amounts,
    /// Why what the provider said of its usage does not count: then what was booked stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

impl ModelStarted {
    /// What the attempt has spent if it used so much; without a word from the provider, all that was reserved.
    pub fn spent(&self, usage: Option<&Usage>) -> Amounts {
        let Some(usage) = usage else { return self.reserved };
        Amounts {
            iterations: self.reserved.iterations,
            tokens: Some(usage.total()),
            usd: self.price.and_then(|price| price.cost(usage)).or(self.reserved.usd),
            ..Amounts::default()
        }
    }
}

impl ModelLate {
    /// What the attempt has spent, the iteration aside.
    pub fn spent(&self) -> Amounts {
        Amounts { tokens: Some(self.usage.total()), usd: self.usd, ..Amounts::default() }
    }
}

impl ModelAnswered {
    /// Whether it is not part of the conversation: the model was asked again.
    pub fn is_discarded(&self) -> bool {
        self.flaw.is_some_and(Flaw::discards)
    }

    /// Whether the model is asked again with nothing new in the conversation.
    pub fn is_asked_again(&self) -> bool {
        self.flaw.is_some_and(Flaw::asks_again)
    }

    /// Whether its text goes on in the next answer that is not discarded.
    pub fn is_partial(&self) -> bool {
        self.flaw == Some(Flaw::Partial)
    }
}
