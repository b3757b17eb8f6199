//! The names of what spans are about: those of the conventions where there are some, else those of the records.

use hermod_actors::model::{CallStatus, FinishReason, RetryReason};

/// Names of the conventions for providers that are usually configured under another one.
const PROVIDERS: &[(&str, &str)] = &[
    ("bedrock", "aws.bedrock"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("moonshot", "moonshot_ai"),
    ("xai", "x_ai"),
];

/// The name of a configured provider.
pub(super) fn provider(configured: &str) -> &str {
    let known = PROVIDERS.iter().find(|(name, _)| *name == configured);
    known.map_or(configured, |(_, name)| name)
}

/// Why a model stopped.
pub(super) const fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::Refused => "content_filter",
    }
}

/// Why an attempt of a tool call is followed by another one.
pub(super) const fn retry_reason(reason: RetryReason) -> &'static str {
    match reason {
        RetryReason::Lost => "lost",
        RetryReason::Interrupted => "interrupted",
        RetryReason::NeverStarted => "never_begun",
        RetryReason::InDoubt => "in_doubt",
    }
}

/// Whether a tool call that ended so is shown as failed. What was stopped did not fail.
pub(super) const fn is_tool_error(status: CallStatus) -> bool {
    match status {
        CallStatus::Error | CallStatus::NotStarted | CallStatus::InDoubt => true,
        CallStatus::Ok | CallStatus::Stopped => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_have_the_names_of_the_conventions() {
        let check = |configured: &str, expect: &str| assert_eq!(provider(configured), expect);
        check("openai", "openai");
        check("anthropic", "anthropic");
        check("gemini", "gcp.gemini");
        check("work", "work");
    }
}
