//! The HTTP proxy of one command: `CONNECT`, and requests for `http://` URLs. All that it holds of a connection is
//! bounded, whatever its client and its host do.

use std::{io, net::Ipv4Addr, pin::pin, sync::Arc, time::Duration};

use hermod_actors::ActiveDeadline;
use memchr::memmem;
use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional, split},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::{
    addresses::{AddressError, Resolver},
    answer::ProxyAnswer,
    body::{BodyLength, BodyScanner},
    hosts::have_loopback,
    namespace,
    refused_hosts::RefusedHosts,
    request::{ProxyRequest, RequestKind, parse},
    rules::{NetworkAccess, NetworkError},
};

const MAX_CONNECTIONS: usize = 128;
/// Files that a process needs besides those of connections.
const OTHER_FILES: u64 = 48;
const MAX_HEAD_BYTES: usize = 16 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For one of several addresses.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ADDRESSES: usize = 8;
/// Limits of what is read behind the last answer: a socket that is closed with unread bytes loses the answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: u64 = 1 << 20;
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 8 << 10;
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

const PROXY_VARIABLES: &[&str] =
    &["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
const EXCEPTION_VARIABLES: &[&str] = &["no_proxy", "NO_PROXY"];
const LOOPBACK: &str = "localhost,127.0.0.1,::1";

/// The proxy of one command. Dropping this closes it with all its connections.
#[derive(Debug)]
pub(in crate::process::sandbox) struct HostProxy {
    port: u16,
    /// The hosts that clients reach without the proxy.
    exceptions: &'static str,
    refused: RefusedHosts,
    server: AbortHandle,
}

impl Drop for HostProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl HostProxy {
    /// If the network is limited to hosts, moves the calling thread into a network namespace of its own and starts a
    /// proxy in there. The runtime that the thread has entered serves it, on threads that stay outside.
    pub(in crate::process::sandbox) fn start(access: &NetworkAccess) -> Result<Option<Self>, NetworkError> {
        let NetworkAccess::Hosts(rules) = access else { return Ok(None) };
        namespace::enter().map_err(NetworkError::Namespace)?;
        let (listener, port) = listen().map_err(NetworkError::Proxy)?;
        // Servers that the command starts itself are reached directly, unless the operator means those of the machine.
        let exceptions = if have_loopback(rules) { "" } else { LOOPBACK };
        let refused = RefusedHosts::default();
        let serving = serve(listener, Resolver::new(rules.clone()).into(), refused.clone());
        let server = tokio::spawn(serving).abort_handle();
        Ok(Some(Self { port, exceptions, refused, server }))
    }

    /// What clients could not reach.
    pub(in crate::process::sandbox) fn refused(&self) -> &RefusedHosts {
        &self.refused
    }

    /// The variables by which clients find the proxy.
    pub(in crate::process::sandbox) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let url = format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port);
        let exceptions = EXCEPTION_VARIABLES.iter().map(|name| (*name, self.exceptions.to_owned()));
        PROXY_VARIABLES.iter().map(move |name| (*name, url.clone())).chain(exceptions)
    }
}

fn listen() -> io::Result<(TcpListener, u16)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((TcpListener::from_std(listener)?, port))
}

/// Connections for which this process has files: each needs two.
fn max_connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(OTHER_FILES) / 2;
    usize::try_from(connections).unwrap_or(MAX_CONNECTIONS).clamp(1, MAX_CONNECTIONS)
}

/// Serves until it is aborted. Connections above the limit wait in the queue of the listener.
async fn serve(listener: TcpListener, resolver: Arc<Resolver>, refused: RefusedHosts) {
    let max_connections = max_connections();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < max_connections => match accepted {
                Ok((client, _)) => {
                    send_at_once(&client);
                    connections.spawn(serve_client(client, Arc::clone(&resolver), refused.clone()));
                }
                // Such as too few files: those of connections that end.
                Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Handshakes are small messages that each side waits for.
fn send_at_once(stream: &TcpStream) {
    // Without it they are slower.
    let (Ok(()) | Err(_)) = stream.set_nodelay(true);
}

/// Why a connection ends before its exchange.
#[derive(Debug)]
enum ConnectionEnd {
    /// The client gets an answer.
    Answer(ProxyAnswer),
    /// The client or the host is gone.
    Gone,
}

impl From<ProxyAnswer> for ConnectionEnd {
    fn from(answer: ProxyAnswer) -> Self {
        Self::Answer(answer)
    }
}

impl From<io::Error> for ConnectionEnd {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

async fn serve_client<C>(mut client: C, resolver: Arc<Resolver>, refused: RefusedHosts)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let end = exchange(&mut client, &resolver).await;
    let finish = async {
        if let Err(ConnectionEnd::Answer(answer)) = end {
            refused.add(&answer);
            client.write_all(&answer.bytes()).await?;
        }
        client.shutdown().await?;
        copy(&mut client.take(MAX_LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // A client that is gone needs no answer.
    let (Some(_) | None) = ActiveDeadline::after(LINGER_TIMEOUT).bound(finish).await;
}

/// Serves the only request of a connection.
async fn exchange<C>(client: &mut C, resolver: &Resolver) -> Result<(), ConnectionEnd>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let request = ActiveDeadline::after(HEAD_TIMEOUT).bound(read_request(client)).await;
    let (request, rest) = request.ok_or_else(ProxyAnswer::slow)??;
    let host = ActiveDeadline::after(CONNECT_TIMEOUT).bound(connect(resolver, &request)).await;
    let too_slow = || ProxyAnswer::unreachable(&request.host, request.port, "it does not answer");
    let mut host = host.ok_or_else(too_slow)??;
    match request.kind {
        RequestKind::Tunnel => {
            client.write_all(ESTABLISHED).await?;
            host.write_all(&rest).await?;
            copy_bidirectional(client, &mut host).await?;
        }
        RequestKind::Forward { head, body } => forward(client, &mut host, &head, body, &rest).await?,
    }
    Ok(())
}

/// The request, and the bytes behind its head.
async fn read_request<C>(client: &mut C) -> Result<(ProxyRequest, Vec<u8>), ConnectionEnd>
where
    C: AsyncRead + Unpin,
{
    let mut bytes = Vec::with_capacity(MAX_HEAD_BYTES);
    while bytes.len() < MAX_HEAD_BYTES {
        // A head that comes byte by byte is not parsed for each of them.
        let seen = bytes.len().saturating_sub(b"\n\r\n".len());
        let left = MAX_HEAD_BYTES - bytes.len();
        if (&mut *client).take(left as u64).read_buf(&mut bytes).await? == 0 {
            return Err(ConnectionEnd::Gone);
        }
        let may_be_whole =
            [&b"\n\r\n"[..], b"\n\n"].iter().any(|end| memmem::find(&bytes[seen..], end).is_some());
        if may_be_whole && let Some((request, length)) = parse(&bytes)? {
            return Ok((request, bytes.split_off(length)));
        }
    }
    Err(ProxyAnswer::too_large().into())
}

/// Connects to an address that was judged.
async fn connect(resolver: &Resolver, request: &ProxyRequest) -> Result<TcpStream, ProxyAnswer> {
    let ProxyRequest { host, port, .. } = request;
    let addresses = resolver.addresses(host, *port).await.map_err(|error| match error {
        AddressError::Refused(access) => ProxyAnswer::refused(access, host, *port),
        AddressError::Lookup(error) => ProxyAnswer::unreachable(host, *port, error),
    })?;
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        match ActiveDeadline::after(ADDRESS_TIMEOUT).bound(TcpStream::connect(address)).await {
            Some(Ok(stream)) => {
                send_at_once(&stream);
                return Ok(stream);
            }
            Some(Err(error)) => failure = error,
            None => {}
        }
    }
    Err(ProxyAnswer::unreachable(host, *port, failure))
}

/// Sends one request, and all that the host answers.
async fn forward<C>(
    client: &mut C,
    host: &mut TcpStream,
    head: &[u8],
    length: BodyLength,
    rest: &[u8],
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    host.write_all(head).await?;
    let (from_client, mut to_client) = split(client);
    let (mut from_host, to_host) = host.split();
    let mut answer = pin!(copy(&mut from_host, &mut to_client));
    tokio::select! {
        // A host may answer before it has read the body.
        answered = &mut answer => return answered.map(drop),
        sent = send_body(rest.chain(from_client), to_host, length) => sent?,
    }
    answer.await.map(drop)
}

/// Sends a body, and nothing that follows it. An error is one of the client.
async fn send_body(
    mut client: impl AsyncRead + Unpin,
    mut host: impl AsyncWrite + Unpin,
    length: BodyLength,
) -> io::Result<()> {
    let mut scanner = BodyScanner::new(length);
    let mut chunk = vec![0; CHUNK_BYTES];
    while !scanner.is_at_end() {
        let count = client.read(&mut chunk).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = scanner.scan(&chunk[..count]).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if host.write_all(&chunk[..count]).await.is_err() {
            // It wants no more, and its answer says why.
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn resolver(rules: &[&str]) -> Arc<Resolver> {
        Resolver::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()).into()
    }

    /// All that the proxy answers to these bytes. `is_closed` tells whether the client closes its side.
    async fn answer(rules: &[&str], bytes: &[u8], is_closed: bool) -> String {
        let (mut client, server) = duplex(1 << 20);
        let serving = tokio::spawn(serve_client(server, resolver(rules), RefusedHosts::default()));
        client.write_all(bytes).await.unwrap();
        if is_closed {
            client.shutdown().await.unwrap();
        }
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        drop(client);
        serving.await.unwrap();
        text
    }

    const SERVED: &str = "HTTP/1.1 200 OK\r\n\r\nserved";

    /// Checks what a host gets of a client's bytes. It answers when it has the expected ones. `HOST` stands for its
    /// address.
    async fn check_forwarded(bytes: &str, expected: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let expected = expected.replace("HOST", &address);
        let mut request = vec![0; expected.len()];
        let host = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(SERVED.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            stream.read_to_end(&mut request).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let answered = answer(&[&address], bytes.replace("HOST", &address).as_bytes(), false).await;
        assert_eq!((&*answered, &*host.await.unwrap()), (SERVED, &*expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_is_given_up() {
        let start = tokio::time::Instant::now();
        for bytes in [&b""[..], b"GET http://a.org/ HTTP/1.1\r\nA: b\r\n"] {
            let answer = answer(&[], bytes, false).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
        let limit = 2 * HEAD_TIMEOUT;
        assert!((limit..limit + Duration::from_secs(1)).contains(&start.elapsed()), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_comes_byte_by_byte_is_given_up() {
        let (mut client, server) = duplex(1 << 20);
        let serving = tokio::spawn(serve_client(server, resolver(&[]), RefusedHosts::default()));
        let mut sent = 0;
        while client.write_all(b"G").await.is_ok() && sent < 100 && !serving.is_finished() {
            sent += 1;
            sleep(Duration::from_secs(1)).await;
        }
        let seconds = HEAD_TIMEOUT.as_secs() + LINGER_TIMEOUT.as_secs();
        assert!((10..=seconds + 1).contains(&sent), "{sent}");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }

    #[tokio::test]
    async fn what_is_no_request_is_answered_or_closed() {
        let check = async |bytes: &[u8], is_closed, expected: &str| {
            let answer = answer(&["a.org"], bytes, is_closed).await;
            assert_eq!(answer.lines().next().unwrap_or_default(), expected);
        };
        let bomb = format!("GET http://a.org/ HTTP/1.1\r\nA: {}", "b".repeat(200_000));
        check(bomb.as_bytes(), false, "HTTP/1.1 431 Request Header Fields Too Large").await;
        let many = format!("GET http://a.org/ HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(500));
        check(many.as_bytes(), false, "HTTP/1.1 431 Request Header Fields Too Large").await;
        check(b"GET http://a.org/ HTTP/1.1\r\nHo", true, "").await;
        check(b"", true, "").await;
        check(b"\xff\xfe\x00\r\n\r\n", false, "HTTP/1.1 400 Bad Request").await;
        check(b"\r\n\r\n\r\n", true, "").await;
        check(b"GET / HTTP/1.1\r\n\r\n", false, "HTTP/1.1 400 Bad Request").await;
        check(b"CONNECT b.org:443 HTTP/1.1\r\n\r\n", false, "HTTP/1.1 403 Refused by sandbox.network").await;
    }

    #[tokio::test]
    async fn one_request_with_its_body_reaches_the_host() {
        check_forwarded(
            "GET http://HOST/a?b HTTP/1.1\r\nHost: evil.org\r\n\r\nGET / HTTP/1.1\r\nHost: evil.org\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n",
        )
        .await;
        check_forwarded(
            "POST http://HOST/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\nContent-Length: 4\r\n\r\nbody",
        )
        .await;
        let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        check_forwarded(
            &format!("PUT http://HOST/ HTTP/1.1\r\n{chunked}GET / HTTP/1.1\r\n\r\n"),
            &format!("PUT / HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n{chunked}"),
        )
        .await;
    }

    #[tokio::test]
    async fn a_host_may_answer_before_it_has_the_body() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let host = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(SERVED.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let request = format!("POST http://{address}/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
        assert_eq!(answer(&[&address], request.as_bytes(), false).await, SERVED);
        host.await.unwrap();
    }

    #[tokio::test]
    async fn a_tunnel_carries_bytes_both_ways_until_both_sides_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let host = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let request = format!("CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n\0\u{1}echo");
        let expected = format!("{}\0\u{1}echo", str::from_utf8(ESTABLISHED).unwrap());
        assert_eq!(answer(&[&address], request.as_bytes(), true).await, expected);
        host.await.unwrap();
    }

    #[tokio::test]
    async fn a_host_that_is_not_there_is_named() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let request = format!("GET http://{address}/ HTTP/1.1\r\n\r\n");
        let answer = answer(&[&address], request.as_bytes(), false).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(&address), "{answer}");
    }
}
