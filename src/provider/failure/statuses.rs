//! An HTTP status inside a text, as a client or a gateway reports it.

use super::{
    rules::is_prose,
    words::{Sentence, sentences},
};

/// Words that name a status before it.
const NAMES: &[&str] = &[
    "http",
    "status",
    "code",
    "error",
    "statuscode",
    "status_code",
    "http/1.1",
    "http/2",
    "状态码",
    "错误码",
];
/// Verbs of a response.
const VERBS: &[&str] = &[
    "got",
    "received",
    "returned",
    "returns",
    "responded",
    "responds",
    "replied",
    "answered",
    "failed",
    "返回",
];
/// Words after a status that is the object of such a verb.
const AFTER: &[&str] = &[",", "from", "error", "response", "status", "http", "by", "because"];

/// The status in a text that `strip_quotes` has prepared: `request failed with status code 429`, `got a 402 from the
/// API`, `503 Service Unavailable`, but not `402 items found`.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let sentences = sentences(text);
    if is_prose(text, &sentences) {
        return None;
    }
    sentences.iter().find_map(|sentence| {
        let words = sentence.words();
        (1..words.len()).find_map(|at| status_at(sentence, at))
    })
}

fn status_at(sentence: &Sentence<'_>, at: usize) -> Option<u16> {
    let words = sentence.words();
    let word = words[at];
    let status: u16 = (word.len() == 3).then(|| word.parse().ok()).flatten()?;
    let mut before =
        words[..at].iter().rev().copied().filter(|word| !matches!(*word, "," | "=" | "with" | "a" | "an"));
    let (last, earlier) = (before.next(), before.next());
    // Doors and parcels have codes too.
    let named = match last {
        Some("code") => earlier.is_none_or(|word| NAMES.contains(&word)),
        last => last.is_some_and(|word| NAMES.contains(&word)),
    };
    let answered = last.is_some_and(|word| VERBS.contains(&word)) && AFTER.contains(&words[at + 1]);
    let explained = reason(status)
        .split(' ')
        .zip(words[at + 1..].iter().map(Some).chain([None; 3]))
        .all(|(reason, word)| word == Some(&reason));
    ((400..600).contains(&status) && (named || answered || explained)).then_some(status)
}

/// The begin of a status's own phrase.
const fn reason(status: u16) -> &'static str {
    match status {
        400 => "bad request",
        401 => "unauthorized",
        402 => "payment required",
        403 => "forbidden",
        404 => "not found",
        408 => "request timeout",
        413 => "payload too large",
        429 => "too many requests",
        500 => "internal server error",
        502 => "bad gateway",
        503 => "service",
        504 => "gateway",
        529 => "overloaded",
        // No text has this.
        _ => "_ _ _",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::text::strip_quotes, *};

    #[test]
    fn a_status_is_named_answered_or_explained() {
        let check = |message: &str, status: Option<u16>| {
            assert_eq!(status_in(&strip_quotes(message)), status, "{message}");
        };
        check("Request failed with status code 429", Some(429));
        check("upstream error (status: 503)", Some(503));
        check("got a 402 from the API", Some(402));
        check("upstream returned 429", Some(429));
        check("The provider answered with a 502, twice", Some(502));
        check("Failed: 503 Service Unavailable", Some(503));
        check("we saw: 429 Too Many Requests", Some(429));
        check("HTTP 200 and then http=500", Some(500));
        for other in [
            "Room 402 is available",
            "Fixed issue CHE-402 in the latest release",
            "processed 402 records",
            "We got 402 replies",
            "it returned 402 rows",
            "see section 402 of the handbook",
            "status 4022, code 99, error 4xx",
            "the area code 402 is Omaha",
            "there is a 402 from here to town",
            "we discussed the error 402 in the meeting",
            "402",
            "",
        ] {
            check(other, None);
        }
    }
}
