//! `hermod`, `hermod chat` and `hermod attach`: a conversation in the terminal. The face is the crate `hermod-chat`; here
//! is what speaks with the service. `conversation.rs` sends messages and follows the session, `requests.rs` carries out
//! what the user wants beside that, `full_screen.rs` and `plain.rs` run the two modes.

mod changes;
mod conversation;
mod export;
mod files;
mod follow;
mod full_screen;
mod overview;
mod plain;
mod poll;
mod requests;

use std::path::PathBuf;

use clap::Args;
use hermod_chat::Look;

use super::{
    CliError, Exit,
    background::ServiceWait,
    examples, print_note,
    shared_owner::SharedOwner,
    terminal::{Charset, Palette, TerminalSize},
};
use crate::{
    control::OwnerKind,
    discovery::Variables,
    host::{self, Identifier, RehearsalScript, StoreClient},
};
use conversation::Beginning;

/// Chat in the terminal; what runs goes on when it is closed
///
/// The conversation is held by the running service, or by a background one that is started for it.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::CHAT)]
pub(crate) struct ChatArgs {
    /// Go on with this conversation: a session's id or its end, its key, the id of one of its runs, or `last`
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "last")]
    resume: Option<Identifier>,
    /// The agent of a new conversation
    #[arg(long, conflicts_with = "resume")]
    agent: Option<Identifier>,
    /// The model, as provider/name
    #[arg(long)]
    model: Option<Identifier>,
    /// The folder in which tools work [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Play a scripted model instead of a real one; its tool calls are real
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "model")]
    rehearse: Option<RehearsalScript>,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Come back to a conversation in the terminal
#[derive(Debug, Args)]
#[command(after_help = examples::ATTACH)]
pub(crate) struct AttachArgs {
    /// A session's id or its end, its key, the id of one of its runs, or `last`
    #[arg(default_value = "last")]
    session: Identifier,
    #[command(flatten)]
    mode: ModeArgs,
}

/// How the chat is shown.
#[derive(Debug, Default, Args)]
struct ModeArgs {
    /// Lines of words, without colours and cursor movement: for screen readers and pipes. Also with TERM=dumb
    #[arg(long)]
    plain: bool,
}

/// Chats, beginning with a new conversation.
pub(crate) async fn execute(args: ChatArgs, variables: &Variables) -> Result<Exit, CliError> {
    let folder = std::env::current_dir()
        .map_err(|error| CliError::usage(format!("the current folder cannot be used: {error}")))?;
    let client = StoreClient::new(variables)?;
    let script =
        args.rehearse.as_ref().map(|script| host::keep_script(script, client.state())).transpose()?;
    let script = script.flatten();
    let workspace = args.workspace.map(|workspace| folder.join(workspace));
    let beginning = Beginning {
        session: args.resume.map(String::from),
        agent: args.agent.map(String::from),
        model: args.model.map(String::from),
        script,
        workspace,
        folder,
    };
    run(beginning, &args.mode, (&client, variables)).await
}

/// Chats, as `hermod` without arguments does at a terminal.
pub(crate) async fn without_arguments(variables: &Variables) -> Result<Exit, CliError> {
    execute(ChatArgs::default(), variables).await
}

/// Comes back to a conversation.
pub(crate) async fn attach(args: AttachArgs, variables: &Variables) -> Result<Exit, CliError> {
    execute(ChatArgs { resume: Some(args.session), mode: args.mode, ..ChatArgs::default() }, variables).await
}

async fn run(
    mut beginning: Beginning,
    mode: &ModeArgs,
    (client, variables): (&StoreClient, &Variables),
) -> Result<Exit, CliError> {
    if let Some(name) = beginning.session {
        // A wrong name ends the program before it takes the terminal.
        let on_wait = |wait: ServiceWait| {
            if let ServiceWait::Command { .. } = wait {
                print_note(wait.to_string());
            }
        };
        let owner = SharedOwner::new(client.state().clone(), OwnerKind::is_service, on_wait);
        beginning.session = Some(owner.session_of(&name).await?.to_string());
    }
    // Standard input and output are one terminal that can move the cursor, or the mode is plain.
    let can_draw =
        std::io::IsTerminal::is_terminal(&std::io::stdin()) && TerminalSize::of_stdout(variables).is_some();
    if mode.plain || !can_draw {
        return plain::run(beginning, client, variables).await;
    }
    let look = Look {
        has_colours: Palette::of(variables) == Palette::Coloured,
        is_unicode: Charset::current() == Charset::Unicode,
    };
    full_screen::run(beginning, look, client, variables).await
}
