//! Failures by sizes in vendors' texts: the output is too large, or the input too long. Also the size of the context
//! window.

use std::sync::LazyLock;

use hermod_actors::model::FailureClass;
use regex_lite::Regex;

/// Minimum remaining output in tokens. Below it the request counts as too long, because no useful answer is that short.
const MIN_OUTPUT_TOKENS: u64 = 1_024;

/// The class of a failure caused by sizes: too much output, or too much input for any output.
pub(super) fn class_of_sizes(text: &str) -> Option<FailureClass> {
    static RULES: LazyLock<Vec<(Regex, LimitRule)>> = LazyLock::new(|| {
        let compiled = |(pattern, limit): &(&str, LimitRule)| {
            (
                Regex::new(&anchored(pattern).replace("OUT", OUTPUT_LIMIT_PATTERN))
                    .expect("the patterns are constant"),
                *limit,
            )
        };
        PATTERNS.iter().map(compiled).collect()
    });
    RULES.iter().find_map(|(pattern, limit)| {
        let found = pattern.captures(text)?;
        let numbers: Vec<u64> =
            found.iter().skip(1).flatten().filter_map(|number| number_at(number.as_str())).collect();
        limit.class(&numbers)
    })
}

/// A pattern in which a leading `^` means the start of a clause.
fn anchored(pattern: &str) -> String {
    match pattern.strip_prefix('^') {
        Some(rest) => format!(r"(?:^|[-.:;!?,(\]—] ){rest}"),
        None => pattern.to_owned(),
    }
}

/// The names that vendors use for the maximum output of a request.
const OUTPUT_LIMIT_PATTERN: &str =
    r"(?:max[ _]?(?:imum[ _])?(?:completion[ _]?|output[ _]?|new[ _]?)?tokens(?:_to_sample)?)";

/// How the limit is computed from the numbers of a text.
#[derive(Debug, Clone, Copy)]
enum LimitRule {
    /// The requested output is too large; the text has no limit.
    Unknown,
    /// The number is the output limit.
    Output,
    /// The output limit is one less than the number.
    OutputExclusive,
    /// The window, then the tokens of the input.
    WindowAndInput,
    /// The tokens of the input, then the window.
    InputAndWindow,
    /// The window, the requested total, and the output in that total.
    WindowTotalAndOutput,
    /// The context window is exceeded; the text has no limit.
    Context,
    /// The tokens per minute, then the requested tokens. If more are requested, no wait helps.
    PerMinute,
}

impl LimitRule {
    fn class(self, numbers: &[u64]) -> Option<FailureClass> {
        let cap = |limit| Some(FailureClass::OutputCap { limit });
        let class_by_window = |window: u64, input: u64| match window.checked_sub(input) {
            Some(left) if left >= MIN_OUTPUT_TOKENS => cap(Some(left)),
            _ => Some(FailureClass::ContextTooLong { limit: Some(window) }),
        };
        match (self, numbers) {
            (Self::Output, [limit]) => cap(Some(*limit)),
            (Self::OutputExclusive, [limit]) => cap(Some(limit.saturating_sub(1))),
            (Self::WindowAndInput, [window, input]) | (Self::InputAndWindow, [input, window]) => {
                class_by_window(*window, *input)
            }
            (Self::WindowTotalAndOutput, [window, all, output]) => {
                class_by_window(*window, all.saturating_sub(*output))
            }
            (Self::PerMinute, [limit, requested]) if requested > limit => {
                Some(FailureClass::ContextTooLong { limit: Some(*limit) })
            }
            (Self::Context, _) => Some(FailureClass::ContextTooLong { limit: None }),
            // A number that overflows is ignored.
            (Self::Unknown | Self::Output | Self::OutputExclusive, _) => cap(None),
            (
                Self::WindowAndInput | Self::InputAndWindow | Self::WindowTotalAndOutput | Self::PerMinute,
                _,
            ) => None,
        }
    }
}

const PATTERNS: &[(&str, LimitRule)] = &[
    (
        r"OUT(?: or OUT)? is too large: \d+\. this model's maximum context length is ([\d,]+) tokens and your request has ([\d,]+) input tokens",
        LimitRule::WindowAndInput,
    ),
    (
        r"maximum context length is ([\d,]+) tokens[.,] however,? you requested (?:about )?([\d,]+) ?tokens \([^)]*?([\d,]+) (?:in|for|of) the (?:completion|output)",
        LimitRule::WindowTotalAndOutput,
    ),
    (
        r"maximum context length of ([\d,]+) tokens\. you requested a total of [\d,]+ tokens: ([\d,]+) tokens from the input",
        LimitRule::WindowAndInput,
    ),
    (r"inputs tokens \+ OUT must be <= ([\d,]+)\. given: ([\d,]+) inputs tokens", LimitRule::WindowAndInput),
    (r"input length and OUT exceed context limit: ([\d,]+) \+ [\d,]+ > ([\d,]+)", LimitRule::InputAndWindow),
    (r"^OUT: [\d,]+ > ([\d,]+), which is the maximum allowed", LimitRule::Output),
    (r"^OUT is too large: .*supports at most ([\d,]+) (?:completion|output) tokens", LimitRule::Output),
    (
        r"OUT value of [\d,]+ but the supported range is from \d+ \(inclusive\) to ([\d,]+) \(exclusive\)",
        LimitRule::OutputExclusive,
    ),
    (r"^the OUT you requested exceeds? the model limit of ([\d,]+)", LimitRule::Output),
    (
        r"OUT(?: for \S+)?:? (?:must|should) be (?:less than or equal to|at most|<=) ([\d,]+)",
        LimitRule::Output,
    ),
    (r"range of OUT (?:is|should be) [\[(]\d+, ?([\d,]+)\]", LimitRule::Output),
    (r"^invalid OUT: integer above maximum value\. expected a value <= ([\d,]+)", LimitRule::Output),
    (r"^OUT (?:is |are )?too (?:large|high)\b", LimitRule::Unknown),
    (r"maximum allowed number of output tokens", LimitRule::Unknown),
    (r"OUT would exceed (?:the )?context window", LimitRule::Unknown),
    (r"^extra usage is required for long context", LimitRule::Context),
    (r"request too large .*\blimit:? ([\d,]+), requested:? ([\d,]+)", LimitRule::PerMinute),
];

/// Phrases directly before the size of the window.
const WINDOW_PREFIXES: &[&str] = &[
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

/// The size of the window in tokens, if the text contains it.
pub(super) fn window_in(text: &str) -> Option<u64> {
    WINDOW_PREFIXES.iter().find_map(|before| {
        let (_, rest) = text.split_once(before)?;
        number_at(rest.split(|c: char| !c.is_ascii_digit() && c != ',' && c != '_').next()?)
    })
}

fn number_at(digits: &str) -> Option<u64> {
    digits.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{super::text::strip_quotes, *};

    fn check(message: &str, expected: Option<FailureClass>) {
        assert_eq!(class_of_sizes(&strip_quotes(message)), expected, "{message}");
    }

    #[test]
    fn too_much_output_is_told_with_its_limit() {
        let cap = |message: &str, limit: u64| {
            check(message, Some(FailureClass::OutputCap { limit: Some(limit) }));
        };
        cap(
            "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
            16_384,
        );
        cap(
            "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
            8_192,
        );
        cap(
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
            65_536,
        );
        cap(
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
            4_096,
        );
        cap(
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
            8_192,
        );
        cap("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192);
        cap("Range of max_tokens should be [1, 8192]", 8_192);
        cap(
            "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model",
            4_096,
        );
        cap(
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 128000, but got 200000 instead.",
            128_000,
        );
        check(
            "the maximum allowed number of output tokens is exceeded",
            Some(FailureClass::OutputCap { limit: None }),
        );
        check(
            "max_tokens: 1 > 99999999999999999999999, which is the maximum allowed number",
            Some(FailureClass::OutputCap { limit: None }),
        );
    }

    #[test]
    fn the_room_that_the_input_leaves_is_the_limit() {
        let room = |message: &str, limit: u64| {
            check(message, Some(FailureClass::OutputCap { limit: Some(limit) }));
        };
        let full = |message: &str, window: u64| {
            check(message, Some(FailureClass::ContextTooLong { limit: Some(window) }));
        };
        room(
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
            11_760,
        );
        room(
            "'max_tokens' or 'max_completion_tokens' is too large: 100000. This model's maximum context length is 32768 tokens and your request has 1200 input tokens (100000 > 32768 - 1200).",
            31_568,
        );
        room(
            "This model's maximum context length is 128000 tokens. However, you requested 130096 tokens (120000 in the messages, 96 in the functions, and 10000 in the completion). Please reduce the length of the messages or completion.",
            7_904,
        );
        room(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 141072 tokens (41072 of text input, 100000 in the output). Please reduce the length of either one.",
            90_000,
        );
        room(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6000 `inputs` tokens and 4096 `max_new_tokens`",
            2_192,
        );
        full(
            "This model's maximum context length is 128000 tokens. However, you requested 138000 tokens (130000 in the messages, 8000 in the completion).",
            128_000,
        );
        full(
            "input length and `max_tokens` exceed context limit: 199990 + 21333 > 200000, decrease input length or `max_tokens` and try again",
            200_000,
        );
        full(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 48000. The input or output tokens must be reduced",
            30_000,
        );
    }

    #[test]
    fn what_only_looks_like_too_much_is_not() {
        for message in [
            "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
            "max_tokens must be greater than thinking.budget_tokens",
            "Tool `set_max_tokens` is not defined: \"max_tokens is too large\"",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 145000 tokens.",
            "Rate limit reached for x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
        ] {
            check(message, None);
        }
    }
}
