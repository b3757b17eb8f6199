//! Checks of images in requests: type, Base64 and first bytes. Each format words the refusal.

use base64::{Engine, prelude::BASE64_STANDARD};

/// The image types that every vendor accepts, and their first bytes (for WebP those before its length).
const IMAGE_SIGNATURES: &[(&str, &[u8])] = &[
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
];

/// Why a vendor would refuse an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageError {
    /// The declared type is none of the four.
    UnsupportedType(String),
    /// The data is no base64, or empty.
    Base64,
    /// The bytes are of none of the four types.
    Unreadable,
    /// The bytes are of another type than declared.
    TypeMismatch { declared: String, found: &'static str },
    /// A URL that is neither `data:` with base64 nor `http(s):`.
    Url,
}

/// Checks an image in base64.
pub(super) fn check(kind: &str, data: &str) -> Result<(), ImageError> {
    if !IMAGE_SIGNATURES.iter().any(|(name, _)| *name == kind) {
        return Err(ImageError::UnsupportedType(kind.into()));
    }
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| ImageError::Base64)?;
    if bytes.is_empty() {
        return Err(ImageError::Base64);
    }
    match kind_of(&bytes) {
        None => Err(ImageError::Unreadable),
        Some(found) if found != kind => Err(ImageError::TypeMismatch { declared: kind.into(), found }),
        Some(_) => Ok(()),
    }
}

/// Checks the URL of an image; `http(s):` URLs are not fetched.
pub(super) fn check_url(url: &str) -> Result<(), ImageError> {
    if url.starts_with("https://") || url.starts_with("http://") {
        return Ok(());
    }
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (kind, data) = data.ok_or(ImageError::Url)?;
    check(kind, data)
}

fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    let (kind, _) = IMAGE_SIGNATURES.iter().find(|(_, magic)| bytes.starts_with(magic))?;
    let is_complete = *kind != "image/webp" || bytes.get(8..12) == Some(b"WEBP");
    is_complete.then_some(*kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_what_they_say() {
        let png = BASE64_STANDARD.encode(b"\x89PNG\r\n\x1a\nrest");
        let check =
            |url: &str, expected: Result<(), ImageError>| assert_eq!(check_url(url), expected, "{url}");
        let data = |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", BASE64_STANDARD.encode(bytes));
        check(&format!("data:image/png;base64,{png}"), Ok(()));
        check(&data("image/jpeg", b"\xff\xd8\xff\xe0"), Ok(()));
        check(&data("image/gif", b"GIF89a"), Ok(()));
        check(&data("image/webp", b"RIFF\0\0\0\0WEBP"), Ok(()));
        check("https://example.com/a.png", Ok(()));
        check("a.png", Err(ImageError::Url));
        check("data:image/png,abc", Err(ImageError::Url));
        check("data:image/png;base64,", Err(ImageError::Base64));
        check("data:image/png;base64,a b", Err(ImageError::Base64));
        check(&data("image/svg+xml", b"<svg/>"), Err(ImageError::UnsupportedType("image/svg+xml".into())));
        check(&data("image/png", b"hello"), Err(ImageError::Unreadable));
        check(&data("image/webp", b"RIFF\0\0\0\0WAVE"), Err(ImageError::Unreadable));
        let other = ImageError::TypeMismatch { declared: "image/jpeg".into(), found: "image/png" };
        check(&format!("data:image/jpeg;base64,{png}"), Err(other));
    }
}
