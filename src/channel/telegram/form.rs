//! Files for Telegram, as `multipart/form-data`.

use bytes::Bytes;
use serde_json::Value;

use crate::{delivery::AttachedFile, provider::FormBody};

/// Pictures that Telegram shows as photos, if they are not larger.
const PHOTOS: [&str; 3] = ["image/jpeg", "image/png", "image/webp"];
const MAX_PHOTO_BYTES: usize = 10 << 20;

/// The method that sends a file, and the field in which it takes it.
pub(super) fn method_of(file: &AttachedFile) -> (&'static str, &'static str) {
    let is_photo = PHOTOS.contains(&file.media_type) && file.bytes.len() <= MAX_PHOTO_BYTES;
    if is_photo { ("sendPhoto", "photo") } else { ("sendDocument", "document") }
}

/// The form with these fields and a file. `random` makes a boundary that no file has.
pub(super) fn form(fields: &Value, (field, file): (&str, &AttachedFile), random: &[u8; 16]) -> FormBody {
    let boundary = format!("hermod-{:032x}", u128::from_le_bytes(*random));
    let mut body = Vec::with_capacity(file.bytes.len() + 1_024);
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let part =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    // The name was made safe for headers when the file was captured.
    let (name, media_type) = (&file.name, file.media_type);
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
         Content-Type: {media_type}\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&file.bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    FormBody { boundary, bytes: Bytes::from(body) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_has_its_fields_and_the_file() {
        let file = AttachedFile { name: "a.txt".into(), media_type: "text/plain", bytes: "x".into() };
        assert_eq!(method_of(&file).0, "sendDocument");
        let picture = AttachedFile { media_type: "image/png", ..file.clone() };
        assert_eq!(method_of(&picture), ("sendPhoto", "photo"));
        let large = AttachedFile { bytes: vec![0; MAX_PHOTO_BYTES + 1].into(), ..picture };
        assert_eq!(method_of(&large).0, "sendDocument");
        let form = form(&json!({ "chat_id": 7 }), ("document", &file), &[0; 16]);
        let mark = format!("--{}", form.boundary);
        let expect = format!(
            "{mark}\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n7\r\n{mark}\r\n\
             Content-Disposition: form-data; name=\"document\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\
             \r\nx\r\n{mark}--\r\n"
        );
        assert_eq!(str::from_utf8(&form.bytes), Ok(expect.as_str()));
    }
}
