//! `GET /gateway`: OpenClaw's gateway protocol. A connection begins with a challenge, which the client answers by
//! `connect` with its token. The token alone says what the client may do: nothing is made of the identity of its device,
//! and no token of a device is issued.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection},
    },
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    error::RpcError,
    framing::Framing,
    gateway,
    message::{CallRequest, RejectedRequest, RequestId},
    methods, params,
    socket::{self, Connection, PING_INTERVAL},
};
use crate::{
    access::{Scope, TokenEntry},
    service::{Service, authorization::verify, problem::Problem, reach::Reach},
};

/// Most connections whose client has presented no token yet.
static HANDSHAKES: Semaphore = Semaphore::const_new(32);
/// Time in which a client must have presented its token.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a message. A client without a token can have so much read.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Opens a connection.
pub(super) async fn upgrade(
    State(service): State<Arc<Service>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match socket::accept(upgrade, MAX_MESSAGE_BYTES) {
        Ok(upgrade) => upgrade,
        Err(problem) => return problem.into_response(),
    };
    let Ok(handshake) = HANDSHAKES.try_acquire() else {
        let text = "other clients take all handshakes; try again in a moment";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    upgrade.on_upgrade(async move |mut socket| {
        let token = tokio::select! {
            token = timeout(HANDSHAKE_TIMEOUT, shake_hands(&mut socket, &service)) => token.ok().flatten(),
            () = service.closing.cancelled() => {
                return socket::close(socket, close_code::AWAY, "the service stops").await;
            }
        };
        drop(handshake);
        match token {
            Some(token) => {
                Connection::new(socket, Reach::new(service, token), Framing::Gateway).serve().await;
            }
            None => socket::close(socket, close_code::POLICY, "no handshake").await,
        }
    })
}

/// The parameters of `connect`, as far as they are read. The others describe the client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConnectParams {
    min_protocol: u64,
    max_protocol: u64,
    role: Option<String>,
    #[serde(default)]
    auth: ConnectAuth,
}

#[derive(Debug, Default, Deserialize)]
struct ConnectAuth {
    token: Option<String>,
    password: Option<String>,
}

/// Why a `connect` is refused, with OpenClaw's name of the reason.
type ConnectRefusal = (RpcError, &'static str);

/// Sends the challenge and answers `connect`. The token of the client; `None` if it was refused or is gone.
async fn shake_hands(socket: &mut WebSocket, service: &Service) -> Option<Arc<TokenEntry>> {
    let nonce = format!("{:032x}", random());
    socket.send(Message::Text(gateway::write_challenge(&nonce).into())).await.ok()?;
    let text = loop {
        match socket.recv().await?.ok()? {
            Message::Text(text) => break text,
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(_) | Message::Close(_) => return None,
        }
    };
    let mut message = gateway::parse(text.as_str())?;
    let request = match message.requests.pop()? {
        Ok(request) => request,
        Err(RejectedRequest { id, error }) => {
            refuse(socket, &id, &(error, "INVALID_REQUEST")).await;
            return None;
        }
    };
    let id = request.id.clone().unwrap_or_else(RequestId::null);
    match connect(service, &request) {
        Ok(token) => {
            let hello = Ok(hello(&token, &nonce)?);
            socket.send(Message::Text(gateway::write_answer(&id, &hello).into())).await.ok()?;
            Some(token)
        }
        Err(refusal) => {
            refuse(socket, &id, &refusal).await;
            None
        }
    }
}

async fn refuse(socket: &mut WebSocket, id: &RequestId, (error, detail): &ConnectRefusal) {
    let refusal = gateway::write_refusal(id, error, detail);
    // A client that is gone needs no reason.
    let (Ok(()) | Err(_)) = socket.send(Message::Text(refusal.into())).await;
}

/// The token of a client that connects.
fn connect(service: &Service, request: &CallRequest) -> Result<Arc<TokenEntry>, ConnectRefusal> {
    let auth = check_connect(request)?;
    let Some(presented) = auth.token.or(auth.password) else {
        let error = RpcError::param("auth.token", "is missing; `hermod tokens create` makes a token");
        return Err((error, "AUTH_TOKEN_MISSING"));
    };
    verify(service, &presented).map_err(|problem| {
        let detail = if problem.status() == StatusCode::UNAUTHORIZED {
            "AUTH_TOKEN_MISMATCH"
        } else {
            "AUTH_UNAUTHORIZED"
        };
        (problem.into(), detail)
    })
}

/// Checks all of a `connect` but its token.
fn check_connect(request: &CallRequest) -> Result<ConnectAuth, ConnectRefusal> {
    if request.method != "connect" {
        let text = format!("`{}` comes before `connect`, which begins a connection", request.method);
        return Err((RpcError::invalid_request(text), "INVALID_REQUEST"));
    }
    let params: ConnectParams =
        params::parse(request.params.as_deref()).map_err(|error| (error, "INVALID_REQUEST"))?;
    let (min, max) = (params.min_protocol, params.max_protocol);
    if !(min..=max).contains(&gateway::PROTOCOL) {
        let text = format!("speaks the versions {min} to {max}; this service speaks {}", gateway::PROTOCOL);
        return Err((RpcError::param("maxProtocol", text), "PROTOCOL_MISMATCH"));
    }
    match params.role.as_deref() {
        None | Some("operator") => Ok(params.auth),
        Some(role) => {
            let text = format!("`{role}` is not served; connect as `operator`");
            Err((RpcError::param("role", text), "INVALID_REQUEST"))
        }
    }
}

/// What this service is: its own methods and events, and what the token may do.
fn hello(token: &TokenEntry, connection: &str) -> Option<Box<RawValue>> {
    let interval = u64::try_from(PING_INTERVAL.as_millis()).unwrap_or(u64::MAX);
    let hello = json!({
        "type": "hello-ok",
        "protocol": gateway::PROTOCOL,
        "server": { "version": format!("hermod-{}", env!("CARGO_PKG_VERSION")), "connId": connection },
        "features": { "methods": methods::names(), "events": gateway::EVENTS },
        "snapshot": {
            "presence": [], "health": {}, "stateVersion": { "presence": 0, "health": 0 },
            "uptimeMs": 0,
        },
        "auth": { "role": "operator", "scopes": scopes(token) },
        "policy": {
            "maxPayload": MAX_MESSAGE_BYTES,
            "maxBufferedBytes": MAX_MESSAGE_BYTES,
            "tickIntervalMs": interval,
        },
    });
    to_raw_value(&hello).ok()
}

/// The scopes of a token by OpenClaw's names.
fn scopes(token: &TokenEntry) -> Vec<&'static str> {
    let names = [
        (Scope::Admin, "operator.admin"),
        (Scope::Read, "operator.read"),
        (Scope::Submit, "operator.write"),
        (Scope::Approve, "operator.approvals"),
    ];
    names.into_iter().filter(|(scope, _)| token.has(*scope)).map(|(_, name)| name).collect()
}

/// Chance from the operating system; without it, the time.
fn random() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes),
        // The challenge protects nothing here: the token is the only credential.
        Err(_) => u128::from(crate::clock::now().0.unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_client_connects_as_operator_with_the_version() {
        let check = |method: &str, params: Value, expect: Result<&str, &str>| {
            let request = CallRequest { id: None, method: method.into(), params: to_raw_value(&params).ok() };
            match (check_connect(&request), expect) {
                (Ok(auth), Ok(token)) => assert_eq!(auth.token.as_deref(), Some(token)),
                (Err((_, detail)), Err(expect)) => assert_eq!(detail, expect, "{params}"),
                (found, expect) => panic!("{params}: expected {expect:?}, got {found:?}"),
            }
        };
        let params = |min: u64, max: u64, role: &str| {
            let auth = json!({ "token": "t", "deviceToken": "d" });
            json!({ "minProtocol": min, "maxProtocol": max, "role": role, "auth": auth, "client": {}, "device": {} })
        };
        check("connect", params(4, 4, "operator"), Ok("t"));
        check("connect", params(3, 5, "operator"), Ok("t"));
        check("connect", params(5, 6, "operator"), Err("PROTOCOL_MISMATCH"));
        check("connect", params(4, 4, "node"), Err("INVALID_REQUEST"));
        check("connect", json!({}), Err("INVALID_REQUEST"));
        check("agent", params(4, 4, "operator"), Err("INVALID_REQUEST"));
    }
}
