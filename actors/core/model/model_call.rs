//! Record bodies of model calls: attempts, answers, failures, waits and late usage.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Body;
use super::{
    AccountId, Amounts, AssistantMessage, Attempt, AttemptId, CallId, Failure, FinishReason, Flaw, Hash,
    Incarnation, ModelRef, Price, Seq, Timestamp, UnansweredModel, UnansweredReason, Usage, UsageAnomaly,
};

/// Fields of [`Body::ModelStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStarted {
    /// The call.
    pub call: CallId,
    /// The attempt, counted from 1 within its call.
    pub attempt: Attempt,
    /// The model.
    pub model: ModelRef,
    /// The last record that the view covers, so that a retry or a revival renders the same view.
    #[serde(rename = "view")]
    pub view_seq: Seq,
    /// The hash of the view and the transient prompt.
    #[serde(rename = "request")]
    pub request_hash: Hash,
    /// Bytes of the request before the wire format encodes it: system prompt, tools, view and transient prompt; 0 if
    /// unknown.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub bytes: u64,
    /// Number of images in the view.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub images: u64,
    /// The requested maximum of output tokens.
    pub max_tokens: u64,
    /// Why the prefix of the request differs from the request before, so that the provider's cache is useless; absent
    /// if it does not differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<PrefixChange>,
    /// The reservation of the attempt.
    pub reserved: Amounts,
    /// The account of the period in which the reservation counts, too; absent if the store has no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<AccountId>,
    /// The prices of the model, if known; the reserved money is computed with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The incarnation that starts the attempt.
    pub incarnation: Incarnation,
}

/// Why a request does not start with the same bytes as the session's request before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixChange {
    /// The session's first request.
    First,
    /// The model differs.
    Model,
    /// The run's system message differs.
    System,
    /// The tools differ.
    Tools,
    /// The thinking level differs.
    Thinking,
}

/// Fields of [`Body::ModelAnswered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswered {
    /// The call.
    pub call: CallId,
    /// The attempt that answered.
    pub attempt: Attempt,
    /// The answer.
    pub message: Arc<AssistantMessage>,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// The answer's flaw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<Flaw>,
    /// Index of the chain's link for later calls, from 0, if it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
    /// The usage, if the provider reported a plausible one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why the reported usage does not count; the whole reservation is then spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

/// Fields of [`Body::ModelFailed`], also of [`Body::SummaryFailed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// The attempt that failed.
    pub attempt: Attempt,
    /// The failure.
    pub failure: Failure,
    /// Due time of the next attempt; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Index of the chain's next link, from 0, if the call leaves the failed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
}

/// Fields of [`Body::ModelWaiting`]. The wait does not count towards limits of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelWaiting {
    /// The call.
    pub call: CallId,
    /// The attempt that waits; it has not started.
    pub attempt: Attempt,
    /// End of the wait.
    pub until: Timestamp,
    /// The models that are not called, with their failures.
    pub skipped: Arc<[UnansweredModel]>,
}

/// Fields of [`Body::ModelLate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLate {
    /// The call.
    pub call: CallId,
    /// The attempt that was given up. The content of its answer is dropped, and its cost is booked.
    pub attempt: Attempt,
    /// The usage of the attempt; zero if the reported one does not count.
    pub usage: Usage,
    /// The cost in nano-dollars; absent if unknown, and then the booked amount stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<u64>,
    /// The amounts booked for the attempt before its answer came.
    pub booked: Amounts,
    /// The account of the period in which the attempt was booked, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<AccountId>,
    /// Why the reported usage does not count; the booked amounts then stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

impl ModelStarted {
    /// The attempt that this record is about.
    pub const fn id(&self) -> AttemptId {
        AttemptId { call: self.call, attempt: self.attempt }
    }

    /// The amounts spent with this usage; without a report, the whole reservation.
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

impl ModelWaiting {
    /// The failure of the link whose reset ends the wait.
    pub fn failure(&self) -> Option<&Failure> {
        self.skipped.iter().find_map(|link| match &link.reason {
            UnansweredReason::Skipped { until, failure } if *until == Some(self.until) => Some(failure),
            UnansweredReason::Skipped { .. } | UnansweredReason::Tried { .. } => None,
        })
    }
}

impl ModelLate {
    /// The attempt that this record is about.
    pub const fn id(&self) -> AttemptId {
        AttemptId { call: self.call, attempt: self.attempt }
    }

    /// The amounts spent, except the iteration.
    pub fn spent(&self) -> Amounts {
        Amounts { tokens: Some(self.usage.total()), usd: self.usd, ..Amounts::default() }
    }
}

impl ModelFailed {
    /// The end of an attempt that gives up no link; the next one is due at `retry_at`.
    pub const fn new(id: AttemptId, failure: Failure, retry_at: Option<Timestamp>) -> Self {
        Self { call: id.call, attempt: id.attempt, failure, retry_at, fallback: None }
    }
}

impl ModelAnswered {
    /// True if the answer is not part of the conversation because of its flaw.
    pub fn is_discarded(&self) -> bool {
        self.flaw.is_some_and(Flaw::discards)
    }

    /// True if the model is called again with nothing new in the conversation.
    pub fn is_asked_again(&self) -> bool {
        self.flaw.is_some_and(Flaw::asks_again)
    }

    /// True if the next answer that is not discarded continues its text.
    pub fn is_partial(&self) -> bool {
        self.flaw == Some(Flaw::Partial)
    }
}
