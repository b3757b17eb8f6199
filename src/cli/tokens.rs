//! `hermod tokens`: creates, lists and revokes access tokens. They are in a file of their own, so no owner of the store is
//! asked.

use std::{collections::BTreeSet, time::Duration};

use clap::{Args, Subcommand};

use super::{
    CliError, examples, print, print_as, print_json, print_note,
    table::{self, or_dash},
};
use crate::{
    access::{NewToken, Scope, TokenFile},
    clock::{self, rfc3339},
    config::Config,
    discovery::Variables,
    host::{Identifier, configured_state_dir, millis, parse_duration},
    view::{CreatedTokenView, TokenView},
};

/// Access tokens of those who may use this Hermod as a service
#[derive(Debug, Args)]
#[command(after_help = examples::TOKENS)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// Create a token, and print it: it is shown this once
    Create(CreateArgs),
    /// List the tokens, without the tokens themselves
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token: it is refused from now on
    Revoke {
        /// Its name or its id
        #[arg(value_name = "NAME_OR_ID")]
        token: Identifier,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The name of the token, which no other one has
    #[arg(long)]
    name: Identifier,
    /// What it may do: read, submit, steer, approve, or admin for everything
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true)]
    scopes: Vec<Scope>,
    /// The agents that it is limited to
    #[arg(long, value_name = "AGENTS", value_delimiter = ',')]
    agents: Option<Vec<Identifier>>,
    /// How long it is good for, like 90d; for ever by default
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Creates, lists or revokes.
pub(crate) fn execute(args: TokensArgs, variables: &Variables) -> Result<(), CliError> {
    let file = TokenFile::new(&configured_state_dir(variables)?);
    match args.command {
        TokensCommand::Create(args) => {
            note_unknown_agents(args.agents.as_deref().unwrap_or_default(), variables);
            create(args, &file)
        }
        TokensCommand::List { json } => {
            let tokens: Vec<TokenView> = file.list()?.into_iter().map(TokenView::from).collect();
            print_as(json, &tokens, |tokens| format_table(tokens))
        }
        TokensCommand::Revoke { token } => {
            let revoked = file.revoke(&token)?;
            print(&format!("token {} {} is revoked", revoked.id, revoked.name))
        }
    }
}

/// Notes agents that are not configured; they may be later. A token is created also if the configuration cannot be read.
fn note_unknown_agents(agents: &[Identifier], variables: &Variables) {
    if agents.is_empty() {
        return;
    }
    let config = match Config::read(variables) {
        Ok(config) => config,
        Err(error) => return print_note(format!("whether these agents exist is not known: {error}")),
    };
    let is_known = |name: &str| config.agents().any(|(known, _)| known.as_str() == name);
    for agent in agents.iter().filter(|agent| !is_known(agent)) {
        print_note(format!("there is no agent `{agent}` yet; there are: {}", config.agent_names()));
    }
}

fn create(args: CreateArgs, file: &TokenFile) -> Result<(), CliError> {
    let CreateArgs { name, scopes, agents, expires, json } = args;
    let new = NewToken {
        name: name.into(),
        scopes: scopes.into_iter().collect(),
        agents: agents.map(|agents| agents.into_iter().map(String::from).collect()),
        expires_at: expires.map(|expires| clock::now().plus_ms(millis(expires))),
    };
    let (entry, token) = file.create(new)?;
    let created = CreatedTokenView { entry: entry.into(), token };
    if json {
        return print_json(&created);
    }
    print_note("the token is shown this once: only its hash is kept");
    print(&format_created(&created))
}

/// One line, whose last word is the token.
fn format_created(CreatedTokenView { entry, token }: &CreatedTokenView) -> String {
    let TokenView { id, name, scopes, agents, expires_at, .. } = entry;
    let agents = agents.as_ref().map(|agents| format!(" with the agents {}", join(agents)));
    let until = expires_at.map(|expires_at| format!(" until {}", rfc3339(expires_at)));
    let (agents, until) = (agents.unwrap_or_default(), until.unwrap_or_default());
    format!("token {id} {name} may {}{agents}{until}: {}", Scope::names(scopes), token.reveal())
}

fn format_table(tokens: &[TokenView]) -> String {
    let now = clock::now();
    let cells = |token: &TokenView| {
        let TokenView { id, name, scopes, agents, created_at, expires_at } = token;
        let expiry = expires_at.map(|expires_at| {
            format!("{}{}", rfc3339(expires_at), if expires_at > now { "" } else { " (expired)" })
        });
        let agents = or_dash(agents.as_ref().map(join));
        [id.clone(), name.clone(), Scope::names(scopes), agents, rfc3339(*created_at), or_dash(expiry)]
    };
    let rows: Vec<_> = tokens.iter().map(cells).collect();
    table::render(["TOKEN", "NAME", "SCOPES", "AGENTS", "CREATED", "EXPIRES"], &rows)
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
