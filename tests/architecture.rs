//! Keeps what ARCHITECTURE.md promises: the direction of imports, the sizes, and what stands only in one place.
#![allow(clippy::unwrap_used)] // a test ends where it fails

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// No file has more lines of code than this; tests of a file do not count.
const FILE: usize = 500;
/// A `mod.rs` is a table of contents; a test module that is a folder is not.
const MOD: usize = 150;
/// Those that hold one shared enum, or a whole actor, may have more.
const LARGER_MODS: &[&str] =
    &["actors/core/turn/mod.rs", "actors/supervisor/mod.rs", "actors/session/mod.rs"];
/// What they may have.
const LARGER_MOD: usize = 300;
/// Where a record may be said to be durable: when the disk has acknowledged it, and when it was read back from there; the
/// third is the type itself.
const DURABLE_SOURCES: &[&str] =
    &["actors/persistence/write.rs", "actors/persistence/replay.rs", "actors/core/model/durable.rs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder of the project, with their text, by their path in it.
fn sources(folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(!found.is_empty(), "no sources below {folder}");
    found
}

/// The text up to its tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.trim().is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The rooms of this crate that a file's code names.
fn rooms_named(code: &str) -> Vec<String> {
    names_after("crate::", code)
}

/// The names that follow a path, in groups too.
fn names_after(path: &str, code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for part in code.split(path).skip(1) {
        if let Some(group) = part.strip_prefix('{') {
            let (mut depth, mut name, mut at_start) = (0, String::new(), true);
            for letter in group.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => at_start = true,
                    _ if depth > 0 => {}
                    _ if letter.is_alphanumeric() || letter == '_' => {
                        if at_start {
                            name.push(letter);
                        }
                        continue;
                    }
                    _ => {}
                }
                if !name.is_empty() {
                    rooms.push(std::mem::take(&mut name));
                    at_start = letter == ',' && depth == 0;
                }
            }
            rooms.extend((!name.is_empty()).then_some(name));
        } else {
            rooms.push(part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    rooms
}

#[test]
fn rooms_are_read_out_of_imports() {
    let check = |code: &str, expected: &[&str]| assert_eq!(rooms_named(code), expected, "{code}");
    check("use crate::model::RunId;", &["model"]);
    check("use crate::{\n    hub::Hub,\n    model::{A, B},\n    turn::Plan,\n};", &["hub", "model", "turn"]);
    check("fn f() -> crate::port::X {}", &["port"]);
    check("use crate::{Defaults, model::{A, b::C}};", &["Defaults", "model"]);
}

/// Checks that the files below `folder` name only rooms out of `allowed` (and their own).
fn check_rooms(folder: &str, allowed: &[&str]) {
    let own = folder.rsplit('/').next().unwrap();
    for (name, text) in sources(folder) {
        for room in rooms_named(&code(&text)) {
            assert!(room == own || allowed.contains(&room.as_str()), "{name} must not know `{room}`");
        }
    }
}

#[test]
fn inside_actors_arrows_point_from_shells_to_the_core_to_the_data() {
    check_rooms("actors/core/model", &[]);
    check_rooms("actors/core/journal", &["model", "mutants"]);
    check_rooms("actors/core/policy", &["model"]);
    check_rooms("actors/core/turn", &["journal", "model", "mutants", "policy"]);
    check_rooms("actors/port", &["model"]);
}

/// What each module of `turn` imports of the others; the files of a folder are one module. The root is left out: it has
/// the state that all share, and exports names of its modules.
fn imports_inside_turn() -> BTreeMap<String, BTreeSet<String>> {
    let folder = "actors/core/turn/";
    let files = sources(folder);
    let exports: BTreeMap<&str, &str> = files["actors/core/turn/mod.rs"]
        .split("pub use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next()?.split_once("::"))
        .flat_map(|(module, names)| {
            names.split(|c: char| !c.is_alphanumeric()).map(move |name| (name, module))
        })
        .collect();
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    for (name, text) in &files {
        let path = name.strip_prefix(folder).unwrap();
        let module = path.split('/').next().unwrap().trim_end_matches(".rs");
        if matches!(module, "mod" | "tests") {
            continue;
        }
        let code = code(text);
        let beside = if path.contains('/') { Vec::new() } else { names_after("super::", &code) };
        let named = names_after("turn::", &code).into_iter().chain(beside);
        let named = named.map(|name| exports.get(&*name).map_or(name.clone(), |module| (*module).to_owned()));
        let others = named.filter(|other| other != module);
        imports.entry(module.to_owned()).or_default().extend(others);
    }
    imports
}

/// The modules that import each other in a circle, and those between circles.
fn in_circles(mut imports: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let is_outside = |module: &String, imports: &BTreeMap<String, BTreeSet<String>>| {
        imports[module].iter().all(|other| !imports.contains_key(other))
            || imports.values().all(|others| !others.contains(module))
    };
    while let Some(module) = imports.keys().find(|module| is_outside(module, &imports)).cloned() {
        imports.remove(&module);
    }
    imports.into_keys().collect()
}

#[test]
fn modules_of_turn_import_each_other_in_no_circle() {
    let imports = imports_inside_turn();
    assert!(imports["decision"].contains("active_run"), "the imports are not read: {imports:?}");
    assert_eq!(in_circles(imports), [""; 0], "a type belongs below what decides by it");
}

#[test]
fn circles_are_found() {
    let check = |imports: &[(&str, &[&str])], expected: &[&str]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let imports = imports.iter().map(|(module, names)| ((*module).to_owned(), set(names))).collect();
        assert_eq!(in_circles(imports), expected);
    };
    check(&[("a", &["b", "Other"]), ("b", &["c"]), ("c", &[])], &[]);
    check(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])], &["b", "c"]);
}

#[test]
fn adapters_know_the_actors_and_never_each_other() {
    check_rooms("src/access", &["clock", "files", "secret"]);
    check_rooms("src/process", &["clock", "files", "disk_space"]);
    check_rooms("src/provider", &["clock", "redaction", "secret"]);
    check_rooms("src/redaction", &["secret"]);
    check_rooms("src/credential", &["excerpt", "files", "process", "provider", "redaction", "secret"]);
    check_rooms("src/tool", &["excerpt", "files", "memory", "picture", "policy", "process", "redaction"]);
    check_rooms("src/policy", &["excerpt", "files"]);
    check_rooms("src/prompt", &["config", "memory", "process", "secret", "tool"]);
    check_rooms("src/memory", &["files"]);
    check_rooms("src/store", &["clock", "files", "disk_space"]);
    check_rooms("src/view", &["access", "clock", "config", "schedule", "store"]);
    check_rooms("src/control", &["clock", "files", "policy", "redaction", "schedule", "secret", "view"]);
    check_rooms(
        "src/backup",
        &["artifacts", "clock", "control", "files", "memory", "process", "disk_space", "store"],
    );
    check_rooms(
        "src/host",
        &[
            "artifacts",
            "backup",
            "budget_limits",
            "clock",
            "config",
            "control",
            "crash_loop",
            "delivery",
            "discovery",
            "disk_space",
            "files",
            "hooks",
            "inbound",
            "maintenance",
            "memory",
            "model_catalogue",
            "ollama",
            "picture",
            "policy",
            "process",
            "prompt",
            "provider",
            "provider_account",
            "redaction",
            "rehearsal",
            "schedule",
            "store",
            "tool",
            "view",
            "watchdog",
        ],
    );
}

#[test]
fn what_is_beside_the_actors_knows_only_what_it_needs() {
    check_rooms(
        "src/inbound",
        &["config", "delivery", "discovery", "excerpt", "prompt", "redaction", "secret", "text_template"],
    );
    check_rooms(
        "src/delivery",
        &[
            "artifacts",
            "clock",
            "config",
            "excerpt",
            "files",
            "provider",
            "redaction",
            "secret",
            "text_template",
        ],
    );
    check_rooms("src/rehearsal", &[]);
    check_rooms("src/schedule", &["budget_limits", "clock"]);
    check_rooms(
        "src/config",
        &[
            "delivery",
            "excerpt",
            "files",
            "hooks",
            "inbound",
            "policy",
            "process",
            "provider",
            "schedule",
            "secret",
            "text_template",
            "tool",
        ],
    );
}

#[test]
fn traces_read_the_feed_and_send_it() {
    check_rooms(
        "src/traces",
        &[
            "clock",
            "config",
            "discovery",
            "excerpt",
            "feed_cursor",
            "host",
            "provider",
            "redaction",
            "secret",
        ],
    );
}

#[test]
fn hooks_know_what_they_call_and_what_they_show() {
    check_rooms(
        "src/hooks",
        &[
            "config",
            "discovery",
            "excerpt",
            "feed_cursor",
            "files",
            "clock",
            "process",
            "provider",
            "redaction",
            "secret",
            "view",
        ],
    );
}

/// A channel is a front door: it submits, reads and answers as clients do, and knows no other front door.
#[test]
fn channels_use_the_front_door() {
    check_rooms(
        "src/channel",
        &[
            "clock",
            "config",
            "control",
            "delivery",
            "files",
            "hooks",
            "host",
            "provider",
            "redaction",
            "secret",
            "view",
        ],
    );
}

/// Where the code of the service may look into the store: where the reach of a token is decided, and for rows that came from
/// there.
const STORE_READS: &[(&str, &[&str])] = &[
    ("src/service/reach.rs", &["handler.reader()", "handler.tree(", "open_runs("]),
    // For the operator, at the control socket.
    ("src/service/lifecycle.rs", &["handler.reader()", "open_runs("]),
    // Whether any run is under way, for no client.
    ("src/service/idle.rs", &["open_runs("]),
    // Counts, for tokens that are not limited.
    ("src/service/metrics/run_states.rs", &["open_runs("]),
    // Of a key that has the id of the token in it, and of a row that its claim has.
    ("src/service/openai/submission.rs", &["handler.reader()"]),
    // Of a row from `Reach`.
    ("src/service/openai/responses.rs", &["handler.reader()"]),
];

/// A token that is limited to agents must find nothing of others.
#[test]
fn operations_of_the_service_find_runs_through_the_reach_of_their_token() {
    for (name, text) in sources("src/service") {
        let may = STORE_READS.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, reads)| *reads);
        let code = code(&text).split_whitespace().collect::<String>();
        for read in ["handler.reader()", "handler.tree(", "handler.clone().reader()", "open_runs("] {
            assert!(may.contains(&read) || !code.contains(read), "{name} must not use `{read}`; see `Reach`");
        }
    }
}

/// A second front door needs `host`, `view` and `control`, and nothing of the first.
#[test]
fn only_the_command_line_knows_the_command_line() {
    for (name, text) in sources("src") {
        if name.starts_with("src/cli/") || name == "src/main.rs" {
            continue;
        }
        let code = code(&text);
        assert!(!rooms_named(&code).iter().any(|room| room == "cli"), "{name} must not know `cli`");
        assert!(!code.contains("clap"), "{name} must not know the parser of arguments");
    }
}

#[test]
fn the_core_has_no_clock_no_disk_and_no_network() {
    let core = sources("actors/core");
    for (name, text) in core.into_iter().filter(|(name, _)| !name.contains("/tests/")) {
        for word in [
            "tokio",
            "ractor",
            "std::fs",
            "std::net",
            "SystemTime::now",
            "Instant",
            "async ",
            "rand::",
            "HashMap",
        ] {
            assert!(!code(&text).contains(word), "{name} must not speak of `{word}`");
        }
    }
    check_dependencies("actors/Cargo.toml", &["reqwest", "redb", "axum", "clap", "hyper", "rustls"]);
    check_dependencies("chat/Cargo.toml", &["hermod-actors", "hermod ", "tokio"]);
    check_dependencies("actors/core/Cargo.toml", &["tokio", "ractor", "futures", "tracing", "hermod-actors"]);
}

/// Checks that a manifest names none of these packages.
fn check_dependencies(manifest: &str, absent: &[&str]) {
    let text = fs::read_to_string(root().join(manifest)).unwrap();
    for package in absent {
        let named = text.lines().any(|line| line.starts_with(package));
        assert!(!named, "{manifest} must not name {package}");
    }
}

#[test]
fn persistence_alone_marks_records_as_durable() {
    let marks =
        |text: &str| code(text).contains("mark_durable(") || code(text).contains("Durable::mark_durable");
    let mut found = 0;
    for (name, text) in sources("actors") {
        let may = DURABLE_SOURCES.contains(&name.as_str());
        found += usize::from(may && marks(&text));
        let is_test =
            name.contains("/tests/") || name.ends_with("tests.rs") || name.starts_with("actors/testkit/");
        assert!(may || is_test || !marks(&text), "{name} must not mark a record as durable");
    }
    assert_eq!(found, DURABLE_SOURCES.len(), "the function has another name");
}

#[test]
fn only_one_file_reads_the_clock_and_only_one_speaks_http() {
    for (name, text) in sources("src") {
        let text = code(&text);
        for (word, home) in [
            ("SystemTime::now", "src/clock.rs"),
            ("Instant::now", "src/clock.rs"),
            ("reqwest", "src/provider/http"),
        ] {
            let tokio = word == "Instant::now" && text.contains("tokio::time::");
            assert!(
                name.starts_with(home) || tokio || !text.contains(word),
                "{name} must not speak of {word}"
            );
        }
    }
}

#[test]
fn no_actor_reference_leaves_the_actors() {
    for (name, text) in sources("actors/runtime") {
        for line in text.lines().filter(|line| line.trim_start().starts_with("pub ")) {
            assert!(!line.contains("ActorRef"), "{name}: {line}");
        }
    }
    for (name, text) in sources("src") {
        assert!(!code(&text).contains("ractor"), "{name} must not know actors");
    }
}

/// A comment names its subject: code is not a person.
#[test]
fn comments_name_their_subject() {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    for (name, text) in ["actors", "chat", "src"].into_iter().flat_map(sources) {
        if name.contains("/tests/") || name.ends_with("tests.rs") {
            continue;
        }
        let lines = text.split("mod tests {").next().unwrap_or_default().lines().enumerate();
        for (n, comment) in lines.filter_map(|(n, line)| Some((n + 1, line.trim_start().strip_prefix("//")?)))
        {
            for word in ["whoever", "nobody", "somebody", "anybody"] {
                let found = comment.to_lowercase().split(|letter| !is_word(letter)).any(|part| part == word);
                assert!(!found, "{name}, line {n}: name the subject in place of `{word}`");
            }
        }
    }
}

#[test]
fn files_keep_their_size() {
    for (name, text) in ["actors", "chat", "src", "tests", "benches"].into_iter().flat_map(sources) {
        let lines = code(&text).lines().count();
        let limit = match name.as_str() {
            name if LARGER_MODS.contains(&name) => LARGER_MOD,
            name if name.ends_with("/mod.rs")
                && !name.contains("/tests/")
                && !name.contains("testkit")
                && !name.starts_with("tests/")
                && !name.starts_with("actors/runtime") =>
            {
                MOD
            }
            _ => FILE,
        };
        assert!(lines <= limit, "{name} has {lines} lines of code, more than {limit}");
    }
}

/// The Markdown documents, by their path in the project.
fn documents() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["", "docs", "docs/decisions"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(found.len() > 10, "the documents are elsewhere");
    found.remove("CHANGELOG.md"); // tells of what was
    found
}

#[test]
fn documents_link_to_files_that_exist() {
    for (name, text) in documents() {
        let folder = Path::new(&name).parent().unwrap();
        for rest in text.split("](").skip(1) {
            let link = rest.split([')', '#']).next().unwrap();
            let exists = link.is_empty() || link.contains("://") || root().join(folder).join(link).exists();
            assert!(exists, "{name} links to {link}");
        }
    }
}

#[test]
fn documents_name_source_files_that_exist() {
    let sources: Vec<String> = ["actors", "chat", "src", "tests", "benches", "examples"]
        .into_iter()
        .flat_map(|folder| sources(folder).into_keys())
        .collect();
    for (name, text) in documents() {
        let is_source = |code: &&str| {
            Path::new(code).extension() == Some("rs".as_ref()) && !code.contains(char::is_whitespace)
        };
        for path in text.split('`').filter(is_source) {
            let exists = sources.iter().any(|source| source == path || source.ends_with(&format!("/{path}")));
            assert!(exists || path == "build.rs", "{name} names {path}");
        }
    }
}
