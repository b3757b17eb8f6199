//! The task of a prompt: the content blocks of a client in, a text and pictures out. Pure.

use agent_client_protocol::v1::schema::{
    BlobResourceContents, ContentBlock, EmbeddedResource, EmbeddedResourceResource, ImageContent,
    ResourceLink, TextResourceContents,
};

/// What a prompt asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PromptTask {
    /// The text, with what is mentioned in it.
    pub(super) text: String,
    /// The pictures, in base64.
    pub(super) images: Vec<String>,
}

impl PromptTask {
    /// The task of these blocks; the error says which block cannot be used, and what to do.
    pub(super) fn new(blocks: Vec<ContentBlock>) -> Result<Self, String> {
        let (mut task, mut contexts) = (Self::default(), String::new());
        for (n, block) in (1..).zip(blocks) {
            task.add(block, &mut contexts).map_err(|error| format!("block {n} of the prompt {error}"))?;
        }
        task.text.push_str(&contexts);
        if task.text.trim().is_empty() && task.images.is_empty() {
            return Err("the prompt has neither text nor a picture; write what is to be done".to_owned());
        }
        Ok(task)
    }

    fn add(&mut self, block: ContentBlock, contexts: &mut String) -> Result<(), String> {
        match block {
            ContentBlock::Text(text) => self.text.push_str(&text.text),
            ContentBlock::Image(image) => self.add_image(image)?,
            ContentBlock::ResourceLink(link) => self.text.push_str(&mention(&link)),
            ContentBlock::Resource(EmbeddedResource { resource, .. }) => match resource {
                EmbeddedResourceResource::TextResourceContents(text) => {
                    self.text.push_str(&format!("@{}", place(&text.uri)));
                    contexts.push_str(&context(&text));
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => self.add_blob(blob)?,
                _ => return Err("is a resource of an unknown kind; leave it out".to_owned()),
            },
            ContentBlock::Audio(_) => {
                return Err("is audio, which no model of Hermod hears; write it down".to_owned());
            }
            _ => return Err("is of an unknown kind; leave it out".to_owned()),
        }
        Ok(())
    }

    fn add_image(&mut self, image: ImageContent) -> Result<(), String> {
        if image.data.is_empty() {
            return Err("is a picture without its data; attach the file itself".to_owned());
        }
        self.images.push(image.data);
        Ok(())
    }

    /// A picture goes to the model; of any other file only its name does.
    fn add_blob(&mut self, blob: BlobResourceContents) -> Result<(), String> {
        self.text.push_str(&format!("@{}", place(&blob.uri)));
        match blob.mime_type.as_deref() {
            Some(kind) if kind.starts_with("image/") => {
                self.add_image(ImageContent::new(blob.blob, kind.to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A link in the text, where the user has put it.
fn mention(link: &ResourceLink) -> String {
    match link.uri.strip_prefix("file://") {
        Some(_) => format!("@{}", place(&link.uri)),
        None => format!("[{}]({})", link.name, link.uri),
    }
}

/// The path of a file, with the fragment that tells its lines; any other address as it is.
fn place(uri: &str) -> String {
    let Some(path) = uri.strip_prefix("file://") else { return uri.to_owned() };
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// A text that was sent along, behind the message.
fn context(resource: &TextResourceContents) -> String {
    format!("\n\n<context from=\"{}\">\n{}\n</context>", place(&resource.uri), resource.text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Checks the text and the pictures of blocks, or a part of the error.
    #[track_caller]
    fn check(blocks: Value, expect: Result<(&str, &[&str]), &str>) {
        let blocks: Vec<ContentBlock> = serde_json::from_value(blocks).unwrap();
        match (PromptTask::new(blocks), expect) {
            (Ok(task), Ok((text, images))) => {
                assert_eq!(
                    (task.text.as_str(), task.images),
                    (text, images.iter().map(|i| (*i).to_owned()).collect())
                );
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn blocks_become_one_text_in_their_order() {
        check(json!([{ "type": "text", "text": "Hi" }]), Ok(("Hi", &[])));
        let link = json!({ "type": "resource_link", "name": "a b.rs", "uri": "file:///w/a%20b.rs#L3" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        check(json!([text("Fix "), link, text(", please")]), Ok(("Fix @/w/a b.rs#L3, please", &[])));
        let web = json!({ "type": "resource_link", "name": "issue", "uri": "https://host/1" });
        check(json!([text("See "), web]), Ok(("See [issue](https://host/1)", &[])));
        let file =
            json!({ "type": "resource", "resource": { "uri": "file:///w/a.rs", "text": "fn a() {}" } });
        let expect = "Why @/w/a.rs?\n\n<context from=\"/w/a.rs\">\nfn a() {}\n</context>";
        check(json!([text("Why "), file, text("?")]), Ok((expect, &[])));
    }

    #[test]
    fn pictures_go_beside_the_text() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        check(json!([image]), Ok(("", &["AAAA"])));
        let blob = |kind: &str| json!([{ "type": "resource", "resource": { "uri": "file:///p", "blob": "BBBB", "mimeType": kind } }]);
        check(blob("image/gif"), Ok(("@/p", &["BBBB"])));
        check(blob("application/zip"), Ok(("@/p", &[])));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        check(json!([]), Err("neither text nor a picture"));
        check(json!([{ "type": "text", "text": " \n" }]), Err("neither text nor a picture"));
        let audio = json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" });
        check(json!([{ "type": "text", "text": "Hi" }, audio]), Err("block 2 of the prompt is audio"));
        check(json!([{ "type": "image", "data": "", "mimeType": "image/png" }]), Err("without its data"));
    }
}
