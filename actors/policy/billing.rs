//! What an attempt of a model call must be taken to have cost, and which reported usage is believed.

use crate::model::{
    Amounts, AssistantMessage, Failure, ModelAnswer, ModelStarted, RequestFate, Usage, UsageAnomaly,
    UsageAnomalyKind,
};

/// A whole number above this is no count: JSON numbers are exact up to here.
const MAX_COUNT: u64 = 1 << 53;
/// Tokens that a byte of a request can have at most. Byte-level tokenizers have at most one; templates that escape text
/// as `\uXXXX` make more of it.
const MAX_TOKENS_PER_BYTE: u64 = 2;
/// Tokens that vendors add to a request by themselves: their own prompts, and results of searches that a model makes by
/// itself. The recorded exchanges without tools of the vendor's have up to 1,533, and most of the others up to 29,296.
const MAX_HIDDEN_INPUT_TOKENS: u64 = 32_768;
/// Tokens that a picture can have at most; the largest known is 36,835.
const MAX_IMAGE_TOKENS: u64 = 40_000;
/// Some servers write a little more than they are asked for, or count the output twice.
const MAX_OUTPUT_FACTOR: u64 = 2;
/// Tokens of output that count beside the limit: end marks, and the least that a vendor takes as a limit.
const OUTPUT_SLACK_TOKENS: u64 = 1_024;
/// Hidden reasoning that a vendor counts apart from the output, and does not limit with it.
const MAX_UNLISTED_REASONING_TOKENS: u64 = 131_072;
/// Cached tokens that a vendor may report beyond the tokens read, because it caches a prompt of its own that it does not
/// count; but fewer than were read. Recorded are 138 beyond 235, and 56 beyond 347.
const MAX_UNCOUNTED_CACHE_TOKENS: u64 = 256;

/// What a failed attempt must be taken to have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Billing {
    /// Nothing: the provider never had the request, or turned it away before any work.
    Nothing,
    /// What the provider has reported with the failure.
    Reported(Usage),
    /// It may have been worked on: all that was reserved counts as spent.
    Everything,
}

/// What a failed attempt must be taken to have cost.
pub(crate) fn billing(failure: &Failure) -> Billing {
    if let Some(usage) = failure.usage.as_deref() {
        return Billing::Reported(*usage);
    }
    match failure.request() {
        RequestFate::NotSent | RequestFate::Rejected => Billing::Nothing,
        RequestFate::MayHaveRun => Billing::Everything,
    }
}

/// What a failed attempt has spent, the iteration aside.
pub(crate) fn spent_by_failure(started: &ModelStarted, failure: &Failure) -> Amounts {
    let spent = match billing(failure) {
        Billing::Nothing => Amounts::default(),
        Billing::Reported(usage) => started.spent(Some(&usage)),
        Billing::Everything => started.reserved,
    };
    Amounts { iterations: None, ..spent }
}

/// The usage that an answer has reported, if it is believed; else why not.
pub(crate) fn validate_usage(
    started: &ModelStarted,
    answer: &AssistantMessage,
    usage: Option<Usage>,
) -> (Option<Usage>, Option<Box<UsageAnomaly>>) {
    let Some(reported) = usage else { return (None, None) };
    match find_anomaly(started, &reported, || answer.written_bytes() as u64) {
        None => (usage, None),
        Some(kind) => (None, Some(Box::new(UsageAnomaly { kind, reported }))),
    }
}

/// Why the usage that an answer to this attempt has reported is not believed; `None` if it is, or if there is none.
pub fn usage_anomaly(started: &ModelStarted, answer: &ModelAnswer) -> Option<UsageAnomaly> {
    validate_usage(started, &answer.message, answer.usage).1.map(|anomaly| *anomaly)
}

/// The failure with a reported usage only if that is believed.
pub(crate) fn with_validated_usage(started: &ModelStarted, mut failure: Failure) -> Failure {
    if let Some(reported) = failure.usage.as_deref().copied()
        && let Some(kind) = find_anomaly(started, &reported, || 0)
    {
        failure.usage = None;
        // An error without counts says nothing of how far the request came.
        if reported == Usage::default() {
            return failure;
        }
        failure.anomaly = Some(Box::new(UsageAnomaly { kind, reported }));
        // A provider that counts tokens has worked.
        failure.request = Some(RequestFate::MayHaveRun);
    }
    failure
}

/// Why a reported usage cannot be that of this attempt. `answer_bytes` are those of all that was written.
pub(crate) fn find_anomaly(
    started: &ModelStarted,
    usage: &Usage,
    answer_bytes: impl FnOnce() -> u64,
) -> Option<UsageAnomalyKind> {
    let &Usage {
        input_tokens,
        output_tokens,
        unlisted_reasoning_tokens: apart_tokens,
        cached_tokens,
        cache_write_tokens,
        is_invalid,
    } = usage;
    let counts = [input_tokens, output_tokens, apart_tokens, cached_tokens, cache_write_tokens];
    if is_invalid || counts.into_iter().any(|count| count > MAX_COUNT) {
        return Some(UsageAnomalyKind::InvalidCount);
    }
    let parts = cached_tokens.saturating_add(cache_write_tokens);
    let beyond = parts.saturating_sub(input_tokens);
    if beyond > 0 && (beyond >= input_tokens || beyond > MAX_UNCOUNTED_CACHE_TOKENS) {
        return Some(UsageAnomalyKind::PartsBeyondWhole);
    }
    // Without the bytes (they are known since requests are measured) nothing can be said of the input.
    if started.bytes > 0 && usage.input_total() > max_input(started) {
        return Some(UsageAnomalyKind::InputBeyondRequest);
    }
    // Some servers send a usage without counts, and some count nothing. A limit of tokens would never be reached.
    if started.bytes > 0 && usage.input_total() == 0 {
        return Some(UsageAnomalyKind::NoInput);
    }
    let asked = started.max_tokens.saturating_mul(MAX_OUTPUT_FACTOR).saturating_add(OUTPUT_SLACK_TOKENS);
    let is_too_much =
        output_tokens > asked && output_tokens > answer_bytes().saturating_add(OUTPUT_SLACK_TOKENS);
    (is_too_much || apart_tokens > asked.max(MAX_UNLISTED_REASONING_TOKENS))
        .then_some(UsageAnomalyKind::OutputBeyondLimit)
}

/// The tokens that the request of an attempt can have at most.
fn max_input(started: &ModelStarted) -> u64 {
    let text = started.bytes.saturating_mul(MAX_TOKENS_PER_BYTE);
    text.saturating_add(started.images.saturating_mul(MAX_IMAGE_TOKENS))
        .saturating_add(MAX_HIDDEN_INPUT_TOKENS)
}

#[cfg(test)]
#[path = "billing_tests.rs"]
mod tests;
