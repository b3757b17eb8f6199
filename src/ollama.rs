//! Discovery of a local Ollama: a connection, then its list of models, of which the first is its default.
//! `host/model_choice.rs` decides when it is tried.

use std::{io, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    config::{OLLAMA, ProviderDefaults},
    discovery::{DiscoveredProvider, DiscoverySource},
    provider::chat_completions,
    provider_account::ProviderAccount,
};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Size limit of the answer; a list of models has a few kilobytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// HTTP 1.0, so that the answer is not chunked and the connection closes after it.
const REQUEST: &str = "GET /v1/models HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n";

/// The Ollama at `address`; `None` if nothing listens there.
pub async fn discover(address: &str, limits: ProviderDefaults) -> Option<DiscoveredProvider> {
    let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.ok()?.ok()?;
    let answer = match timeout(ANSWER_TIMEOUT, models(socket)).await {
        Ok(Ok(answer)) => first_model(&answer),
        Ok(Err(error)) => Err(format!("the list of its models could not be read: {error}")),
        Err(_) => Err(format!("it did not list its models within {} s", ANSWER_TIMEOUT.as_secs())),
    };
    Some(DiscoveredProvider {
        name: OLLAMA.into(),
        source: DiscoverySource::Local,
        base_url: format!("http://{address}/v1"),
        wire: chat_completions::NAME,
        account: ProviderAccount::default(),
        model: answer.map(Into::into).map_err(|error| format!("{error}; name a model with --model")),
        limits,
    })
}

async fn models(mut socket: TcpStream) -> io::Result<Vec<u8>> {
    socket.write_all(REQUEST.as_bytes()).await?;
    let mut answer = Vec::new();
    socket.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// The id of the first model in an HTTP answer to `GET /v1/models`.
fn first_model(answer: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("it answered no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("it answered {:?} to the question for its models", head.lines().next()));
    }
    let models: Models =
        serde_json::from_str(body).map_err(|error| format!("its list of models makes no sense: {error}"))?;
    let first = models.data.into_iter().next().map(|model| model.id);
    first.ok_or_else(|| "it has no models: pull one with `ollama pull`".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;

    #[track_caller]
    fn check(answer: &str, expect: Result<&str, &str>) {
        match (first_model(answer.as_bytes()), expect) {
            (Ok(model), Ok(expect)) => assert_eq!(model, expect),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn the_first_model_or_why_there_is_none() {
        let ok = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n";
        check(
            &format!("{ok}{{\"object\":\"list\",\"data\":[{{\"id\":\"a:1\"}},{{\"id\":\"b\"}}]}}"),
            Ok("a:1"),
        );
        check(&format!("{ok}{{\"data\":[]}}"), Err("ollama pull"));
        check(&format!("{ok}<html>"), Err("makes no sense"));
        check("HTTP/1.0 404 Not Found\r\n\r\n", Err("404 Not Found"));
        check("SSH-2.0", Err("no HTTP"));
    }

    fn limits() -> ProviderDefaults {
        Config::load(&[], &BTreeMap::new()).unwrap().provider_defaults
    }

    #[tokio::test]
    async fn who_listens_is_found() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = vec![0; REQUEST.len()];
            socket.read_exact(&mut request).await.unwrap();
            assert_eq!(request, REQUEST.as_bytes());
            socket.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"data\":[{\"id\":\"m\"}]}").await.unwrap();
        };
        let (found, ()) = tokio::join!(discover(&address, limits()), serve);
        let found = found.unwrap();
        assert_eq!((found.base_url, found.model), (format!("http://{address}/v1"), Ok("m".into())));
    }

    #[tokio::test]
    async fn nobody_there_is_no_error() {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert!(discover(&port.to_string(), limits()).await.is_none());
    }
}
