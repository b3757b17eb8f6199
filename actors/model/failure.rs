use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Timestamp, Usage, UsageAnomaly};

/// Which of the time limits of a call ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// To connect.
    Connect,
    /// Until the first event.
    FirstEvent,
    /// Between two content events.
    Gap,
    /// The whole call.
    Call,
}

/// How far the request of a failed attempt came: whether its tokens may be billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFate {
    /// The provider never had the whole request: there was no key, or no connection for long enough.
    NotSent,
    /// The provider turned it away before it worked on it.
    Rejected,
    /// The provider had the request and may have worked on it.
    MayHaveRun,
}

/// Why a model call failed, by what can be done about it. Each wire format maps status, headers and body to one of
/// these; nobody matches on texts elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum FailureClass {
    /// Too many requests: wait.
    RateLimited {
        /// What the provider asks to wait, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// When the limit is reset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reset_at: Option<Timestamp>,
    },
    /// The provider has no room now.
    Overloaded,
    /// The provider is broken (500).
    Server,
    /// A deadline ran out.
    Timeout {
        /// Which one.
        which: Deadline,
    },
    /// No connection, or one that broke.
    Network,
    /// The stream ended, or made no sense, before the answer was whole.
    #[serde(rename = "cut")]
    IncompleteStream,
    /// What came is no answer of this wire format at all (an HTML page, say).
    NotAnApi,
    /// The credential is not accepted.
    Auth,
    /// The account is used up.
    QuotaExhausted {
        /// When it is filled again, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reset_at: Option<Timestamp>,
    },
    /// The view does not fit the model.
    ContextTooLong {
        /// The window, in tokens, if the provider said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// More output was asked for than the model gives, or than the window has room for.
    OutputCap {
        /// The most that `max_tokens` may be, in tokens, if the provider said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// The provider does not accept the request as it is.
    InvalidRequest,
    /// The provider refuses the content.
    ContentRefused,
    /// The provider does not have the model.
    ModelNotFound,
    /// It was cancelled from here.
    Cancelled,
    /// The task died without a word (a panic): what became of the call is not known.
    Lost,
    /// It could not be made here: the provider was never asked.
    #[serde(rename = "not_made")]
    NotSent,
    /// The process, or the session's actor, ended while the call was under way.
    Interrupted,
}

impl FailureClass {
    /// The class's name, as in records.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::Timeout { .. } => "timeout",
            Self::Network => "network",
            Self::IncompleteStream => "cut",
            Self::NotAnApi => "not_an_api",
            Self::Auth => "auth",
            Self::QuotaExhausted { .. } => "quota_exhausted",
            Self::ContextTooLong { .. } => "context_too_long",
            Self::OutputCap { .. } => "output_cap",
            Self::InvalidRequest => "invalid_request",
            Self::ContentRefused => "content_refused",
            Self::ModelNotFound => "model_not_found",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::NotSent => "not_made",
            Self::Interrupted => "interrupted",
        }
    }

    /// How far the request of an attempt that failed so has usually come; for failures that do not say it themselves.
    pub const fn usual_fate(&self) -> RequestFate {
        match self {
            Self::NotSent | Self::Timeout { which: Deadline::Connect } => RequestFate::NotSent,
            Self::RateLimited { .. }
            | Self::Overloaded
            | Self::Auth
            | Self::QuotaExhausted { .. }
            | Self::ContextTooLong { .. }
            | Self::OutputCap { .. }
            | Self::InvalidRequest
            | Self::ModelNotFound
            | Self::NotAnApi => RequestFate::Rejected,
            Self::Server
            | Self::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
            | Self::Network
            | Self::IncompleteStream
            | Self::ContentRefused
            | Self::Cancelled
            | Self::Lost
            | Self::Interrupted => RequestFate::MayHaveRun,
        }
    }

    /// In how many milliseconds the provider will have room again, if it said so.
    pub fn reset_in(&self, now: Timestamp) -> Option<u64> {
        let at = |reset_at: &Option<Timestamp>| reset_at.map(|at| at.ms_since(now));
        match self {
            Self::RateLimited { retry_after_ms, reset_at } => (*retry_after_ms).max(at(reset_at)),
            Self::QuotaExhausted { reset_at } => at(reset_at),
            Self::Overloaded
            | Self::Server
            | Self::Timeout { .. }
            | Self::Network
            | Self::IncompleteStream
            | Self::NotAnApi
            | Self::Auth
            | Self::ContextTooLong { .. }
            | Self::OutputCap { .. }
            | Self::InvalidRequest
            | Self::ContentRefused
            | Self::ModelNotFound
            | Self::Cancelled
            | Self::Lost
            | Self::NotSent
            | Self::Interrupted => None,
        }
    }

    /// Whether it said so.
    pub fn reset_is_known(&self) -> bool {
        self.reset_in(Timestamp::default()).is_some()
    }
}

/// A failed model call: the class that decides, and the text that a person reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    /// What can be done about it.
    #[serde(flatten)]
    pub class: FailureClass,
    /// What the provider, the network or the runtime said; never a secret.
    pub message: String,
    /// How far the request came; absent where only the class tells (see [`FailureClass::usual_fate`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestFate>,
    /// What the attempt used, if the provider said so with the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// Why what it said of its usage does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

impl Failure {
    /// A failure of `class`, told as `message`.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), request: None, usage: None, anomaly: None }
    }

    /// The failure of a request that came so far.
    #[must_use]
    pub fn with_request(self, request: RequestFate) -> Self {
        Self { request: Some(request), ..self }
    }

    /// The failure with the usage that the provider reported.
    #[must_use]
    pub fn with_usage(self, usage: Option<Usage>) -> Self {
        Self { usage: usage.map(Box::new), ..self }
    }

    /// How far the request came.
    pub fn request(&self) -> RequestFate {
        self.request.unwrap_or(self.class.usual_fate())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}
