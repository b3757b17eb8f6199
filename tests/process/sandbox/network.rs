//! A network that is limited to hosts: what commands reach, and what they do to the proxy.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
    thread::{self, JoinHandle},
};

use hermod::process::{runner::RunnerOutcome, sandbox::NetworkAccess};
use tokio::time::timeout;

use super::{Cell, Ended, HERMOD, SOON, python};

/// A server that answers each request with its own text.
struct Server {
    port: u16,
    serving: Option<JoinHandle<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = thread::spawn(move || {
            let mut requests = Vec::new();
            loop {
                let (stream, _) = listener.accept().unwrap();
                match serve(stream) {
                    Some(request) => requests.push(request),
                    None => return requests,
                }
            }
        });
        Self { port, serving: Some(serving) }
    }

    /// The requests that came.
    fn requests(mut self) -> Vec<String> {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap().write_all(b"END\r\n\r\n").unwrap();
        self.serving.take().unwrap().join().unwrap()
    }
}

/// The request; `None` for the last one.
fn serve(mut stream: TcpStream) -> Option<String> {
    let (mut text, mut chunk) = (String::new(), [0; 4096]);
    while !text.contains("\r\n\r\n") {
        let count = stream.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "{text}");
        text.push_str(str::from_utf8(&chunk[..count]).unwrap());
    }
    if text.starts_with("END") {
        return None;
    }
    let length = text.len();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}").unwrap();
    Some(text)
}

fn limited(hosts: &[&str]) -> Cell {
    let mut cell = Cell::new();
    cell.rules.network = NetworkAccess::Hosts(hosts.iter().map(|host| host.parse().unwrap()).collect());
    cell
}

impl Cell {
    /// Runs a script as a child of this process, by a runner and by a runner of an ordinary user.
    async fn run_everywhere(&self, script: &str) -> Vec<Ended> {
        let mut ends = Vec::new();
        if rustix::process::geteuid().is_root() {
            ends.push(self.run(script).await);
        }
        ends.push(self.run_detached(script).await);
        fs::remove_dir_all(self.at("state/spool")).unwrap();
        ends.push(self.run_as_user(script).await);
        fs::remove_dir_all(self.at("state/spool")).unwrap();
        ends
    }

    async fn prints_everywhere(&self, script: &str, expected: &str) {
        for end in self.run_everywhere(script).await {
            assert_eq!((end.code, &*end.stdout), (Some(0), expected), "{script}: {end:?}");
        }
    }
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_listed_host_is_reached_by_requests_and_by_tunnels() {
    let server = Server::start();
    let port = server.port;
    let cell = limited(&[&format!("127.0.0.1:{port}")]);
    let client = format!(
        "import http.client, os, urllib.request\n\
         url = \"http://127.0.0.1:{port}/plain?x\"\n\
         print(urllib.request.urlopen(url, timeout=60).read().decode().split(\"\\r\\n\")[0])\n\
         print(urllib.request.urlopen(url, data=b\"body\", timeout=60).status)\n\
         proxy = os.environ[\"https_proxy\"].removeprefix(\"http://\")\n\
         tunnel = http.client.HTTPConnection(proxy, timeout=60)\n\
         tunnel.set_tunnel(\"127.0.0.1\", {port})\n\
         tunnel.request(\"GET\", \"/tunnelled\")\n\
         print(tunnel.getresponse().read().decode().split(\"\\r\\n\")[0])"
    );
    cell.prints_everywhere(&python(&client), "GET /plain?x HTTP/1.1\n200\nGET /tunnelled HTTP/1.1\n").await;
    let requests = server.requests();
    for (index, request) in requests.iter().enumerate() {
        let host = format!("host: 127.0.0.1:{port}\r\n");
        assert!(request.to_lowercase().contains(&host), "{request}");
        assert_eq!(request.contains("connection: close\r\n"), index % 3 < 2, "{request}");
    }
    assert!(requests.len() == 6 || requests.len() == 9, "{requests:?}");
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_host_that_is_not_listed_is_refused_with_its_setting() {
    let (server, other) = (Server::start(), TcpListener::bind("127.0.0.1:0").unwrap());
    let cell = limited(&[&format!("127.0.0.1:{}", server.port), "*.example.com", "localhost"]);
    let port = other.local_addr().unwrap().port();
    let check = async |curl: &str, host: &str| {
        for end in cell.run_everywhere(&format!("curl -sS --max-time 60 {curl}")).await {
            let says = format!("adding \"{host}\" to sandbox.network");
            assert!(end.stdout.contains(&says), "{curl}: {end:?}");
        }
    };
    check(&format!("http://127.0.0.1:{port}/"), &format!("127.0.0.1:{port}")).await;
    check("http://example.com/", "example.com:80").await;
    // A name without its port leads to no address of this machine.
    check("http://localhost/", "localhost:80").await;
    let tunnel = format!("curl -sS --max-time 60 -p http://127.0.0.1:{port}/");
    for end in cell.run_everywhere(&tunnel).await {
        assert_eq!(end.code, Some(56), "{end:?}");
        let line = format!("\nhermod: sandbox.network does not allow 127.0.0.1:{port}; only the operator");
        assert!(end.stderr.contains("403") && end.stderr.contains(&line), "{end:?}");
    }
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "nothing came");
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn past_the_proxy_there_is_only_the_loopback_of_the_command() {
    let (server, udp) = (Server::start(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (port, udp_port) = (server.port, udp.local_addr().unwrap().port());
    let cell = limited(&[&format!("127.0.0.1:{port}")]);
    let attempts = format!(
        "import socket\n\
         def tries(name, attempt):\n\
         \x20   try:\n\
         \x20       attempt()\n\
         \x20       print(name, \"possible\")\n\
         \x20   except OSError:\n\
         \x20       pass\n\
         new = socket.socket\n\
         tries(\"tcp\", lambda: socket.create_connection((\"127.0.0.1\", {port}), 5))\n\
         tries(\"outside\", lambda: socket.create_connection((\"192.0.2.1\", 443), 5))\n\
         tries(\"outside 6\", lambda: socket.create_connection((\"2001:db8::1\", 443), 5))\n\
         tries(\"udp\", lambda: new(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"192.0.2.1\", 53)))\n\
         tries(\"broadcast\", lambda: new(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"255.255.255.255\", 9)))\n\
         tries(\"raw\", lambda: new(socket.AF_INET, socket.SOCK_RAW, 1))\n\
         tries(\"raw 6\", lambda: new(socket.AF_INET6, socket.SOCK_RAW, 58))\n\
         tries(\"ping\", lambda: new(socket.AF_INET, socket.SOCK_DGRAM, 1))\n\
         tries(\"packet\", lambda: new(socket.AF_PACKET, socket.SOCK_RAW))\n\
         tries(\"netlink\", lambda: new(socket.AF_NETLINK, socket.SOCK_RAW))\n\
         tries(\"unix\", lambda: new(socket.AF_UNIX))\n\
         tries(\"vsock\", lambda: new(40, socket.SOCK_STREAM))\n\
         new(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", {udp_port}))\n\
         for family, host in [(socket.AF_INET, \"127.0.0.1\"), (socket.AF_INET6, \"::1\")]:\n\
         \x20   server = new(family)\n\
         \x20   server.bind((host, 0))\n\
         \x20   server.listen()\n\
         \x20   client = socket.create_connection(server.getsockname()[:2], 5)\n\
         \x20   client.sendall(b\"x\")\n\
         \x20   print(host, server.accept()[0].recv(1))\n\
         print(sorted(line.split(\":\")[0].strip() for line in open(\"/proc/net/dev\") if \":\" in line))"
    );
    let cell_prints = "127.0.0.1 b'x'\n::1 b'x'\n['lo']\n";
    cell.prints_everywhere(&format!("cat > t.py <<'E'\n{attempts}\nE\npython3 t.py"), cell_prints).await;
    udp.set_nonblocking(true).unwrap();
    assert!(udp.recv(&mut [0]).is_err(), "no datagram came");
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn a_server_of_the_command_is_reached_by_clients_that_know_the_proxy() {
    let cell = limited(&["example.com"]);
    // The log of the run before names a port that is closed.
    let script = "rm -f log; python3 -m http.server --bind 127.0.0.1 0 > log 2>&1 & \
        while ! grep -q 'port [0-9]' log; do sleep 0.01; done; port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' log); \
        curl -sS --max-time 60 http://127.0.0.1:$port/known && curl -sS --max-time 60 http://localhost:$port/known";
    let script = format!("export PYTHONUNBUFFERED=1; {script}");
    cell.prints_everywhere(&script, "knownknown").await;
}

/// Sends bytes to the proxy, and prints the first line of the answer.
const HOSTILE: &str = r#"
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
def send(data, closes=False):
    proxy = socket.create_connection((host, int(port)), 60)
    try:
        proxy.sendall(data)
        if closes:
            proxy.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    answer = b""
    try:
        while chunk := proxy.recv(65536):
            answer += chunk
    except OSError as error:
        print("no end:", error)
    assert len(answer) < 10_000
    print(answer.split(b"\r\n")[0].decode())
send(b"GET http://a.org/ HTTP/1.1\r\nA: " + b"b" * 300_000)
send(b"A: b\r\n" * 100_000)
send(b"GET http://a.org/ HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n")
send(b"GET http://a.org/ HTTP/1.1\r\nHo", True)
send(b"", True)
send(b"\xff\xfe\xfd\r\n\r\n")
send(b"CONNECT \xff\xfe:443 HTTP/1.1\r\n\r\n")
send(b"CONNECT " + b"a" * 10_000 + b":443 HTTP/1.1\r\n\r\n")
send(b"CONNECT 127.0.0.1:99999999999 HTTP/1.1\r\n\r\n")
send(b"CONNECT [::ffff:127.0.0.1]:1 HTTP/1.1\r\n\r\n")
send(b"CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n")
send(b"CONNECT 0.0.0.0:443 HTTP/1.1\r\n\r\n")
send(b"CONNECT * HTTP/1.1\r\n\r\n")
send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
send(b"GET http://a.org/ HTTP/1.1\r\nA: \0\r\n\r\n")
held = [socket.create_connection((host, int(port)), 60) for _ in range(100)]
send(b"CONNECT evil.org:443 HTTP/1.1\r\n\r\n")
print("done")
"#;

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn hostile_clients_get_bounded_answers() {
    let cell = limited(&["example.com"]);
    let [bad, refused] = ["HTTP/1.1 400 Bad Request", "HTTP/1.1 403 Refused by sandbox.network"];
    let large = "HTTP/1.1 431 Request Header Fields Too Large";
    let expected = [
        large, large, large, "", "", bad, bad, bad, bad, refused, bad, refused, bad, bad, bad, refused,
        "done",
    ];
    let expected = expected.map(|line| format!("{line}\n")).concat();
    cell.prints_everywhere(&format!("cat > t.py <<'E'\n{HOSTILE}\nE\npython3 t.py"), &expected).await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn connections_end_with_the_command() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let cell = limited(&[&format!("127.0.0.1:{port}")]);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // Its end, or a reset.
        match stream.read(&mut [0]).map_err(|error| error.kind()) {
            Ok(0) | Err(ErrorKind::ConnectionReset) => {}
            other => panic!("{other:?}"),
        }
    });
    // It stays in the background.
    let client = "import os, socket\n\
         host, port = os.environ[\"http_proxy\"].removeprefix(\"http://\").split(\":\")\n\
         proxy = socket.create_connection((host, int(port)), 60)\n\
         proxy.sendall(f\"CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\n\\r\\n\".encode())\n\
         assert b\"200\" in proxy.recv(100)\n\
         open(\"ready\", \"w\").close()\n\
         proxy.recv(1)"
        .replace("PORT", &port.to_string());
    let script = format!(
        "({} > out 2>&1 &); while [ ! -e ready ]; do sleep 0.01; done",
        python(&client).replace("python3", "setsid python3")
    );
    assert_eq!(cell.run_detached(&script).await.code, Some(0));
    assert!(super::exists(&cell.at("work/ready")));
    server.join().unwrap();
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn hidden_paths_in_the_workspace_are_covered_too() {
    let mut cell = limited(&["example.com"]);
    cell.workspace = String::new();
    let script = "cd $1 && cat work/known && ls state && echo x > new && rm new && [ -n \"$https_proxy\" ] \
        && ! cat state/control.token 2> work/error";
    cell.prints_everywhere(script, "knowntmp\n").await;
}

#[tokio::test]
#[cfg_attr(no_sandbox, ignore = "the sandbox needs Linux 6.12: see README.md, Two commands")]
async fn without_a_namespace_a_command_is_not_run() {
    let cell = limited(&["example.com"]);
    let runner = cell.at("runner");
    let text = format!(
        "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" \"$@\"' '{HERMOD}' \"$@\"\n"
    );
    fs::write(&runner, text).unwrap();
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
    let runner = cell.start(&runner, "echo x > ran").await;
    let RunnerOutcome::Ended(exit) = timeout(SOON, runner.wait(&cell.cancel)).await.unwrap() else {
        panic!("the runner says why");
    };
    let error = exit.end.unwrap_err();
    assert!(error.contains("sandbox.network"), "{error}");
    assert!(error.contains("\"off\" or \"on\""), "{error}");
    assert!(!super::exists(&cell.at("work/ran")));
}
