//! The words by which vendors' texts are told apart, in lower case.

/// The account is used up.
pub(super) const QUOTA: &[&str] = &[
    "insufficient_quota",
    "exceeded your current quota",
    "payment required",
    "payment_required",
    "billing_hard_limit",
    "billing hard limit",
    "insufficient credit",
    "insufficient balance",
    "insufficient_balance",
    "credit balance",
    "require more credits",
    "requires available credits",
    "out of extra usage",
    "quota reached",
    "api key limit exceeded",
    "余额不足",
];

/// The content is refused.
pub(super) const CONTENT: &[&str] = &[
    "content_filter",
    "content_policy",
    "responsibleaipolicyviolation",
    "content management policy",
    "rejected as a result of our safety system",
    "flagged by our safety system",
    "content was flagged",
    "requires moderation",
];

/// The view is too long.
pub(super) const CONTEXT: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "too_many_prompt_tokens",
    "exceed_context_size",
    "request_too_large",
    "prompt is too long",
    "prompt too large",
    "input is too long",
    "input tokens exceed the configured limit",
    "maximum context length",
    "model's context length",
    "maximum prompt length",
    "context length exceeded",
    "context window exceed",
    "context window of this model",
    "would exceed context window",
    "exceeds model context window",
    "exceeds the available context",
    "reduce the length of the messages",
    "maximum number of tokens allowed",
    "exceeded model token limit",
    "total length of all messages is too long",
    "prompt token count of",
    "上下文",
];

/// With `model` in the same text: there is no such model.
pub(super) const NO_MODEL: &[&str] = &[
    "does not exist",
    "not found",
    "not a valid model",
    "invalid model",
    "unknown model",
    "no such model",
    "has been deprecated",
    "supported api model names",
];

/// What stands in front of the size of the context, or behind it.
const BEFORE_WINDOW: &[&str] = &[
    "maximum context length is ",
    "maximum context length of ",
    "maximum prompt length is ",
    "maximum number of tokens allowed (",
    "model token limit: ",
    "exceeds the limit of ",
    "available context size (",
    "context window of ",
    " tokens > ",
    "too large for model with ",
];

/// The size of the context, in tokens, if the (lower-case) text tells it.
pub(super) fn window_in(text: &str) -> Option<u64> {
    BEFORE_WINDOW.iter().find_map(|before| {
        let (_, rest) = text.split_once(before)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit() && c != ',' && c != '_').next()?;
        digits.replace([',', '_'], "").parse().ok()
    })
}
