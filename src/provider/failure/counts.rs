//! Failures by two counts in a text, of which one exceeds the other: the size of a request and its limit.

use hermod_actors::model::FailureClass;

use super::{
    rules::is_prose,
    vocabulary as v,
    words::{Sentence, before, sentences},
};

/// Smaller limits are of lists, names and the like, not of texts.
const MIN_LIMIT: u64 = 256;
/// A string with a smaller limit is a field, not a text for a model.
const MIN_STRING_LIMIT: u64 = 32_768;

/// A limit, and the size that exceeds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Excess {
    limit: u64,
    /// The unit is tokens, as for a window.
    is_tokens: bool,
}

/// The class of a text with a limit and a larger size, or with an output that is said to be too large.
pub(super) fn class_of_counts(text: &str) -> Option<FailureClass> {
    let all = sentences(text);
    if is_prose(text, &all) {
        return None;
    }
    let all = before(&all, v::STRUCTURE);
    let says = |terms: &[&str]| all.iter().any(|sentence| sentence.has(terms));
    if [v::RATE, v::THROTTLED, v::PERIOD, v::MEDIA, v::MONEY].iter().any(|terms| says(terms)) {
        return None;
    }
    if says(v::TOO_SMALL) {
        return None;
    }
    if all.iter().any(exceeds_as_output) {
        // Beside an input, only the remaining room is the limit.
        let limit = if says(v::COUNTED_INPUT) { remaining_in(&all) } else { output_limit_in(&all) };
        return Some(FailureClass::OutputCap { limit });
    }
    if says(v::OUTPUT) && !says(v::COUNTED_INPUT) {
        let too_large = all.iter().any(|sentence| sentence.near(v::OUTPUT, v::EXCEEDS_OUTPUT, 6, false));
        return too_large.then(|| FailureClass::OutputCap { limit: output_limit_in(&all) });
    }
    let Excess { limit, is_tokens } = excess_in(&all)?;
    let is_input = says(v::COUNTED_INPUT) || says(v::COUNTED_TOKENS);
    let is_text = says(&["string"]) && limit >= MIN_STRING_LIMIT;
    let limit = is_tokens.then_some(limit);
    (is_input || is_text).then_some(FailureClass::ContextTooLong { limit })
}

/// True if the output is what a sentence says to be too large, whatever it compares it with.
fn exceeds_as_output(sentence: &Sentence<'_>) -> bool {
    sentence.near(v::CLAUSE_BEGIN, v::OUTPUT, 3, true)
        && sentence.near(v::OUTPUT, v::EXCEEDS_LIMIT, 3, true)
        && !sentence.near(v::INPUT_NOUN, v::OUTPUT, 3, true)
}

/// The tokens that remain for the output, if the text tells them.
fn remaining_in(all: &[Sentence<'_>]) -> Option<u64> {
    all.iter().find_map(|sentence| {
        let words = sentence.words();
        let at =
            words.iter().position(|word| word.starts_with("available") || word.starts_with("remaining"))?;
        numbers(&words[at..]).next().map(|(_, number)| number)
    })
}

/// The first limit that a size in the text exceeds.
fn excess_in(all: &[Sentence<'_>]) -> Option<Excess> {
    let mut limit = None;
    let mut size = None;
    for sentence in all {
        let words = sentence.words();
        for (at, number) in numbers(words) {
            if is_limit(words, at) {
                let is_exclusive = words[..at].ends_with(&["less", "than"]);
                limit = limit.or(Some(number - u64::from(is_exclusive && number > 0)));
            } else if is_size(words, at) {
                size = size.max(Some(number));
            }
        }
    }
    let limit = limit.filter(|limit| *limit >= MIN_LIMIT && size.is_some_and(|size| size > *limit))?;
    let counts = |terms: &[&str]| all.iter().any(|sentence| sentence.has(terms));
    Some(Excess { limit, is_tokens: !counts(&["char*", "string", "bytes", "字符"]) })
}

fn numbers<'a>(words: &'a [&'a str]) -> impl Iterator<Item = (usize, u64)> + 'a {
    words.iter().enumerate().filter_map(|(at, word)| Some((at, number(word)?)))
}

/// Numbers that overflow are ignored.
fn number(word: &str) -> Option<u64> {
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.replace([',', '_'], "").parse().ok())?
}

/// True if a word for a limit stands shortly before the number, or directly after it.
fn is_limit(words: &[&str], at: usize) -> bool {
    let before = words[..at].iter().rev().take_while(|word| number(word).is_none()).take(6);
    let after = words[at + 1..].iter().take(2).any(|word| matches!(*word, "maximum" | "max" | "limit"));
    let mut before = before.take_while(|word| !v::SIZE_BEFORE.contains(word));
    after
        || before.any(|word| {
            v::LIMIT_BEFORE.contains(word) || word.starts_with("exceed") || word.starts_with("max")
        })
}

/// True if a word for what is counted stands next to the number.
fn is_size(words: &[&str], at: usize) -> bool {
    let before = words[..at].iter().rev().take(4);
    let after = words[at + 1..].iter().take(3);
    before
        .chain(after)
        .any(|word| v::SIZE_BEFORE.contains(word) || v::COUNTED.iter().any(|begin| word.starts_with(begin)))
}

/// The limit of an output that is too large: the smaller of two counts, or the only one after a word for a limit.
fn output_limit_in(all: &[Sentence<'_>]) -> Option<u64> {
    let numbers: Vec<(u64, bool)> = all
        .iter()
        .flat_map(|sentence| {
            numbers(sentence.words()).map(|(at, number)| (number, follows_limit(sentence.words(), at)))
        })
        .filter(|(number, _)| *number >= MIN_LIMIT)
        .collect();
    match numbers.as_slice() {
        [(only, is_limit)] => is_limit.then_some(*only),
        several => several.iter().map(|(number, _)| *number).min(),
    }
}

/// True if a word for a limit stands directly before the number, or one word before that.
fn follows_limit(words: &[&str], at: usize) -> bool {
    words[..at].iter().rev().take(2).any(|word| v::LIMIT_BEFORE.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{super::text::strip_quotes, *};

    fn check(message: &str, expected: Option<FailureClass>) {
        assert_eq!(class_of_counts(&strip_quotes(message)), expected, "{message}");
    }

    #[test]
    fn a_size_above_its_limit_is_too_long() {
        let full =
            |message: &str, limit: Option<u64>| check(message, Some(FailureClass::ContextTooLong { limit }));
        full("number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.", Some(202_752));
        full("`inputs` must have less than 8193 tokens. Given: 9000", Some(8_192));
        full("token count 150321 > model limit 131072", Some(131_072));
        full("Your input contains 9,000 tokens but this model only supports 8,192", Some(8_192));
        full("The input length is too long, the max length is 8192, got 10233", Some(8_192));
        full("Please shorten your prompt: it has 33001 tokens and the limit is 32768", Some(32_768));
        full("string too long. Expected a string with maximum length 10485760, but got 12345678", None);
        full("The conversation has 310000 characters, the maximum is 300000", None);
    }

    #[test]
    fn an_output_above_its_limit_is_too_large() {
        let cap = |message: &str, limit: Option<u64>| check(message, Some(FailureClass::OutputCap { limit }));
        cap("max_tokens (40000) exceeds the maximum of 32768 for this model", Some(32_768));
        cap("The requested max output tokens 100000 is greater than the model limit 64000", Some(64_000));
        cap("Invalid max_tokens: 50000, must be in range [1, 16384]", Some(16_384));
        cap("`max_completion_tokens` is too large", None);
        cap("max_tokens exceeds the remaining context window", None);
        cap(
            "max_tokens: 32000 > context_window: 200000 - input_tokens: 190000, available_tokens: 10000",
            Some(10_000),
        );
        cap("The number of completion tokens exceeds the model's context length", None);
    }

    #[test]
    fn other_counts_are_none_of_a_text() {
        for message in [
            "The input and max_tokens exceed the context window",
            "Could not finish because max_tokens or the output limit was reached",
            "Rate limit reached on tokens per min: Limit 30000, Used 29000, Requested 2000",
            "request reached organization TPD rate limit, current: 1506556, limit: 1500000",
            "The image has 9000 pixels, the maximum is 8000",
            "Too many tools: 2000 > 1280",
            "Expected a string with maximum length 512, but got 600",
            "Your prompt has 900 tokens and the limit is 1000",
            "You requested 64000 tokens, but your credits allow at most 1234",
            "max_tokens must be greater than thinking.budget_tokens",
            "max_tokens: Expected a value >= 1600, but got 1000",
            "A conversation of 99999999999999999999999 tokens exceeds 4096",
            "",
        ] {
            check(message, None);
        }
    }
}
