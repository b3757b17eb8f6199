//! Sends spans to the collector, again until it has an answer, as the specification of OTLP says.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use hermod_actors::model::Timestamp;
use http::{HeaderMap, HeaderValue};
use tokio::time::sleep;

use super::{
    counts::ExportCounts,
    encode::{MEDIA_TYPE, encode, rejected},
    settings::OtlpSettings,
    span::Span,
};
use crate::{
    clock,
    excerpt::first_chars,
    host::NoteSink,
    provider::{UploadClient, UploadResponse},
};

/// The first pause before a request is repeated; the next ones are each twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// The longest pause that a collector may ask for.
const MAX_ASKED_PAUSE: Duration = Duration::from_mins(10);
/// Characters of a collector's reason that are shown.
const MAX_REASON_CHARS: usize = 200;
/// Statuses after which the same request may succeed.
const TEMPORARY: [u16; 4] = [429, 502, 503, 504];

/// Sends to one collector.
#[derive(Debug)]
pub(super) struct SpanSender {
    client: UploadClient,
    resource: Vec<(String, String)>,
    counts: ExportCounts,
    notes: Arc<dyn NoteSink>,
    /// Whether the last request failed; then a person knows already.
    is_failing: bool,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// The collector has the spans, except for so many.
    Accepted { rejected: u64, why: String },
    /// It will never take them.
    Refused { why: String },
    /// It may take them after this pause; `None` if it says none.
    Temporary { pause: Option<Duration>, why: String },
}

impl SpanSender {
    /// Touches no network.
    pub(super) fn new(
        settings: OtlpSettings,
        counts: ExportCounts,
        notes: Arc<dyn NoteSink>,
    ) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in settings.headers {
            // The settings have only such values.
            let value = HeaderValue::try_from(value.reveal())
                .map_err(|_| format!("the header {name} cannot be sent"))?;
            headers.append(name, value);
        }
        let client = UploadClient::new(&settings.url, MEDIA_TYPE, headers)?;
        Ok(Self { client, resource: settings.resource, counts, notes, is_failing: false })
    }

    /// Sends spans until the collector has taken or refused them.
    pub(super) async fn send(&mut self, spans: Vec<Span>) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let request = encode(spans, &self.resource);
        let mut pause = FIRST_PAUSE;
        loop {
            match verdict(self.client.post(request.clone()).await) {
                Verdict::Accepted { rejected, why } => {
                    self.counts.add_exported(count.saturating_sub(rejected));
                    if rejected == 0 {
                        self.is_failing = false;
                    } else {
                        self.on_failure(&format!("{rejected} of {count} spans are rejected: {why}"));
                    }
                    return;
                }
                Verdict::Refused { why } => {
                    self.on_failure(&format!("{count} spans are refused: {why}"));
                    return;
                }
                Verdict::Temporary { pause: asked, why } => {
                    self.on_failure(&format!("{why}; what has ended is exported later"));
                    sleep(repeat_pause(asked, pause)).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    fn on_failure(&mut self, why: &str) {
        self.counts.add_failure();
        let url = self.client.redacted_url();
        tracing::warn!(url, why, "spans are not exported");
        if !std::mem::replace(&mut self.is_failing, true) {
            self.notes.note(&format!("traces    {url}: {why}"));
        }
    }
}

fn verdict(answer: Result<UploadResponse, String>) -> Verdict {
    let UploadResponse { status, retry_after, body } = match answer {
        Ok(answer) => answer,
        Err(why) => return Verdict::Temporary { pause: None, why },
    };
    let why = format!("status {status}");
    match status {
        200..300 => {
            // Another body than that of OTLP is no partial success: the status says that all is accepted.
            let (rejected, why) = rejected(&body).unwrap_or_default();
            Verdict::Accepted { rejected, why: first_chars(&why, MAX_REASON_CHARS).into_owned() }
        }
        status if TEMPORARY.contains(&status) => {
            let asked = retry_after.as_deref().and_then(asked_pause);
            let pause = asked.map(|pause| pause.min(MAX_ASKED_PAUSE));
            Verdict::Temporary { pause, why }
        }
        _ => Verdict::Refused { why },
    }
}

/// The pause of a header `Retry-After`, in seconds or as a date.
fn asked_pause(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = UNIX_EPOCH + Duration::from_millis(clock::now().ms_since(Timestamp::default()));
    Some(at.duration_since(now).unwrap_or_default())
}

/// The pause before the next attempt: what the collector asks for, but never less than without it.
fn repeat_pause(asked: Option<Duration>, pause: Duration) -> Duration {
    asked.unwrap_or_default().max(jittered(pause))
}

/// Between half of the pause and all of it, so that not all clients of a collector come back at once.
fn jittered(pause: Duration) -> Duration {
    let [random] = clock::random_bytes::<1>();
    pause / 2 + (pause / 2) * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_whether_a_request_is_repeated() {
        let check = |status: u16, retry_after: Option<&str>, expect: Verdict| {
            let retry_after = retry_after.map(str::to_owned);
            assert_eq!(verdict(Ok(UploadResponse { status, retry_after, body: Vec::new() })), expect);
        };
        let temporary = |status: u16, seconds: Option<u64>| Verdict::Temporary {
            pause: seconds.map(Duration::from_secs),
            why: format!("status {status}"),
        };
        let accepted = Verdict::Accepted { rejected: 0, why: String::new() };
        check(200, None, accepted.clone());
        check(202, None, accepted);
        check(429, None, temporary(429, None));
        check(503, Some("7"), temporary(503, Some(7)));
        check(503, Some("86400"), temporary(503, Some(600)));
        check(503, Some("soon"), temporary(503, None));
        check(502, Some("Thu, 01 Jan 1970 00:00:00 GMT"), temporary(502, Some(0)));
        for status in [302, 400, 401, 404, 413, 500] {
            check(status, Some("7"), Verdict::Refused { why: format!("status {status}") });
        }
        let failed = verdict(Err("refused".to_owned()));
        assert_eq!(failed, Verdict::Temporary { pause: None, why: "refused".to_owned() });
    }

    #[test]
    fn a_collector_cannot_ask_for_requests_without_a_pause() {
        let pause = Duration::from_secs(2);
        for asked in [None, Some(Duration::ZERO)] {
            assert!(repeat_pause(asked, pause) >= pause / 2, "{asked:?}");
        }
        let asked = Duration::from_secs(7);
        assert_eq!(repeat_pause(Some(asked), pause), asked);
    }

    #[test]
    fn pauses_are_jittered_within_bounds() {
        for _ in 0..100 {
            let pause = jittered(Duration::from_secs(2));
            assert!((1.0..=2.0).contains(&pause.as_secs_f64()), "{pause:?}");
        }
    }
}
