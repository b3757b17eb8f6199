//! Calls a hook: a command that gets JSON at its stdin, or an endpoint that gets it as a request.

use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderValue, header};

use crate::{
    excerpt::first_chars,
    process::{FilterCommand, FilterEnd, FilterResult, filter},
    provider::UploadClient,
    redaction,
    secret::Secret,
};

/// Most bytes of a hook's answer.
pub(super) const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Characters that are shown of what a command wrote to stderr.
const MAX_SHOWN_CHARS: usize = 200;

/// How a hook is called.
#[derive(Debug)]
pub(super) enum HookCaller {
    /// By a shell in this folder.
    Command { script: String, folder: PathBuf },
    /// By HTTP.
    Endpoint(UploadClient),
    /// By a test.
    #[cfg(test)]
    Scripted(ScriptedCaller),
}

/// What a test answers to an event.
#[cfg(test)]
type Script = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// Answers what a test says.
#[cfg(test)]
pub(super) struct ScriptedCaller(pub(super) Box<Script>);

#[cfg(test)]
impl std::fmt::Debug for ScriptedCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedCaller")
    }
}

impl HookCaller {
    /// Calls an endpoint, with this token if there is one. Touches no network.
    pub(super) fn endpoint(url: &str, bearer: Option<&Secret>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        if let Some(bearer) = bearer {
            let value = HeaderValue::try_from(format!("Bearer {}", bearer.reveal()))
                .map_err(|_| "the token cannot be sent in a header; look for line breaks in it".to_owned())?;
            headers.insert(header::AUTHORIZATION, value);
        }
        UploadClient::new(url, "application/json", headers).map(Self::Endpoint)
    }

    /// `command` or `url`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::Endpoint(_) => "url",
            #[cfg(test)]
            Self::Scripted(_) => "script",
        }
    }

    /// The answer to these bytes. The error says why there is none.
    pub(super) async fn call(&self, bytes: Vec<u8>, deadline: Duration) -> Result<Vec<u8>, String> {
        match self {
            Self::Command { script, folder } => {
                let command = FilterCommand {
                    script: script.clone(),
                    folder: folder.clone(),
                    timeout: deadline,
                    max_output: MAX_ANSWER_BYTES,
                };
                let result = filter(command, &bytes).await;
                answer_of_command(result.map_err(|error| format!("it cannot be run: {error}"))?, deadline)
            }
            Self::Endpoint(client) => {
                let answer = client.post_within(bytes.into(), deadline, MAX_ANSWER_BYTES).await?;
                match answer.status {
                    200..300 if answer.body.len() >= MAX_ANSWER_BYTES => Err(too_much()),
                    200..300 => Ok(answer.body),
                    status => Err(format!("it answers with the status {status}")),
                }
            }
            #[cfg(test)]
            Self::Scripted(script) => (script.0)(&bytes),
        }
    }
}

fn answer_of_command(result: FilterResult, deadline: Duration) -> Result<Vec<u8>, String> {
    let FilterResult { end, stdout, stderr } = result;
    let stderr = String::from_utf8_lossy(&stderr);
    let said = match stderr.trim() {
        "" => String::new(),
        // Before it is cut: a part of a secret would not be known any more.
        text => format!(" and says: {}", first_chars(&redaction::of_process().redact(text), MAX_SHOWN_CHARS)),
    };
    match end {
        FilterEnd::Exited(Some(0)) => Ok(stdout),
        FilterEnd::Exited(Some(code)) => Err(format!("it exits with {code}{said}")),
        FilterEnd::Exited(None) => Err(format!("a signal ends it{said}")),
        FilterEnd::TimedOut => Err(format!("no answer within {deadline:?}")),
        FilterEnd::TooMuchOutput => Err(too_much()),
    }
}

fn too_much() -> String {
    format!("its answer has more than {MAX_ANSWER_BYTES} bytes")
}
