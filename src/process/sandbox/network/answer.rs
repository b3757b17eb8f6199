//! What the proxy itself answers: refusals and failures, each as a line of text.

use super::hosts::{Host, HostAccess};

/// An answer that ends a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyAnswer {
    status: u16,
    reason: &'static str,
    text: String,
}

impl ProxyAnswer {
    pub(super) fn bad_request(problem: &str) -> Self {
        Self { status: 400, reason: "Bad Request", text: format!("the request cannot be read: {problem}") }
    }

    pub(super) fn slow() -> Self {
        let text = "the request did not come in time".into();
        Self { status: 408, reason: "Request Timeout", text }
    }

    pub(super) fn too_large() -> Self {
        let text = "the head of the request is too large".into();
        Self { status: 431, reason: "Request Header Fields Too Large", text }
    }

    /// Many clients print only the status line.
    pub(super) fn refused(access: HostAccess, host: &Host, port: u16) -> Self {
        let remedy =
            format!("only the operator can allow it, by adding \"{host}:{port}\" to sandbox.network");
        let is_own = matches!(host, Host::Address(address) if address.is_loopback())
            || matches!(host, Host::Name(name) if name == "localhost");
        let text = if access == HostAccess::Refused {
            let own = "; a server of this command is reached without a proxy";
            let own = if is_own { own } else { "" };
            format!("sandbox.network does not allow {host}:{port}; {remedy}{own}")
        } else {
            format!("{host} has only addresses of this machine or its network; {remedy}")
        };
        Self { status: 403, reason: "Refused by sandbox.network", text }
    }

    pub(super) fn unreachable(host: &Host, port: u16, why: impl std::fmt::Display) -> Self {
        Self { status: 502, reason: "Bad Gateway", text: format!("{host}:{port} cannot be reached: {why}") }
    }

    /// The answer without its status, as a line; `None` if it is about the request alone.
    pub(super) fn about_host(&self) -> Option<String> {
        matches!(self.status, 403 | 502).then(|| self.line())
    }

    fn line(&self) -> String {
        format!("hermod: {}\n", self.text)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let (Self { status, reason, .. }, line) = (self, self.line());
        format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{line}",
            line.len()
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_host_and_setting() {
        let check = |access, host: &str, port, expected: &str| {
            let bytes = ProxyAnswer::refused(access, &Host::parse(host).unwrap(), port).bytes();
            let text = String::from_utf8(bytes).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 403 Refused by sandbox.network\r\n"), "{head}");
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
            assert_eq!(body, expected);
        };
        check(
            HostAccess::Refused,
            "evil.org",
            443,
            "hermod: sandbox.network does not allow evil.org:443; only the operator can allow it, by adding \
             \"evil.org:443\" to sandbox.network\n",
        );
        check(
            HostAccess::Refused,
            "127.0.0.1",
            8080,
            "hermod: sandbox.network does not allow 127.0.0.1:8080; only the operator can allow it, by adding \
             \"127.0.0.1:8080\" to sandbox.network; a server of this command is reached without a proxy\n",
        );
        check(
            HostAccess::Public,
            "box.corp",
            80,
            "hermod: box.corp has only addresses of this machine or its network; only the operator can allow it, by \
             adding \"box.corp:80\" to sandbox.network\n",
        );
    }
}
