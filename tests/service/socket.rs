//! A client of a service's WebSockets.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket, client::IntoClientRequest as _, error::Error, protocol::CloseFrame};

use crate::served::Served;

/// Time in which the next message must come.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// An open WebSocket.
pub(crate) struct Socket {
    socket: WebSocket<TcpStream>,
    calls: u64,
}

impl Socket {
    /// Opens `/rpc` with a token.
    #[track_caller]
    pub(crate) fn rpc(served: &Served, token: &str) -> Self {
        let bearer = format!("Bearer {token}");
        Self::open(served, "/rpc", &[("authorization", &bearer)]).expect("an upgrade")
    }

    /// Opens a WebSocket; the error is the status of a refusal.
    #[track_caller]
    pub(crate) fn open(served: &Served, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let address = served.address();
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        let mut request = format!("ws://{address}{path}").into_client_request().expect("a request");
        for (name, value) in headers {
            let name: tungstenite::http::HeaderName = name.parse().expect("a name");
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, calls: 0 }),
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).expect("it reads");
    }

    /// Sends a message unless the service has closed the connection.
    pub(crate) fn try_send(&mut self, message: Message) -> bool {
        self.socket.send(message).is_ok()
    }

    /// The next message that is JSON.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        loop {
            match self.socket.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other @ (Message::Binary(_) | Message::Close(_) | Message::Frame(_)) => {
                    panic!("no message: {other:?}")
                }
            }
        }
    }

    /// Reads until the service closes the connection; the code of its last frame, if it has sent one.
    pub(crate) fn closed(&mut self) -> Option<u16> {
        loop {
            match self.socket.read() {
                Ok(Message::Close(frame)) => return frame.map(|CloseFrame { code, .. }| code.into()),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("it is not closed")
                }
                Err(_) => return None,
            }
        }
    }

    /// The messages until the end of the connection, and the code of the service's last frame.
    pub(crate) fn rest(&mut self) -> (Vec<Value>, Option<u16>) {
        let mut messages = Vec::new();
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => messages.push(serde_json::from_str(&text).expect("JSON")),
                Ok(Message::Close(frame)) => {
                    return (messages, frame.map(|CloseFrame { code, .. }| code.into()));
                }
                Ok(_) => {}
                Err(_) => return (messages, None),
            }
        }
    }

    /// Begins the end of the connection. True if the service answers that with its own last frame.
    #[track_caller]
    pub(crate) fn ends_in_order(&mut self) -> bool {
        self.socket.close(None).expect("it is open");
        loop {
            match self.socket.read() {
                Ok(Message::Close(_)) => return true,
                Ok(_) => {}
                Err(error) => return matches!(error, Error::ConnectionClosed),
            }
        }
    }

    /// Sends a call of JSON-RPC, and returns its id.
    #[track_caller]
    pub(crate) fn start(&mut self, method: &str, params: &Value) -> u64 {
        self.calls += 1;
        let call = json!({ "jsonrpc": "2.0", "id": self.calls, "method": method, "params": params });
        self.send(&call.to_string());
        self.calls
    }

    /// Calls a method of JSON-RPC, and returns its answer. Other messages are passed over.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.start(method, params);
        loop {
            let answer = self.next();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// The bytes under the messages.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }

    /// Whether the service has ended the connection, whatever is still to be read of it.
    pub(crate) fn ends(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        loop {
            match self.stream().read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream().write_all(bytes).expect("it reads");
    }
}
