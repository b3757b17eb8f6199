use std::fmt;

use hermod_actors::{NotAccepted, RunError, Terminated, port::ReadError};
use serde::{Deserialize, Serialize};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What can be done about it.
    pub kind: FaultKind,
    /// What is wrong, with the value and the remedy.
    pub text: String,
}

/// See [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The question is wrong, or does not fit what there is.
    Usage,
    /// The token is not that of the holder.
    Denied,
    /// The holder has no time.
    Busy,
    /// The store cannot be read or written.
    Store,
    /// The runtime itself is broken.
    Internal,
}

impl Fault {
    /// A fault of this kind.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The question is wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(FaultKind::Usage, text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        let kind = match &error {
            RunError::Invalid { .. }
            | RunError::NoSession(_)
            | RunError::NoRun(_)
            | RunError::Ended(_)
            | RunError::NotAsked(_)
            | RunError::NotRaised(..)
            | RunError::KeyConflict(_)
            | RunError::NotAccepted(NotAccepted::HasHistory(_) | NotAccepted::Unreadable(_)) => {
                FaultKind::Usage
            }
            RunError::Read(_)
            | RunError::NotAccepted(NotAccepted::Quarantined { .. } | NotAccepted::NoRoom(_))
            | RunError::Terminated(Terminated::Store(_)) => FaultKind::Store,
            RunError::StillRunning(_) | RunError::NotAccepted(NotAccepted::Overloaded { .. }) => {
                FaultKind::Busy
            }
            RunError::NotAccepted(
                NotAccepted::Duplicate(_)
                | NotAccepted::KeyTaken(_)
                | NotAccepted::KeepsDying(_)
                | NotAccepted::NoPrompt(_),
            )
            | RunError::Terminated(Terminated::Suspended | Terminated::Actor { .. })
            | RunError::NotCompleted(_) => FaultKind::Internal,
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
