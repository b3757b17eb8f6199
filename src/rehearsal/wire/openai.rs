//! What the two formats of OpenAI share: checks of function names, refusals of images, error bodies and the list of
//! models.

use serde_json::json;

use super::{RequestRefusal, image::ImageError, is_word};

/// True if this is a valid name of a function.
pub(super) fn is_function_name(name: &str) -> bool {
    is_word(name) && name.len() <= 64
}

/// Refuses an image in the field `param`.
pub(super) fn refuse_image(param: &str, problem: &ImageError) -> RequestRefusal {
    let (code, message) = match problem {
        ImageError::UnsupportedType(_) | ImageError::Unreadable => (
            "invalid_image_format",
            "You uploaded an unsupported image. Please make sure your image is valid and has one of the following \
             formats: png, jpeg, gif, webp."
                .to_owned(),
        ),
        ImageError::TypeMismatch { declared, found } => (
            "invalid_image_format",
            format!("Invalid '{param}'. The image is declared as '{declared}', but its bytes are '{found}'."),
        ),
        ImageError::Base64 => (
            "invalid_base64",
            format!("Invalid '{param}'. Expected a base64-encoded data URL with an image MIME type."),
        ),
        ImageError::Url => (
            "invalid_value",
            format!(
                "Invalid '{param}'. Expected a valid URL, but got a value with an invalid format: give a \
                 data URL with base64 or an http(s) URL."
            ),
        ),
    };
    RequestRefusal::bad_request(Some(param), message).with_code(code)
}

/// The body of an error response.
pub(super) fn error(refusal: &RequestRefusal) -> String {
    let kind = match refusal.status {
        401 | 403 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let code = refusal.code.or((refusal.status == 429).then_some("rate_limit_exceeded"));
    let error = json!({ "message": refusal.message, "type": kind, "param": refusal.param, "code": code });
    json!({ "error": error }).to_string()
}

/// The body of `GET /v1/models`.
pub(super) fn models(model: &str) -> String {
    let model = json!({ "id": model, "object": "model", "created": 0, "owned_by": "rehearsal" });
    json!({ "object": "list", "data": [model] }).to_string()
}
