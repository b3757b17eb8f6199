//! Reads updates. What is not understood is passed over with its reason, so that it blocks no other. Pure.

use serde_json::Value;

use crate::channel::{
    address::ChatAddress,
    port::{ButtonPress, IncomingMessage, Picture, Sender, Update, UpdateEvent},
};

/// What a message may have that is not taken.
const UNTAKEN: [(&str, &str); 10] = [
    ("voice", "a voice message"),
    ("audio", "an audio file"),
    ("video", "a video"),
    ("video_note", "a video"),
    ("document", "a file"),
    ("sticker", "a sticker"),
    ("animation", "an animation"),
    ("location", "a location"),
    ("contact", "a contact"),
    ("poll", "a poll"),
];
/// Most characters of a sender's name.
const MAX_NAME_CHARS: usize = 64;

/// An update for the bot of this name; `None` if it has no number, so that it cannot be confirmed by itself.
pub(super) fn parse(update: &Value, bot: &str) -> Option<Update> {
    let number = update["update_id"].as_i64()?;
    let event = if update["message"].is_object() {
        message(&update["message"], bot)
    } else if update["callback_query"].is_object() {
        press(&update["callback_query"])
    } else {
        Err("is no message and no press of a button".to_owned())
    };
    Some(Update { number, event: event.unwrap_or_else(UpdateEvent::Other) })
}

fn message(message: &Value, bot: &str) -> Result<UpdateEvent, String> {
    let chat = &message["chat"];
    let is_group = match chat["type"].as_str() {
        Some("private") => false,
        Some("group" | "supergroup") => true,
        kind => return Err(format!("is of a chat of the kind {kind:?}")),
    };
    let text = message["text"].as_str().or_else(|| message["caption"].as_str()).unwrap_or_default();
    let text = addressed(text, bot).ok_or("is a command for another bot")?;
    let pictures: Vec<Picture> = picture(message).into_iter().collect();
    let untaken = UNTAKEN.into_iter().find(|(field, _)| message[field].is_object()).map(|(_, name)| name);
    let untaken = untaken.filter(|_| pictures.is_empty());
    if text.trim().is_empty() && pictures.is_empty() && untaken.is_none() {
        return Err("has no text".to_owned());
    }
    Ok(UpdateEvent::Message(IncomingMessage {
        at: address(message)?,
        sender: sender(&message["from"])?,
        is_group,
        id: id(&message["message_id"])?,
        text,
        pictures,
        album: message["media_group_id"].as_str().map(str::to_owned),
        untaken,
    }))
}

/// The text without the bot's name behind a command; `None` if the command is for another bot.
fn addressed(text: &str, bot: &str) -> Option<String> {
    let (first, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let Some((command, name)) = first.split_once('@').filter(|_| first.starts_with('/')) else {
        return Some(text.to_owned());
    };
    (bot.is_empty() || name.eq_ignore_ascii_case(bot)).then(|| format!("{command}{rest}"))
}

/// The picture of a message: the largest of its sizes, or an image that was sent as a file.
fn picture(message: &Value) -> Option<Picture> {
    let of = |file: &Value| {
        let bytes = file["file_size"].as_u64();
        Some(Picture { file: file["file_id"].as_str()?.to_owned(), bytes })
    };
    let sizes = message["photo"].as_array().into_iter().flatten();
    let area = |size: &&Value| size["width"].as_u64().unwrap_or(0) * size["height"].as_u64().unwrap_or(0);
    if let Some(largest) = sizes.max_by_key(area) {
        return of(largest);
    }
    let document = &message["document"];
    let is_image = document["mime_type"]
        .as_str()
        .is_some_and(|kind| ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&kind));
    if is_image { of(document) } else { None }
}

fn press(query: &Value) -> Result<UpdateEvent, String> {
    let data = query["data"].as_str().ok_or("has no data")?;
    Ok(UpdateEvent::Press(ButtonPress {
        id: query["id"].as_str().ok_or("has no id")?.to_owned(),
        at: address(&query["message"])?,
        sender: sender(&query["from"])?,
        data: data.to_owned(),
    }))
}

/// Where a message is. The thread of a topic is a chat of its own; that of a reply is not.
fn address(message: &Value) -> Result<ChatAddress, String> {
    let is_topic = message["is_topic_message"].as_bool() == Some(true);
    let thread = message["message_thread_id"].as_i64().filter(|_| is_topic);
    Ok(ChatAddress { chat: id(&message["chat"]["id"])?, thread: thread.map(|thread| thread.to_string()) })
}

fn sender(from: &Value) -> Result<Sender, String> {
    let names = ["first_name", "last_name"].into_iter().filter_map(|field| from[field].as_str());
    let name = names.collect::<Vec<_>>().join(" ");
    let name = name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARS).collect();
    Ok(Sender { id: id(&from["id"])?, name })
}

fn id(value: &Value) -> Result<String, String> {
    value.as_i64().map(|id| id.to_string()).ok_or_else(|| "lacks an id".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message_of(update: &Value) -> IncomingMessage {
        let event = parse(update, "my_bot").unwrap().event;
        let UpdateEvent::Message(message) = event else { panic!("{event:?}") };
        message
    }

    fn update(fields: Value) -> Value {
        let mut message = json!({
            "message_id": 5, "chat": { "id": -7, "type": "supergroup" },
            "from": { "id": 3, "first_name": "Ann", "last_name": "Lee\n" },
        });
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "update_id": 9, "message": message })
    }

    #[test]
    fn messages_are_read() {
        let plain = message_of(&update(json!({ "text": "hello" })));
        assert_eq!(
            (plain.at.to_string(), plain.sender.name, plain.is_group),
            ("-7".into(), "Ann Lee".into(), true)
        );
        let text = |text: &str| message_of(&update(json!({ "text": text }))).text;
        assert_eq!(text("/new@My_Bot now"), "/new now");
        assert_eq!(text("mail me@x"), "mail me@x");
        let topic = json!({ "text": "x", "message_thread_id": 4, "is_topic_message": true });
        assert_eq!(message_of(&update(topic)).at.to_string(), "-7:4");
        let reply = json!({ "text": "x", "message_thread_id": 4 });
        assert_eq!(message_of(&update(reply)).at.to_string(), "-7");
        let photo = json!({ "caption": "look", "media_group_id": "g", "photo": [
            { "file_id": "small", "width": 10, "height": 10 },
            { "file_id": "large", "width": 90, "height": 90, "file_size": 77 },
        ] });
        let photo = message_of(&update(photo));
        assert_eq!(photo.pictures, [Picture { file: "large".into(), bytes: Some(77) }]);
        assert_eq!((photo.text.as_str(), photo.album.as_deref()), ("look", Some("g")));
        let file = json!({ "document": { "file_id": "f", "mime_type": "image/png" } });
        assert_eq!(message_of(&update(file)).pictures.len(), 1);
        let other = json!({ "document": { "file_id": "f", "mime_type": "text/html" } });
        assert_eq!(message_of(&update(other)).untaken, Some("a file"));
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        for poison in [
            json!({ "update_id": 9 }),
            json!({ "update_id": 9, "message": { "text": "x" } }),
            json!({ "update_id": 9, "message": { "text": 7, "chat": { "id": "x", "type": "private" } } }),
            json!({ "update_id": 9, "callback_query": { "id": 1 } }),
            update(json!({})),
            update(json!({ "text": "/new@other_bot" })),
            update(json!({ "text": "x", "chat": { "id": 1, "type": "channel" } })),
        ] {
            let read = parse(&poison, "my_bot").unwrap();
            assert!(matches!(read.event, UpdateEvent::Other(_)), "{poison}");
            assert_eq!(read.number, 9);
        }
        assert_eq!(parse(&json!({ "update_id": "9" }), "my_bot"), None);
        assert_eq!(parse(&json!(null), "my_bot"), None);
    }
}
