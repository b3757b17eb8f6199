//! `hermod providers test`: whether providers answer, by asking them.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use clap::Args;
use futures::future::join_all;
use hermod_actors::{
    model::{
        CallId, CredentialId, Failure as CallFailure, FailureClass, Message, ModelRef, ModelTraits, RunId,
        SessionId,
    },
    port::{Deltas, ModelRequest, Provider, Segments, ToolChoice},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cli::{
        exit::{Exit, Failure},
        identifier::Identifier,
        output::{print, print_json},
        run, table,
        words::seconds,
    },
    config::{Config, OLLAMA},
    daemon::{self, StartError},
    environment::{self, Found, NoModel, Variables, Wanted},
    models,
};

/// What is asked.
const TEXT: &str = "Say ok.";
/// Output tokens; some vendors take no fewer.
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

/// One credential of a provider, and what came of asking with it.
struct Tried {
    provider: Arc<str>,
    model: Option<Arc<str>>,
    /// Its number, and where it is from.
    credential: Option<(CredentialId, String)>,
    took: Option<Duration>,
    end: Result<(), Unanswered>,
}

/// Why there was no answer.
enum Unanswered {
    /// The provider, as it is configured, cannot be asked.
    NotAsked(String),
    Failed(CallFailure),
}

/// Nobody watches.
struct Unheard;

impl Deltas for Unheard {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}

/// Asks, and says what came of it.
pub(super) async fn execute(args: TestArgs, variables: &Variables) -> Result<Exit, Failure> {
    let config = Config::read(variables)?;
    let is_local = args.name.as_deref() == Some(OLLAMA);
    let local = if is_local { run::Local::Meant } else { run::Local::of(&config) };
    let found = chosen(run::discover(&config, variables, local).await, &args).map_err(StartError::NoModel)?;
    let state = daemon::make_state(&daemon::state_dir(variables)?)?;
    let tried = join_all(found.iter().map(|found| provider((found, &config), variables, &state))).await;
    let tried: Vec<Tried> = tried.into_iter().flatten().collect();
    if args.json {
        print_json(&tried.iter().map(object).collect())?;
    } else {
        let rows: Vec<_> = tried.iter().map(row).collect();
        print(&table::render(["PROVIDER", "MODEL", "CREDENTIAL", "OUTCOME", "TIME", "MESSAGE"], &rows))?;
    }
    let all = tried.iter().all(|tried| tried.end.is_ok());
    Ok(if all { Exit::Ok } else { Exit::Provider })
}

/// Those that are meant, at least one.
fn chosen(mut found: Vec<Found>, args: &TestArgs) -> Result<Vec<Found>, NoModel> {
    if let Some(name) = &args.name {
        let unknown = environment::unknown(&found, name);
        found.retain(|found| *found.name == **name);
        let one = found.first_mut().ok_or(unknown)?;
        if let Some(model) = &args.model {
            one.model = Ok((**model).into());
        }
    }
    if found.is_empty() {
        environment::choose(&found, Wanted::default())?;
    }
    Ok(found)
}

/// Asks a provider with each of its credentials.
async fn provider((found, config): (&Found, &Config), variables: &Variables, state: &Path) -> Vec<Tried> {
    let model = found.model.clone();
    let tried = |credential, took, end| Tried {
        provider: Arc::clone(&found.name),
        model: model.clone().ok(),
        credential,
        took,
        end,
    };
    let not_asked = |why: String| vec![tried(None, None, Err(Unanswered::NotAsked(why)))];
    let named = model
        .clone()
        .and_then(|model| ModelRef::new(Arc::clone(&found.name), model).map_err(|error| error.to_string()));
    let asked = match named {
        Ok(asked) => asked,
        Err(reason) => return not_asked(reason),
    };
    let adapter = match daemon::endpoint(found, variables, state) {
        Ok((adapter, _)) => adapter,
        Err(error) => return not_asked(error.to_string()),
    };
    let from = found.account.told(variables);
    let traits = models::traits(config, &asked);
    let each = (0..adapter.credentials()).map(async |at| {
        let began = Instant::now();
        let end =
            ask(&*adapter, (asked.model(), &traits), CredentialId(at)).await.map_err(Unanswered::Failed);
        let credential = from.get(at).map(|(from, _)| (CredentialId(at), from.clone()));
        tried(credential, Some(began.elapsed()), end)
    });
    join_all(each).await
}

/// Asks as a run would, which renews a credential that is refused.
async fn ask(
    adapter: &dyn Provider,
    (model, traits): (&Arc<str>, &ModelTraits),
    credential: CredentialId,
) -> Result<(), CallFailure> {
    let encoder = adapter.encoder(model, traits);
    let mut messages = Segments::default();
    encoder.messages(&[Message::User(TEXT.into())], &mut messages);
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
        pictures: BTreeMap::new(),
    };
    match adapter.call(request.clone(), &Unheard).await {
        Err(refused) if refused.class == FailureClass::Auth && adapter.renew(credential).await => {
            adapter.call(request, &Unheard).await.map(drop)
        }
        answer => answer.map(drop),
    }
}

impl Tried {
    fn outcome(&self) -> &'static str {
        match &self.end {
            Ok(()) => "answered",
            Err(Unanswered::NotAsked(_)) => "not_asked",
            Err(Unanswered::Failed(failure)) => failure.class.name(),
        }
    }

    fn message(&self) -> Option<&str> {
        match &self.end {
            Ok(()) => None,
            Err(Unanswered::NotAsked(why)) => Some(why),
            Err(Unanswered::Failed(failure)) => Some(&failure.message),
        }
    }

    fn took_ms(&self) -> Option<u64> {
        self.took.and_then(|took| u64::try_from(took.as_millis()).ok())
    }
}

fn row(tried: &Tried) -> [String; 6] {
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

fn object(tried: &Tried) -> Value {
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
