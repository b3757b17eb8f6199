//! The service as its operator uses it: drain, status, reload, the service manager, logs, and the control socket when many
//! follow runs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    os::unix::net::{UnixDatagram, UnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, texts, until},
    served::{Served, scripts},
    world::World,
};

/// Clients that may follow runs at the same time; see docs/control.md.
const MAX_FOLLOWERS: usize = 192;

impl Served {
    #[track_caller]
    fn begin(&self, input: &str) -> String {
        let run = self.post("/v1/runs", &json!({ "input": input })).json()["run"].clone();
        run.as_str().expect("a run").to_owned()
    }

    /// The run whose command is under way.
    #[track_caller]
    pub(crate) fn begin_waiting(&self) -> String {
        let run = self.begin("wait");
        until("the command runs", || self.world.work().join("ran").exists());
        run
    }

    #[track_caller]
    pub(crate) fn outcome(&self, run: &str) -> Value {
        self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json()["outcome"].clone()
    }

    /// The exit code of `hermod status`, and its JSON.
    #[track_caller]
    fn status(&self) -> (i32, Value) {
        status(&self.world)
    }
}

#[track_caller]
fn status(world: &World) -> (i32, Value) {
    let output = world.run(&["status", "--json"]);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{:?}", texts(&output)));
    (output.status.code().expect("an exit code"), value)
}

#[test]
fn a_drained_service_takes_no_work_and_ends_with_its_runs() {
    let mut served = Served::start(&scripts());
    let run = served.begin_waiting();
    let draining = served.world.running(&["drain", "--timeout", "2m"]);
    until("it drains", || served.send_plain(("GET", "/readyz"), &[], "").status == 503);
    let refused = served.post("/v1/runs", &json!({ "input": "new" }));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.json()["detail"].as_str().unwrap().starts_with("draining"));
    served.world.fails(&["run", "--rehearse", "new"], 75, "draining");
    let (code, shown) = served.status();
    assert_eq!((code, &shown["phase"], &shown["runs"]["running"]), (1, &json!("draining"), &json!(1)));
    // A run under way can still be told something.
    assert_eq!(served.post(&format!("/v1/runs/{run}/steer"), &json!({ "text": "hurry" })).status, 202);
    served.world.release();
    let (told, errors) = texts(&draining.end());
    assert_eq!(told, "drained: every run has ended\n", "{errors}");
    served.has_ended();
    served.start_again();
    assert_eq!(served.outcome(&run), "completed");
    assert_eq!(served.runs(), 1);
}

#[test]
fn what_a_drain_leaves_goes_on_at_the_next_start() {
    let mut served = Served::start(&scripts());
    let run = served.begin_waiting();
    let told = served.world.ok(&["drain", "--timeout", "100ms", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), json!({ "suspended": 1, "parked": 0 }));
    served.has_ended();
    served.world.release();
    served.start_again();
    assert_eq!(served.outcome(&run), "completed");
    assert_eq!(served.world.times_run(), 1);
}

#[test]
fn a_status_tells_whether_a_service_works() {
    let mut served = Served::start(&scripts());
    let (code, shown) = served.status();
    assert_eq!((code, &shown["phase"], &shown["reasons"]), (0, &json!("serving"), &json!([])));
    assert_eq!(shown["pid"], served.pid());
    let document = include_str!("../../docs/json.md");
    let undescribed = shown.as_object().unwrap().keys().find(|key| !document.contains(&format!("`{key}`")));
    assert_eq!(undescribed, None, "docs/json.md does not describe it");
    assert!(shown["address"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let told = served.world.ok(&["status"]);
    assert!(told.starts_with("service      serving at http://127.0.0.1:"), "{told}");
    served.stop();
    let (code, shown) = served.status();
    assert_eq!((code, &shown["pid"], &shown["owner"]), (1, &Value::Null, &Value::Null));
    served.world.fails(&["drain"], 1, "no service runs");
    served.world.fails(&["config", "reload"], 1, "no service runs");

    let world = World::new();
    let command = world.started(&[]);
    let (code, shown) = status(&world);
    assert_eq!((code, &shown["pid"], &shown["owner"]), (1, &Value::Null, &json!(command.pid())));
    world.fails(&["drain"], 2, "is no service");
    world.release();
    assert_eq!(command.end().status.code(), Some(0));
}

/// A service whose configuration is a file, which may not exist yet.
fn with_config(text: &str) -> (Served, PathBuf) {
    let folder = |world: &World| world.state().with_file_name("config");
    let served = Served::start_with((World::new(), &scripts()), |world| {
        let file = folder(world).join("hermod/hermod.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        vec![("XDG_CONFIG_HOME", folder(world).into())]
    });
    let file = folder(&served.world).join("hermod/hermod.toml");
    (served, file)
}

#[track_caller]
fn iterations(served: &Served) -> Value {
    let run = served.begin("hello");
    served.get(&format!("/v1/runs/{run}")).json()["spec"]["limits"]["budget"]["iterations"].clone()
}

#[test]
fn a_reload_holds_for_new_runs_and_a_bad_one_for_none() {
    let (served, file) = with_config("[agent]\nmax_turns = 11\n");
    let running = served.begin_waiting();
    fs::write(&file, "[agent]\nmax_turns = 7\n[service]\nconnections = 9\n").unwrap();
    assert_eq!(iterations(&served), 11);
    let told = served.world.ok(&["config", "reload", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let expect = json!({
        "files": [file], "changed": ["agent.max_turns"], "restart": ["service.connections"],
    });
    assert_eq!(told, expect);
    assert_eq!(iterations(&served), 7);
    for (bad, part) in [
        ("[agent]\nmax_turns = \"many\"\n", "agent.max_turns"),
        ("[agent]\nmax_turnz = 1\n", "agent.max_turnz"),
        ("[agent", "hermod.toml"),
    ] {
        fs::write(&file, bad).unwrap();
        served.world.fails(&["config", "reload"], 78, part);
        assert_eq!(iterations(&served), 7, "the present configuration stays");
    }
    fs::write(&file, "[agent]\nmax_turns = 8\n").unwrap();
    served.signal(Signal::HUP);
    until("the signal is obeyed", || iterations(&served) == 8);
    // The run under way keeps what it was accepted with, and ends.
    let spec = served.get(&format!("/v1/runs/{running}")).json()["spec"].clone();
    assert_eq!(spec["limits"]["budget"]["iterations"], 11);
    served.world.release();
    assert_eq!(served.outcome(&running), "completed");
}

#[test]
fn a_reload_exchanges_policy_and_tools() {
    let (served, file) = with_config("");
    fs::write(served.world.work().join("release"), "").unwrap();
    let run = served.begin("wait");
    assert_eq!(served.outcome(&run), "completed");
    assert_eq!(served.world.times_run(), 1);
    fs::write(&file, "[policy]\ndeny = [\"shell(*)\"]\n[tools.shell]\ntimeout = \"77s\"\n").unwrap();
    served.world.ok(&["config", "reload"]);
    let run = served.begin("wait");
    served.outcome(&run);
    assert_eq!(served.world.times_run(), 1, "the policy denies the command");
}

#[test]
fn the_service_manager_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let next_but = |known: &str| {
        let mut messages = std::iter::repeat_with(next);
        messages.find(|message| message != known).unwrap()
    };
    let mut served = Served::start_with((World::new(), &scripts()), |_| {
        vec![("NOTIFY_SOCKET", path.clone().into()), ("WATCHDOG_USEC", "200000".into())]
    });
    assert!(next_but("WATCHDOG=1").starts_with("READY=1\nSTATUS=serves http://127.0.0.1:"));
    assert_eq!([next(), next()], ["WATCHDOG=1", "WATCHDOG=1"]);
    served.signal(Signal::HUP);
    assert!(next_but("WATCHDOG=1").starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(next_but("WATCHDOG=1").starts_with("READY=1\n"));
    served.stop();
    assert_eq!(next_but("WATCHDOG=1"), "STOPPING=1");
}

#[test]
fn json_logs_are_only_json() {
    let world = World::new();
    let mut command =
        world.hermod(&["serve", "--rehearse", "--listen", "127.0.0.1:0", "--log-format", "json", "-vv"]);
    let mut service = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(service.child().stderr.take().unwrap()).lines();
    let mut next = || -> Option<Value> {
        let line = lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    };
    while !next().expect("it serves")["message"].as_str().is_some_and(|text| text.starts_with("serving")) {}
    service.signal(Signal::HUP);
    while !next().expect("it reloads")["message"]
        .as_str()
        .is_some_and(|text| text.contains("reloaded: 0 changed"))
    {}
    service.signal(Signal::TERM);
    while next().is_some() {}
    assert_eq!(service.end().status.code(), Some(0));
}

#[test]
fn probes_are_answered_above_the_limit_of_connections() {
    let served =
        Served::start_with((World::new(), &scripts()), |_| vec![("HERMOD_SERVICE__CONNECTIONS", "2".into())]);
    let connect = || TcpStream::connect(served.address()).unwrap();
    let _held = [connect(), connect()];
    assert_eq!(served.send_plain(("GET", "/livez"), &[], "").status, 200);
    let refused = served.get("/v1/runs");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    let text = refused.text();
    assert!(text.contains("service.connections"), "{text}");
}

/// A client of the control socket that follows a run, and the first line that it reads.
fn follow(world: &World, run: &str) -> (UnixStream, String) {
    let token = fs::read_to_string(world.state().join("control.token")).unwrap();
    let mut stream = UnixStream::connect(world.state().join("control.sock")).unwrap();
    let request = json!({ "verb": "runs.follow", "run": run });
    stream.write_all(format!("{}\n{request}\n", json!({ "token": token.trim() })).as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    (stream, line)
}

#[test]
fn followers_leave_the_control_socket_to_commands() {
    let served = Served::start(&scripts());
    let run = served.begin_waiting();
    let mut followers: Vec<_> = (0..MAX_FOLLOWERS).map(|_| follow(&served.world, &run)).collect();
    assert!(followers.iter().all(|(_, line)| line.contains("followed")), "{:?}", followers.last());
    let (_, refused) = follow(&served.world, &run);
    assert!(refused.contains(r#""kind":"crowded""#), "{refused}");
    // Commands are answered, and a run that is handed over has its view once a place is free.
    assert!(served.world.ok(&["tree"]).contains(&run[20..]));
    let mut waiting = served.world.running(&["run", "--resume", &run]);
    let mut lines = crate::running::Lines::of(&mut waiting);
    lines.until("too many clients that follow runs");
    followers.truncate(MAX_FOLLOWERS / 2);
    served.world.ok(&["stop", &run]);
    lines.until("stopped");
    assert_eq!(waiting.end().status.code(), Some(1));
}

#[test]
fn another_state_directory_is_served() {
    let world = World::new();
    let other = world.state().with_file_name("other");
    let script = world.script(&json!([{ "say": "hi" }]));
    let store = other.to_str().unwrap();
    let mut running = world.running(&["serve", &script, "--listen", "127.0.0.1:0", "--store", store]);
    Lines::of(&mut running).until("serving");
    assert!(other.join("hermod.redb").is_file());
    let status = |home: &Path| world.hermod(&["status"]).env("HERMOD_HOME", home).output().unwrap();
    assert!(texts(&status(&other)).0.contains("serving"));
    assert!(!world.state().join("hermod.redb").exists());
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(0));
}
