//! Errors of the host: why a runtime cannot start, and why a request fails. `cli/exit.rs` has their exit codes.

use std::{io, path::PathBuf};

use hermod_actors::{RunError, RuntimeEnd, model::AgentName};

use crate::{
    config::ConfigErrors, control::RequestError, discovery::ModelChoiceError, files::PathError,
    provider::ProviderConfigError, store::redb::OpenError,
};

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No environment variable names a place for the state.
    #[error("there is no place for state: set HERMOD_HOME, XDG_STATE_HOME or HOME")]
    NoHome,
    /// The configuration has errors.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The state directory cannot be used.
    #[error("{0}; the state directory must be writable by this user")]
    State(#[from] PathError),
    /// The tools cannot work in this folder.
    #[error("workspace {}: {reason}", path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// The problem and its remedy.
        reason: String,
    },
    /// Two providers or two tools have the same name.
    #[error("there are two {what}s `{name}`; give each a name of its own")]
    DuplicateName {
        /// `provider` or `tool`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The models of the run cannot be chosen, or a required model is not available.
    #[error(transparent)]
    NoModel(#[from] ModelChoiceError),
    /// The models of an agent cannot be chosen.
    #[error("agent {name}: {error}")]
    Agent {
        /// The agent.
        name: AgentName,
        /// The reason.
        error: ModelChoiceError,
    },
    /// A provider's configuration is not usable.
    #[error(transparent)]
    Provider(#[from] ProviderConfigError),
    /// The library's caller named no model.
    #[error("no model was given; name at least one")]
    NoModels,
    /// The stored script of a rehearsal cannot be read.
    #[error("{}: {reason}; the rehearsal that needs it cannot go on without it", path.display())]
    Script {
        /// The script's expected path.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The rehearsal could not listen on its port.
    #[error("the rehearsal cannot listen on 127.0.0.1: {0}")]
    Listen(io::Error),
    /// The actors did not start.
    #[error("{0}")]
    Actors(RuntimeEnd),
}

/// Why the host could not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request is wrong, or the owner of the store refuses it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The runtime refuses the request.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A runtime cannot be started, or the store cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The runtime has ended.
    #[error("{0}")]
    End(RuntimeEnd),
    /// The owner of the store ended before it answered; the text says how to find out what it did.
    #[error("the process that held the store ended before it answered; {0}")]
    ConnectionLost(String),
}

impl From<RuntimeEnd> for HostError {
    fn from(end: RuntimeEnd) -> Self {
        Self::End(end)
    }
}

impl HostError {
    /// An error of the caller.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Request(RequestError::usage(text))
    }
}
