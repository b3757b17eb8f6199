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
    cli::{CliError, Exit, format::seconds, print_as, table},
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
pub(in crate::cli) const MAX_TOKENS: u64 = 16;

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
    let probe = if is_local { OllamaProbe::Requested } else { OllamaProbe::of(&config) };
    let providers = select(discover(&config, variables, probe).await, &args).map_err(StartError::NoModel)?;
    let state = host::configured_state_dir(variables)?;
    let probes =
        join_all(providers.iter().map(|provider| probe_provider(provider, &config, variables, &state))).await;
    let probes: Vec<ProviderProbeView> = probes.into_iter().flatten().collect();
    print_as(args.json, &probes, |probes| {
        let rows: Vec<_> = probes.iter().map(row).collect();
        table::render(["PROVIDER", "MODEL", "CREDENTIAL", "OUTCOME", "TIME", "MESSAGE"], &rows)
    })?;
    let all_answered = probes.iter().all(ProviderProbeView::is_answered);
    Ok(if all_answered { Exit::Ok } else { Exit::Provider })
}

/// The selected providers; an error if there is none.
fn select(
    mut providers: Vec<DiscoveredProvider>,
    args: &TestArgs,
) -> Result<Vec<DiscoveredProvider>, ModelChoiceError> {
    if let Some(name) = &args.name {
        let unknown = discovery::unknown_provider(&providers, name);
        providers.retain(|provider| *provider.name == **name);
        let provider = providers.first_mut().ok_or(unknown)?;
        if let Some(model) = &args.model {
            provider.model = Ok((**model).into());
        }
    }
    if providers.is_empty() {
        discovery::choose(&providers, RequestedModel::default())?;
    }
    Ok(providers)
}

/// Calls a provider once with each of its credentials.
async fn probe_provider(
    provider: &DiscoveredProvider,
    config: &Config,
    variables: &Variables,
    state: &Path,
) -> Vec<ProviderProbeView> {
    let name = &*provider.name;
    let not_called =
        |reason: String| vec![ProviderProbeView::not_called(name, provider.model.as_deref().ok(), reason)];
    let model = provider.model.clone();
    let model_ref = model.and_then(|model| {
        ModelRef::new(Arc::clone(&provider.name), model).map_err(|error| error.to_string())
    });
    let model = match model_ref {
        Ok(model) => model,
        Err(reason) => return not_called(reason),
    };
    let adapter = match host::endpoint(provider, variables, state) {
        Ok((adapter, _)) => adapter,
        Err(error) => return not_called(error.to_string()),
    };
    let sources = provider.account.credential_report(variables);
    let profile = model_catalogue::profile(config, &model);
    let probes = (0..adapter.credentials()).map(async |index| {
        let started = Instant::now();
        let end = probe(&*adapter, model.model(), &profile, CredentialId(index)).await;
        let took_ms = Some(millis(started.elapsed()));
        let from = sources.get(index).map(|(from, _)| from.clone());
        ProviderProbeView {
            credential: from.is_some().then_some(CredentialId(index)),
            from,
            took_ms,
            ..ProviderProbeView::called(name, model.model(), end)
        }
    });
    join_all(probes).await
}

/// Makes the call as a run would, which renews a rejected credential.
pub(in crate::cli) async fn probe(
    adapter: &dyn ModelProvider,
    model: &Arc<str>,
    profile: &ModelProfile,
    credential: CredentialId,
) -> Result<(), CallFailure> {
    let encoder = adapter.encoder(model, profile);
    let mut messages = MessageBuffer::default();
    encoder.messages(&[Message::User(PROBE_TEXT.into())], &mut messages);
    let request = ModelRequest {
        call: CallId { run: RunId::from_bits(0), iteration: 1, n: 0 },
        session: SessionId::from_bits(0),
        model: Arc::clone(model),
        credential,
        max_tokens: MAX_TOKENS,
        thinking: None,
        deadlines: profile.deadlines,
        head: encoder.head("", &[]),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::new(),
    };
    match adapter.call(request.clone(), &DiscardDeltas).await {
        Err(failure) if failure.class == FailureClass::Auth && adapter.renew(credential).await => {
            adapter.call(request, &DiscardDeltas).await.map(drop)
        }
        answer => answer.map(drop),
    }
}

fn row(probe: &ProviderProbeView) -> [String; 6] {
    let credential =
        probe.credential.zip(probe.from.as_ref()).map(|(number, from)| format!("{} {from}", number.0));
    [
        probe.name.clone(),
        table::or_dash(probe.model.as_ref()),
        table::or_dash(credential),
        probe.outcome.to_owned(),
        table::or_dash(probe.took_ms.map(seconds)),
        probe.message.clone().unwrap_or_default(),
    ]
}
