//! Sends messages to a URL, signed as Standard Webhooks says. No redirect is followed.

use std::time::{Duration, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hermod_actors::model::{OutboxMessage, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    attachments::AttachedFile, payload::payload_with_files, signature::SigningKey, verdict::SendResult,
};
use crate::{
    clock,
    provider::{UploadClient, UploadResponse},
};

/// Most bytes of the files of one message, before they are base64.
const MAX_FILE_BYTES: u64 = 5 << 20;
const MEDIA_TYPE: &str = "application/json";
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The statuses from 400 to 499 after which the same request may succeed.
const TEMPORARY: [u16; 3] = [408, 425, 429];

/// Refuses a message whose files are too large for a request.
pub(super) fn check_files(message: &OutboxMessage) -> Result<(), SendResult> {
    let bytes: u64 = message.attachments().iter().map(|file| file.artifact.bytes).sum();
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    let why = format!("its files have {bytes} bytes, and a webhook takes at most {MAX_FILE_BYTES}");
    Err(SendResult::Permanent { why })
}

/// A webhook.
pub(super) struct Webhook {
    client: UploadClient,
    key: SigningKey,
}

impl Webhook {
    /// Touches no network. The error does not contain the secret.
    pub(super) fn new(url: &str, key: SigningKey, timeout: Duration) -> Result<Self, String> {
        let client = UploadClient::new(url, MEDIA_TYPE, HeaderMap::new())?.with_timeout(timeout);
        Ok(Self { client, key })
    }

    pub(super) async fn send(&self, message: &OutboxMessage, files: &[AttachedFile]) -> SendResult {
        let contents = files.iter().map(|file| STANDARD.encode(&file.bytes));
        let mut body = payload_with_files(message, "content", contents);
        let shown = body.pointer_mut("/data/attachments").and_then(serde_json::Value::as_array_mut);
        for (shown, file) in shown.into_iter().flatten().zip(files) {
            shown["media_type"] = file.media_type.into();
        }
        let body = body.to_string();
        let seconds = clock::now().ms_since(Timestamp::default()) / 1_000;
        let signature = self.key.sign(&message.id, seconds, body.as_bytes());
        let headers =
            [(ID, message.id.to_string()), (TIMESTAMP, seconds.to_string()), (SIGNATURE, signature)];
        let mut map = HeaderMap::new();
        for (name, text) in headers {
            match HeaderValue::try_from(text) {
                Ok(value) => drop(map.insert(name, value)),
                // The id of a message that another version has written.
                Err(_) => return SendResult::Permanent { why: format!("the header {name} cannot be sent") },
            }
        }
        attempt(self.client.post_with(map, body.into()).await)
    }
}

fn attempt(answer: Result<UploadResponse, String>) -> SendResult {
    let UploadResponse { status, retry_after, body: _ } = match answer {
        Ok(answer) => answer,
        Err(why) => return SendResult::Temporary { why, pause: None },
    };
    let why = format!("status {status}");
    match status {
        200..300 => SendResult::Delivered,
        300..400 => SendResult::Permanent { why: format!("{why}: redirects are not followed") },
        400..500 if !TEMPORARY.contains(&status) => SendResult::Permanent { why },
        _ => SendResult::Temporary { why, pause: retry_after.as_deref().and_then(asked_pause) },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides() {
        let check = |status: u16, retry_after: Option<&str>, expect: SendResult| {
            let retry_after = retry_after.map(str::to_owned);
            assert_eq!(attempt(Ok(UploadResponse { status, retry_after, body: Vec::new() })), expect);
        };
        let temporary = |status: u16, seconds: Option<u64>| SendResult::Temporary {
            why: format!("status {status}"),
            pause: seconds.map(Duration::from_secs),
        };
        for status in [200, 202, 204] {
            check(status, None, SendResult::Delivered);
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            check(status, None, temporary(status, None));
        }
        check(503, Some("7"), temporary(503, Some(7)));
        check(503, Some("Thu, 01 Jan 1970 00:00:00 GMT"), temporary(503, Some(0)));
        check(503, Some("soon"), temporary(503, None));
        for status in [400, 401, 404, 410, 413] {
            check(status, Some("7"), SendResult::Permanent { why: format!("status {status}") });
        }
        check(307, None, SendResult::Permanent { why: "status 307: redirects are not followed".into() });
        let failed = attempt(Err("refused".to_owned()));
        assert_eq!(failed, SendResult::Temporary { why: "refused".to_owned(), pause: None });
    }
}
