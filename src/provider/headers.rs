//! What response headers say about when to come back; the same for every wire format.

use std::time::UNIX_EPOCH;

use hermod_actors::model::Timestamp;
use http::{HeaderMap, header};

/// When to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ComeBack {
    /// After so many milliseconds.
    pub(super) after_ms: Option<u64>,
    /// At this time.
    pub(super) at: Option<Timestamp>,
}

/// Longer waits than this make no sense and are taken as this: a year.
const LONGEST_MS: u64 = 365 * 24 * 3_600 * 1_000;
/// From here on a number of `x-ratelimit-reset` is a time in seconds; below, vendors mean all sorts of things.
const EPOCH_SECONDS: u64 = 1_000_000_000;
/// And from here on in milliseconds.
const EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// Reads `retry-after-ms`, `retry-after` and `x-ratelimit-reset`. A date is measured against the response's own `date`,
/// so that nobody's clock matters.
pub(super) fn come_back(headers: &HeaderMap) -> ComeBack {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok()).filter(|n| *n >= 0.0);
    let date = |name: &str| text(name).and_then(date_ms);
    let at = date("retry-after");
    let after_ms = number("retry-after-ms")
        .map(whole)
        .or_else(|| number("retry-after").map(|seconds| whole(seconds * 1_000.0)))
        .or_else(|| Some(at?.saturating_sub(date(header::DATE.as_str())?)));
    let at = at.or_else(|| match number("x-ratelimit-reset").map(whole)? {
        n if n >= EPOCH_MILLIS => Some(n),
        n if n >= EPOCH_SECONDS => Some(n * 1_000),
        _ => None,
    });
    ComeBack {
        after_ms: after_ms.map(|ms| ms.min(LONGEST_MS)),
        at: at.and_then(|ms| i64::try_from(ms).ok()).map(Timestamp),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn whole(n: f64) -> u64 {
    n.ceil() as u64
}

fn date_ms(text: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&'static str, &'static str)], after_ms: Option<u64>, at: Option<i64>) {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let found = come_back(&headers.iter().map(pair).collect());
        assert_eq!(found, ComeBack { after_ms, at: at.map(Timestamp) });
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
    fn nonsense_is_nothing() {
        check(&[], None, None);
        check(&[("retry-after", "soon"), ("retry-after-ms", "-1")], None, None);
        check(&[("retry-after", "NaN")], None, None);
        check(&[("retry-after", "1e300")], Some(LONGEST_MS), None);
    }
}
