//! `hermod providers test`: tests providers with real calls.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use clap::Args;
use futures::future::join_all;
use hermod_actors::{
    model::{
        CallId, CredentialId, Failure as CallFailure, FailureClass, Message, ModelProfile, ModelRef, RunId,
        SessionId,
    },
    port::{DeltaSink, MessageBuffer, ModelProvider, ModelRequest, ToolChoice},
};
use serde_json::{Value, json};
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
    host::{self, Identifier, OllamaProbe, StartError, discover},
    model_catalogue,
};

/// The user message of the test call.
const PROBE_TEXT: &str = "Say ok.";
/// Output tokens; some vendors accept no fewer.
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

/// One credential of a provider, and the result of its test call.
struct ProbeResult {
    provider: Arc<str>,
    model: Option<Arc<str>>,
    /// Its number and its source.
    credential: Option<(CredentialId, String)>,
    took: Option<Duration>,
    result: Result<(), ProbeError>,
}

/// Why a test call has no answer.
enum ProbeError {
    /// The configured provider cannot be called.
    Unusable(String),
    Failed(CallFailure),
}

/// Discards the streamed text.
struct DiscardDeltas;

impl DeltaSink for DiscardDeltas {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}

/// Tests the providers, and prints the results.
pub(super) async fn execute(args: TestArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let is_local = args.name.as_deref() == Some(OLLAMA);
    let local = if is_local { OllamaProbe::Requested } else { OllamaProbe::of(&config) };
    let found = select(discover(&config, variables, local).await, &args).map_err(StartError::NoModel)?;
    let state = host::create_state_dir(&host::state_dir(variables)?)?;
    let tried = join_all(found.iter().map(|found| probe_provider((found, &config), variables, &state))).await;
    let tried: Vec<ProbeResult> = tried.into_iter().flatten().collect();
    if args.json {
        print_json(&tried.iter().map(object).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<_> = tried.iter().map(row).collect();
        print(&table::render(["PROVIDER", "MODEL", "CREDENTIAL", "OUTCOME", "TIME", "MESSAGE"], &rows))?;
    }
    let all = tried.iter().all(|tried| tried.result.is_ok());
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
    (found, config): (&DiscoveredProvider, &Config),
    variables: &Variables,
    state: &Path,
) -> Vec<ProbeResult> {
    let model = found.model.clone();
    let tried = |credential, took, end| ProbeResult {
        provider: Arc::clone(&found.name),
        model: model.clone().ok(),
        credential,
        took,
        result: end,
    };
    let not_asked = |why: String| vec![tried(None, None, Err(ProbeError::Unusable(why)))];
    let named = model
        .clone()
        .and_then(|model| ModelRef::new(Arc::clone(&found.name), model).map_err(|error| error.to_string()));
    let asked = match named {
        Ok(asked) => asked,
        Err(reason) => return not_asked(reason),
    };
    let adapter = match host::endpoint(found, variables, state) {
        Ok((adapter, _)) => adapter,
        Err(error) => return not_asked(error.to_string()),
    };
    let from = found.account.credential_report(variables);
    let traits = model_catalogue::profile(config, &asked);
    let each = (0..adapter.credentials()).map(async |at| {
        let began = Instant::now();
        let end =
            probe(&*adapter, (asked.model(), &traits), CredentialId(at)).await.map_err(ProbeError::Failed);
        let credential = from.get(at).map(|(from, _)| (CredentialId(at), from.clone()));
        tried(credential, Some(began.elapsed()), end)
    });
    join_all(each).await
}

/// Makes the call as a run would, which renews a rejected credential.
async fn probe(
    adapter: &dyn ModelProvider,
    (model, traits): (&Arc<str>, &ModelProfile),
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

impl ProbeResult {
    fn outcome(&self) -> &'static str {
        match &self.result {
            Ok(()) => "answered",
            Err(ProbeError::Unusable(_)) => "not_asked",
            Err(ProbeError::Failed(failure)) => failure.class.name(),
        }
    }

    fn message(&self) -> Option<&str> {
        match &self.result {
            Ok(()) => None,
            Err(ProbeError::Unusable(why)) => Some(why),
            Err(ProbeError::Failed(failure)) => Some(&failure.message),
        }
    }

    fn took_ms(&self) -> Option<u64> {
        self.took.and_then(|took| u64::try_from(took.as_millis()).ok())
    }
}

fn row(tried: &ProbeResult) -> [String; 6] {
    let dash = || "-".to_owned();
    let credential = tried.credential.as_ref().map(|(number, from)| format!("{} {from}", number.0));
    [
        tried.provider.to_string(),
        tried.model.as_deref().map_or_else(dash, str::to_owned),
        credential.unwrap_or_else(dash),
        tried.outcome().to_owned(),
        tried.took_ms().map_or_else(dash, seconds),
        tried.message().unwrap_or_default().to_owned(),
    ]
}

fn object(tried: &ProbeResult) -> Value {
    json!({
        "name": &*tried.provider,
        "model": tried.model.as_deref(),
        "credential": tried.credential.as_ref().map(|(number, _)| number.0),
        "from": tried.credential.as_ref().map(|(_, from)| from),
        "outcome": tried.outcome(),
        "took_ms": tried.took_ms(),
        "message": tried.message(),
    })
}
