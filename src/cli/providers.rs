//! `hermod providers`: who can be asked, and whether its key is where it should be.

use std::sync::Arc;

use clap::{Args, Subcommand};
use hermod_actors::model::{ModelRef, ModelTraits};
use serde_json::{Value, json};

use super::{
    exit::Failure,
    output::{print, print_json},
    progress, run, table,
};
use crate::{
    config::Config,
    environment::{Found, Variables},
    models,
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
        let objects: Vec<_> = found.iter().map(|found| object(found, (&config, variables))).collect();
        return print_json(&Value::from(objects));
    }
    let rows: Vec<_> = found
        .iter()
        .map(|found| {
            let model = found.model.as_deref().unwrap_or("-").to_owned();
            let (name, url) = (found.name.to_string(), shown_url(&found.base_url));
            let (window, price) = known(&traits(found, &config));
            let (credential, from) = (credential(found, variables), found.source.name().into());
            [name, url, found.wire.into(), credential, model, window, price, from]
        })
        .collect();
    let head = ["PROVIDER", "BASE URL", "WIRE", "CREDENTIAL", "MODEL", "WINDOW", "PRICE", "FROM"];
    print(&table::render(head, &rows))
}

/// The reference, and what is wrong with it.
pub(super) fn credential(found: &Found, variables: &Variables) -> String {
    match found.credential.as_ref().map(|reference| (reference, reference.resolve(variables))) {
        None => "none".to_owned(),
        Some((reference, Ok(_))) => reference.to_string(),
        Some((_, Err(missing))) => format!("missing: {missing}"),
    }
}

/// What is known of the model that is asked if none is named.
fn traits(found: &Found, config: &Config) -> ModelTraits {
    let model = found
        .model
        .as_ref()
        .ok()
        .map(|model| ModelRef { provider: Arc::clone(&found.name), model: Arc::clone(model) });
    model.map(|model| models::traits(config, &model)).unwrap_or_default()
}

/// The window, and the prices of what is read and written per million tokens.
fn known(traits: &ModelTraits) -> (String, String) {
    let dash = || "-".to_owned();
    // Nano-dollars per token are thousandths of a dollar per million.
    let dollars = |price: u64| progress::dollars(price.saturating_mul(1_000_000));
    (
        traits.window.map_or_else(dash, |window| window.to_string()),
        traits
            .price
            .map_or_else(dash, |price| format!("{} / {}", dollars(price.input), dollars(price.output))),
    )
}

fn object(found: &Found, (config, variables): (&Config, &Variables)) -> Value {
    let traits = traits(found, config);
    let missing = found.credential.as_ref().and_then(|reference| reference.resolve(variables).err());
    json!({
        "name": &*found.name,
        "base_url": shown_url(&found.base_url),
        "wire": found.wire,
        "credential": found.credential.as_ref().map(ToString::to_string),
        "credential_error": missing.map(|missing| missing.reason),
        "model": found.model.as_deref().ok(),
        "window": traits.window,
        "priced": traits.price.is_some(),
        "calls": found.limits.calls.0,
        "from": found.source.name(),
    })
}
