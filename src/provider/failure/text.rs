//! Reads a vendor's message: removes quoted text, for the phrase search, and finds a status, a code or embedded JSON in
//! it.

use super::error_hints::normalize_code;

/// The maximum number of characters examined; a message starts with its main statement.
const MAX_READ_CHARS: usize = 2_000;

/// The message in lower case, on one line, and without quoted text, which may repeat the request. Quoted parameter
/// names, placeholders and numbers stay, because limits are reported in quotes.
pub(super) fn strip_quotes(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let chars: Vec<char> = line.chars().take(MAX_READ_CHARS).collect();
    let mut out = String::with_capacity(chars.len());
    let mut at = 0;
    // Each kind of quote is searched in vain once, so that a text of quotes takes no longer than others.
    let mut unclosed = Vec::new();
    while at < chars.len() {
        let opens = is_opening_quote(&chars, at) && !unclosed.contains(&chars[at]);
        let end = opens.then(|| find_closing_quote(&chars, at)).flatten();
        let Some(end) = end else {
            if opens {
                unclosed.push(chars[at]);
            }
            out.push(chars[at]);
            at += 1;
            continue;
        };
        let quoted: String = chars[at + 1..end].iter().collect();
        out.push_str(if is_significant(&quoted) { &quoted } else { "_" });
        at = end + 1;
    }
    out
}

/// True if a quotation starts here. An apostrophe inside a word does not start one.
fn is_opening_quote(chars: &[char], at: usize) -> bool {
    matches!(chars[at], '"' | '\'' | '`' | '“') && (at == 0 || !chars[at - 1].is_alphanumeric())
}

fn find_closing_quote(chars: &[char], open: usize) -> Option<usize> {
    let closing = if chars[open] == '“' { '”' } else { chars[open] };
    (open + 1..chars.len())
        .find(|&at| chars[at] == closing && chars.get(at + 1).is_none_or(|next| !next.is_alphanumeric()))
}

fn is_significant(quoted: &str) -> bool {
    let name = normalize_code(quoted);
    let is_limit = !quoted.contains(' ') && name.starts_with("max") && name.ends_with("tokens");
    let is_number = !quoted.is_empty() && quoted.chars().all(|c| c.is_ascii_digit() || c == ',');
    is_limit || is_number || matches!(name.as_str(), "inputs" | "model")
}

/// A status at the start of a text: `HTTP 402: ..`, `Error code: 400 - ..`, `529 Overloaded`, but not `402 items
/// found`.
pub(super) fn parse_status(message: &str) -> Option<u16> {
    let lower = message.trim_start().get(..40).unwrap_or(message.trim_start()).to_ascii_lowercase();
    let start = lower.find(|c: char| c.is_ascii_digit())?;
    let before = lower[..start].split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut introduced = false;
    for word in before {
        if !matches!(word, "http" | "error" | "code" | "status") {
            return None;
        }
        introduced = true;
    }
    let (digits, rest) = lower[start..].split_at_checked(3)?;
    let status = digits.parse().ok().filter(|status| (400..600).contains(status))?;
    let original = &message.trim_start()[start + 3..];
    let next = original.trim_start().chars().next();
    let says_so = match next {
        None | Some('{' | '<' | ':') => true,
        Some(c) => introduced || c.is_uppercase() || rest.trim_start().starts_with("status code"),
    };
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '.');
    (says_so && ends).then_some(status)
}

/// The code at the start of a text, or the whole text if it is only a code: `RESOURCE_EXHAUSTED: ..`, `litellm.Timeout:
/// ..`.
pub(super) fn parse_code(message: &str) -> Option<&str> {
    let message = message.trim();
    let word = message.split_once(": ").map_or(message, |(word, _)| word);
    let word = word.rsplit_once('.').map_or(word, |(_, last)| last);
    let is_code = word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_code.then_some(word)
}

/// The JSON in a text, if it is an error: the text starts with it, or a status or an exception's name precedes it.
pub(super) fn embedded_json(message: &str) -> Option<&str> {
    let (before, _) = message.split_at_checked(message.find('{')?)?;
    let before = before.trim_end_matches([' ', ':', '-', ',']);
    let status = before
        .len()
        .checked_sub(3)
        .and_then(|at| before.get(at..))
        .is_some_and(|end| end.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)));
    let named = before.ends_with("Exception") || before.ends_with("Error");
    (before.is_empty() || status || named).then(|| &message[message.find('{').unwrap_or(0)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_not_what_is_said() {
        let check = |message: &str, expected: &str| assert_eq!(strip_quotes(message), expected, "{message}");
        check("This model's limit isn't 5", "this model's limit isn't 5");
        check("The model `a/b c` does not\n exist", "the model _ does not exist");
        check("Invalid 'max_tokens': \"rate limit\" (\"x\")", "invalid max_tokens: _ (_)");
        check("`max_tokens` <= `8192`", "max_tokens <= 8192");
        check("an \"open quote", "an \"open quote");
        check("“Rate Limit” 'it's mine'.", "_ _.");
        check("'", "'");
        check("ÄÖ 余额", "äö 余额");
        assert_eq!(strip_quotes(&"x".repeat(9_000)).len(), MAX_READ_CHARS);
    }

    #[test]
    fn a_status_is_told_at_the_begin() {
        let check =
            |message: &str, status: Option<u16>| assert_eq!(parse_status(message), status, "{message}");
        check("HTTP 402: so", Some(402));
        check("error code 402", Some(402));
        check("Error code: 400 - {", Some(400));
        check("error, status code: 400, message: x", Some(400));
        check("status=402 payment required", Some(402));
        check("529 Overloaded", Some(529));
        check("413 status code (no body)", Some(413));
        check("521 <!DOCTYPE html>", Some(521));
        check("400 {\"a\":1}", Some(400));
        for no in
            ["402 items found", "Room 402 is", "429", "HTTP 200", "4021 Xs", "402.5 Xs", "ü402", "", "4é"]
        {
            check(no, if no == "429" { Some(429) } else { None });
        }
    }

    #[test]
    fn a_code_is_one_word() {
        let check = |message: &str, code: Option<&str>| assert_eq!(parse_code(message), code, "{message}");
        check("RESOURCE_EXHAUSTED: so: so", Some("RESOURCE_EXHAUSTED"));
        check("litellm.RateLimitError: so", Some("RateLimitError"));
        check("invalid_api_key", Some("invalid_api_key"));
        check("tools.0: so", None);
        check("Two words: so", None);
        check("", None);
    }

    #[test]
    fn json_is_unwrapped_from_errors_only() {
        let check = |message: &str, json: Option<&str>| assert_eq!(embedded_json(message), json, "{message}");
        check("{\"a\":1}", Some("{\"a\":1}"));
        check("400 {\"a\":1}", Some("{\"a\":1}"));
        check("Error code: 400 - {\"a\":1}", Some("{\"a\":1}"));
        check("litellm.RateLimitError: AnthropicException - {\"a\":1}", Some("{\"a\":1}"));
        check("Invalid arguments: {\"a\":1}", None);
        check("ü{}", None);
        check("none", None);
    }
}
