//! What a failed attempt of a model call is charged with, and whether a reported usage is plausible. `bill.rs` adds up
//! the cost of a run.

use crate::model::{
    Amounts, AssistantMessage, Failure, ModelAnswer, ModelStarted, RequestFate, Usage, UsageAnomaly,
    UsageAnomalyKind,
};

/// The largest count that is accepted: JSON numbers are exact up to 2^53.
const MAX_COUNT: u64 = 1 << 53;
/// Most tokens for one byte of a request. Byte-level tokenizers have at most one; templates that escape text as
/// `\uXXXX` need more.
const MAX_TOKENS_PER_BYTE: u64 = 2;
/// Most tokens that vendors add to a request: their own prompts, and results of searches that a model makes by itself.
/// Recorded exchanges have up to 1,533 without vendor tools, and 29,296 with them. A few had more; their usage is
/// rejected.
const MAX_HIDDEN_INPUT_TOKENS: u64 = 32_768;
/// Most tokens of an image; the largest known is 36,835.
const MAX_IMAGE_TOKENS: u64 = 40_000;
/// Tolerated multiple of the requested output: some servers write a little more, or count the output twice.
const MAX_OUTPUT_FACTOR: u64 = 2;
/// Tolerated output tokens beyond the limit: end marks, and vendors that raise a limit to their minimum.
const OUTPUT_SLACK_TOKENS: u64 = 1_024;
/// Most reasoning tokens that a vendor reports beside the output; the output limit does not limit them.
const MAX_UNLISTED_REASONING_TOKENS: u64 = 131_072;
/// Most cached tokens beyond the input tokens: a vendor caches a prompt of its own that it does not count. The excess
/// must be smaller than the input. Recorded: an excess of 138 with 235 input tokens, and of 56 with 347.
const MAX_UNCOUNTED_CACHE_TOKENS: u64 = 256;

/// The cost that a failed attempt is charged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// No cost: the provider never received the request, or rejected it before any work.
    Nothing,
    /// The usage that the provider reported with the failure.
    Reported(Usage),
    /// The whole reservation: the request may have been processed.
    Everything,
}

/// The cost that this failed attempt is charged with.
pub fn billing(failure: &Failure) -> Billing {
    if let Some(usage) = failure.usage.as_deref() {
        return Billing::Reported(*usage);
    }
    match failure.request() {
        RequestFate::NotSent | RequestFate::Rejected => Billing::Nothing,
        RequestFate::MayHaveRun => Billing::Everything,
    }
}

/// Amounts that a failed attempt spent, without the iteration.
pub fn spent_by_failure(started: &ModelStarted, failure: &Failure) -> Amounts {
    let spent = match billing(failure) {
        Billing::Nothing => Amounts::default(),
        Billing::Reported(usage) => started.spent(Some(&usage)),
        Billing::Everything => started.reserved,
    };
    Amounts { iterations: None, ..spent }
}

/// The usage that an answer reported, if it is plausible; else the anomaly.
pub fn validate_usage(
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

/// Why the usage reported with an answer to this attempt is rejected; `None` if it is plausible or absent.
pub fn usage_anomaly(started: &ModelStarted, answer: &ModelAnswer) -> Option<UsageAnomaly> {
    validate_usage(started, &answer.message, answer.usage).1.map(|anomaly| *anomaly)
}

/// Removes an implausible usage from the failure and records the anomaly.
pub(crate) fn with_validated_usage(started: &ModelStarted, mut failure: Failure) -> Failure {
    if let Some(reported) = failure.usage.as_deref().copied()
        && let Some(kind) = find_anomaly(started, &reported, || 0)
    {
        failure.usage = None;
        // An error without counts does not tell how far the request came.
        if reported == Usage::default() {
            return failure;
        }
        failure.anomaly = Some(Box::new(UsageAnomaly { kind, reported }));
        // A provider that counts tokens has processed the request.
        failure.request = Some(RequestFate::MayHaveRun);
    }
    failure
}

/// Why a reported usage cannot be that of this attempt. `answer_bytes` returns the bytes of the whole output.
pub(crate) fn find_anomaly(
    started: &ModelStarted,
    usage: &Usage,
    answer_bytes: impl FnOnce() -> u64,
) -> Option<UsageAnomalyKind> {
    let &Usage {
        input_tokens,
        output_tokens,
        unlisted_reasoning_tokens: reasoning_tokens,
        cached_tokens,
        cache_write_tokens,
        is_invalid,
    } = usage;
    let counts = [input_tokens, output_tokens, reasoning_tokens, cached_tokens, cache_write_tokens];
    if is_invalid || counts.into_iter().any(|count| count > MAX_COUNT) {
        return Some(UsageAnomalyKind::InvalidCount);
    }
    let parts = cached_tokens.saturating_add(cache_write_tokens);
    let excess = parts.saturating_sub(input_tokens);
    if excess > 0 && (excess >= input_tokens || excess > MAX_UNCOUNTED_CACHE_TOKENS) {
        return Some(UsageAnomalyKind::PartsBeyondWhole);
    }
    // Older records have no size of the request (0 bytes): their input cannot be checked.
    if started.bytes > 0 && usage.input_total() > max_input(started) {
        return Some(UsageAnomalyKind::InputBeyondRequest);
    }
    // Some servers send a usage without counts or with zeros. If it was believed, no token limit would be reached.
    if started.bytes > 0 && usage.input_total() == 0 {
        return Some(UsageAnomalyKind::NoInput);
    }
    let max_output = started.max_tokens.saturating_mul(MAX_OUTPUT_FACTOR).saturating_add(OUTPUT_SLACK_TOKENS);
    let is_too_much =
        output_tokens > max_output && output_tokens > answer_bytes().saturating_add(OUTPUT_SLACK_TOKENS);
    (is_too_much || reasoning_tokens > max_output.max(MAX_UNLISTED_REASONING_TOKENS))
        .then_some(UsageAnomalyKind::OutputBeyondLimit)
}

/// Most input tokens that the request of an attempt can have.
fn max_input(started: &ModelStarted) -> u64 {
    let text = started.bytes.saturating_mul(MAX_TOKENS_PER_BYTE);
    text.saturating_add(started.images.saturating_mul(MAX_IMAGE_TOKENS))
        .saturating_add(MAX_HIDDEN_INPUT_TOKENS)
}

#[cfg(test)]
#[path = "billing_tests.rs"]
mod tests;
