//! `hermod models list`: the known facts about models, each with its source: the configuration, the program, or what
//! runs have observed.

use clap::{Args, Subcommand};
use hermod_actors::model::ModelRow;

use super::{
    CliError, print_as, print_note,
    table::{self, or_dash},
};
use crate::{
    config::{Config, ModelSection, PositiveCount, TokenPrice},
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    host::{self, StoreClient, unexpected_response},
    store::redb,
    view::ModelView,
};

/// What is known of models: limits, thinking, prices
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    command: ModelsCommand,
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
    let ModelsCommand::List { json } = args.command;
    let config = Config::read(variables)?;
    let observed_views = match observed_models(variables).await {
        Ok(rows) => rows.iter().filter_map(observed).collect(),
        Err(failure) => {
            print_note(format!("store     what runs have found out is not listed: {failure}"));
            Vec::new()
        }
    };
    let models: Vec<ModelView> = known(&config).chain(observed_views).collect();
    let head = ["MODEL", "WINDOW", "MAX OUTPUT", "THINKING", "IMAGES", "INPUT", "OUTPUT", "CACHED", "FROM"];
    print_as(json, &models, |models| table::render(head, &models.iter().map(row).collect::<Vec<_>>()))
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

/// The observed window, with its source: one from a refusal precedes one from the provider's list.
fn observed(row: &ModelRow) -> Option<ModelView> {
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| u32::try_from(tokens).ok()).map(PositiveCount);
    let listed = row.listed.map(|listed| listed.limits).unwrap_or_default();
    let (window, from) = match (row.window, listed.window) {
        (Some(window), _) => (window, "refusal"),
        (None, Some(window)) => (window, "list"),
        (None, None) => return None,
    };
    let max_output = count(listed.max_output);
    let section = ModelSection { window: count(Some(window)), max_output, ..ModelSection::default() };
    Some(ModelView { model: row.model.to_string(), from, section })
}

/// The configuration's entries, then the program's, each unmerged; `model_catalogue::profile` decides which facts
/// apply to a model.
fn known(config: &Config) -> impl Iterator<Item = ModelView> {
    let view = |from| {
        move |(name, section): (&String, &ModelSection)| ModelView {
            model: name.clone(),
            from,
            section: section.clone(),
        }
    };
    config.models.iter().map(view("config")).chain(config.known_models.iter().map(view("program")))
}

fn row(model: &ModelView) -> [String; 9] {
    let ModelView { model, from, section } = model;
    let price = section.price.unwrap_or_default();
    let dollars = |price: Option<TokenPrice>| or_dash(price.and_then(TokenPrice::dollars));
    [
        model.clone(),
        or_dash(section.window.map(|count| count.0)),
        or_dash(section.max_output.map(|count| count.0)),
        or_dash(section.thinking.map(|style| style.0.name())),
        or_dash(section.images.map(|flag| if flag.0 { "yes" } else { "no" })),
        dollars(price.input),
        dollars(price.output),
        dollars(price.cache_read),
        (*from).to_owned(),
    ]
}
