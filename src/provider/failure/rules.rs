//! Rules that classify the texts of vendors' errors by words that stand together. They judge a message without its
//! quotes (`text.rs`); the words of the rules are in `vocabulary.rs`.

use hermod_actors::model::FailureClass;

use super::{
    error_hints::{CODES, CONTEXT, QUOTA, RATE_LIMIT, TIMEOUT, class_of_code, normalize_code},
    vocabulary as v,
    words::{Sentence, before, sentences},
};
use Form::{Near, Only, Says, Then};

/// Words of which one has to occur.
type Terms = &'static [&'static str];

/// A rule: a sentence with this form has this class.
struct Rule {
    class: FailureClass,
    form: Form,
    /// Words that make the sentence say something else.
    unless: &'static [Terms],
    /// Words that make the text say something else, wherever they stand.
    unless_in_text: &'static [Terms],
    /// Words that have to stand somewhere in the text.
    if_in_text: &'static [Terms],
}

/// What a sentence has to contain.
enum Form {
    /// One of these terms.
    Says(Terms),
    /// A noun and a verb, at most this many words from each other.
    Near(Terms, Terms, usize),
    /// The same, the noun first.
    Then(Terms, Terms, usize),
    /// The sentence is one of these terms, and the whole text.
    Only(Terms),
}

/// Marks of a text that is written for people, not by a vendor.
const MARKUP: &[&str] = &["**", "```", "## "];

/// The classes of a text that `strip_quotes` has prepared, in order of precedence.
pub(super) fn classes_in(text: &str) -> Vec<&'static FailureClass> {
    let sentences = sentences(text);
    let says = |terms: &[&str]| sentences.iter().any(|sentence| sentence.has(terms));
    if is_prose(text, &sentences) {
        return Vec::new();
    }
    let statement = before(&sentences, v::STRUCTURE);
    let matches = |rule: &Rule| {
        let all = if rule.class == FailureClass::InvalidRequest { &sentences } else { &statement };
        all.iter().any(|sentence| rule.matches(sentence, sentences.len()))
            && !rule.unless_in_text.iter().any(|terms| says(terms))
            && rule.if_in_text.iter().all(|terms| says(terms))
    };
    let codes = statement.iter().flat_map(Sentence::words).filter_map(|word| class_of_name(word));
    codes.chain(RULES.iter().filter(|rule| matches(rule)).map(|rule| &rule.class)).collect()
}

/// True if people wrote this about failures.
pub(super) fn is_prose(text: &str, sentences: &[Sentence<'_>]) -> bool {
    MARKUP.iter().any(|mark| text.contains(mark))
        || (text.contains("1. ") && text.contains("2. "))
        || sentences.iter().any(|sentence| sentence.has(v::REMARK))
}

/// The class of a code inside a text. A code is no word of a language: it has an underscore, or ends in `error`.
fn class_of_name(word: &str) -> Option<&'static FailureClass> {
    let is_code =
        word.contains('_') || (word.len() > 9 && (word.ends_with("error") || word.ends_with("exception")));
    class_of_code(CODES, &normalize_code(word)).filter(|_| is_code)
}

impl Rule {
    fn matches(&self, sentence: &Sentence<'_>, sentences: usize) -> bool {
        let is_form = match self.form {
            Form::Says(terms) => sentence.has(terms),
            Form::Near(noun, verb, gap) => sentence.near(noun, verb, gap, false),
            Form::Then(noun, verb, gap) => sentence.near(noun, verb, gap, true),
            Form::Only(terms) => sentences == 1 && sentence.is_only(terms),
        };
        is_form && !self.unless.iter().any(|terms| sentence.has(terms))
    }
}

const fn rule(class: FailureClass, form: Form, unless: &'static [Terms]) -> Rule {
    Rule { class, form, unless, unless_in_text: &[], if_in_text: &[] }
}

const fn rule_in_text(
    class: FailureClass,
    form: Form,
    unless: &'static [Terms],
    unless_in_text: &'static [Terms],
    if_in_text: &'static [Terms],
) -> Rule {
    Rule { class, form, unless, unless_in_text, if_in_text }
}

/// A provider that slows requests down, or is busy, also names sizes; they are not the reason then.
const fn too_long(form: Form, unless: &'static [Terms]) -> Rule {
    rule_in_text(CONTEXT, form, unless, &[v::RATE, v::THROTTLED], &[])
}

/// In order of precedence.
static RULES: &[Rule] = &[
    // Money is used up: no wait helps.
    rule(QUOTA, Near(v::MONEY, v::USED_UP, 5), &[v::RATE, v::THINKING]),
    rule(QUOTA, Near(v::CAP, v::USED_UP, 5), &[v::RATE, v::THINKING]),
    rule(QUOTA, Near(v::BILL, v::UNPAID, 5), &[]),
    rule(QUOTA, Near(v::FUNDS, v::NEEDED, 3), &[]),
    rule(QUOTA, Near(v::SUBSCRIPTION, v::ENDED, 5), &[]),
    rule(QUOTA, Says(v::NO_MONEY), &[]),
    // An allowance is used up, and no time is told after which it is not.
    rule_in_text(
        QUOTA,
        Near(v::QUOTA_NOUN, v::USED_UP, 6),
        &[v::EXCEEDED_QUOTA],
        &[v::RATE, v::TRANSIENT],
        &[],
    ),
    rule_in_text(QUOTA, Near(v::ALLOWANCE, v::USED_UP, 6), &[], &[v::RATE, v::PERIOD, v::TRANSIENT], &[]),
    rule_in_text(QUOTA, Near(v::UPGRADE, v::PLAN, 5), &[v::SOFTWARE], &[v::RATE, v::OVERLOADED], &[]),
    rule_in_text(QUOTA, Says(v::BUY), &[v::SOFTWARE], &[v::RATE], &[]),
    rule(FailureClass::ContentRefused, Near(v::CONTENT_RULES, v::REFUSED, 8), &[v::RATE, v::ACCOUNT_CLOSED]),
    rule(FailureClass::ContentRefused, Near(v::CONTENT, v::UNWANTED, 8), &[v::ACCOUNT_CLOSED]),
    rule(FailureClass::ContentRefused, Says(v::CONTENT_REFUSED), &[]),
    too_long(Near(v::INPUT, v::TOO_LONG, 5), &[v::TRANSIENT, v::MEDIA, v::OUTPUT, v::DURATION]),
    too_long(Near(v::INPUT_SIZE, v::EXCEEDS, 10), &[v::PERIOD, v::OUTPUT, v::UPLOAD]),
    rule(CONTEXT, Near(v::CONTEXT_SIZE, v::EXCEEDS, 10), &[v::RATE, v::PERIOD]),
    rule(
        CONTEXT,
        Near(v::INPUT_IDEOGRAPHS, v::EXCEEDS_IDEOGRAPHS, 4),
        &[v::RATE, v::PERIOD, v::MEDIA, v::OUTPUT, v::MONEY],
    ),
    rule(CONTEXT, Near(v::SHORTEN, v::INPUT, 6), &[v::RATE, v::MEDIA, v::OUTPUT]),
    rule(CONTEXT, Then(v::LARGEST_INPUT, v::NUMBER, 4), &[v::RATE, v::PERIOD]),
    rule(CONTEXT, Near(v::CONTEXT_SIZE, v::TOO_SMALL_WINDOW, 3), &[]),
    rule(CONTEXT, Says(v::CONTEXT_OVERFLOW), &[]),
    rule(CONTEXT, Only(v::CONTEXT_NOUNS), &[]),
    rule(FailureClass::ModelNotFound, Then(v::MODEL, v::MISSING_MODEL, 4), &[v::TRANSIENT]),
    rule(FailureClass::ModelNotFound, Says(v::UNKNOWN_MODEL), &[v::MODEL_OUTPUT]),
    rule(FailureClass::ModelNotFound, Near(v::MODEL_ACCESS, v::DENIED, 6), &[]),
    rule(FailureClass::ModelNotFound, Only(v::MODEL_NAMED), &[]),
    rule(RATE_LIMIT, Near(v::RATE, v::EXCEEDS_RATE, 8), &[]),
    rule(RATE_LIMIT, Says(v::TOO_FAST), &[]),
    rule_in_text(RATE_LIMIT, Near(v::LIMIT, v::USED_UP, 6), &[v::OUTPUT], &[], &[v::TRANSIENT]),
    rule_in_text(RATE_LIMIT, Near(v::LIMIT, v::USED_UP, 6), &[v::OUTPUT], &[], &[v::PERIOD]),
    rule(RATE_LIMIT, Says(v::LIMIT_REACHED), &[v::MEDIA, v::OUTPUT, v::INPUT_SIZE]),
    rule(FailureClass::Overloaded, Says(v::OVERLOADED), &[]),
    rule(FailureClass::Overloaded, Near(v::LOAD, v::HIGH, 3), &[]),
    rule(FailureClass::Auth, Near(v::CREDENTIAL, v::INVALID, 5), &[v::RATE]),
    rule(FailureClass::Auth, Near(v::TOKEN, v::INVALID_TOKEN, 4), &[v::RATE]),
    rule(FailureClass::Auth, Near(v::ACCOUNT, v::CLOSED, 4), &[]),
    rule(FailureClass::Auth, Says(v::UNAUTHORIZED), &[]),
    rule(FailureClass::Network, Near(v::CONNECTION, v::BROKEN, 5), &[]),
    rule(FailureClass::Network, Says(v::NETWORK), &[]),
    rule(TIMEOUT, Says(v::TIMED_OUT), &[]),
    rule(FailureClass::NotAnApi, Near(v::PATH, v::UNKNOWN_PATH, 2), &[v::MODEL]),
    rule(FailureClass::NotAnApi, Says(v::NOT_AN_API), &[]),
    rule(FailureClass::NotAnApi, Only(v::NOT_FOUND), &[]),
    rule(FailureClass::InvalidRequest, Near(v::STRUCTURE, v::FAULTY, 6), &[]),
    rule(FailureClass::InvalidRequest, Near(v::MEDIA, v::FAULTY, 8), &[]),
    rule(FailureClass::InvalidRequest, Says(v::BAD_REQUEST), &[]),
    rule(FailureClass::Server, Says(v::BROKEN_SERVER), &[]),
];

#[cfg(test)]
mod tests {
    use super::{super::text::strip_quotes, *};

    fn first(message: &str) -> Option<&'static str> {
        classes_in(&strip_quotes(message)).first().map(|class| class.name())
    }

    #[test]
    fn a_class_is_nouns_and_verbs_in_many_wordings() {
        let check = |class: &str, messages: &[&str]| {
            for message in messages {
                assert_eq!(first(message), Some(class), "{message}");
            }
        };
        check(
            "quota_exhausted",
            &[
                "Sorry, your account balance is insufficient",
                "The team has run out of prepaid credits",
                "Workspace spend limit reached.",
                "Your account has an overdue payment",
                "You've hit your usage limit. Upgrade to Pro for more",
                "Free trial has ended. Please upgrade your plan.",
                "套餐额度已用尽",
            ],
        );
        check(
            "context_too_long",
            &[
                "Input length exceeds the window: the prompt is too large",
                "The conversation does not fit into the context window",
                "Context size has been exceeded.",
                "Please shorten your messages",
                "Context overflow: nothing left to cut",
                "输入内容过长，超过模型支持的最大长度",
                "入力トークン数がモデルの最大コンテキスト長を超えています",
            ],
        );
        check(
            "rate_limited",
            &[
                "Usage limit reached, try again in 5 minutes",
                "max organization concurrency reached: 3",
                "You are sending requests too quickly",
                "Quota exceeded for requests per minute",
                "请求过于频繁",
            ],
        );
        check("model_not_found", &["Could not find model x", "model x-1 was retired", "模型不存在"]);
        check("overloaded", &["We are seeing high amounts of traffic", "server busy", "当前服务繁忙"]);
        check(
            "auth",
            &["Your API key has been revoked", "session expired", "account suspended", "无效的令牌"],
        );
        check("content_refused", &["The prompt violates our usage policies", "内容违规", "unsafe content"]);
        check(
            "network",
            &["socket hang up", "read ECONNRESET", "the peer closed the connection", "[SSL: X] y"],
        );
        check("timeout", &["The operation timed out", "context deadline exceeded", "请求超时"]);
        check("invalid_request", &["Missing required parameter: model", "image exceeds 5 MB", "参数有误"]);
        check("not_an_api", &["404 page not found", "Cannot POST /v1", "unknown endpoint"]);
    }

    #[test]
    fn other_words_beside_them_make_it_something_else() {
        let check = |message: &str, class: Option<&str>| assert_eq!(first(message), class, "{message}");
        check("Tokens per minute exceed the context window limit", Some("rate_limited"));
        check("The prompt took too long", Some("timeout"));
        check("thinking budget exceeds its limit", None);
        check("Please upgrade to the latest client version", None);
        check("This model does not support image input", None);
        check("max_tokens: the parameter is not supported with this model", Some("invalid_request"));
        check("Function x: its description is too long, the model does not exist", Some("invalid_request"));
        check("The server is at capacity, see billing for more credits", Some("overloaded"));
        check("Throttling error: too many tokens", Some("rate_limited"));
        check("Service unavailable: the queue of prompts is too long", Some("overloaded"));
        check("This organization was disabled for a policy violation", Some("auth"));
    }

    #[test]
    fn what_people_write_about_failures_is_none() {
        for message in [
            "Let's investigate the context overflow bug",
            "The context overflow handling was changed",
            "**Payment required** is shown when the balance is too low",
            "Your app returns: credit balance too low",
            "The plan requires three steps",
            "Please upgrade to Node 20",
            "Context window too small: 9000 tokens, the minimum is 16000",
            "The billing page has a new layout",
            "The request size exceeds the limit of uploads",
            "Unknown: \"rate limit exceeded\"",
            "",
        ] {
            assert_eq!(first(message), None, "{message}");
        }
        let prose = "The form comes first, then the list, then the export. ".repeat(20);
        assert_eq!(first(&format!("{prose} The credit balance is too low.")), None);
    }

    #[test]
    fn a_code_counts_inside_a_text() {
        let check = |message: &str, class: Option<&str>| assert_eq!(first(message), class, "{message}");
        check("Failed with code context_length_exceeded", Some("context_too_long"));
        check("upstream RateLimitError", Some("rate_limited"));
        check("function rate_limit_exceeded is not an object", None);
        check("billing", None);
    }
}
