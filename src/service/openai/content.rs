//! Content of a message: a text, or a list of parts.

use bytes::Bytes;

use super::error::ApiError;
use crate::service::data_url::parse_image;

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) images: Vec<Bytes>,
}

impl Content {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), images: Vec::new() }
    }

    /// Adds a paragraph.
    pub(super) fn push_text(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }

    /// Adds the image of a `data:` URL. Nothing is fetched; `field` has the URL.
    pub(super) fn push_image(&mut self, url: &str, field: &str) -> Result<(), ApiError> {
        let bytes = parse_image(url).map_err(|reason| ApiError::field(field, reason))?;
        self.images.push(bytes);
        Ok(())
    }
}

/// An error of a part whose type has no place here.
pub(super) fn unknown_part(field: &str, kind: &str, known: &str) -> ApiError {
    ApiError::field(format!("{field}.type"), format!("`{kind}` cannot be taken; use {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_data_urls() {
        let check = |url: &str, is_image: bool| {
            let mut content = Content::default();
            let read = content.push_image(url, "messages[0].content[1].image_url.url");
            assert_eq!((read.is_ok(), content.images.len()), (is_image, usize::from(is_image)), "{url}");
            if let Err(error) = read {
                assert!(error.message().starts_with("messages[0].content[1].image_url.url: `"), "{error:?}");
            }
        };
        check("data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=", true);
        check("https://example.org/a.png", false);
        check("data:image/png;base64,!", false);
        check("data:image/png;base64,QQ==", false);
        check("data:image/gif,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=", false);
        check("", false);
    }

    #[test]
    fn texts_are_paragraphs() {
        let mut content = Content::text("a");
        content.push_text("");
        content.push_text("b");
        assert_eq!(content.text, "a\n\nb");
    }
}
