//! Servers on the loopback interface that give fixed answers.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
};

/// An endpoint that answers every request with the same response, and its base URL.
pub(crate) fn endpoint(status: &'static str, content_type: &'static str, body: &'static str) -> String {
    serve(move |_| response(status, content_type, body)) + "/v1"
}

/// A response, after which the connection is closed.
pub(crate) fn response(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A server that answers each request so, and where it is.
pub(crate) fn serve(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reply = Arc::new(reply);
    // Lives as long as the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let reply = Arc::clone(&reply);
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while !is_whole(&request) {
                    match stream.read(&mut chunk) {
                        Ok(0) | Err(_) => return,
                        Ok(count) => request.extend_from_slice(&chunk[..count]),
                    }
                }
                let response = reply(&String::from_utf8_lossy(&request));
                // A client that has gone needs no answer.
                stream.write_all(response.as_bytes()).unwrap_or_default();
            });
        }
    });
    format!("http://{address}")
}

/// Whether the head and the body that it announces are there.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}
