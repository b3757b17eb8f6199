//! `hermod providers status` and `reset`: the provider state in the owner's memory.

use hermod_actors::{
    ModelStatus, ProviderStatus,
    model::{BreakerState, Failure as CallFailure, RateLimits},
};
use serde_json::{Value, json};

use crate::{
    cli::{
        exit::CliError,
        output::{print, print_json, print_note},
        store_client::{StoreClient, unexpected_response},
        table,
    },
    clock::rfc3339,
    control::{AskError, ControlRequest, ControlResponse},
};

/// Breakers are not stored; they exist only in the owner's memory.
const NO_OWNER: &str = "no Hermod is running; breakers live in its process";

/// Shows the state of the providers.
pub(super) async fn execute(json: bool, inquiry: &StoreClient) -> Result<(), CliError> {
    let known = match ask(&ControlRequest::ProvidersStatus {}, inquiry).await? {
        None => {
            print_note(NO_OWNER);
            Vec::new()
        }
        Some(ControlResponse::Providers(known)) if json || !known.is_empty() => known,
        Some(ControlResponse::Providers(_)) => return print("no provider is asked"),
        Some(_) => return Err(unexpected_response().into()),
    };
    if json {
        return print_json(&known.iter().map(object).collect());
    }
    if known.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = known.iter().flat_map(rows).collect();
    print(&table::render(
        ["PROVIDER", "MODEL", "CREDENTIAL", "STATE", "ANSWERED", "FAILED", "BAD USAGE", "LAST FAILURE"],
        &rows,
    ))
}

/// Resets the failures of a provider.
pub(super) async fn reset(name: String, inquiry: &StoreClient) -> Result<(), CliError> {
    match ask(&ControlRequest::ProvidersReset { name }, inquiry).await? {
        None => {
            print_note(NO_OWNER);
            Ok(())
        }
        Some(ControlResponse::Reset { name }) => print(&format!("{name} is asked again")),
        Some(_) => Err(unexpected_response().into()),
    }
}

/// The response of the owner; `None` if there is no owner.
async fn ask(request: &ControlRequest, inquiry: &StoreClient) -> Result<Option<ControlResponse>, CliError> {
    let Some(mut holder) = inquiry.owner().await? else { return Ok(None) };
    match holder.request(request, |_| Ok(())).await {
        Ok(answer) => Ok(Some(answer)),
        Err(AskError::Disconnected) => Ok(None),
        Err(AskError::Rejected(fault)) => Err(fault.into()),
    }
}

/// A row for the endpoint, and one for each of its models with each credential used.
fn rows(provider: &ProviderStatus) -> Vec<[String; 8]> {
    let of_model = |model: &ModelStatus| {
        [
            String::new(),
            model.model.clone(),
            model.credential.0.to_string(),
            state(model.breaker),
            model.answered.to_string(),
            model.failed.to_string(),
            model.usage_anomalies.to_string(),
            failure(model.last_failure.as_ref()),
        ]
    };
    let whole = [
        provider.name.clone(),
        limits(provider.limits),
        format!("{} in all", provider.credentials),
        state(provider.endpoint),
        provider.answered.to_string(),
        provider.failed.to_string(),
        provider.usage_anomalies.to_string(),
        failure(provider.last_failure.as_ref()),
    ];
    [whole].into_iter().chain(provider.models.iter().map(of_model)).collect()
}

fn state(state: BreakerState) -> String {
    match state {
        BreakerState::Closed => "asked".to_owned(),
        BreakerState::Open { until } => format!("not asked until {until}"),
        BreakerState::HalfOpen => "tried".to_owned(),
    }
}

fn limits(limits: RateLimits) -> String {
    let requests = limits.requests.map(|count| format!("{count} requests/min"));
    let tokens = limits.tokens.map(|count| format!("{count} tokens/min"));
    let both: Vec<_> = requests.into_iter().chain(tokens).collect();
    if both.is_empty() { "-".to_owned() } else { both.join(", ") }
}

fn failure(failure: Option<&CallFailure>) -> String {
    failure.map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn object(provider: &ProviderStatus) -> Value {
    json!({
        "name": provider.name,
        "breaker": breaker(provider.endpoint),
        "credentials": provider.credentials,
        "requests_per_minute": provider.limits.requests,
        "tokens_per_minute": provider.limits.tokens,
        "answered": provider.answered,
        "failed": provider.failed,
        "usage_anomalies": provider.usage_anomalies,
        "last_usage_anomaly": provider.last_usage_anomaly,
        "last_failure": provider.last_failure,
        "models": provider.models.iter().map(of_model).collect::<Vec<_>>(),
    })
}

fn of_model(model: &ModelStatus) -> Value {
    json!({
        "model": model.model,
        "credential": model.credential,
        "breaker": breaker(model.breaker),
        "answered": model.answered,
        "failed": model.failed,
        "usage_anomalies": model.usage_anomalies,
        "last_failure": model.last_failure,
    })
}

fn breaker(state: BreakerState) -> Value {
    match state {
        BreakerState::Closed => json!({ "state": "closed" }),
        BreakerState::Open { until } => json!({ "state": "open", "until": rfc3339(until) }),
        BreakerState::HalfOpen => json!({ "state": "half_open" }),
    }
}
