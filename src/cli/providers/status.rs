//! `hermod providers status` and `reset`: shows and resets what the owner has in memory about its providers, such as
//! circuit breakers. Also the request that only an owner can answer.

use crate::{
    cli::{
        exit::CliError,
        output::{print, print_json, print_note},
        table,
    },
    control::{AskError, ControlRequest, ControlResponse},
    host::{StoreClient, unexpected_response},
    view::{BreakerView, ModelBreakerView, ProviderView},
};

/// Breakers are not stored; they exist only in the owner's memory.
const NO_OWNER: &str = "no Hermod is running; breakers live in its process";

/// Shows the state of the providers.
pub(super) async fn execute(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let providers = match ask(&ControlRequest::ProvidersStatus {}, client).await? {
        None => {
            print_note(NO_OWNER);
            Vec::new()
        }
        Some(ControlResponse::Providers(providers)) if json || !providers.is_empty() => providers,
        Some(ControlResponse::Providers(_)) => return print("no provider is asked"),
        Some(_) => return Err(unexpected_response().into()),
    };
    if json {
        return print_json(&providers);
    }
    if providers.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = providers.iter().flat_map(rows).collect();
    print(&table::render(
        [
            "PROVIDER",
            "MODEL",
            "CREDENTIAL",
            "STATE",
            "ANSWERED",
            "SPEED",
            "FAILED",
            "BAD USAGE",
            "LAST FAILURE",
        ],
        &rows,
    ))
}

/// Resets the failures of a provider.
pub(super) async fn reset(name: String, client: &StoreClient) -> Result<(), CliError> {
    match ask(&ControlRequest::ProvidersReset { name }, client).await? {
        None => {
            print_note(NO_OWNER);
            Ok(())
        }
        Some(ControlResponse::Reset { name }) => print(&format!("{name} is asked again")),
        Some(_) => Err(unexpected_response().into()),
    }
}

/// The response of the owner; `None` if there is no owner.
pub(super) async fn ask(
    request: &ControlRequest,
    client: &StoreClient,
) -> Result<Option<ControlResponse>, CliError> {
    let Some(mut owner) = client.owner().await? else { return Ok(None) };
    match owner.request(request, |_| Ok(())).await {
        Ok(answer) => Ok(Some(answer)),
        Err(AskError::Disconnected) => Ok(None),
        Err(AskError::Rejected(error)) => Err(error.into()),
    }
}

/// A row for the endpoint, and one for each of its models with each credential used.
fn rows(provider: &ProviderView) -> Vec<[String; 9]> {
    let model_row = |model: &ModelBreakerView| {
        [
            String::new(),
            model.model.clone(),
            model.credential.0.to_string(),
            state(model.breaker),
            model.answered.to_string(),
            speed(model),
            failures(model),
            model.usage_anomalies.to_string(),
            table::or_dash(model.last_failure.as_ref()),
        ]
    };
    let provider_row = [
        provider.name.clone(),
        limits(provider),
        format!("{} in all", provider.credentials),
        state(provider.breaker),
        provider.answered.to_string(),
        "-".to_owned(),
        provider.failed.to_string(),
        provider.usage_anomalies.to_string(),
        table::or_dash(provider.last_failure.as_ref()),
    ];
    [provider_row].into_iter().chain(provider.models.iter().map(model_row)).collect()
}

fn state(state: BreakerView) -> String {
    match state {
        BreakerView::Closed => "asked".to_owned(),
        BreakerView::Open { until } => format!("not asked until {until}"),
        BreakerView::HalfOpen => "tried".to_owned(),
    }
}

/// Mean times until answers begin and end, and the output tokens in a second.
fn speed(model: &ModelBreakerView) -> String {
    let first = model.first_delta_ms.map(|ms| format!("begins in {ms} ms"));
    let whole = model.answer_ms.map(|ms| format!("ends in {ms} ms"));
    let tokens = model.output_tokens_per_second.map(|count| format!("{count} tokens/s"));
    joined(first.into_iter().chain(whole).chain(tokens))
}

/// The failed attempts, and their classes.
fn failures(model: &ModelBreakerView) -> String {
    let classes = joined(model.failures.iter().map(|(class, count)| format!("{count} {class}")));
    if model.failures.is_empty() { model.failed.to_string() } else { format!("{} ({classes})", model.failed) }
}

fn limits(provider: &ProviderView) -> String {
    let requests = provider.requests_per_minute.map(|count| format!("{count} requests/min"));
    let tokens = provider.tokens_per_minute.map(|count| format!("{count} tokens/min"));
    joined(requests.into_iter().chain(tokens))
}

/// The parts separated by commas; a dash if there are none.
fn joined(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<_> = parts.collect();
    table::or_dash((!parts.is_empty()).then(|| parts.join(", ")))
}
