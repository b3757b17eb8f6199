//! Failure scopes: what the failure of a model call counts against.

use crate::model::{Deadline, FailureClass};

/// What a failure counts against. Rules about a whole scope match on this, so that a new failure class is placed here
/// once. Other matches are about single classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureScope {
    /// Nothing: this process ended the call.
    Cancelled,
    /// This process: the call was not made, or its task crashed.
    Local,
    /// The request: it fails at every model, and the provider that rejected it works.
    Request,
    /// The endpoint, whatever the model: no connection.
    Endpoint,
    /// The model, perhaps by chance.
    ModelTransient,
    /// The model, until its configuration or its provider changes.
    ModelPersistent,
    /// The account: another credential may succeed.
    Account,
}

/// The scope of a failure of this class.
pub const fn failure_scope(class: &FailureClass) -> FailureScope {
    match class {
        FailureClass::Cancelled | FailureClass::Interrupted => FailureScope::Cancelled,
        FailureClass::Lost | FailureClass::NotSent => FailureScope::Local,
        FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused => FailureScope::Request,
        FailureClass::Network | FailureClass::Timeout { which: Deadline::Connect } => FailureScope::Endpoint,
        FailureClass::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::IncompleteStream => FailureScope::ModelTransient,
        FailureClass::NotAnApi | FailureClass::ModelNotFound => FailureScope::ModelPersistent,
        FailureClass::RateLimited { .. } | FailureClass::Auth | FailureClass::QuotaExhausted { .. } => {
            FailureScope::Account
        }
    }
}

impl FailureScope {
    /// Whether the failure tells anything about the provider.
    pub(crate) const fn counts_against_provider(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Local)
    }
}
