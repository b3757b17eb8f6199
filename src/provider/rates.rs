//! Reads from response headers what remains of an account's rate limits. One table of header names serves all wire
//! formats. The rate limiter is in `actors/core/policy/limiter.rs`, retry times are in `failure/headers.rs`.

use hermod_actors::model::{RateInfo, RateQuota, Timestamp};
use http::{HeaderMap, header};

use super::failure::{
    headers::{date_ms, text},
    retry_after::{RetryAfter, parse_retry_after},
};

/// The start and the end of the header names of one limit, around `remaining`, `reset` (the time of its full reset) and
/// `limit`.
type Names = (&'static str, &'static str);

/// Headers without a kind of limit.
const ANY: Names = ("x-ratelimit-", "");
/// Headers for requests, the most specific first.
const REQUEST_HEADERS: &[Names] =
    &[("x-ratelimit-", "-requests"), ("anthropic-ratelimit-requests-", ""), ANY, ("ratelimit-", "")];
/// Headers for tokens, in order of preference: of all kinds together, of input tokens, of output tokens.
const TOKEN_HEADERS: &[Names] = &[
    ("x-ratelimit-", "-tokens"),
    ("anthropic-ratelimit-tokens-", ""),
    ("anthropic-ratelimit-input-tokens-", ""),
    // An attempt has far fewer output tokens than tokens in all, so this limit counts only when it is used up.
    ("anthropic-ratelimit-output-tokens-", ""),
];

/// The remaining limits by a response received at `now`; `None` without such headers. A used-up token limit takes
/// precedence, the one with the latest reset first.
pub fn rate_info(headers: &HeaderMap, now: Timestamp) -> Option<RateInfo> {
    if !headers.keys().any(|name| name.as_str().contains("ratelimit-")) {
        return None;
    }
    let quota = |names: &Names| rate_quota(headers, names, now);
    let used_up = TOKEN_HEADERS.iter().filter_map(quota).filter(|quota| quota.remaining == 0);
    let tokens = used_up
        .max_by_key(|quota| quota.reset_at)
        .or_else(|| TOKEN_HEADERS[..TOKEN_HEADERS.len() - 1].iter().find_map(quota));
    let requests = REQUEST_HEADERS.iter().find_map(quota);
    (requests.is_some() || tokens.is_some()).then_some(RateInfo { requests, tokens })
}

fn rate_quota(headers: &HeaderMap, names: &Names, now: Timestamp) -> Option<RateQuota> {
    let (start, end) = names;
    let value = |what: &str| text(headers, &format!("{start}{what}{end}"));
    let count = |what: &str| value(what)?.parse::<u64>().ok();
    let reset = parse_retry_after(value("reset")?)?;
    // For this header, values without a unit and below an epoch mean different things for different vendors.
    let reset = Some(reset).filter(|reset| *names != ANY || reset.at.is_some())?;
    Some(RateQuota {
        remaining: count("remaining")?,
        reset_at: to_local_clock(reset, headers, now)?,
        limit: count("limit"),
    })
}

/// A point in time is converted by the response's own `date`, so an offset of the vendor's clock cancels out.
fn to_local_clock(reset: RetryAfter, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    if let Some(ms) = reset.after_ms {
        return Some(now.plus_ms(ms));
    }
    let at = reset.at?;
    let date = text(headers, header::DATE.as_str()).and_then(date_ms);
    match date.and_then(|ms| i64::try_from(ms).ok()) {
        Some(date) => Some(now.plus_ms(at.ms_since(Timestamp(date)))),
        None => Some(at),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    /// Remaining requests and tokens: the amount, milliseconds until the full reset, and the limit.
    type Left = Option<(u64, i64, Option<u64>)>;

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], requests: Left, tokens: Left) {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let map: HeaderMap = headers.iter().map(pair).collect();
        let left = |left: RateQuota| (left.remaining, left.reset_at.0 - NOW.0, left.limit);
        let found = rate_info(&map, NOW);
        assert_eq!(found.is_some(), requests.is_some() || tokens.is_some(), "{headers:?}");
        let found = found.unwrap_or_default();
        assert_eq!((found.requests.map(left), found.tokens.map(left)), (requests, tokens), "{headers:?}");
    }

    #[test]
    fn openai_and_those_who_do_as_it_does() {
        let requests = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
        ];
        let tokens = [
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let (left, many) = (Some((59, 1_000, Some(60))), Some((149_984, 360_000, Some(150_000))));
        check(&requests, left, None);
        check(&tokens, None, many);
        check(&[requests, tokens].concat(), left, many);
        check(&requests[1..], Some((59, 1_000, None)), None);
        let groq = [("x-ratelimit-remaining-requests", "14370"), ("x-ratelimit-reset-requests", "2m59.56s")];
        check(&groq, Some((14_370, 179_560, None)), None);
    }

    #[test]
    fn openrouter_names_a_time() {
        let limit = [("x-ratelimit-limit", "20"), ("x-ratelimit-remaining", "0")];
        let at = ("x-ratelimit-reset", "1754667660000");
        let date = ("date", "Fri, 08 Aug 2025 15:40:30 GMT");
        check(&[limit[0], limit[1], at, date], Some((0, 30_000, Some(20))), None);
        let by_its_clock = 1_754_667_660_000 - NOW.0;
        check(&[limit[0], limit[1], at], Some((0, by_its_clock, Some(20))), None);
        check(&[limit[1], ("x-ratelimit-reset", "12")], None, None);
        check(&[("ratelimit-remaining", "3"), ("ratelimit-reset", "30")], Some((3, 30_000, None)), None);
    }

    #[test]
    fn anthropic_counts_tokens_in_three_ways() {
        let date = ("date", "Mon, 24 Aug 2026 10:00:00 GMT");
        let requests = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-08-24T10:00:01Z"),
        ];
        let input = [
            ("anthropic-ratelimit-input-tokens-remaining", "30000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-08-24T10:00:30Z"),
        ];
        let output = |remaining| {
            let reset = ("anthropic-ratelimit-output-tokens-reset", "2026-08-24T10:00:20Z");
            [("anthropic-ratelimit-output-tokens-remaining", remaining), reset]
        };
        let all = [
            ("anthropic-ratelimit-tokens-remaining", "38000"),
            ("anthropic-ratelimit-tokens-reset", "2026-08-24T10:00:40Z"),
        ];
        check(&[&requests[..], &[date]].concat(), Some((49, 1_000, Some(50))), None);
        check(&[&input[..], &output("8000"), &[date]].concat(), None, Some((30_000, 30_000, None)));
        check(&[&input[..], &output("8000"), &all, &[date]].concat(), None, Some((38_000, 40_000, None)));
        check(&[&all[..], &output("0"), &[date]].concat(), None, Some((0, 20_000, None)));
        check(&[&output("8000")[..], &[date]].concat(), None, None);
    }

    #[test]
    fn what_is_not_understood_is_not_known() {
        check(&[], None, None);
        check(&[("x-ratelimit-remaining-requests", "5")], None, None);
        check(&[("x-ratelimit-reset-requests", "5s")], None, None);
        for nonsense in ["-1", "many", "", "1e3"] {
            check(
                &[("x-ratelimit-remaining-requests", nonsense), ("x-ratelimit-reset-requests", "1s")],
                None,
                None,
            );
        }
        check(&[("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "soon")], None, None);
    }

    #[test]
    fn a_reset_that_has_passed_is_now() {
        let past = [
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-08-24T10:00:00Z"),
            ("date", "Mon, 24 Aug 2026 10:00:05 GMT"),
        ];
        check(&past, Some((49, 0, None)), None);
    }
}
