//! Retry times in response headers, the same for every wire format. Remaining rate limits are in `rates.rs`.

use std::time::UNIX_EPOCH;

use hermod_actors::model::Timestamp;
use http::{HeaderMap, header};

use super::retry_after::{RetryAfter, parse_retry_after};

/// The retry time in `retry-after-ms` or `retry-after`. A date is converted by the response's own `date`, so the offset
/// between the clocks cancels out.
pub(super) fn retry_after(headers: &HeaderMap) -> RetryAfter {
    let number = |name: &str| text(headers, name).and_then(|text| text.parse::<f64>().ok());
    let date = |name: &str| text(headers, name).and_then(date_ms);
    let at = date("retry-after");
    let delay = at.and_then(|at| Some(at.saturating_sub(date(header::DATE.as_str())?)));
    let after = number("retry-after-ms")
        .and_then(RetryAfter::after)
        .or_else(|| number("retry-after").and_then(|seconds| RetryAfter::after(seconds * 1_000.0)));
    let at = at.and_then(|ms| i64::try_from(ms).ok()).map(Timestamp);
    after.unwrap_or_default().or(RetryAfter { after_ms: delay, at })
}

/// The retry time by the vendor's clock.
pub(super) fn retry_at(headers: &HeaderMap) -> Option<Timestamp> {
    let now = i64::try_from(date_ms(text(headers, header::DATE.as_str())?)?).ok()?;
    retry_after(headers).after_ms.map(|ms| Timestamp(now).plus_ms(ms))
}

/// The latest reset of the used-up limits. Only for a response that reports a used-up limit.
pub(super) fn latest_reset(headers: &HeaderMap) -> RetryAfter {
    let each = headers.iter().filter_map(|(name, value)| {
        let found = parse_retry_after(value.to_str().ok()?)?;
        match name.as_str() {
            // Without a unit and below an epoch, the value means different things for different vendors.
            "x-ratelimit-reset" => found.at.map(|_| found),
            name => is_used_up(headers, name).then_some(found),
        }
    });
    each.fold(RetryAfter::default(), RetryAfter::later)
}

/// True if nothing remains of the limit of this reset header.
fn is_used_up(headers: &HeaderMap, reset: &str) -> bool {
    let says = |name: &str, word: &str| text(headers, name) == Some(word);
    if let Some(limit) = reset.strip_prefix("x-ratelimit-reset-") {
        return says(&format!("x-ratelimit-remaining-{limit}"), "0");
    }
    if let Some(limit) =
        reset.strip_prefix("anthropic-ratelimit-").and_then(|rest| rest.strip_suffix("-reset"))
    {
        let name_of = |what: &str| format!("anthropic-ratelimit-{limit}-{what}");
        return says(&name_of("remaining"), "0") || says(&name_of("status"), "rejected");
    }
    reset == "ratelimit-reset" && says("ratelimit-remaining", "0")
}

/// The trimmed text of a header.
pub(in crate::provider) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// An HTTP date in milliseconds since 1970.
pub(in crate::provider) fn date_ms(text: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::{super::retry_after::MAX_WAIT_MS, *};

    fn check(headers: &[(&'static str, &'static str)], after_ms: Option<u64>, at: Option<i64>) {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers = headers.iter().map(pair).collect();
        let found = retry_after(&headers).or(latest_reset(&headers));
        assert_eq!(found, RetryAfter { after_ms, at: at.map(Timestamp) }, "{headers:?}");
    }

    #[test]
    fn milliseconds_go_before_seconds() {
        check(&[("retry-after-ms", "1500"), ("retry-after", "20")], Some(1_500), None);
        check(&[("retry-after", "20")], Some(20_000), None);
        check(&[("retry-after", "0.25")], Some(250), None);
    }

    #[test]
    fn a_date_is_measured_by_the_servers_clock() {
        let at = ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT");
        check(&[at, ("date", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(37_000), Some(784_111_777_000));
        check(&[at, ("date", "Sun, 06 Nov 1994 09:00:00 GMT")], Some(0), Some(784_111_777_000));
        check(&[at], None, Some(784_111_777_000));
    }

    #[test]
    fn a_reset_is_a_time_or_nothing() {
        check(&[("x-ratelimit-reset", "1754667660000")], None, Some(1_754_667_660_000));
        check(&[("x-ratelimit-reset", "1754667660")], None, Some(1_754_667_660_000));
        check(&[("x-ratelimit-reset", "12")], None, None);
    }

    #[test]
    fn only_a_limit_that_is_used_up_counts() {
        let requests = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1m30s")];
        let tokens = [("x-ratelimit-remaining-tokens", "29"), ("x-ratelimit-reset-tokens", "6h")];
        check(&[requests, tokens].concat(), Some(90_000), None);
        check(&tokens, None, None);
        check(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6ms")], Some(6), None);
        check(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "30")], Some(30_000), None);
        check(&[("ratelimit-remaining", "1"), ("ratelimit-reset", "30")], None, None);
    }

    #[test]
    fn the_last_reset_counts() {
        let headers = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-08-24T10:00:00Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-08-24T10:00:30Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "8000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-08-24T11:00:00Z"),
        ];
        check(&headers, None, Some(1_787_565_630_000));
        let unified = [
            ("anthropic-ratelimit-unified-status", "rejected"),
            ("anthropic-ratelimit-unified-reset", "1787565600"),
        ];
        check(&unified, None, Some(1_787_565_600_000));
        check(&[unified[1]], None, None);
    }

    #[test]
    fn nonsense_is_nothing() {
        check(&[], None, None);
        check(&[("retry-after", "soon"), ("retry-after-ms", "-1")], None, None);
        check(&[("retry-after", "NaN")], None, None);
        check(&[("retry-after", "1e300")], Some(MAX_WAIT_MS), None);
        check(&[("x-ratelimit-reset", "1e300")], None, None);
        check(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "soon")], None, None);
    }
}
