use crate::model::{Deadline, FailureClass};

/// Whose a failure is. What follows from that alone is decided by this, so that a new class finds its place here; a match
/// elsewhere is about single classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureScope {
    /// Nobody's: the call was ended from here.
    Cancelled,
    /// This process's own: the call was not made, or its task died.
    Local,
    /// The request's: it fails everywhere, and whoever said so works.
    Request,
    /// The endpoint's, whatever the model: nobody was reached.
    Endpoint,
    /// The model's, perhaps by chance.
    ModelTransient,
    /// The model's, until somebody does something about it.
    ModelPersistent,
    /// The account's: another one may fare better.
    Account,
}

/// Whose a failure of this class is.
pub(crate) const fn failure_scope(class: &FailureClass) -> FailureScope {
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
    /// Whether the failure says anything of whom was asked.
    pub(crate) const fn counts_against_provider(self) -> bool {
        match self {
            Self::Cancelled | Self::Local => false,
            Self::Request | Self::Endpoint | Self::ModelTransient | Self::ModelPersistent | Self::Account => {
                true
            }
        }
    }
}
