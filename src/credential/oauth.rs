//! A source of keys: OAuth access tokens, fetched with a refresh token. `token_file.rs` stores the next refresh token.

use std::{
    fs::File,
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::token_file::{LABEL, RefreshTokenFile};
use crate::{
    provider::{FetchedKey, FormClient, FormResponse, KeyError, KeySource},
    redaction,
    secret::{Secret, redact},
};

/// Most characters of a token endpoint's error text that a [`KeyError`] shows.
const MAX_ERROR_CHARS: usize = 200;

/// The parameters of a token request.
#[derive(Debug, Clone)]
pub struct OauthGrant {
    /// The client id.
    pub client_id: String,
    /// The client secret, if there is one.
    pub client_secret: Option<Secret>,
    /// The configured refresh token.
    pub refresh_token: Secret,
    /// The requested scope; `None` requests all that was granted.
    pub scope: Option<String>,
}

/// Fetches access tokens with a refresh token (RFC 6749, section 6).
#[derive(Debug)]
pub struct Oauth {
    forms: FormClient,
    grant: OauthGrant,
    token_file: RefreshTokenFile,
    /// A refresh token newer than the one on disk, if it could not be stored.
    unsaved: Mutex<Option<Secret>>,
}

/// The reply to a granted request.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    expires_in: Option<Value>,
    #[serde(default)]
    refresh_token: Option<String>,
}

/// The reply to a refused request.
#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl Oauth {
    /// Creates the source without network or disk access.
    pub const fn new(forms: FormClient, grant: OauthGrant, token_file: RefreshTokenFile) -> Self {
        Self { forms, grant, token_file, unsaved: Mutex::new(None) }
    }

    async fn refresh(&self) -> Result<FetchedKey, KeyError> {
        // Another process may have stored a newer token, and must not use the same one at the same time.
        let lock = self.on_disk(RefreshTokenFile::lock, "the lock of the refresh token").await?;
        let configured = self.grant.refresh_token.clone();
        let loaded = self.on_disk(move |file| file.load(&configured), "the kept refresh token").await?;
        let token = self.unsaved().or(loaded).unwrap_or_else(|| self.grant.refresh_token.clone());
        redaction::learn(LABEL, &token);
        let response = self.request_token(&token).await?;
        redaction::learn(LABEL, &Secret::new(response.access_token.as_str()));
        if let Some(new) = response.refresh_token.filter(|new| !new.is_empty() && *new != token.reveal()) {
            let new = Secret::new(new);
            redaction::learn(LABEL, &new);
            self.save_token(new, lock).await;
        }
        let expires_in = response.expires_in.as_ref().and_then(seconds);
        Ok(FetchedKey { key: Secret::new(response.access_token), expires_in })
    }

    async fn request_token(&self, token: &Secret) -> Result<TokenResponse, KeyError> {
        let OauthGrant { client_id, client_secret, scope, .. } = &self.grant;
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", token.reveal()),
            ("client_id", client_id.as_str()),
        ];
        form.extend(client_secret.as_ref().map(|secret| ("client_secret", secret.reveal())));
        form.extend(scope.as_ref().map(|scope| ("scope", scope.as_str())));
        let response = self.forms.post(&form).await?;
        parse_response(&response, self.forms.redacted_url()).map_err(|error| {
            let mut secrets = self.secrets();
            secrets.push(token.clone());
            match error {
                KeyError::Denied(text) => KeyError::Denied(redact(&secrets, text)),
                KeyError::Unreachable(text) => KeyError::Unreachable(redact(&secrets, text)),
            }
        })
    }

    /// Stores the new refresh token. The one that was sent may be invalid from now on.
    async fn save_token(&self, new_token: Secret, lock: File) {
        let (configured, token) = (self.grant.refresh_token.clone(), new_token.clone());
        let save = move |token_file: &RefreshTokenFile| {
            let result = token_file.save(&configured, &token);
            drop(lock);
            result
        };
        let result = self.on_disk(save, "the new refresh token").await;
        let unsaved = result.is_err().then_some(new_token);
        *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner) = unsaved;
        if let Err(error) = result {
            tracing::error!(%error, "a new refresh token is not kept: the next process may have to be given another one");
        }
    }

    /// Runs file work off the async threads.
    async fn on_disk<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&RefreshTokenFile) -> io::Result<T> + Send + 'static,
        subject: &str,
    ) -> Result<T, KeyError> {
        let token_file = self.token_file.clone();
        match spawn_blocking(move || operation(&token_file)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(KeyError::Denied(format!("{subject} in the state directory: {error}"))),
            Err(_) => Err(KeyError::Denied(format!("{subject} in the state directory: it broke off"))),
        }
    }

    fn unsaved(&self) -> Option<Secret> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KeySource for Oauth {
    fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
        self.refresh().boxed()
    }

    fn secrets(&self) -> Vec<Secret> {
        let OauthGrant { refresh_token, client_secret, .. } = &self.grant;
        [Some(refresh_token.clone()), client_secret.clone(), self.unsaved()].into_iter().flatten().collect()
    }
}

/// Parses a token endpoint's reply. Of a refused reply, the error shows only `error` and `error_description`.
fn parse_response(response: &FormResponse, endpoint: &str) -> Result<TokenResponse, KeyError> {
    let FormResponse { status, body } = response;
    if *status == 200 {
        let response = match serde_json::from_slice::<TokenResponse>(body) {
            Err(error) if error.is_eof() => {
                return Err(KeyError::Unreachable(format!("the answer of {endpoint} broke off")));
            }
            response => response.ok(),
        };
        return response.filter(|response| !response.access_token.is_empty()).ok_or_else(|| {
            KeyError::Denied(format!("{endpoint} answered without an access_token; check token_url"))
        });
    }
    let description = match serde_json::from_slice::<TokenErrorResponse>(body) {
        Ok(TokenErrorResponse { error, error_description: Some(text) }) => format!(": {error}: {text}"),
        Ok(TokenErrorResponse { error, error_description: None }) => format!(": {error}"),
        Err(_) => String::new(),
    };
    let description: String = description.chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect();
    let text = format!("{endpoint} answered HTTP {status}{description}");
    Err(match status {
        408 | 429 | 500.. => KeyError::Unreachable(text),
        _ => KeyError::Denied(text),
    })
}

/// Seconds as a number, or as a text with a number, which some endpoints send.
fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_a_token_or_says_what_can_be_done() {
        let check = |status: u16, body: &str, expect: Result<(&str, Option<u64>), KeyError>| {
            let found = parse_response(&FormResponse { status, body: body.into() }, "https://host/token");
            let found = found.map(|response| {
                let life = response.expires_in.as_ref().and_then(seconds).map(|life| life.as_secs());
                (response.access_token, life)
            });
            let expect = expect.map(|(token, life)| (token.to_owned(), life));
            assert_eq!(found, expect, "{status} {body}");
        };
        let denied = |text: &str| Err(KeyError::Denied(format!("https://host/token answered {text}")));
        let unreachable =
            |text: &str| Err(KeyError::Unreachable(format!("https://host/token answered {text}")));
        check(200, r#"{"access_token":"t","expires_in":3600,"token_type":"bearer"}"#, Ok(("t", Some(3_600))));
        check(200, r#"{"access_token":"t","expires_in":"60"}"#, Ok(("t", Some(60))));
        check(200, r#"{"access_token":"t","expires_in":-5}"#, Ok(("t", None)));
        check(200, r#"{"access_token":"t"}"#, Ok(("t", None)));
        for body in ["<html>", r#"{"access_token":""}"#, r#"{"token":"t"}"#] {
            check(200, body, denied("without an access_token; check token_url"));
        }
        let whole = r#"{"access_token":"t"}"#;
        for at in 0..whole.len() {
            check(
                200,
                &whole[..at],
                Err(KeyError::Unreachable("the answer of https://host/token broke off".into())),
            );
        }
        let grant = json!({ "error": "invalid_grant", "error_description": "ex\u{1b}pired" }).to_string();
        check(400, &grant, denied("HTTP 400: invalid_grant: expired"));
        check(401, r#"{"error":"invalid_client"}"#, denied("HTTP 401: invalid_client"));
        check(302, "", denied("HTTP 302"));
        check(503, "<html>", unreachable("HTTP 503"));
        check(429, "{}", unreachable("HTTP 429"));
    }

    #[test]
    fn times_that_make_no_sense_are_none() {
        for value in [json!(1e300), json!(-1), json!("soon"), json!({}), json!(null)] {
            assert_eq!(seconds(&value), None, "{value}");
        }
        assert_eq!(seconds(&json!(1.5)), Some(Duration::from_millis(1_500)));
    }
}
