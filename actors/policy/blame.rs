use crate::model::{Deadline, FailureClass};

/// Whose a failure is. What follows from that alone is decided by this, so that a new class finds its place here; a match
/// elsewhere is about single classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nobody's: the call was ended from here.
    Ended,
    /// This process's own: the call was not made, or its task died.
    Ours,
    /// The request's: it fails everywhere, and whoever said so works.
    Request,
    /// The endpoint's, whatever the model: nobody was reached.
    Unreached,
    /// The model's, perhaps by chance.
    Passing,
    /// The model's, until somebody does something about it.
    Lasting,
    /// The account's: another one may fare better.
    Account,
}

/// Whose a failure of this class is.
pub(crate) const fn blame(class: &FailureClass) -> Blame {
    match class {
        FailureClass::Cancelled | FailureClass::Interrupted => Blame::Ended,
        FailureClass::Lost | FailureClass::NotMade => Blame::Ours,
        FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused => Blame::Request,
        FailureClass::Network | FailureClass::Timeout { which: Deadline::Connect } => Blame::Unreached,
        FailureClass::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Cut => Blame::Passing,
        FailureClass::NotAnApi | FailureClass::ModelNotFound => Blame::Lasting,
        FailureClass::RateLimited { .. } | FailureClass::Auth | FailureClass::QuotaExhausted { .. } => {
            Blame::Account
        }
    }
}

impl Blame {
    /// Whether the failure says anything of whom was asked.
    pub(crate) const fn says_something(self) -> bool {
        match self {
            Self::Ended | Self::Ours => false,
            Self::Request | Self::Unreached | Self::Passing | Self::Lasting | Self::Account => true,
        }
    }
}
