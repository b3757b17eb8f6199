//! The error of a request to the control socket, with its kind, and how errors of the runtime become one.

use hermod_actors::{
    RunError, RuntimeEnd, SubmitError,
    port::{ReadError, SystemPromptError},
};
use serde::{Deserialize, Serialize};

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct RequestError {
    /// The kind decides what the client can do.
    pub kind: RequestErrorKind,
    /// What is wrong, with the value and the remedy.
    pub text: String,
}

/// The kind of a [`RequestError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestErrorKind {
    /// The request is wrong or does not fit the store's content.
    Usage,
    /// The owner's configuration is not usable for the request, or lacks what it needs.
    Config,
    /// The client may not use the socket, or its token is not the owner's.
    Denied,
    /// The owner is overloaded or too slow; a later attempt may succeed.
    Busy,
    /// The owner has too many clients, and has not begun with the request; a later attempt may succeed.
    Crowded,
    /// The store cannot be read or written.
    Store,
    /// The runtime has ended, or an error came that no request should cause.
    Internal,
}

impl RequestError {
    /// Creates an error of this kind.
    pub fn new(kind: RequestErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Creates an error of kind [`RequestErrorKind::Usage`].
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(RequestErrorKind::Usage, text)
    }

    /// Creates an error of kind [`RequestErrorKind::Internal`].
    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(RequestErrorKind::Internal, text)
    }
}

impl From<ReadError> for RequestError {
    fn from(error: ReadError) -> Self {
        RunError::Read(error).into()
    }
}

impl From<RunError> for RequestError {
    fn from(error: RunError) -> Self {
        let kind = match &error {
            RunError::Invalid { .. }
            | RunError::NoSession(_)
            | RunError::NoRun(_)
            | RunError::Ended(_)
            | RunError::NoPendingApproval(_)
            | RunError::NotRaised(..)
            | RunError::KeyConflict(_)
            | RunError::MessageKeyConflict { .. }
            | RunError::NotAccepted(
                SubmitError::HasHistory(_) | SubmitError::OtherAgent { .. } | SubmitError::Unreadable(_),
            ) => RequestErrorKind::Usage,
            RunError::Read(_)
            | RunError::NotAccepted(SubmitError::Quarantined { .. } | SubmitError::LowDiskSpace(_))
            | RunError::Terminated(RuntimeEnd::Store(_)) => RequestErrorKind::Store,
            RunError::WaitTimedOut(_) | RunError::NotAccepted(SubmitError::Overloaded { .. }) => {
                RequestErrorKind::Busy
            }
            RunError::NotAccepted(SubmitError::NoPrompt(SystemPromptError::Refused(_))) => {
                RequestErrorKind::Denied
            }
            RunError::NotAccepted(SubmitError::NoPrompt(SystemPromptError::Failed(_))) => {
                RequestErrorKind::Config
            }
            RunError::NotAccepted(
                SubmitError::Duplicate(_)
                | SubmitError::OccurrenceLeftOut(_)
                | SubmitError::KeyTaken(_)
                | SubmitError::CrashLooping(_),
            )
            | RunError::Terminated(RuntimeEnd::Suspended | RuntimeEnd::Actor { .. })
            | RunError::NotCompleted(_) => RequestErrorKind::Internal,
        };
        let remedy = if let RunError::Read(ReadError::Record { session, .. }) = &error {
            format!("; `hermod store repair {session}` sets this session aside, and all others stay")
        } else if matches!(&error, RunError::Read(ReadError::Row { .. })) {
            "; `hermod store check` names its session, and `hermod store repair` sets that aside".to_owned()
        } else {
            String::new()
        };
        Self::new(kind, format!("{error}{remedy}"))
    }
}
