//! `hermod models`: the known facts about models.

use clap::{Args, Subcommand};
use hermod_actors::model::{ModelRow, ThinkingLevel, ThinkingStyle};
use serde_json::{Map, Value, json};

use super::{
    exit::CliError,
    output::{print, print_json, print_note},
    store_client::{StoreClient, unexpected_response},
    table,
};
use crate::{
    config::{Config, ModelSection, PositiveCount, PositiveDuration, PriceSection, TokenPrice},
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    host,
    store::redb,
};

/// What is known of models: limits, thinking, prices
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    verb: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List what the program knows, what your configuration adds and what runs have found out; prices in dollars per million
    /// tokens
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Lists the models.
pub(crate) async fn execute(args: &ModelsArgs, variables: &Variables) -> Result<(), CliError> {
    let ModelsCommand::List { json } = args.verb;
    let config = Config::read(variables)?;
    let found = match observed_models(variables).await {
        Ok(rows) => sections(&rows),
        Err(failure) => {
            print_note(format!("store     what runs have found out is not listed: {failure}"));
            Vec::new()
        }
    };
    let found = found.iter().map(|(name, from, section)| (name.as_str(), *from, section));
    let entries: Vec<ModelEntry<'_>> = entries(&config).into_iter().chain(found).collect();
    if json {
        let object = |(name, from, section): &ModelEntry<'_>| object(name, from, section);
        return print_json(&Value::from(entries.iter().map(object).collect::<Vec<_>>()));
    }
    let rows: Vec<_> = entries.iter().map(|(name, from, section)| row(name, from, section)).collect();
    let head = ["MODEL", "WINDOW", "MAX OUTPUT", "THINKING", "IMAGES", "INPUT", "OUTPUT", "CACHED", "FROM"];
    print(&table::render(head, &rows))
}

/// What runs have observed of models; empty if there is no store.
async fn observed_models(variables: &Variables) -> Result<Vec<ModelRow>, CliError> {
    if !host::state_dir(variables).is_ok_and(|state| redb::is_in(&state)) {
        return Ok(Vec::new());
    }
    let ControlResponse::Models(rows) =
        StoreClient::new(variables)?.request(&ControlRequest::ModelsList {}).await?
    else {
        return Err(unexpected_response().into());
    };
    Ok(rows)
}

/// The observed windows, each with its source; a window from a refusal precedes one from the provider's list.
fn sections(rows: &[ModelRow]) -> Vec<(String, &'static str, ModelSection)> {
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| u32::try_from(tokens).ok()).map(PositiveCount);
    let section = |row: &ModelRow| {
        let listed = row.listed.map(|listed| listed.limits).unwrap_or_default();
        let (window, from) = match (row.window, listed.window) {
            (Some(window), _) => (window, "refusal"),
            (None, Some(window)) => (window, "list"),
            (None, None) => return None,
        };
        let max_output = count(listed.max_output);
        Some((
            row.model.to_string(),
            from,
            ModelSection { window: count(Some(window)), max_output, ..ModelSection::default() },
        ))
    };
    rows.iter().filter_map(section).collect()
}

/// Name, source and facts of a model.
type ModelEntry<'a> = (&'a str, &'static str, &'a ModelSection);

/// The configuration's entries, then the program's, each unmerged; `model_catalogue::profile` decides which facts
/// apply to a model.
fn entries(config: &Config) -> Vec<ModelEntry<'_>> {
    let user = config.models.iter().map(|(name, section)| (name.as_str(), "config", section));
    let known = config.known_models.iter().map(|(name, section)| (name.as_str(), "program", section));
    user.chain(known).collect()
}

fn row(name: &str, from: &str, section: &ModelSection) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let count = |count: Option<PositiveCount>| or_dash(count.map(|count| count.0.to_string()));
    let price = |of: fn(&PriceSection) -> Option<TokenPrice>| {
        or_dash(section.price.as_ref().and_then(of).map(|price| dollars(price).to_string()))
    };
    [
        name.to_owned(),
        count(section.window),
        count(section.max_output),
        or_dash(section.thinking.map(|style| style.0.name().to_owned())),
        or_dash(section.images.map(|flag| if flag.0 { "yes" } else { "no" }.to_owned())),
        price(|price| price.input),
        price(|price| price.output),
        price(|price| price.cache_read),
        from.to_owned(),
    ]
}

/// `{model, from, window, max_output, thinking, thinking_levels, thinking_level, images, first_event_ms, gap_ms,
/// call_ms, price}`, with `null` for unknown values.
fn object(name: &str, from: &str, section: &ModelSection) -> Value {
    let levels =
        section.thinking_levels.map(|levels| levels.0.iter().map(ThinkingLevel::name).collect::<Vec<_>>());
    json!({
        "model": name,
        "from": from,
        "window": section.window.map(|count| count.0),
        "max_output": section.max_output.map(|count| count.0),
        "thinking": section.thinking.map(|style| ThinkingStyle::name(style.0)),
        "thinking_levels": levels,
        "thinking_level": section.thinking_level.and_then(|level| level.0).map(ThinkingLevel::name),
        "images": section.images.map(|flag| flag.0),
        "first_event_ms": section.first_event.map(PositiveDuration::millis),
        "gap_ms": section.gap.map(PositiveDuration::millis),
        "call_ms": section.call.map(PositiveDuration::millis),
        "price": section.price.as_ref().map(price),
    })
}

/// The known prices, in dollars per million tokens.
fn price(price: &PriceSection) -> Value {
    let said = [
        ("input", price.input.map(dollars)),
        ("output", price.output.map(dollars)),
        ("cache_read", price.cache_read.map(dollars)),
        ("cache_write", price.cache_write.map(dollars)),
        ("cache_write_1h", price.cache_write_1h.map(dollars)),
        ("up_to", price.up_to.map(|count| count.0.into())),
    ];
    let said = said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(said.collect::<Map<_, _>>())
}

/// The price as a number that prints as it was configured.
fn dollars(price: TokenPrice) -> Value {
    #[allow(clippy::cast_precision_loss)] // prices are far below 2^53
    let fraction = price.0 as f64 / 1e3;
    if price.0.is_multiple_of(1_000) { (price.0 / 1_000).into() } else { fraction.into() }
}
