//! The transport of Telegram: calls of its bot API, with long polling.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{form, html, update};
use crate::channel::{
    address::ChatAddress,
    port::{BotIdentity, Button, ChatError, ChatTransport, Update},
};
use crate::{
    clock,
    delivery::AttachedFile,
    provider::{ApiClient, ApiResponse, CallLimits},
    secret::Secret,
};

/// The base URL of Telegram's servers.
pub(in crate::channel) const URL: &str = "https://api.telegram.org";

/// How long Telegram holds a request for updates.
const POLL_S: u64 = 25;
/// Time limits of calls.
const POLL_TIMEOUT: Duration = Duration::from_secs(POLL_S + 10);
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const FILE_TIMEOUT: Duration = Duration::from_mins(1);
/// Most bytes of an answer: a hundred updates have fewer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
const MAX_UPDATES: u32 = 100;
/// The pause if Telegram names none.
const DEFAULT_PAUSE_S: u64 = 5;
/// The longest pause that is believed.
const MAX_PAUSE_S: u64 = 60 * 60;

/// A bot of Telegram.
pub(in crate::channel) struct Telegram {
    url: String,
    token: Secret,
    /// Exchanged after a conflict: Telegram knows a poller by its connection.
    client: Mutex<Arc<ApiClient>>,
    /// The bot's name, once it is known.
    name: OnceLock<String>,
}

/// What each answer has.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error_code: u16,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl Telegram {
    /// Touches no network. The error does not contain the token.
    pub(in crate::channel) fn new(url: &str, token: Secret) -> Result<Self, String> {
        let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
        if token.reveal().is_empty() || !token.reveal().bytes().all(is_of_token) {
            return Err(
                "token: is none of Telegram's, which look like 123456:ABC-DEF; ask @BotFather".to_owned()
            );
        }
        let client = Mutex::new(Arc::new(ApiClient::new(url)?));
        Ok(Self { url: url.to_owned(), token, client, name: OnceLock::new() })
    }

    fn client(&self) -> Arc<ApiClient> {
        Arc::clone(&self.client.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Further calls have a new connection.
    fn reconnect(&self) {
        if let Ok(client) = ApiClient::new(&self.url) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(client);
        }
    }

    async fn call(&self, method: &str, body: Value) -> Result<Value, ChatError> {
        self.call_within(method, body, CALL_TIMEOUT).await
    }

    async fn call_within(&self, method: &str, body: Value, time: Duration) -> Result<Value, ChatError> {
        let path = format!("bot{}/{method}", self.token.reveal());
        let limits = CallLimits { time, bytes: MAX_ANSWER_BYTES };
        let answer = self.client().post(&path, body.to_string().into(), limits).await;
        let result = answer.map_err(ChatError::Unavailable).and_then(|answer| result_of(method, &answer));
        if matches!(result, Err(ChatError::Conflict(_))) {
            self.reconnect();
        }
        result
    }

    /// Sends a text with markup, or without it if Telegram cannot read the markup.
    async fn call_with_text(&self, method: &str, mut body: Value, text: &str) -> Result<Value, ChatError> {
        body["text"] = html::html(text).into();
        body["parse_mode"] = "HTML".into();
        body["link_preview_options"] = json!({ "is_disabled": true });
        match self.call(method, body.clone()).await {
            Err(ChatError::Rejected(why)) if why.contains("parse entities") => {
                tracing::warn!(why, "a message is sent without markup");
                body["text"] = text.into();
                if let Value::Object(body) = &mut body {
                    body.remove("parse_mode");
                }
                self.call(method, body).await
            }
            result => result,
        }
    }

    async fn fetch_file(&self, file: &str, max_bytes: usize) -> Result<Bytes, ChatError> {
        let found = self.call("getFile", json!({ "file_id": file })).await?;
        let path = found["file_path"].as_str().ok_or_else(|| {
            ChatError::Rejected("Telegram does not give the file; it may be too large".to_owned())
        })?;
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.".contains(&byte);
        if path.contains("..") || !path.bytes().all(is_of_path) {
            return Err(ChatError::Rejected("the path of the file is none of Telegram's".to_owned()));
        }
        let path = format!("file/bot{}/{path}", self.token.reveal());
        let limits = CallLimits { time: FILE_TIMEOUT, bytes: max_bytes };
        match self.client().get(&path, limits).await {
            Ok(ApiResponse { status: 200, body }) => Ok(body.into()),
            Ok(ApiResponse { status: status @ (404 | 410), .. }) => {
                Err(ChatError::Rejected(format!("the file is gone: status {status}")))
            }
            Ok(ApiResponse { status, .. }) => Err(ChatError::Unavailable(format!("status {status}"))),
            Err(why) if why.contains("more than") => Err(ChatError::Rejected(why)),
            Err(why) => Err(ChatError::Unavailable(why)),
        }
    }
}

/// The result in an answer.
fn result_of(method: &str, answer: &ApiResponse) -> Result<Value, ChatError> {
    let parsed = serde_json::from_slice::<Answer>(&answer.body);
    let (code, description, pause) = match parsed {
        Ok(Answer { ok: true, result, .. }) => return Ok(result),
        Ok(Answer { error_code, description, parameters, .. }) => {
            (error_code.max(answer.status), description, parameters.retry_after)
        }
        Err(error) => (answer.status, format!("the answer is not of Telegram's form: {error}"), None),
    };
    let why = format!("{method}: {code} {description}");
    let has = |part: &str| description.contains(part);
    Err(match code {
        429 => {
            let pause = pause.unwrap_or(DEFAULT_PAUSE_S).clamp(1, MAX_PAUSE_S);
            ChatError::RateLimited(Duration::from_secs(pause))
        }
        409 => ChatError::Conflict(why),
        // An unknown token is not found: it is a part of the path.
        401 | 404 => ChatError::Denied(why),
        400 if has("message is not modified") => ChatError::Unchanged,
        400 if has("message to edit not found")
            || has("message can't be edited")
            || has("message to delete not found")
            || has("message can't be deleted")
            || has("MESSAGE_ID_INVALID") =>
        {
            ChatError::Gone(why)
        }
        400..500 if code != 408 => ChatError::Rejected(why),
        _ => ChatError::Unavailable(why),
    })
}

/// The fields that name a chat.
fn body_for(to: &ChatAddress) -> Value {
    let mut body = json!({ "chat_id": number(&to.chat) });
    if let Some(thread) = &to.thread {
        body["message_thread_id"] = number(thread);
    }
    body
}

/// An id as Telegram has it.
fn number(id: &str) -> Value {
    id.parse::<i64>().map_or_else(|_| id.into(), Value::from)
}

impl ChatTransport for Telegram {
    fn identify(&self) -> BoxFuture<'_, Result<BotIdentity, ChatError>> {
        Box::pin(async {
            let me = self.call("getMe", json!({})).await?;
            let id = me["id"].as_i64().ok_or_else(|| ChatError::Unavailable("getMe: no id".to_owned()))?;
            let name = me["username"].as_str().unwrap_or_default().to_owned();
            let name = self.name.get_or_init(|| name).clone();
            Ok(BotIdentity { id: id.to_string(), name })
        })
    }

    fn receive(&self, from: Option<i64>, wait: bool) -> BoxFuture<'_, Result<Vec<Update>, ChatError>> {
        Box::pin(async move {
            let mut body = json!({
                "timeout": if wait { POLL_S } else { 0 },
                "limit": MAX_UPDATES,
                "allowed_updates": ["message", "callback_query"],
            });
            if let Some(from) = from {
                body["offset"] = from.into();
            }
            let updates = self.call_within("getUpdates", body, POLL_TIMEOUT).await?;
            let name = self.name.get().map(String::as_str).unwrap_or_default();
            let updates = updates.as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(updates.iter().filter_map(|update| update::parse(update, name)).collect())
        })
    }

    fn send<'a>(
        &'a self,
        to: &'a ChatAddress,
        text: &'a str,
        buttons: &'a [Button],
    ) -> BoxFuture<'a, Result<String, ChatError>> {
        Box::pin(async move {
            let mut body = body_for(to);
            if !buttons.is_empty() {
                let row = |button: &Button| json!([{ "text": button.label, "callback_data": button.data }]);
                let rows: Vec<Value> = buttons.iter().map(row).collect();
                body["reply_markup"] = json!({ "inline_keyboard": rows });
            }
            let sent = self.call_with_text("sendMessage", body, text).await?;
            let id = sent["message_id"].as_i64();
            id.map(|id| id.to_string())
                .ok_or_else(|| ChatError::Unavailable("sendMessage: no message_id".to_owned()))
        })
    }

    fn send_file<'a>(
        &'a self,
        to: &'a ChatAddress,
        file: &'a AttachedFile,
    ) -> BoxFuture<'a, Result<String, ChatError>> {
        Box::pin(async move {
            let (method, field) = form::method_of(file);
            let form = form::form(&body_for(to), (field, file), &clock::random_bytes());
            let path = format!("bot{}/{method}", self.token.reveal());
            let limits = CallLimits { time: FILE_TIMEOUT, bytes: MAX_ANSWER_BYTES };
            let answer = self.client().post_form(&path, form, limits).await;
            let sent =
                answer.map_err(ChatError::Unavailable).and_then(|answer| result_of(method, &answer))?;
            let id = sent["message_id"].as_i64();
            id.map(|id| id.to_string())
                .ok_or_else(|| ChatError::Unavailable(format!("{method}: no message_id")))
        })
    }

    fn edit<'a>(
        &'a self,
        at: &'a ChatAddress,
        message: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), ChatError>> {
        Box::pin(async move {
            let body = json!({ "chat_id": number(&at.chat), "message_id": number(message) });
            self.call_with_text("editMessageText", body, text).await.map(drop)
        })
    }

    fn delete<'a>(&'a self, at: &'a ChatAddress, message: &'a str) -> BoxFuture<'a, Result<(), ChatError>> {
        Box::pin(async move {
            let body = json!({ "chat_id": number(&at.chat), "message_id": number(message) });
            self.call("deleteMessage", body).await.map(drop)
        })
    }

    fn acknowledge<'a>(&'a self, press: &'a str, note: &'a str) -> BoxFuture<'a, Result<(), ChatError>> {
        Box::pin(async move {
            let body = json!({ "callback_query_id": press, "text": note });
            self.call("answerCallbackQuery", body).await.map(drop)
        })
    }

    fn signal_typing<'a>(&'a self, to: &'a ChatAddress) -> BoxFuture<'a, Result<(), ChatError>> {
        Box::pin(async move {
            let mut body = body_for(to);
            body["action"] = "typing".into();
            self.call("sendChatAction", body).await.map(drop)
        })
    }

    fn fetch<'a>(&'a self, file: &'a str, max_bytes: usize) -> BoxFuture<'a, Result<Bytes, ChatError>> {
        Box::pin(self.fetch_file(file, max_bytes))
    }
}

impl fmt::Debug for Telegram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telegram").field("name", &self.name.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_can_be_done() {
        let check = |status: u16, body: &str, expect: ChatError| {
            let answer = ApiResponse { status, body: body.as_bytes().to_vec() };
            let error = result_of("m", &answer).unwrap_err();
            assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&expect), "{error:?}");
            if let ChatError::RateLimited(_) = expect {
                assert_eq!(error, expect);
            }
        };
        let failed = |code: u16, text: &str| {
            json!({ "ok": false, "error_code": code, "description": text }).to_string()
        };
        let text = String::new;
        let limited = r#"{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":7}}"#;
        check(429, limited, ChatError::RateLimited(Duration::from_secs(7)));
        check(429, "<html>", ChatError::RateLimited(Duration::from_secs(5)));
        check(409, &failed(409, "terminated by other getUpdates request"), ChatError::Conflict(text()));
        check(401, &failed(401, "Unauthorized"), ChatError::Denied(text()));
        check(404, &failed(404, "Not Found"), ChatError::Denied(text()));
        check(400, &failed(400, "Bad Request: message is not modified: x"), ChatError::Unchanged);
        check(400, &failed(400, "Bad Request: message to edit not found"), ChatError::Gone(text()));
        check(400, &failed(400, "Bad Request: can't parse entities"), ChatError::Rejected(text()));
        check(403, &failed(403, "bot was blocked by the user"), ChatError::Rejected(text()));
        check(502, "Bad Gateway", ChatError::Unavailable(text()));
        check(200, "", ChatError::Unavailable(text()));
        let ok = ApiResponse { status: 200, body: br#"{"ok":true,"result":[1]}"#.to_vec() };
        assert_eq!(result_of("m", &ok), Ok(json!([1])));
    }

    #[test]
    fn a_token_fits_into_a_path() {
        let new = |token: &str| Telegram::new(URL, Secret::new(token)).map(drop);
        assert_eq!(new("123456:ABC-def_1"), Ok(()));
        for bad in ["", "a/b", "a b", "a?b", "ä"] {
            let error = new(bad).unwrap_err();
            assert!(error.contains("is none of Telegram's"), "{error}");
        }
    }
}
