//! Files that a user or a workspace names, and that are none: no door waits for them, reads without an end, or passes
//! over them in silence.
#![allow(clippy::disallowed_methods)] // a test may look at the clock

use std::{
    fs,
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, fs::symlink, net::UnixListener},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::world::World;

/// What any of this may take, on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Something that no file should be, and a part of what is said of it.
struct Kind {
    name: &'static str,
    make: fn(&Path),
    /// What is said where whole files are read.
    said: &'static str,
    /// What is said where the beginning and the end of a text are read.
    said_of_text: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "a pipe",
        make: |path| mkfifoat(CWD, path, Mode::RWXU).unwrap(),
        said: "it is a pipe, and only regular files are read",
        said_of_text: "is a special file",
    },
    Kind {
        name: "an endless device",
        make: |path| symlink("/dev/zero", path).unwrap(),
        said: "it is a device, and only regular files are read",
        said_of_text: "",
    },
    Kind {
        name: "a folder",
        make: |path| fs::create_dir(path).unwrap(),
        said: "it is a folder, and only regular files are read",
        said_of_text: "is a folder",
    },
    Kind {
        name: "a socket",
        make: |path| drop(UnixListener::bind(path).unwrap()),
        said: "it is a socket, and only regular files are read",
        said_of_text: "is a special file",
    },
    Kind {
        name: "a huge file",
        make: |path| fs::File::create(path).unwrap().set_len(1 << 42).unwrap(),
        said: "it has 4398046511104 bytes, and at most ",
        said_of_text: "is binary, 4398046511104 bytes",
    },
    Kind {
        name: "a loop",
        make: |path| symlink(path, path).unwrap(),
        said: "symbolic links",
        said_of_text: "symbolic links",
    },
    Kind {
        name: "an unreadable file",
        make: |path| {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        },
        said: "ermi",
        said_of_text: "ermi",
    },
];

/// What a door does with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Needs all of it.
    Whole,
    /// Needs the ends of a text.
    Text,
    /// Shows the ends of a text, and says that it is left out if it cannot.
    OptionalText,
}

/// A place where a file is read, and how it is made to be.
struct Door {
    name: &'static str,
    /// The file, below the test's folder.
    file: &'static str,
    command: fn(&World) -> Command,
    reads: Reads,
}

fn configured(world: &World, text: &str, args: &[&str]) -> Command {
    let path = world.work().join("config.toml");
    fs::write(&path, text).unwrap();
    let mut command = world.hermod(args);
    command.env("HERMOD_CONFIG", path);
    command
}

const DOORS: &[Door] = &[
    Door {
        name: "HERMOD_CONFIG",
        file: "named.toml",
        command: |world| {
            let mut command = world.hermod(&["config", "check"]);
            command.env("HERMOD_CONFIG", world.work().join("named.toml"));
            command
        },
        reads: Reads::Whole,
    },
    Door {
        name: "the usual configuration",
        file: "config/hermod/hermod.toml",
        command: |world| {
            let mut command = world.hermod(&["config", "check"]);
            command.env_remove("HERMOD_CONFIG").env("XDG_CONFIG_HOME", world.work().join("config"));
            command
        },
        reads: Reads::Whole,
    },
    Door {
        name: "a credential",
        file: "key",
        command: |world| {
            let text = format!(
                "model = \"acme/large\"\n[providers.acme]\nbase_url = \"http://127.0.0.1:9/v1\"\ncredential = \"file:{}\"\n",
                world.work().join("key").display()
            );
            configured(world, &text, &["run", "hi"])
        },
        reads: Reads::Whole,
    },
    Door {
        name: "--image",
        file: "picture.png",
        command: |world| world.hermod(&["run", "--rehearse", "--image", "picture.png", "hi"]),
        reads: Reads::Whole,
    },
    Door {
        name: "--rehearse",
        file: "script.json",
        command: |world| world.hermod(&["run", "--rehearse=script.json", "hi"]),
        reads: Reads::Whole,
    },
    Door {
        name: "hermod rehearse",
        file: "script.json",
        command: |world| world.hermod(&["rehearse", "script.json"]),
        reads: Reads::Whole,
    },
    Door {
        name: "hermod wire decode",
        file: "response",
        command: |world| world.hermod(&["wire", "decode", "--format", "chat_completions", "response"]),
        reads: Reads::Whole,
    },
    Door {
        name: "a backup's manifest",
        file: "backup/manifest.json",
        command: |world| world.hermod(&["backup", "verify", "backup"]),
        reads: Reads::Whole,
    },
    Door {
        name: "AGENTS.md",
        file: "AGENTS.md",
        command: |world| world.hermod(&["prompt", "show", "--workspace", "."]),
        reads: Reads::OptionalText,
    },
    Door {
        name: "a skill",
        file: ".hermod/skills/pdf/SKILL.md",
        command: |world| world.hermod(&["prompt", "show", "--workspace", "."]),
        reads: Reads::OptionalText,
    },
    Door {
        name: "SOUL.md",
        file: "../state/SOUL.md",
        command: |world| world.hermod(&["prompt", "show", "--workspace", "."]),
        reads: Reads::Text,
    },
    Door {
        name: "memories",
        file: "../state/memories/MEMORY.md",
        command: |world| world.hermod(&["prompt", "show", "--workspace", "."]),
        reads: Reads::OptionalText,
    },
];

/// What a command says on both streams, and its exit code; it must end in time.
fn ended(door: &str, mut command: Command) -> (String, Option<i32>) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("hermod starts");
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let err = thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).map(|_| text)
    });
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > MAX_TIME {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{door}: it did not end within {MAX_TIME:?}");
        }
        thread::sleep(Duration::from_millis(10));
    };
    (out.join().unwrap().unwrap() + &err.join().unwrap().unwrap(), status.code())
}

#[test]
fn what_is_no_regular_file_is_named_at_every_door() {
    for door in DOORS {
        for kind in KINDS {
            let world = World::new();
            let path = world.work().join(door.file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            (kind.make)(&path);
            if kind.name == "an unreadable file" && fs::read(&path).is_ok() {
                // The superuser may read it.
                continue;
            }
            let what = format!("{}, {}", door.name, kind.name);
            let (text, code) = ended(&what, (door.command)(&world));
            assert!(!text.contains("panicked"), "{what}: {text}");
            let said = if door.reads == Reads::Whole { kind.said } else { kind.said_of_text };
            assert!(text.contains(said), "{what}: no `{said}` in: {text}");
            if door.reads == Reads::OptionalText {
                assert_eq!(code, Some(0), "{what}: {text}");
                assert!(text.contains("left out"), "{what}: {text}");
            } else {
                assert!(code.is_some_and(|code| code > 0), "{what}: {code:?}: {text}");
            }
        }
    }
}

#[test]
fn standard_input_has_a_limit() {
    for args in [&["run", "--rehearse", "-"][..], &["wire", "decode", "--format", "chat_completions", "-"]] {
        let world = World::new();
        let mut command = world.hermod(args);
        let zero = fs::File::open("/dev/zero").unwrap();
        let output = command.stdin(zero).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("and at most "), "{args:?}: {text}");
    }
}
