//! `hermod providers status`, `reset` and `summaries`: shows and resets what the owner has in memory about its providers
//! and its summarisers. None of it is stored, so only an owner can answer.

use hermod_actors::{CompressorStatus, ModelStatus, ProviderStatus, SummarizerStatus, model::BreakerState};

use crate::{
    cli::{CliError, format, print, print_json, print_note, table},
    control::{AskError, ControlRequest, ControlResponse},
    host::{StoreClient, unexpected_response},
};

/// Shows the state of the providers.
pub(super) async fn execute(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let providers = match ask(&ControlRequest::ProvidersStatus {}, "breakers", client).await? {
        Some(ControlResponse::Providers(providers)) => providers,
        Some(_) => return Err(unexpected_response().into()),
        None if json => Vec::new(),
        None => return Ok(()),
    };
    if json {
        return print_json(&providers);
    }
    if providers.is_empty() {
        return print("no provider is asked");
    }
    let head = [
        "PROVIDER",
        "MODEL",
        "CREDENTIAL",
        "STATE",
        "ANSWERED",
        "SPEED",
        "FAILED",
        "BAD USAGE",
        "LAST FAILURE",
    ];
    let rows: Vec<_> = providers.iter().flat_map(rows).collect();
    print(&table::render(head, &rows))
}

/// Resets the failures of a provider.
pub(super) async fn reset(name: String, client: &StoreClient) -> Result<(), CliError> {
    match ask(&ControlRequest::ProvidersReset { name }, "breakers", client).await? {
        Some(ControlResponse::Reset { name }) => print(&format!("{name} is asked again")),
        Some(_) => Err(unexpected_response().into()),
        None => Ok(()),
    }
}

/// Shows the summary calls and the statistics of the summarisers.
pub(super) async fn summaries(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let status = match ask(&ControlRequest::SummariesStatus {}, "statistics of summaries", client).await? {
        Some(ControlResponse::Summaries(status)) => status,
        Some(_) => return Err(unexpected_response().into()),
        None if json => CompressorStatus::default(),
        None => return Ok(()),
    };
    if json {
        return print_json(&status);
    }
    let CompressorStatus { foreground, background, running, summarizers } = &status;
    print(&format!(
        "{running} in progress; {} waiting, of which {foreground} with a run that waits",
        foreground + background
    ))?;
    if summarizers.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = summarizers.iter().map(summarizer_row).collect();
    print(&table::render(["SUMMARISER", "ATTEMPTS", "FAILED", "USUAL TIME", "USUAL SIZE", "STATE"], &rows))
}

/// The response of the owner; `None`, after a note that names the subject, if there is no owner.
async fn ask(
    request: &ControlRequest,
    subject: &str,
    client: &StoreClient,
) -> Result<Option<ControlResponse>, CliError> {
    let answer = match client.owner().await? {
        Some(mut owner) => owner.request(request, |_| Ok(())).await,
        None => Err(AskError::Disconnected),
    };
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(AskError::Disconnected) => {
            print_note(format!("no Hermod is running; {subject} live in its process"));
            Ok(None)
        }
        Err(AskError::Rejected(error)) => Err(error.into()),
    }
}

fn summarizer_row(summarizer: &SummarizerStatus) -> [String; 6] {
    [
        summarizer.model.to_string(),
        summarizer.attempts.to_string(),
        summarizer.failed.to_string(),
        table::or_dash(summarizer.usual_ms.map(format::seconds)),
        table::or_dash(summarizer.kept_percent.map(|kept| format!("{kept} %"))),
        if summarizer.is_poor { "called last" } else { "called in order" }.to_owned(),
    ]
}

/// A row for the endpoint, and one for each of its models with each credential used.
fn rows(provider: &ProviderStatus) -> Vec<[String; 9]> {
    let model_row = |model: &ModelStatus| {
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
        state(provider.endpoint),
        provider.answered.to_string(),
        "-".to_owned(),
        provider.failed.to_string(),
        provider.usage_anomalies.to_string(),
        table::or_dash(provider.last_failure.as_ref()),
    ];
    [provider_row].into_iter().chain(provider.models.iter().map(model_row)).collect()
}

fn state(state: BreakerState) -> String {
    match state {
        BreakerState::Closed => "asked".to_owned(),
        BreakerState::Open { until } => format!("not asked until {until}"),
        BreakerState::HalfOpen => "tried".to_owned(),
    }
}

/// Mean times until answers begin and end, and the output tokens in a second.
fn speed(model: &ModelStatus) -> String {
    let first = model.first_delta_ms.map(|ms| format!("begins in {ms} ms"));
    let whole = model.answer_ms.map(|ms| format!("ends in {ms} ms"));
    let tokens = model.output_tokens_per_second.map(|count| format!("{count} tokens/s"));
    joined(first.into_iter().chain(whole).chain(tokens))
}

/// The failed attempts, and their classes.
fn failures(model: &ModelStatus) -> String {
    let classes = joined(model.failures.iter().map(|(class, count)| format!("{count} {class}")));
    if model.failures.is_empty() { model.failed.to_string() } else { format!("{} ({classes})", model.failed) }
}

fn limits(provider: &ProviderStatus) -> String {
    let requests = provider.requests_per_minute.map(|count| format!("{count} requests/min"));
    let tokens = provider.tokens_per_minute.map(|count| format!("{count} tokens/min"));
    joined(requests.into_iter().chain(tokens))
}

/// The parts separated by commas; a dash if there are none.
fn joined(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<_> = parts.collect();
    table::or_dash((!parts.is_empty()).then(|| parts.join(", ")))
}
