//! `hermod acp`: an agent of the Agent Client Protocol (ACP) over standard input and output, so that editors drive Hermod. It
//! keeps nothing: sessions, runs and questions are in the process that owns the store, and go on without the editor.
//!
//! `transport.rs` carries lines, `connection.rs` takes requests, `agent.rs` passes them to `session.rs`. What is shown and
//! asked is decided in `fold.rs`, `tool_calls.rs`, `questions.rs` and `prompt_end.rs`, which do no I/O.

mod agent;
mod answer_text;
mod asking;
mod connection;
mod fold;
mod options;
mod prompt_content;
mod prompt_end;
mod questions;
mod session;
mod session_list;
mod tool_calls;
mod transport;

use std::{
    io::{self, IsTerminal as _},
    sync::Arc,
};

use agent_client_protocol::Channel;
use clap::Args;

use self::{agent::AcpAgent, options::OptionCatalog, transport::Transport};
use super::{CliError, examples, print_note, shared_owner::SharedOwner};
use crate::{config::Config, discovery::Variables, host::StoreClient};

/// Serve an editor at standard input and output, by the Agent Client Protocol (ACP)
#[derive(Debug, Args)]
#[command(after_help = examples::ACP)]
pub(crate) struct AcpArgs {}

/// Serves the client until it closes standard input. Runs that are under way go on in the process that holds the store.
pub(crate) async fn execute(_: &AcpArgs, variables: &Variables) -> Result<(), CliError> {
    let (config, state) = (Config::read(variables)?, StoreClient::new(variables)?.state().clone());
    if io::stdin().is_terminal() {
        print_note("hermod acp speaks JSON with an editor, which starts it; see docs/acp.md");
    }
    let transport = Transport::start()
        .map_err(|error| CliError::internal(format!("standard input and output get no threads: {error}")))?;
    let window = transport.window();
    // A command that holds the store takes runs too.
    let owner = SharedOwner::new(state, |_| true, |wait| print_note(wait.to_string()));
    let agent = Arc::new(AcpAgent::new(owner, OptionCatalog::new(&config), Arc::clone(&window)));
    let (near, far) = Channel::duplex();
    let (served, ()) = tokio::join!(Box::pin(connection::serve(&agent, &window, near)), transport.carry(far));
    if let Err(error) = served {
        tracing::debug!(error = error.message, "the connection has ended");
    }
    Ok(())
}
