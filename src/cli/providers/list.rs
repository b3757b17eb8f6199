//! `hermod providers list`: who can be asked, and whether its keys are where they should be.

use std::sync::Arc;

use hermod_actors::model::{ModelRef, ModelTraits};
use serde_json::{Value, json};

use crate::{
    cli::{
        exit::Failure,
        output::{print, print_json},
        run, table, words,
    },
    config::Config,
    environment::{Found, Variables},
    models,
    secret::shown_url,
};

/// Lists them.
pub(super) async fn execute(json: bool, variables: &Variables) -> Result<(), Failure> {
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
            let (credentials, from) = (credentials(found, variables), found.source.name().into());
            [name, url, found.wire.into(), credentials, model, window, price, from]
        })
        .collect();
    let head = ["PROVIDER", "BASE URL", "WIRE", "CREDENTIAL", "MODEL", "WINDOW", "PRICE", "FROM"];
    print(&table::render(head, &rows))
}

/// The references, and what is wrong with them.
pub(crate) fn credentials(found: &Found, variables: &Variables) -> String {
    let told = found.account.told(variables).into_iter().map(|(shown, missing)| match missing {
        None => shown,
        Some(missing) => format!("missing: {missing}"),
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

/// What is known of the model that is asked if none is named.
fn traits(found: &Found, config: &Config) -> ModelTraits {
    let model = found
        .model
        .as_ref()
        .ok()
        .and_then(|model| ModelRef::new(Arc::clone(&found.name), Arc::clone(model)).ok());
    model.map(|model| models::traits(config, &model)).unwrap_or_default()
}

/// The window, and the prices of what is read and written per million tokens.
fn known(traits: &ModelTraits) -> (String, String) {
    let dash = || "-".to_owned();
    // Nano-dollars per token are thousandths of a dollar per million.
    let dollars = |price: u64| words::dollars(price.saturating_mul(1_000_000));
    (
        traits.window.map_or_else(dash, |window| window.to_string()),
        traits
            .price
            .map_or_else(dash, |price| format!("{} / {}", dollars(price.input), dollars(price.output))),
    )
}

fn object(found: &Found, (config, variables): (&Config, &Variables)) -> Value {
    let traits = traits(found, config);
    let credential = |(shown, missing): (String, Option<crate::secret::Missing>)| json!({ "from": shown, "error": missing.map(|missing| missing.reason) });
    let limits = found.account.limits;
    json!({
        "name": &*found.name,
        "base_url": shown_url(&found.base_url),
        "wire": found.wire,
        "credentials": found.account.told(variables).into_iter().map(credential).collect::<Vec<_>>(),
        "pool": found.account.pool,
        "requests_per_minute": limits.requests,
        "tokens_per_minute": limits.tokens,
        "model": found.model.as_deref().ok(),
        "window": traits.window,
        "priced": traits.price.is_some(),
        "calls": found.limits.calls.0,
        "from": found.source.name(),
    })
}
