//! Rules that classify the texts of vendors' errors by words that stand together. They judge a message without its
//! quotes (`text.rs`); the words of the rules are in `vocabulary.rs`.

use hermod_actors::model::FailureClass;

use super::{
    error_hints::{CODES, CONTEXT, QUOTA, RATE_LIMIT, TIMEOUT, class_of_code, normalize_code},
    vocabulary as v,
    words::{Sentence, before, sentences},
};

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

/// The classes of a text that `strip_quotes` has prepared, in order of precedence.
pub(super) fn classes_in(text: &str) -> Vec<&'static FailureClass> {
    let sentences = sentences(text);
    let says = |terms: &[&str]| sentences.iter().any(|sentence| sentence.has(terms));
    if says(v::REMARK) {
        return Vec::new();
    }
    let statement = before(&sentences, v::STRUCTURE);
    let matches = |rule: &Rule| {
        let all = if rule.class == FailureClass::InvalidRequest { &sentences } else { &statement };
        all.iter().any(|sentence| rule.matches(sentence, sentences.len()))
            && !rule.unless_in_text.iter().any(|terms| says(terms))
            && rule.if_in_text.iter().all(|terms| says(terms))
    };
    let codes = statement.iter().flat_map(|sentence| sentence.words()).filter_map(|word| class_of_name(word));
    codes.chain(RULES.iter().filter(|rule| matches(rule)).map(|rule| &rule.class)).collect()
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

use Form::{Near, Only, Says, Then};

/// In order of precedence.
static RULES: &[Rule] = &[
    // Money is used up: no wait helps.
    rule(QUOTA, Near(v::MONEY, v::USED_UP, 5), &[v::RATE, v::THINKING]),
    rule(QUOTA, Says(v::NO_MONEY), &[]),
    rule_in_text(
        QUOTA,
        Near(v::QUOTA_NOUN, v::USED_UP, 6),
        &[v::EXCEEDED_QUOTA],
        &[v::RATE, v::TRANSIENT],
        &[],
    ),
    // An allowance is used up, and no time is told after which it is not.
    rule_in_text(
        QUOTA,
        Near(v::ALLOWANCE, v::USED_UP, 6),
        &[v::EXCEEDED_QUOTA],
        &[v::RATE, v::PERIOD, v::TRANSIENT],
        &[],
    ),
    rule_in_text(QUOTA, Says(v::UPGRADE), &[v::SOFTWARE], &[v::RATE], &[]),
    rule(FailureClass::ContentRefused, Near(v::CONTENT_RULES, v::REFUSED, 8), &[v::RATE, v::ACCOUNT_CLOSED]),
    rule(FailureClass::ContentRefused, Near(v::CONTENT, v::UNWANTED, 8), &[v::ACCOUNT_CLOSED]),
    rule(FailureClass::ContentRefused, Says(v::CONTENT_REFUSED), &[]),
    rule(CONTEXT, Near(v::INPUT, v::TOO_LONG, 5), &[v::RATE, v::TRANSIENT, v::MEDIA, v::OUTPUT, v::DURATION]),
    rule(CONTEXT, Near(v::INPUT_SIZE, v::EXCEEDS, 10), &[v::RATE, v::PERIOD, v::OUTPUT]),
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
