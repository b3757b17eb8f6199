//! `hermod providers`: who can be asked, and whether its key is where it should be.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    exit::Failure,
    output::{print, print_json},
    run, table,
};
use crate::{
    config::Config,
    environment::{Found, Variables},
    secret::shown_url,
};

/// The model providers that are configured or found
#[derive(Debug, Args)]
pub(crate) struct ProvidersArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List them, the one that is asked first on top
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Shows what is asked for.
pub(crate) async fn execute(args: ProvidersArgs, variables: &Variables) -> Result<(), Failure> {
    let Verb::List { json } = args.verb;
    let config = Config::read(variables)?;
    let found = run::discover(&config, variables, run::Local::of(&config)).await;
    if json {
        let objects: Vec<_> = found.iter().map(|found| object(found, variables)).collect();
        return print_json(&Value::from(objects));
    }
    let rows: Vec<_> = found
        .iter()
        .map(|found| {
            let model = found.model.as_deref().unwrap_or("-").to_owned();
            let (name, url) = (found.name.to_string(), shown_url(&found.base_url));
            [name, url, found.wire.into(), credential(found, variables), model, found.source.name().into()]
        })
        .collect();
    print(&table::render(["PROVIDER", "BASE URL", "WIRE", "CREDENTIAL", "MODEL", "FROM"], &rows))
}

/// The reference, and what is wrong with it.
pub(super) fn credential(found: &Found, variables: &Variables) -> String {
    match found.credential.as_ref().map(|reference| (reference, reference.resolve(variables))) {
        None => "none".to_owned(),
        Some((reference, Ok(_))) => reference.to_string(),
        Some((_, Err(missing))) => format!("missing: {missing}"),
    }
}

fn object(found: &Found, variables: &Variables) -> Value {
    let missing = found.credential.as_ref().and_then(|reference| reference.resolve(variables).err());
    json!({
        "name": &*found.name,
        "base_url": shown_url(&found.base_url),
        "wire": found.wire,
        "credential": found.credential.as_ref().map(ToString::to_string),
        "credential_error": missing.map(|missing| missing.reason),
        "model": found.model.as_deref().ok(),
        "calls": found.limits.calls.0,
        "from": found.source.name(),
    })
}
