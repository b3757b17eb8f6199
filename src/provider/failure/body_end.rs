//! Whether the body of an error response is incomplete, and which failure it means then.

use hermod_actors::model::{Failure, FailureClass};
use http::{HeaderMap, header};

use crate::provider::reader::is_json_prefix;

/// How the reading of a response's body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The whole body was read, as far as the framing shows.
    Complete,
    /// The maximum number of bytes was read.
    Limit,
    /// The connection broke, or the read timed out.
    Broken,
}

/// The failure that an error response means, given how its body ended. If the explanation is incomplete, only a
/// conclusive status decides; any other request is worth a retry to get the whole explanation.
pub fn with_body_end(
    failure: Failure,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    end: BodyEnd,
) -> Failure {
    if is_status_conclusive(status) || !is_incomplete(headers, body, end) {
        return failure;
    }
    Failure::new(
        FailureClass::IncompleteStream,
        format!("the explanation of an error broke off: {}", failure.message),
    )
}

/// True if a status has one meaning, whatever the explanation.
const fn is_status_conclusive(status: u16) -> bool {
    matches!(status, 401 | 402 | 408 | 413 | 424 | 429 | 500..)
}

/// Completeness of a JSON document follows from its syntax, that of any other body only from the framing.
fn is_incomplete(headers: &HeaderMap, body: &[u8], end: BodyEnd) -> bool {
    let text = body.trim_ascii_start();
    let is_json = matches!(text.first(), Some(b'{' | b'['));
    match end {
        BodyEnd::Limit => false,
        BodyEnd::Complete if text.is_empty() => announces_json(headers) && !has_length(headers),
        BodyEnd::Complete => is_json && is_json_prefix(text),
        BodyEnd::Broken => !is_json || serde_json::from_slice::<serde_json::Value>(text).is_err(),
    }
}

fn announces_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.to_ascii_lowercase().contains("json")
}

/// Without either header, the body ends with the connection.
fn has_length(headers: &HeaderMap) -> bool {
    headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::provider::failure::failure_of;

    fn class(status: u16, headers: &HeaderMap, body: &[u8], end: BodyEnd) -> FailureClass {
        with_body_end(failure_of(status, headers, body), status, headers, body, end).class
    }

    const EXPLAINED: [(u16, &str, FailureClass); 4] = [
        (
            404,
            r#"{"error":{"message":"The model `ü` does not exist","code":"model_not_found"}}"#,
            FailureClass::ModelNotFound,
        ),
        (
            400,
            r#"{"error":{"message":"bad","code":"content_filter","n":-1.5e3}}"#,
            FailureClass::ContentRefused,
        ),
        (403, r#"[{"error":{"code":403,"message":"no"}}]"#, FailureClass::Auth),
        (302, r#"{"to":"/"}"#, FailureClass::NotAnApi),
    ];

    #[test]
    fn an_explanation_that_is_cut_anywhere_decides_nothing() {
        let none = HeaderMap::new();
        for (status, body, expected) in EXPLAINED {
            let body = body.as_bytes();
            for at in 1..body.len() {
                for end in [BodyEnd::Complete, BodyEnd::Broken] {
                    assert_eq!(
                        class(status, &none, &body[..at], end),
                        FailureClass::IncompleteStream,
                        "{status} at {at}"
                    );
                }
            }
            assert_eq!(
                class(status, &none, b"", BodyEnd::Broken),
                FailureClass::IncompleteStream,
                "{status}"
            );
            for end in [BodyEnd::Complete, BodyEnd::Broken] {
                assert_eq!(class(status, &none, body, end), expected, "{status}");
            }
        }
        for text in ["", "Not Found", "<html>"] {
            assert_eq!(
                class(404, &none, text.as_bytes(), BodyEnd::Broken),
                FailureClass::IncompleteStream,
                "{text}"
            );
            assert_eq!(
                class(404, &none, text.as_bytes(), BodyEnd::Complete),
                FailureClass::NotAnApi,
                "{text}"
            );
        }
    }

    #[test]
    fn a_status_that_needs_no_explanation_decides() {
        let none = HeaderMap::new();
        let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
        for (status, expected) in [
            (401, FailureClass::Auth),
            (429, rate),
            (500, FailureClass::Server),
            (503, FailureClass::Overloaded),
        ] {
            for body in ["", "{\"err", "<ht"] {
                assert_eq!(
                    class(status, &none, body.as_bytes(), BodyEnd::Broken),
                    expected,
                    "{status} {body}"
                );
            }
        }
    }

    #[test]
    fn an_announced_document_that_has_not_come_is_cut_unless_it_is_said_to_be_empty() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        assert_eq!(class(404, &headers, b"", BodyEnd::Complete), FailureClass::IncompleteStream);
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        assert_eq!(class(404, &headers, b"", BodyEnd::Complete), FailureClass::NotAnApi);
        let long = [b"{\"error\":\"".as_slice(), &[b'x'; 99]].concat();
        assert_eq!(class(400, &headers, &long, BodyEnd::Limit), FailureClass::InvalidRequest);
    }
}
