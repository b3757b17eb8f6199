//! The head of a request to the proxy, and what is forwarded of it; pure.

use httparse::{EMPTY_HEADER, Header, Request, Status};

use super::{
    answer::ProxyAnswer,
    body::BodyLength,
    hosts::{Host, split_port},
};

const MAX_HEADERS: usize = 100;
const HTTP_PORT: u16 = 80;
/// Headers that concern one connection only, beside those that `connection` names.
const HOP_BY_HOP: &[&str] =
    &["connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"];

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) kind: RequestKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// `CONNECT`: all that follows is between client and host.
    Tunnel,
    /// A request for an `http://` URL: this head goes to the host, and a body of this length.
    Forward { head: Vec<u8>, body: BodyLength },
}

/// Parses a request head, and its length; `None` if it is not complete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(ProxyRequest, usize)>, ProxyAnswer> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ProxyAnswer::too_large()),
        Err(error) => return Err(ProxyAnswer::bad_request(&error.to_string())),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Ok(None);
    };
    let request = if method == "CONNECT" {
        let (host, port) = authority(target)?;
        let port = port.ok_or_else(|| ProxyAnswer::bad_request("CONNECT needs a port"))?;
        ProxyRequest { host, port, kind: RequestKind::Tunnel }
    } else {
        let (host, port, path) = split_url(target)?;
        let body = body_length(request.headers, version)?;
        let head = forwarded_head(&RequestLine { method, path, version }, &host, port, request.headers);
        ProxyRequest { host, port, kind: RequestKind::Forward { head, body } }
    };
    Ok(Some((request, length)))
}

fn authority(text: &str) -> Result<(Host, Option<u16>), ProxyAnswer> {
    let parts = split_port(text).and_then(|(host, port)| Some((Host::parse(host)?, port)));
    parts.ok_or_else(|| ProxyAnswer::bad_request("there is no valid HOST:PORT in it"))
}

/// The host, the port and the path of an absolute URL.
fn split_url(url: &str) -> Result<(Host, u16, String), ProxyAnswer> {
    const SCHEME: &str = "http://";
    let is_http = url.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
    // Anything else in a head could end its first line for another parser.
    let Some(rest) = url.get(SCHEME.len()..).filter(|_| is_http && url.bytes().all(|b| b.is_ascii_graphic()))
    else {
        return Err(ProxyAnswer::bad_request("this proxy takes http:// URLs and CONNECT"));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, port) = authority(&rest[..end])?;
    let path = rest[end..].split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((host, port.unwrap_or(HTTP_PORT), path))
}

fn values<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// A length that two parsers could read differently is an error.
fn body_length(headers: &[Header<'_>], version: u8) -> Result<BodyLength, ProxyAnswer> {
    let error = || ProxyAnswer::bad_request("the length of its body is not clear");
    let mut lengths = values(headers, "content-length");
    let mut codings = values(headers, "transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(BodyLength::Exactly(0)),
        (None, Some(coding)) => {
            let is_clear =
                coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() && version == 1;
            if is_clear { Ok(BodyLength::Chunked) } else { Err(error()) }
        }
        (Some(length), None) if length.iter().all(u8::is_ascii_digit) && lengths.next().is_none() => {
            let length = str::from_utf8(length).ok().and_then(|digits| digits.parse().ok());
            length.map(BodyLength::Exactly).ok_or_else(error)
        }
        (Some(_), _) => Err(error()),
    }
}

struct RequestLine<'a> {
    method: &'a str,
    path: String,
    version: u8,
}

/// The host gets the name that was judged, and one request only.
fn forwarded_head(line: &RequestLine<'_>, host: &Host, port: u16, headers: &[Header<'_>]) -> Vec<u8> {
    let RequestLine { method, path, version } = line;
    let port = if port == HTTP_PORT { String::new() } else { format!(":{port}") };
    let start = format!("{method} {path} HTTP/1.{version}\r\nhost: {host}{port}\r\nconnection: close\r\n");
    let mut head = start.into_bytes();
    let named: Vec<&[u8]> =
        values(headers, "connection").flat_map(|value| value.split(|byte| *byte == b',')).collect();
    let is_dropped = |name: &str| {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // The length of the body is told in any case.
        let is_framing = is("content-length") || is("transfer-encoding");
        let is_named = named.iter().any(|other| other.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
        is("host") || HOP_BY_HOP.iter().any(|other| is(other)) || (is_named && !is_framing)
    };
    for Header { name, value } in headers.iter().filter(|header| !is_dropped(header.name)) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ProxyRequest {
        let (request, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        request
    }

    #[test]
    fn a_tunnel_needs_host_and_port() {
        let check = |target: &str, expected: Option<(&str, u16)>| {
            let text = format!("CONNECT {target} HTTP/1.1\r\nHost: other.org\r\n\r\n");
            match (parse(text.as_bytes()), expected) {
                (Ok(Some((request, _))), Some((host, port))) => {
                    assert_eq!((request.host.to_string().as_str(), request.port), (host, port), "{target}");
                    assert_eq!(request.kind, RequestKind::Tunnel);
                }
                (Err(_), None) => {}
                other => panic!("{target}: {other:?}"),
            }
        };
        check("Example.com:443", Some(("example.com", 443)));
        check("[::1]:80", Some(("[::1]", 80)));
        check("127.0.0.1:65535", Some(("127.0.0.1", 65535)));
        let long = format!("{}:443", "a".repeat(5_000));
        for target in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:99999999999999999999",
            ":443",
            ":",
            "*",
            "/",
            "http://example.com:443",
            "me@example.com:443",
            "example.com:443/x",
            "::1:80",
            "[::1]",
            "[::1]80",
            "[fe80::1%25eth0]:80",
            "127.1:80",
            "0x7f000001:80",
            "a..b:1",
            "%63rates.io:443",
            "ä.de:443",
            "a:443:443",
            "a\u{7f}:443",
            &long,
        ] {
            check(target, None);
        }
    }

    #[test]
    fn what_is_forwarded_has_the_judged_host_and_no_hop_by_hop_headers() {
        let check = |request: &str, host: &str, port: u16, expected: &str| {
            let request = parsed(request);
            assert_eq!((request.host.to_string().as_str(), request.port), (host, port));
            let RequestKind::Forward { head, body } = request.kind else { panic!("a tunnel") };
            assert_eq!(String::from_utf8(head).unwrap(), expected);
            assert_eq!(body, BodyLength::Exactly(0));
        };
        check(
            "GET http://A.org/x?y#z HTTP/1.1\r\nHost: evil.org\r\nAccept: */*\r\nProxy-Connection: keep-alive\r\n\
             Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nhost: again.org\r\n\r\n",
            "a.org",
            80,
            "GET /x?y HTTP/1.1\r\nhost: a.org\r\nconnection: close\r\nAccept: */*\r\n\r\n",
        );
        check(
            "DELETE HTTP://[::1]:8080 HTTP/1.0\r\n\r\n",
            "[::1]",
            8080,
            "DELETE / HTTP/1.0\r\nhost: [::1]:8080\r\nconnection: close\r\n\r\n",
        );
        check(
            "GET http://a.org?q HTTP/1.1\r\n\r\n",
            "a.org",
            80,
            "GET /?q HTTP/1.1\r\nhost: a.org\r\nconnection: close\r\n\r\n",
        );
    }

    #[test]
    fn a_body_has_one_clear_length() {
        let check = |headers: &str, expected: Option<BodyLength>| {
            let text = format!("POST http://a.org/ HTTP/1.1\r\n{headers}\r\n");
            let result = parse(text.as_bytes()).ok().flatten().map(|(request, _)| request.kind);
            let body = result.map(|kind| match kind {
                RequestKind::Forward { body, .. } => body,
                RequestKind::Tunnel => panic!("a tunnel"),
            });
            assert_eq!(body, expected, "{headers}");
        };
        check("Content-Length: 7\r\n", Some(BodyLength::Exactly(7)));
        check("Connection: content-length\r\nContent-Length: 7\r\n", Some(BodyLength::Exactly(7)));
        check("Transfer-Encoding: Chunked\r\n", Some(BodyLength::Chunked));
        for headers in [
            "Content-Length: 7\r\nContent-Length: 7\r\n",
            "Content-Length: 7, 7\r\n",
            "Content-Length: +7\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            check(headers, None);
        }
        assert!(parse(b"POST http://a.org/ HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn what_is_no_request_for_a_proxy_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.org/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.org/ HTTP/1.1\r\n\r\n",
            "GET http:/ HTTP/1.1\r\n\r\n",
            "GET http:// HTTP/1.1\r\n\r\n",
            "GET http://me:pw@a.org/ HTTP/1.1\r\n\r\n",
            "GET http://a.org:x/ HTTP/1.1\r\n\r\n",
            "GET http://a.org/\u{e4} HTTP/1.1\r\n\r\n",
            "GET http://a.org/ HTTP/2.0\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA : b\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: \0\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(parse(b"GET http://a.org/\xff HTTP/1.1\r\n\r\n").is_err());
        assert!(parse(b"GET http://a.org/ HTTP/1.1\r\nA: \xff\r\n\r\n").is_ok());
        assert!(matches!(parse(b"GET http://a.org/ HTTP/1.1\r\nA: b\r\n"), Ok(None)));
        let many = "A: b\r\n".repeat(MAX_HEADERS + 1);
        let error = parse(format!("GET http://a.org/ HTTP/1.1\r\n{many}\r\n").as_bytes()).unwrap_err();
        assert_eq!(error, ProxyAnswer::too_large());
    }
}
