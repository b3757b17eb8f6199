//! Secrets that tools and models repeat are written nowhere: the real binary, and every byte that it leaves behind.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    running::{Running, WAITING, until},
    world::{World, stderr},
};

/// In a variable of the environment that Hermod itself has no use for.
const OF_VARIABLE: &str = "dpl-7f3a91c2e84b4d06b5";
/// In the address of a provider in the configuration; encoded for a URL there and in no other place.
const OF_CONFIG: &str = "cfg-Zk4tR9w2XqL8sVb1Nd";
/// In the file of a key, with characters that JSON and URLs escape.
const OF_FILE: &str = "key-\"Q+u/o\\t=e&d\"-0b6d1f";

const SECRETS: [(&str, &str); 3] =
    [("variable", OF_VARIABLE), ("configuration", OF_CONFIG), ("file", OF_FILE)];

/// The world with its secrets, and a scripted model outside of its state directory.
struct Scene {
    world: World,
    _model: Running,
    base_url: String,
}

impl Scene {
    fn new(steps: &serde_json::Value) -> Self {
        let world = World::new();
        let script = world.script(steps);
        let mut model = world.hermod(&["rehearse", script.strip_prefix("--rehearse=").unwrap()]);
        let mut model = model.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut base_url = String::new();
        BufReader::new(model.stdout.take().unwrap()).read_line(&mut base_url).unwrap();
        let scene = Self { world, _model: Running::new(model), base_url: base_url.trim().to_owned() };
        scene.plant();
        scene
    }

    fn beside(&self, name: &str) -> std::path::PathBuf {
        self.world.state().with_file_name(name)
    }

    /// Writes the configuration, the key, and files of the workspace that quote all secrets.
    fn plant(&self) {
        let key = self.beside("acme.key");
        fs::write(&key, format!("{OF_FILE}\n")).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let config = format!(
            "model = \"acme/m\"\n[providers.acme]\nbase_url = \"{}?api_key={OF_CONFIG}\"\ncredential = \
             \"file:{}\"\nwire = \"chat_completions\"\n",
            self.base_url,
            key.display()
        );
        fs::write(self.beside("hermod.toml"), config).unwrap();
        let quotes = SECRETS.map(|(name, secret)| format!("{name}: {secret}\n")).concat();
        fs::write(self.world.work().join("quotes.txt"), &quotes).unwrap();
        // A part of the system prompt.
        fs::write(self.world.work().join("AGENTS.md"), &quotes).unwrap();
        // Each secret lies across the end of some chunk, whatever the size of chunks is.
        let long: Vec<String> = (0..9_000).map(|n| format!("{n} {}\n", SECRETS[n % 3].1)).collect();
        fs::write(self.world.work().join("long.txt"), long.concat()).unwrap();
    }

    fn hermod(&self, args: &[&str]) -> Command {
        let mut command = self.world.hermod(args);
        command.env("HERMOD_CONFIG", self.beside("hermod.toml")).env("DEPLOY_TOKEN", OF_VARIABLE);
        command
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }

    /// Whatever the command ends with, it writes no secret.
    #[track_caller]
    fn output(&self, args: &[&str]) -> Output {
        let output = self.hermod(args).output().unwrap();
        for (of, text) in [("output", &output.stdout), ("errors and logs", &output.stderr)] {
            check_no_copy(&format!("{of} of {args:?}"), text);
        }
        output
    }
}

/// The forms in which a secret would be found.
fn forms(secret: &str) -> [String; 3] {
    use base64::Engine as _;
    let whole = &secret.as_bytes()[..secret.len() / 3 * 3];
    let json = serde_json::to_string(secret).unwrap();
    [secret.to_owned(), json[1..json.len() - 1].to_owned(), base64::prelude::BASE64_STANDARD.encode(whole)]
}

#[track_caller]
fn check_no_copy(name: &str, bytes: &[u8]) {
    for (of, secret) in SECRETS {
        for form in forms(secret) {
            let copies = bytes.windows(form.len()).filter(|window| *window == form.as_bytes()).count();
            assert_eq!(copies, 0, "{name} has copies of the secret of the {of}");
        }
    }
}

/// Every file below the folder, with its bytes.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

fn shell(command: &str) -> serde_json::Value {
    json!({ "tool": "shell", "arguments": { "command": command } })
}

/// The steps of a model that reads all secrets, repeats them, and writes them into its calls.
fn repeating_steps() -> serde_json::Value {
    let key_command = "cat quotes.txt; env; printenv; cat ../acme.key ../hermod.toml; base64 -w0 ../acme.key";
    let said = format!("I have read {OF_VARIABLE}, {OF_CONFIG} and {OF_FILE}.");
    json!([
        {
            "think": format!("The first is {OF_VARIABLE}, the last {OF_FILE}."),
            "say": said,
            "chunk": 5,
            "call": [
                shell(key_command),
                shell("cat long.txt"),
                shell("cat long.txt long.txt >&2; exit 3"),
                { "tool": "read_file", "arguments": { "path": "quotes.txt" } },
                { "tool": "search_files", "arguments": { "pattern": "file: " } },
            ],
        },
        {
            "call": [
                shell(&format!("printf %s '{OF_VARIABLE}' > executed.txt; echo '{OF_FILE}'")),
                { "tool": "write_file", "arguments": { "path": "written.txt", "content": said } },
                { "tool": "memory", "arguments": { "action": "add", "target": "memory", "content": said } },
                { "tool": "todo", "arguments": { "todos": [{ "content": said, "status": "pending" }] } },
                { "tool": OF_CONFIG, "arguments": { OF_VARIABLE: 1 } },
                { "tool": "read_artifact", "arguments": { "id": said } },
            ],
        },
        { "say": format!("{said} {{{{result:1.1}}}} {{{{result:1.4}}}}"), "chunk": 7 },
    ])
}

#[test]
fn secrets_of_environment_configuration_and_files_are_written_nowhere() {
    let scene = Scene::new(&repeating_steps());
    let input = format!("Use {OF_VARIABLE} to deploy.");
    let mut first =
        scene.hermod(&["run", "--json", "--session", "s", "--system", &input, "--verbose", "full", &input]);
    let first = first.env("HERMOD_LOG", "trace").output().unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    check_no_copy("the run's output", &first.stdout);
    check_no_copy("the run's log", &first.stderr);
    // What the checks look for would be there.
    let log = stderr(&first);
    assert!(log.contains("[redacted:DEPLOY_TOKEN]") && log.contains(" DEBUG "), "{log}");
    let result = String::from_utf8(first.stdout).unwrap();
    for mark in ["[redacted:DEPLOY_TOKEN]", "[redacted:acme]", "[redacted:acme.key]"] {
        assert!(result.contains(mark), "{mark}: {result}");
    }
    // What is recorded is what was executed.
    assert_eq!(
        fs::read_to_string(scene.world.work().join("executed.txt")).unwrap(),
        "[redacted:DEPLOY_TOKEN]"
    );
    assert!(fs::read_to_string(scene.world.work().join("written.txt")).unwrap().contains("[redacted:acme]"));
    let mut plain = scene.hermod(&["run", "--session", "t", "--log-format", "json", "-vv", &input]);
    let plain = plain.output().unwrap();
    assert_eq!(plain.status.code(), Some(0), "{}", stderr(&plain));
    check_no_copy("an answer as text", &plain.stdout);
    check_no_copy("logs as JSON", &plain.stderr);
    check_what_is_left(&scene);
}

/// Looks through all that shows runs, and every byte of the state directory and of a backup.
fn check_what_is_left(scene: &Scene) {
    let backup = scene.beside("backup");
    scene.ok(&["backup", "create", backup.to_str().unwrap()]);
    for args in [
        &["runs", "list", "--json"][..],
        &["runs", "show", "last", "--json"],
        &["runs", "show", "last"],
        &["journal", "s"],
        &["journal", "t"],
        &["sessions", "list", "--json"],
        &["tree"],
        &["providers", "list"],
        &["config", "show"],
    ] {
        scene.ok(args);
    }
    // The model answers the probe with a call, which counts as no answer.
    scene.output(&["providers", "test"]);
    // What never was a record: an argument that an error quotes.
    let refused = scene.output(&["runs", "show", OF_VARIABLE]);
    assert!(stderr(&refused).contains("[redacted:DEPLOY_TOKEN]"), "{}", stderr(&refused));
    let artifacts = files(&scene.world.state().join("artifacts"));
    assert!(artifacts.len() >= 4, "{:?}", artifacts.keys());
    for (name, bytes) in files(&scene.world.state()).into_iter().chain(files(&backup)) {
        check_no_copy(&name, &bytes);
    }
    let marks = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches("[redacted:").count();
    assert!(
        artifacts.values().any(|bytes| marks(bytes) == 9_000),
        "each secret of the long output is marked"
    );
}

/// The spool of a command has its output as it was printed, as long as the command may be attached to.
#[test]
fn a_command_that_outlived_its_process_leaves_no_secret() {
    let scene = Scene::new(&json!([
        { "call": [shell(&format!("cat quotes.txt; {WAITING}; cat quotes.txt"))] },
        { "say": "{{result:1.1}}" },
    ]));
    let mut command = scene.hermod(&["run", "--json", "go"]);
    let running = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    until("the command runs", || scene.world.work().join("ran").exists());
    // The process that steers does not know the secrets, the owner does.
    let message = format!("{OF_VARIABLE} and {OF_CONFIG} and {OF_FILE}");
    scene.world.ok(&["steer", "last", &message]);
    running.signal(Signal::KILL);
    running.end();
    scene.world.release();
    scene.ok(&["runs", "resume", "--all", "--wait"]);
    scene.ok(&["runs", "show", "last", "--json"]);
    let left = files(&scene.world.state());
    let journal = left.iter().find(|(name, _)| name.ends_with("/hermod.redb")).unwrap().1;
    assert!(String::from_utf8_lossy(journal).contains("[redacted:acme]"), "the result is recorded");
    for (name, bytes) in &left {
        check_no_copy(name, bytes);
    }
}
