//! Failures of model calls: their classes, by which the core decides on retries and failover, and how far the request
//! came. The latter decides what may be billed. What a failure counts against is in `policy/failure_scope.rs`.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{Timestamp, Usage, UsageAnomaly};

/// The time limit of a model call that expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// Time to connect.
    Connect,
    /// Time until the first event.
    FirstEvent,
    /// Time between two events that bring content.
    Gap,
    /// Time of the whole call.
    Call,
}

/// The progress of a failed attempt's request, which decides whether its tokens may be billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFate {
    /// The provider never received the whole request: no credential, or no connection for long enough.
    NotSent,
    /// The provider rejected the request before processing it.
    Rejected,
    /// The provider received the request and may have processed it.
    MayHaveRun,
}

/// Why a model call failed, classified by the possible remedy. `provider/failure/` maps status, headers and body to a
/// class; no other code matches on error texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "class", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureClass {
    /// Too many requests; a later attempt may succeed.
    RateLimited {
        /// The wait that the provider requested, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// Time of the limit's reset.
        #[serde(skip_serializing_if = "Option::is_none")]
        reset_at: Option<Timestamp>,
    },
    /// The provider is overloaded.
    Overloaded,
    /// Internal error of the provider (HTTP 500 and the like).
    Server,
    /// A deadline expired.
    Timeout {
        /// The deadline.
        which: Deadline,
    },
    /// The connection failed or broke.
    Network,
    /// The stream ended or became invalid before the answer was complete.
    #[serde(rename = "cut")]
    #[strum(serialize = "cut")]
    IncompleteStream,
    /// The response is not of this wire format at all, such as an HTML page.
    NotAnApi,
    /// The provider rejected the credential.
    Auth,
    /// The account's quota is used up.
    QuotaExhausted {
        /// Time of the quota's reset, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        reset_at: Option<Timestamp>,
    },
    /// The view exceeds the model's context window.
    ContextTooLong {
        /// The window in tokens, if the provider reported it.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// The requested output exceeds the model's maximum or the remaining window.
    OutputCap {
        /// The largest accepted `max_tokens`, if the provider reported it.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// The provider rejects the request as invalid.
    InvalidRequest,
    /// The provider refuses the content.
    ContentRefused,
    /// The provider does not know the model.
    ModelNotFound,
    /// This process cancelled the call.
    Cancelled,
    /// The call's task ended without a result (a panic); the fate of the request is unknown.
    Lost,
    /// The call could not be made; no request was sent to the provider.
    #[serde(rename = "not_made")]
    #[strum(serialize = "not_made")]
    NotSent,
    /// The process, or the session's actor, ended while the call was under way.
    Interrupted,
}

impl FailureClass {
    /// The class's name, as in records.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The usual fate of a request that failed with this class, for failures that do not record it.
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

    /// Milliseconds until the provider's reset, if it reported one.
    pub fn reset_in(&self, now: Timestamp) -> Option<u64> {
        let at = |reset_at: &Option<Timestamp>| reset_at.map(|at| at.ms_since(now));
        if let Self::RateLimited { retry_after_ms, reset_at } = self {
            (*retry_after_ms).max(at(reset_at))
        } else if let Self::QuotaExhausted { reset_at } = self {
            at(reset_at)
        } else {
            None
        }
    }

    /// True if the provider reported a reset.
    pub fn reset_is_known(&self) -> bool {
        self.reset_in(Timestamp::default()).is_some()
    }
}

/// A failed model call: the class for decisions, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    /// The class, which decides on retry and failover.
    #[serde(flatten)]
    pub class: FailureClass,
    /// Message of the provider, the network or the runtime; never contains a secret.
    pub message: String,
    /// The fate of the request; if absent, the class decides ([`FailureClass::usual_fate`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestFate>,
    /// The tokens used, if the provider reported them with the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// Why the reported usage is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

impl Failure {
    /// A failure of `class` with `message`, without fate or usage.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), request: None, usage: None, anomaly: None }
    }

    /// Sets the fate of the request.
    #[must_use]
    pub fn with_request(self, request: RequestFate) -> Self {
        Self { request: Some(request), ..self }
    }

    /// Sets the usage that the provider reported.
    #[must_use]
    pub fn with_usage(self, usage: Option<Usage>) -> Self {
        Self { usage: usage.map(Box::new), ..self }
    }

    /// The fate of the request, by default that of the class.
    pub fn request(&self) -> RequestFate {
        self.request.unwrap_or(self.class.usual_fate())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}
