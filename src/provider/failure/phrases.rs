//! Phrases that classify the texts of vendors' errors. The search covers the message without its quotes (`text.rs`).

use std::sync::LazyLock;

use hermod_actors::model::FailureClass;
use regex_lite::Regex;

use super::error_hints::{CONTEXT, QUOTA, RATE_LIMIT, TIMEOUT};

/// The classes of the phrases in a text that `strip_quotes` has prepared.
pub(super) fn classes_in(text: &str) -> impl Iterator<Item = &'static FailureClass> {
    static PHRASES: LazyLock<Vec<(&FailureClass, Regex)>> =
        LazyLock::new(|| PATTERNS.iter().map(|(class, patterns)| (class, any_of(patterns))).collect());
    PHRASES.iter().filter(move |(_, phrases)| phrases.is_match(text)).map(|(class, _)| *class)
}

fn any_of(patterns: &[&str]) -> Regex {
    let each: Vec<String> = patterns.iter().map(|pattern| anchored(pattern)).collect();
    Regex::new(&each.join("|")).expect("the patterns are constant")
}

/// A pattern in which a leading `^` means the start of a clause.
pub(super) fn anchored(pattern: &str) -> String {
    match pattern.strip_prefix('^') {
        Some(rest) => format!(r"(?:^|[-.:;!?,(\]—] ){rest}"),
        None => pattern.to_owned(),
    }
}

/// In order of precedence. `^` means the start of a clause; patterns without it are phrases that only vendors use, also
/// within sentences.
const PATTERNS: &[(FailureClass, &[&str])] = &[
    (
        QUOTA,
        &[
            r"exceeded your current quota",
            r"^(?:http )?payment required",
            r"billing hard limit",
            r"^insufficient (?:account )?(?:credits?|balance|funds|quota)",
            r"credit balance (?:is )?too low",
            r"account balance is too low",
            r"requires? (?:more|available) credits",
            r"^you're out of extra usage",
            r"^you've used up your (?:points|credits)",
            r"^(?:\w+ ){0,2}quota (?:has been |is )?(?:reached|exhausted)",
            r"^(?:\w+ ){0,2}(?:spend|spending|monthly|billing) limit (?:has been )?(?:reached|exceeded)",
            r"^(?:api )?key limit exceeded",
            r"is not available on the free tier",
            r"used all (?:available|included) credits",
            r"^you have reached your specified (?:\w+ )?api usage limits",
            r"余额不足",
            r"账户欠费",
        ],
    ),
    (
        FailureClass::ContentRefused,
        &[
            r"content management policy",
            r"azure openai's content management",
            r"rejected as a result of our safety system",
            r"flagged by our safety system",
            r"^(?:this|the|your) (?:content|prompt|input) (?:was|has been) flagged",
            r"flagged as potentially violating our usage policy",
            r"^(?:\S+ )?requires moderation",
            r"blocked by (?:our |the )?(?:content filter|content policy|safety)",
            r"^output blocked by content filtering policy",
        ],
    ),
    (
        CONTEXT,
        &[
            r"^(?:the |your )?prompt (?:is )?too (?:long|large)",
            r"^(?:the )?input (?:is )?too long",
            r"^input tokens exceed the configured limit",
            r"^(?:(?:this (?:model|endpoint)'s|the) )?maximum context length (?:is|of) \d",
            r"^maximum context length$",
            r"exceeds the model's maximum context length",
            r"exceed(?:s|ed)? (?:(?:the|this|your) )?(?:(?:model|model's|available|max|maximum) )?context (?:window|size|length|limit)",
            r"exceeds the context window of this model",
            r"longer than the (?:model's context|maximum model) length",
            r"greater than the context length",
            r"number of tokens in the prompt cannot exceed",
            r"^context (?:length|window) exceed(?:s|ed)",
            r"context window exceeds limit",
            r"would exceed (?:the )?context window",
            r"^context overflow:",
            r"^(?:this model's )?maximum prompt length",
            r"reduce the length of the (?:messages|prompt|input)",
            r"exceeds the maximum number of (?:input )?tokens allowed",
            r"exceeded model token limit",
            r"total length of all messages is too long",
            r"^prompt token count of \d+ exceeds",
            r"model_context_window_exceeded",
            r"^request exceeds the maximum size",
            r"^request entity too large",
            r"too large for model with \d",
            r"^prompt exceeds max(?:imum)? length",
            r"^range of input length should be",
            r"inputs? must have less than \d+ tokens",
            r"上下文(?:过长|长度|后)",
        ],
    ),
    (
        FailureClass::ModelNotFound,
        &[
            r"\bmodel(?: \S{1,80})? (?:(?:was |is )?not (?:found|exist)|does not exist|has been (?:deprecated|retired))",
            r"^models/\S{1,80} is not found",
            r"^model: \S{1,80}$",
            r"^(?:the )?model \S{1,80} is not (?:available|supported)",
            r"^the _ model is not supported",
            r"^(?:invalid|unknown|unsupported|no such) model(?:$|:| _| id| name)",
            r"is not a valid model",
            r"^not found the model",
            r"^the supported api model names are",
            r"^the provided model identifier is invalid",
            r"^no (?:endpoints found|allowed providers are available)",
            r"(?:does not|don't|do not) have access to (?:the )?model\b",
            r"^the api deployment for this resource does not exist",
        ],
    ),
    (
        RATE_LIMIT,
        &[
            r"^(?:\w+ ){0,3}rate limit (?:was |has been |is )?(?:exceeded|reached|hit)",
            r"(?:exceed|exceeds|exceeded|reached|hit|over) (?:the |your |its |our )?(?:\S+ ){0,3}rate limits?\b",
            r"^too many (?:requests|tokens per (?:day|minute))",
            r"^rate_limit(?:_exceeded)? hit",
            r"^request rate increased too quickly",
            r"^(?:\w+ ){0,4}(?:usage|daily|weekly|hourly|session) limit (?:has been )?(?:reached|exceeded)",
            r"(?:reached|hit) (?:your |the |its )?(?:\w+ )?usage limit",
            r"request limit reached",
            r"^resource ?(?:has been )?exhausted",
            r"^all credentials for model \S+ are cooling down",
        ],
    ),
    (
        FailureClass::Overloaded,
        &[
            r"^overloaded\b",
            r"\b(?:is|are) (?:currently |temporarily )?(?:overloaded|at capacity)",
            r"^service (?:is )?(?:temporarily )?unavailable",
            r"due to overload",
        ],
    ),
    (
        FailureClass::Auth,
        &[
            r"^(?:incorrect|invalid|missing|no) (?:\w+ )?api key",
            r"^api key (?:is )?(?:not valid|invalid|expired)",
            r"^(?:unauthorized|forbidden)\b",
            r"^authentication (?:failed|fails)",
            r"^please re-authenticate",
            r"^(?:\w+ )?token (?:has |is )expired",
            r"^oauth token refresh failed",
            r"^missing scopes:",
            r"^could not (?:validate credentials|parse your authentication token)",
            r"^(?:your |api )?key has been (?:revoked|disabled)",
            r"^(?:your )?account has been (?:deactivated|disabled)",
        ],
    ),
    (
        TIMEOUT,
        &[r"^(?:request |read |connection )?timed out", r"^(?:request )?timeout\b", r"^deadline exceeded"],
    ),
    (
        FailureClass::Network,
        &[
            r"^connection (?:error|reset|refused|aborted|closed)",
            r"^(?:connect|read|write) e(?:conn|host|net|pipe|socket|timed)",
            r"\beai_again\b",
            r"^server disconnected",
            r"^peer closed connection",
            r"^\[ssl: ",
        ],
    ),
    (
        FailureClass::NotAnApi,
        &[
            r"^(?:404 )?(?:page |resource |route |url |path )?not found\.?$",
            r"^invalid url\b",
            r"^(?:unknown|no such) (?:request url|url|path|route|endpoint)",
            r"^no route (?:matched|for)",
            r"^cannot (?:post|get) /",
            r"the requested url \S+ (?:was|is) not found",
            r"^method not allowed",
        ],
    ),
    (
        FailureClass::InvalidRequest,
        &[
            r"^invalid request format",
            r"^bad request",
            r"^unprocessable entity",
            r"requires? reasoning$",
            r"^reasoning is mandatory",
            r"^image exceeds",
        ],
    ),
    (FailureClass::Server, &[r"^internal server error", r"^bad gateway"]),
];
