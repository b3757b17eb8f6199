//! `hermod providers list`: who can be asked, and whether its keys are where they should be.

use serde_json::{Value, json};

use crate::{
    cli::{
        exit::Failure,
        output::{print, print_json},
        run, table,
    },
    config::Config,
    environment::{Found, Variables},
    secret::shown_url,
};

/// Lists them.
pub(super) async fn execute(json: bool, variables: &Variables) -> Result<(), Failure> {
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
            [name, url, found.wire.into(), credentials(found, variables), model, found.source.name().into()]
        })
        .collect();
    print(&table::render(["PROVIDER", "BASE URL", "WIRE", "CREDENTIAL", "MODEL", "FROM"], &rows))
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

fn object(found: &Found, variables: &Variables) -> Value {
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
        "calls": found.limits.calls.0,
        "from": found.source.name(),
    })
}
