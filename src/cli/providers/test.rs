//! `hermod providers test`: tests providers by a real call with each of their credentials. The calls use the adapters
//! alone: no runtime, no store.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use clap::Args;
use futures::future::join_all;
use hermod_actors::{
    model::{
        CallId, CredentialId, Failure as CallFailure, FailureClass, Message, ModelProfile, ModelRef, RunId,
        SessionId,
    },
    port::{MessageBuffer, ModelProvider, ModelRequest, ToolChoice},
};
use tokio::time::Instant;

use crate::{
    cli::{
        exit::{CliError, Exit},
        format::seconds,
        output::{print, print_json},
        table,
    },
    config::{Config, OLLAMA},
    discovery::{self, DiscoveredProvider, ModelChoiceError, RequestedModel, Variables},
    host::{self, Identifier, OllamaProbe, StartError, discover, millis},
    model_catalogue,
    provider::DiscardDeltas,
    view::ProviderProbeView,
};

/// The user message of the test call.
const PROBE_TEXT: &str = "Say ok.";
/// Limit of output tokens; some vendors accept no lower one.
const MAX_TOKENS: u64 = 16;

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Only the provider of this name
    name: Option<Identifier>,
    /// The model that is asked; needed if the provider has none of its own
    #[arg(long, requires = "name")]
    model: Option<Identifier>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Tests the providers, and prints the results.
pub(super) async fn execute(args: TestArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let is_local = args.name.as_deref() == Some(OLLAMA);
    let local = if is_local { OllamaProbe::Requested } else { OllamaProbe::of(&config) };
    let found = select(discover(&config, variables, local).await, &args).map_err(StartError::NoModel)?;
    let state = host::configured_state_dir(variables)?;
    let tried = join_all(found.iter().map(|found| probe_provider(found, &config, variables, &state))).await;
    let tried: Vec<ProviderProbeView> = tried.into_iter().flatten().collect();
    if args.json {
        print_json(&tried)?;
    } else {
        let rows: Vec<_> = tried.iter().map(row).collect();
        print(&table::render(["PROVIDER", "MODEL", "CREDENTIAL", "OUTCOME", "TIME", "MESSAGE"], &rows))?;
    }
    let all = tried.iter().all(ProviderProbeView::is_answered);
    Ok(if all { Exit::Ok } else { Exit::Provider })
}

/// The selected providers; an error if there is none.
fn select(
    mut found: Vec<DiscoveredProvider>,
    args: &TestArgs,
) -> Result<Vec<DiscoveredProvider>, ModelChoiceError> {
    if let Some(name) = &args.name {
        let unknown = discovery::unknown_provider(&found, name);
        found.retain(|found| *found.name == **name);
        let one = found.first_mut().ok_or(unknown)?;
        if let Some(model) = &args.model {
            one.model = Ok((**model).into());
        }
    }
    if found.is_empty() {
        discovery::choose(&found, RequestedModel::default())?;
    }
    Ok(found)
}

/// Calls a provider once with each of its credentials.
async fn probe_provider(
    found: &DiscoveredProvider,
    config: &Config,
    variables: &Variables,
    state: &Path,
) -> Vec<ProviderProbeView> {
    let name = &*found.name;
    let not_called =
        |why: String| vec![ProviderProbeView::not_called(name, found.model.as_deref().ok(), why)];
    let model = found.model.clone();
    let named = model
        .and_then(|model| ModelRef::new(Arc::clone(&found.name), model).map_err(|error| error.to_string()));
    let model = match named {
        Ok(model) => model,
        Err(reason) => return not_called(reason),
    };
    let adapter = match host::endpoint(found, variables, state) {
        Ok((adapter, _)) => adapter,
        Err(error) => return not_called(error.to_string()),
    };
    let sources = found.account.credential_report(variables);
    let profile = model_catalogue::profile(config, &model);
    let each = (0..adapter.credentials()).map(async |at| {
        let started = Instant::now();
        let end = probe(&*adapter, model.model(), &profile, CredentialId(at)).await;
        let took_ms = Some(millis(started.elapsed()));
        let from = sources.get(at).map(|(from, _)| from.clone());
        ProviderProbeView {
            credential: from.is_some().then_some(CredentialId(at)),
            from,
            took_ms,
            ..ProviderProbeView::called(name, model.model(), end)
        }
    });
    join_all(each).await
}

/// Makes the call as a run would, which renews a rejected credential.
async fn probe(
    adapter: &dyn ModelProvider,
    model: &Arc<str>,
    traits: &ModelProfile,
    credential: CredentialId,
) -> Result<(), CallFailure> {
    let encoder = adapter.encoder(model, traits);
    let mut messages = MessageBuffer::default();
    encoder.messages(&[Message::User(PROBE_TEXT.into())], &mut messages);
    let request = ModelRequest {
        call: CallId { run: RunId::from_bits(0), iteration: 1, n: 0 },
        session: SessionId::from_bits(0),
        model: Arc::clone(model),
        credential,
        max_tokens: MAX_TOKENS,
        thinking: None,
        deadlines: traits.deadlines,
        head: encoder.head("", &[]),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::new(),
    };
    match adapter.call(request.clone(), &DiscardDeltas).await {
        Err(refused) if refused.class == FailureClass::Auth && adapter.renew(credential).await => {
            adapter.call(request, &DiscardDeltas).await.map(drop)
        }
        answer => answer.map(drop),
    }
}

fn row(tried: &ProviderProbeView) -> [String; 6] {
    let credential =
        tried.credential.zip(tried.from.as_ref()).map(|(number, from)| format!("{} {from}", number.0));
    [
        tried.name.clone(),
        table::or_dash(tried.model.as_ref()),
        table::or_dash(credential),
        tried.outcome.to_owned(),
        table::or_dash(tried.took_ms.map(seconds)),
        tried.message.clone().unwrap_or_default(),
    ]
}
