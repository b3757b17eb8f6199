//! The service with a certificate: runs, events and WebSockets over TLS, what is no handshake, and renewed files.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use serde_json::{Value, json};
use tungstenite::{Message, client::IntoClientRequest as _};

use crate::{
    http::Answer,
    running::{Lines, until},
    served::{Served, scripts},
    world::World,
};

/// A name of the certificates beside those of this machine.
const NAME: &str = "hermod.test";
const READ_TIMEOUT: Duration = Duration::from_mins(1);

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(fixture(&format!("{name}.pem"))).unwrap()
}

/// Where the files of a service are.
fn files(world: &World) -> (PathBuf, PathBuf) {
    let folder = world.state().with_file_name("tls");
    (folder.join("certificate.pem"), folder.join("key.pem"))
}

/// Replaces the certificate and then its key, as a tool that renews them does.
fn install(world: &World, certificate: &str, key: &str) {
    let (to_certificate, to_key) = files(world);
    fs::create_dir_all(to_key.parent().unwrap()).unwrap();
    for (from, to) in [(format!("{certificate}.pem"), to_certificate), (format!("{key}.key.pem"), to_key)] {
        let new = to.with_extension("new");
        fs::write(&new, fs::read(fixture(&from)).unwrap()).unwrap();
        fs::rename(new, to).unwrap();
    }
}

/// A service with the certificate `first`, and with further settings.
fn start_with(more: &[(&'static str, &str)]) -> Served {
    let world = World::new();
    install(&world, "first", "first");
    Served::start_with((world, &scripts()), |world| {
        let (certificate, key) = files(world);
        let settings: [(_, OsString); 2] = [
            ("HERMOD_SERVICE__TLS_CERTIFICATE", certificate.into()),
            ("HERMOD_SERVICE__TLS_KEY", key.into()),
        ];
        settings.into_iter().chain(more.iter().map(|(name, value)| (*name, (*value).into()))).collect()
    })
}

/// A connection after its handshake, of a client that trusts the certificates of the tests.
fn connect_with(address: &str, versions: &[&'static SupportedProtocolVersion]) -> io::Result<TlsClient> {
    let mut roots = RootCertStore::empty();
    for name in ["first", "second"] {
        roots.add(certificate(name)).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(NAME).unwrap()).unwrap();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

#[track_caller]
fn connect(served: &Served) -> TlsClient {
    connect_with(served.address(), &[&TLS13]).unwrap()
}

/// The certificate that a new connection gets.
#[track_caller]
fn presented(served: &Served) -> CertificateDer<'static> {
    connect(served).conn.peer_certificates().unwrap()[0].clone()
}

/// The answer to a request with the token, over a connection of its own.
#[track_caller]
fn send(served: &Served, operation: (&str, &str), body: &Value) -> Answer<TlsClient> {
    send_over(connect(served), served, operation, body)
}

#[track_caller]
fn send_over(client: TlsClient, served: &Served, operation: (&str, &str), body: &Value) -> Answer<TlsClient> {
    let bearer = format!("Bearer {}", served.token);
    let headers = [("host", NAME), ("authorization", &bearer), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Answer::over(client, operation, &headers, &body)
}

#[track_caller]
fn submit(served: &Served, input: &str) -> String {
    let answer = send(served, ("POST", "/v1/runs"), &json!({ "input": input }));
    assert_eq!(answer.status, 202);
    answer.json()["run"].as_str().unwrap().to_owned()
}

#[track_caller]
fn check_ended(events: &[String]) {
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["kind"], "run.ended", "{last}");
}

#[test]
fn runs_events_and_sockets_work_over_tls() {
    let served = start_with(&[]);
    let run = submit(&served, "hello");
    let events = send(&served, ("GET", &format!("/v1/runs/{run}/events")), &Value::Null).events();
    check_ended(&events);

    let client = connect_with(served.address(), &[&TLS12]).unwrap();
    assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let waited =
        send_over(client, &served, ("GET", &format!("/v1/runs/{run}/wait?timeout=60s")), &Value::Null);
    assert_eq!(waited.json()["answer"], "[rehearsal] You said: hello");

    let mut request = format!("ws://{NAME}/rpc").into_client_request().unwrap();
    let bearer = format!("Bearer {}", served.token);
    request.headers_mut().insert("authorization", bearer.parse().unwrap());
    request.headers_mut().insert("origin", format!("https://{NAME}").parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, connect(&served)).unwrap();
    socket.send(Message::text(r#"{"jsonrpc":"2.0","id":1,"method":"sessions.list"}"#)).unwrap();
    // A ping may come before the answer.
    let answer = std::iter::repeat_with(|| socket.read().unwrap()).find(Message::is_text).unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!(answer["result"]["count"], 1, "{answer}");

    let told = served.world.ok(&["status"]);
    assert!(told.starts_with("service      serving at https://127.0.0.1:"), "{told}");
    let metrics = send(&served, ("GET", "/metrics"), &Value::Null).text();
    let expiry = metrics.lines().find_map(|line| line.strip_prefix("hermod_tls_certificate_expiry_seconds "));
    // 2126-01-01
    assert!(expiry.unwrap().parse::<f64>().unwrap() > 4.92e9, "{expiry:?}");
}

#[test]
fn names_of_the_certificate_are_hosts_and_others_are_not() {
    let served = start_with(&[]);
    let check = |host: &str, status: u16| {
        let answer = Answer::over(connect(&served), ("GET", "/livez"), &[("host", host)], "");
        assert_eq!(answer.status, status, "{host}");
    };
    check("hermod.test", 200);
    check("HERMOD.test:7717", 200);
    check("192.0.2.7", 200);
    check("localhost", 200);
    check("a.pages.test", 421);
    check("evil.test", 421);
}

#[test]
fn what_is_no_handshake_is_closed_and_costs_nobody_else_anything() {
    let served = start_with(&[("HERMOD_SERVICE__CONNECTIONS", "1")]);
    let mut half = TcpStream::connect(served.address()).unwrap();
    half.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    // The head of a record of 512 bytes that never come.
    half.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    // It counts among the connections; the further ones make their handshakes meanwhile.
    let refused = send(&served, ("GET", "/v1/runs"), &Value::Null);
    assert_eq!(refused.status, 503);
    let mut plain = TcpStream::connect(served.address()).unwrap();
    plain.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    drop(TcpStream::connect(served.address()).unwrap());
    assert_eq!(send(&served, ("GET", "/livez"), &Value::Null).status, 200);
    assert!(!String::from_utf8_lossy(&rest(&mut plain)).contains("HTTP/"), "no answer in plain text");
    assert_eq!(rest(&mut half), b"", "it is closed without an answer");
    until("its place is free", || send(&served, ("GET", "/v1/runs"), &Value::Null).status == 200);
}

/// What is read until the end of a connection, which may be a reset.
#[track_caller]
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

#[test]
fn new_connections_get_a_renewed_certificate_and_streams_go_on() {
    let mut served = start_with(&[]);
    let run = submit(&served, "wait");
    let mut stream = send(&served, ("GET", &format!("/v1/runs/{run}/events")), &Value::Null);
    assert!(stream.chunk().is_some());
    assert_eq!(presented(&served), certificate("first"));

    install(&served.world, "second", "second");
    until("the files are looked at", || presented(&served) == certificate("second"));

    // A pair of two renewals changes nothing, also if a reload is asked for.
    install(&served.world, "first", "second");
    served.world.fails(&["config", "reload"], 78, "service.tls_key");
    assert_eq!(presented(&served), certificate("second"));
    served.signal(Signal::HUP);
    served.noted("not reloaded, the present one stays: service.tls_key = ");
    assert_eq!(presented(&served), certificate("second"));

    // At a signal no client is needed.
    install(&served.world, "first", "first");
    served.signal(Signal::HUP);
    served.noted("new connections get the new certificate");
    assert_eq!(presented(&served), certificate("first"));

    served.world.release();
    check_ended(&stream.events());
}

#[test]
fn a_pair_that_cannot_be_used_is_refused_at_the_start() {
    let world = World::new();
    let (certificate, key) = files(&world);
    let configure = |certificate: &str, key: &str| {
        world.configure(&format!("[service]\ntls_certificate = \"{certificate}\"\ntls_key = \"{key}\"\n"));
    };
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    configure(certificate, key);
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    world.fails(&serve, 78, &format!("service.tls_certificate = \"{certificate}\": cannot be read"));
    install(&world, "first", "second");
    world.fails(&serve, 78, &format!("service.tls_key = \"{key}\": is not the key of the certificate"));
    configure(certificate, "");
    world.fails(&serve, 78, "needs its private key too; set service.tls_key");
    configure("", "");
    let options = ["--tls-certificate", certificate, "--tls-key", key];
    let part = format!("--tls-key {key}: is not the key of the certificate in {certificate}");
    world.fails(&[&serve[..], &options].concat(), 2, &part);
    world.fails(&[&serve[..], &options[..2]].concat(), 2, "--tls-key");
}

#[test]
fn other_machines_are_served_with_tls_or_behind_a_proxy() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "hi" }]));
    let serve = ["serve", &script, "--listen", "0.0.0.0:0"];
    world.fails(&serve, 2, "service.tls_certificate and service.tls_key");
    world.fails(&serve, 2, "--behind-proxy");
    install(&world, "first", "first");
    let (certificate, key) = files(&world);
    let options = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let mut running = world.running(&[&serve[..], &options].concat());
    let mut lines = Lines::of(&mut running);
    let line = lines.until("serving");
    let port = line.split("https://0.0.0.0:").nth(1).unwrap_or_else(|| panic!("{line}")).trim();
    let client = connect_with(&format!("127.0.0.1:{port}"), &[&TLS13]).unwrap();
    assert_eq!(Answer::over(client, ("GET", "/readyz"), &[("host", NAME)], "").status, 200);
}
