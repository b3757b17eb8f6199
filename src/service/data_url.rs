//! Images in requests: `data:` URLs. Nothing is fetched.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hermod_actors::model::ImageFormat;

/// Most characters of a URL in an error message.
const MAX_EXCERPT_CHARS: usize = 40;

/// The image of a `data:` URL; the error says what is taken.
pub(super) fn parse_image(url: &str) -> Result<Bytes, String> {
    image_of(url).ok_or_else(|| {
        let start: String = url.chars().take(MAX_EXCERPT_CHARS).collect();
        format!(
            "`{start}` is not fetched; give `data:image/png;base64,…` with a PNG, JPEG, GIF or WebP in it"
        )
    })
}

fn image_of(url: &str) -> Option<Bytes> {
    let (media, data) = url.strip_prefix("data:image/")?.split_once(',')?;
    let bytes = STANDARD.decode(data).ok().filter(|_| media.ends_with(";base64"))?;
    ImageFormat::of_bytes(&bytes).map(|_| bytes.into())
}
