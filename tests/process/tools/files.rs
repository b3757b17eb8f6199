//! The file tools against real folders.

use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::Arc,
};

use hermod::{
    memory::MemoryFiles,
    tool::{MEMORY, Settings, TOOLS, builtin},
};
use hermod_actors::{
    model::{CallEnd, CallId, CallStatus, EffectClass, RunId},
    port::{Artifacts, AttemptArtifacts, Invocation},
};
use hermod_testkit::{MemoryArtifacts, invocation, run_call};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A workspace beside a file that no tool may reach.
pub(super) struct World {
    folder: TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(folder.path().join("workspace/src")).expect("a workspace");
        fs::write(folder.path().join("secret"), "s3cret").expect("a secret");
        Self { folder }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("workspace").join(path)
    }

    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        fs::write(self.at(path), content).expect("a file");
        self
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        symlink(target, self.at(path)).expect("a symlink");
        self
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value, cancel: &CancellationToken) -> CallEnd {
        self.call_with(Settings::default(), (tool, arguments), cancel).await
    }

    async fn call_with(
        &self,
        settings: Settings,
        (tool, arguments): (&str, Value),
        cancel: &CancellationToken,
    ) -> CallEnd {
        let (_, make) = TOOLS.iter().find(|(name, _)| *name == tool).expect("a tool");
        let workspace = self.at("");
        let workspace = workspace.to_str().expect("a path in UTF-8");
        let call = Invocation { cancel: cancel.clone(), ..invocation(workspace) };
        run_call(&*make(settings), &arguments, call).await
    }
}

async fn check(world: &World, tool: &str, arguments: Value, expected: &str) {
    let end = world.call(tool, arguments, &CancellationToken::new()).await;
    assert_eq!((end.status, &*end.content), (CallStatus::Ok, expected));
}

/// The call is refused for `field`, and the error says `what`.
async fn check_refused(world: &World, (tool, arguments): (&str, Value), field: &str, what: &str) {
    let end = world.call(tool, arguments.clone(), &CancellationToken::new()).await;
    let content: Value = serde_json::from_str(&end.content).expect("an error is JSON");
    let error = content["error"].as_str().expect("it has a text");
    assert_eq!((end.status, &content["field"]), (CallStatus::Error, &json!(field)), "{arguments}: {error}");
    assert!(error.contains(what), "{arguments}: {error}");
    assert!(!content["hint"].as_str().expect("it has a hint").is_empty());
}

#[test]
fn the_table_names_each_tool_as_it_names_itself() {
    let memory = Some(MemoryFiles::new(Path::new("/nowhere"), 1, 1));
    let all = builtin(Settings { memory, ..Settings::default() });
    let names: Vec<_> = all.iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, TOOLS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert!(names.is_sorted());
    let without = builtin(Settings::default());
    assert!(without.len() == all.len() - 1 && without.iter().all(|tool| tool.spec().name != MEMORY));
    for tool in all {
        let schema = tool.spec().parameters.to_string();
        assert!(!schema.contains("$ref") && !schema.contains("$schema"), "{schema}");
        assert_eq!(tool.spec().parameters["additionalProperties"], json!(false));
    }
}

#[test]
fn a_plan_tells_the_effect_or_the_fault() {
    let plan = |name: &str, arguments: Value| {
        let (_, make) = TOOLS.iter().find(|(tool, _)| *tool == name).unwrap();
        make(Settings::default()).prepare(&arguments, "/nowhere").map(|call| call.intent.effect)
    };
    assert_eq!(plan("read_file", json!({"path": "a"})), Ok(EffectClass::Pure));
    assert_eq!(plan("list_files", json!({})), Ok(EffectClass::Pure));
    assert_eq!(plan("write_file", json!({"path": "a", "content": ""})), Ok(EffectClass::Idempotent));
    assert_eq!(plan("shell", json!({"command": "ls"})), Ok(EffectClass::Once));
    assert_eq!(
        plan("read_file", json!({"path": "a", "offset": 0})).unwrap_err().field.as_deref(),
        Some("offset")
    );
    assert_eq!(plan("shell", json!({"comand": "ls"})).unwrap_err().field.as_deref(), Some("comand"));
}

#[tokio::test]
async fn text_is_read_by_pages() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\nthree\n").write("empty", "");
    check(&world, "read_file", json!({"path": "a.txt"}), "one\ntwo\nthree\n").await;
    let absolute = world.at("a.txt");
    check(&world, "read_file", json!({"path": absolute, "offset": 3}), "three\n").await;
    let page = "two\n[truncated: lines 2-2 of 3; call again with offset 3]";
    check(&world, "read_file", json!({"path": "./src/../a.txt", "offset": 2, "limit": 1}), page).await;
    check(&world, "read_file", json!({"path": "empty"}), "[empty file]").await;
    let past = ("read_file", json!({"path": "a.txt", "offset": 9}));
    check_refused(&world, past, "offset", "has 3 lines, `offset` 9 is past its end").await;
}

#[tokio::test]
async fn a_large_file_fits_a_page_and_a_binary_one_is_told() {
    let world = World::new();
    world.write("large", "0123456789\n".repeat(100_000)).write("binary", b"\x7fELF\0\x01".repeat(50));
    let end =
        world.call("read_file", json!({"path": "large", "limit": 100_000}), &CancellationToken::new()).await;
    assert!(end.content.len() <= 50_000, "{} bytes", end.content.len());
    assert!(end.content.ends_with("[truncated: lines 1-4509 of 100000; call again with offset 4510]"));
    let first = format!("[binary file of 300 bytes; the first 64 in hex:{}", " 7f 45 4c 46 00 01".repeat(10));
    check(&world, "read_file", json!({"path": "binary"}), &(first + " 7f 45 4c 46]")).await;
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = World::new();
    world.link("out", "..").link("secret", "../secret").link("nothing", "../nowhere").link("loop", "loop");
    world.link("proc", "/proc/self/environ");
    let secret = world.folder.path().join("secret");
    for (path, what) in [
        ("../secret", "leads out"),
        (secret.to_str().unwrap(), "leads out"),
        ("/etc/passwd", "leads out"),
        ("src/../../secret", "leads out"),
        ("out/secret", "leads out"),
        ("secret", "leads out"),
        ("proc", "leads out"),
        ("/proc/self/environ", "leads out"),
        ("nothing", "symlink to nothing"),
        ("new/../../secret", "goes up from a folder that does not exist"),
        ("loop", "symbolic link"),
        ("~/.ssh/id", "not expanded"),
        ("", "is empty"),
        ("a\0b", "NUL byte"),
    ] {
        check_refused(&world, ("read_file", json!({"path": path})), "path", what).await;
        check_refused(&world, ("write_file", json!({"path": path, "content": "x"})), "path", what).await;
    }
    for path in ["..", "/", "out", "nothing"] {
        check_refused(&world, ("list_files", json!({"path": path})), "path", "leads").await;
    }
    assert_eq!(fs::read_to_string(secret).unwrap(), "s3cret");
    assert!(!world.folder.path().join("nowhere").exists());
}

#[tokio::test]
async fn the_state_directory_in_the_workspace_is_left_out() {
    let world = World::new();
    fs::create_dir_all(world.at("deep/state/blobs")).expect("a state directory");
    world
        .write("deep/state/key", "needle")
        .write("deep/state/blobs/b", "needle")
        .write("deep/other", "needle");
    world.link("to", world.at("deep/state")).link("to-key", world.at("deep/state/key"));
    let state = Some(world.at("deep/state").canonicalize().expect("a real path"));
    let call = async |tool: &str, arguments: Value| {
        let settings = Settings { state: state.clone(), ..Settings::default() };
        let end = world.call_with(settings, (tool, arguments), &CancellationToken::new()).await;
        (end.status, end.content.to_string())
    };
    let absolute = world.at("deep/state/key").display().to_string();
    let edits = json!([{ "old": "needle", "new": "thread" }]);
    for path in
        ["deep/state/key", "deep/./state/../state/key", "to/key", "to-key", "deep/state/no", &absolute]
    {
        for (tool, arguments) in [
            ("read_file", json!({ "path": path })),
            ("write_file", json!({ "path": path, "content": "x" })),
            ("edit_file", json!({ "path": path, "edits": edits })),
            ("list_files", json!({ "path": path })),
            ("search_files", json!({ "path": path, "pattern": "needle" })),
            ("shell", json!({ "command": "pwd", "workdir": path })),
        ] {
            let (status, content) = call(tool, arguments).await;
            assert_eq!(status, CallStatus::Error, "{tool} {path}: {content}");
            assert!(content.contains("lies in Hermod's state directory"), "{tool} {path}: {content}");
        }
    }
    let (_, found) = call("search_files", json!({ "pattern": "needle" })).await;
    assert_eq!(found, "deep/other:1: needle\n");
    let (_, found) = call("search_files", json!({ "pattern": "needle", "path": "deep" })).await;
    assert_eq!(found, "deep/other:1: needle\n");
    let (_, listed) = call("list_files", json!({ "depth": 8 })).await;
    let line = "deep/state/ [Hermod's state directory; no file tool goes there]\n";
    assert!(listed.contains(line) && !listed.contains("\ndeep/state/key"), "{listed}");
    assert_eq!(fs::read_to_string(world.at("deep/state/key")).expect("untouched"), "needle");
    assert!(!world.at("deep/state/no").exists());
    // A folder whose name only begins alike is not it.
    fs::create_dir(world.at("deep/state2")).expect("a folder");
    assert_eq!(call("write_file", json!({ "path": "deep/state2/x", "content": "" })).await.0, CallStatus::Ok);
}

#[tokio::test]
async fn a_symlink_inside_the_workspace_is_followed_and_kept() {
    let world = World::new();
    world.write("real", "old").link("relative", "real").link("absolute", world.at("src"));
    check(&world, "read_file", json!({"path": "relative"}), "old").await;
    check(&world, "write_file", json!({"path": "relative", "content": "new"}), "wrote 3 bytes to real").await;
    check(&world, "write_file", json!({"path": "absolute/b", "content": "b"}), "wrote 1 bytes to src/b")
        .await;
    assert!(world.at("relative").is_symlink());
    assert_eq!(fs::read_to_string(world.at("real")).unwrap(), "new");
}

#[tokio::test]
async fn only_regular_files_are_read_and_written() {
    let world = World::new();
    let fifo = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, world.at("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    world.write("file", "x");
    for (path, what) in [
        ("fifo", "is a special file"),
        ("src", "is a folder"),
        (".", "is a folder"),
        ("file/below", "not a folder"),
    ] {
        check_refused(&world, ("read_file", json!({"path": path})), "path", what).await;
        check_refused(&world, ("write_file", json!({"path": path, "content": "x"})), "path", what).await;
    }
    check_refused(&world, ("read_file", json!({"path": "none"})), "path", "does not exist").await;
    check_refused(&world, ("write_file", json!({"path": "new/", "content": ""})), "path", "names a folder")
        .await;
    check_refused(&world, ("list_files", json!({"path": "file"})), "path", "not a folder").await;
}

#[tokio::test]
async fn a_write_replaces_the_whole_and_keeps_the_mode() {
    let world = World::new();
    world.write("run.sh", "old");
    fs::set_permissions(world.at("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    let mut reader = fs::File::open(world.at("run.sh")).unwrap();
    for _ in 0..2 {
        let arguments = json!({"path": "run.sh", "content": "größer"});
        check(&world, "write_file", arguments, "wrote 8 bytes to run.sh").await;
    }
    let after = fs::metadata(world.at("run.sh")).unwrap();
    assert_eq!((after.mode() & 0o7777, after.len()), (0o750, 8));
    let mut seen = String::new();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "old", "whoever has the old file open reads the old content");
    check(&world, "write_file", json!({"path": "a/b/c", "content": ""}), "wrote 0 bytes to a/b/c").await;
    check(&world, "list_files", json!({"depth": 3}), "a/\na/b/\na/b/c 0\nrun.sh 8\nsrc/\n").await;
}

#[tokio::test]
async fn what_an_earlier_attempt_left_is_replaced() {
    let world = World::new();
    let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
    world.write(&format!(".hermod-{call}-1.tmp"), "half");
    check(&world, "write_file", json!({"path": "a", "content": "whole"}), "wrote 5 bytes to a").await;
    check(&world, "list_files", json!({}), "a 5\nsrc/\n").await;
}

#[tokio::test]
async fn a_listing_is_sorted_and_complete() {
    let world = World::new();
    world.write("b\n.txt", "12").write("a", "").link("link", "a").write("src/main.rs", "fn main() {}");
    fs::create_dir_all(world.at(".git/objects")).unwrap();
    fs::create_dir_all(world.at("src/deep/er")).unwrap();
    let top = ".git/\na 0\nb␊.txt 2\nlink@ -> a\nsrc/\n";
    check(&world, "list_files", json!({}), top).await;
    let deep = ".git/ [not descended; name it as `path` to list it]\na 0\nb␊.txt 2\nlink@ -> a\nsrc/\nsrc/deep/\n\
        src/main.rs 12\n";
    check(&world, "list_files", json!({"depth": 2}), deep).await;
    check(&world, "list_files", json!({"path": ".git"}), "objects/\n").await;
    check(&world, "list_files", json!({"path": "src/deep/er"}), "[empty folder]").await;
    let cut = ".git/\na 0\n[truncated by `limit`: the first 2 entries; list a folder below, a smaller `depth` or a \
        larger `limit`]";
    check(&world, "list_files", json!({"limit": 2}), cut).await;
    check(&world, "list_files", json!({"limit": 5}), top).await;
}

#[tokio::test]
async fn a_long_listing_stays_within_its_bytes() {
    let world = World::new();
    for n in 0..3000 {
        world.write(&format!("{n:0100}"), "");
    }
    let end = world.call("list_files", json!({"limit": 5000}), &CancellationToken::new()).await;
    assert!(end.content.len() <= 50_000 && end.content.contains("[truncated by 50 kB: the first "));
}

#[tokio::test]
async fn a_stopped_call_changes_nothing() {
    let world = World::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let end = world.call("write_file", json!({"path": "new/a", "content": "x"}), &cancel).await;
    assert_eq!(end.status, CallStatus::Stopped);
    check(&world, "list_files", json!({}), "src/\n").await;
}

#[tokio::test]
async fn a_workspace_that_is_not_there_is_named() {
    let world = World::new();
    fs::remove_dir_all(world.at("")).unwrap();
    let end = world.call("list_files", json!({}), &CancellationToken::new()).await;
    assert_eq!(end.status, CallStatus::Error);
    assert!(end.content.contains("cannot be used"), "{}", end.content);
}

#[tokio::test]
async fn edits_replace_what_occurs_once() {
    let world = World::new();
    world.write("a.rs", "fn one() {}\nfn two() {}\n");
    let edits = json!([{"old": "one", "new": "first"}, {"old": "fn first() {}\n", "new": ""}]);
    let told = "replaced 2 texts in a.rs, which has 12 bytes now";
    check(&world, "edit_file", json!({"path": "a.rs", "edits": edits}), told).await;
    assert_eq!(fs::read_to_string(world.at("a.rs")).unwrap(), "fn two() {}\n");
    // Bytes that are no text stay as they are.
    world.write("b", b"\xff\0one\xfe");
    let edits = json!([{"old": "one", "new": "zwei"}]);
    let told = "replaced 1 text in b, which has 7 bytes now";
    check(&world, "edit_file", json!({"path": "b", "edits": edits}), told).await;
    assert_eq!(fs::read(world.at("b")).unwrap(), b"\xff\0zwei\xfe");
    let same = json!([{"old": "zwei", "new": "zwei"}]);
    let told = "nothing to change: b stays as it is";
    check(&world, "edit_file", json!({"path": "b", "edits": same}), told).await;
}

#[tokio::test]
async fn an_edit_that_does_not_fit_changes_nothing_and_is_named() {
    let world = World::new();
    world.write("a", "x y x\r\nz\r\n").link("out", "../secret");
    fs::set_permissions(world.at("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let edit = |old: &str| json!({"path": "a", "edits": [{"old": "y", "new": "1"}, {"old": "z", "new": "2"}, {"old": old, "new": "3"}]});
    for (old, what) in [
        ("x", "occurs 2 times"),
        ("y", "is not in the file as the edits before it leave it"),
        ("", "is empty"),
    ] {
        check_refused(&world, ("edit_file", edit(old)), "edits[2].old", what).await;
    }
    let end = world.call("edit_file", edit("x\n2\n"), &CancellationToken::new()).await;
    assert!(end.content.contains(r"the lines of this file end with \\r\\n"), "{}", end.content);
    let edits = json!([{"old": "aa", "new": "b"}]);
    world.write("b", "aaa");
    check_refused(&world, ("edit_file", json!({"path": "b", "edits": edits})), "edits[0].old", "occurs 2")
        .await;
    for (path, what) in [("none", "does not exist"), ("src", "is a folder"), ("out", "leads out")] {
        check_refused(&world, ("edit_file", json!({"path": path, "edits": edits})), "path", what).await;
    }
    check_refused(&world, ("edit_file", json!({"path": "a", "edits": []})), "edits", "less than 1 item")
        .await;
    let unnamed = json!({"path": "a", "edits": [{"old": "x", "new": "1"}, {"new": "1"}]});
    check_refused(&world, ("edit_file", unnamed), "edits[1].old", "missing field").await;
    assert_eq!(fs::read_to_string(world.at("a")).unwrap(), "x y x\r\nz\r\n");
    assert_eq!(fs::metadata(world.at("a")).unwrap().mode() & 0o777, 0o640);
}

/// Each edit searches the whole file, and a text that grows is searched by the next one.
#[tokio::test]
async fn edits_that_are_too_much_work_change_nothing() {
    let world = World::new();
    world.write("a", "x");
    let long = "y".repeat(20 << 20);
    let edits: Vec<_> = ["x", "1", "2"]
        .windows(2)
        .map(|pair| json!({"old": pair[0], "new": pair[1].to_owned() + &long}))
        .collect();
    let edit = json!({"path": "a", "edits": [edits[0], edits[1], {"old": "2", "new": ""}]});
    check_refused(&world, ("edit_file", edit), "edits[2].old", "more work than one call may take").await;
    assert_eq!(fs::read_to_string(world.at("a")).unwrap(), "x");
}

/// An attempt of an edit, with what earlier attempts of the call have noted.
async fn attempt(world: &World, shelf: &AttemptArtifacts, attempt: u32, edit: &Value) -> CallEnd {
    let workspace = world.at("");
    let call = invocation(workspace.to_str().expect("a path in UTF-8"));
    let shelf = shelf.for_attempt(attempt);
    let (_, make) = TOOLS.iter().find(|(name, _)| *name == "edit_file").expect("the tool");
    let arguments = json!({"path": "a", "edits": [edit]});
    let call = Invocation { artifacts: shelf, attempt, ..call };
    run_call(&*make(Settings::default()), &arguments, call).await
}

#[tokio::test]
async fn an_edit_that_is_repeated_after_a_crash_finds_its_own_result() {
    let (world, shelf) = (World::new(), invocation("/").artifacts);
    // It would fit again, so only the notes tell that it was made.
    let edit = json!({"old": "x", "new": "xy"});
    let content = || fs::read_to_string(world.at("a")).unwrap();
    world.write("a", "x");
    assert_eq!(attempt(&world, &shelf, 1, &edit).await.status, CallStatus::Ok);
    assert_eq!(content(), "xy");
    let again = attempt(&world, &shelf, 2, &edit).await;
    assert_eq!((again.status, content().as_str()), (CallStatus::Ok, "xy"));
    assert_eq!(*again.content, *"replaced 1 text in a, which has 2 bytes now");
    // The crash came before the change: then it is made.
    world.write("a", "x");
    assert_eq!(attempt(&world, &shelf, 3, &edit).await.status, CallStatus::Ok);
    assert_eq!(content(), "xy");
    // Somebody else was there in between: nobody knows.
    world.write("a", "x!");
    let unknown = attempt(&world, &shelf, 4, &edit).await;
    assert_eq!((unknown.status, content().as_str()), (CallStatus::Error, "x!"));
    assert!(unknown.content.contains("changed from outside"), "{}", unknown.content);
}

#[tokio::test]
async fn an_edit_without_its_note_is_not_made() {
    let world = World::new();
    world.write("a", "x");
    let full: Arc<dyn Artifacts> = Arc::new(MemoryArtifacts::full_after(0));
    let shelf = AttemptArtifacts::new(full, invocation("/").artifacts.name());
    let end = attempt(&world, &shelf, 1, &json!({"old": "x", "new": "y"})).await;
    assert_eq!((end.status, fs::read_to_string(world.at("a")).unwrap().as_str()), (CallStatus::Error, "x"));
    assert!(end.content.contains("no space left"), "{}", end.content);
}

#[tokio::test]
async fn a_search_finds_lines_and_leaves_out_what_git_does() {
    let world = World::new();
    fs::create_dir_all(world.at("target/deep")).unwrap();
    fs::create_dir_all(world.at(".git")).unwrap();
    world.write(".gitignore", "target/\n*.log\n").write(".git/config", "needle\n");
    world.write("src/b.rs", "no\n  needle 1\nNeedle 2\r\n").write("src/a.txt", "\x1bneedle\n");
    world.write("target/deep/t.txt", "needle\n").write("x.log", "needle\n").write(".hidden", "needle\n");
    world.write("binary", b"needle\0needle\n").link("link", "../secret");
    for (arguments, expected) in [
        (json!({"pattern": "needle"}), ".hidden:1: needle\nsrc/a.txt:1: ␛needle\nsrc/b.rs:2:   needle 1\n"),
        (
            json!({"pattern": "(?i)needle \\d", "glob": "*.rs"}),
            "src/b.rs:2:   needle 1\nsrc/b.rs:3: Needle 2\n",
        ),
        (json!({"pattern": "needle", "path": "src/a.txt"}), "src/a.txt:1: ␛needle\n"),
        (json!({"pattern": "needle", "path": "src", "glob": "!*.rs"}), "src/a.txt:1: ␛needle\n"),
        (json!({"pattern": "needle", "path": "target"}), "target/deep/t.txt:1: needle\n"),
        (json!({"pattern": "s3cret"}), "[no match in 5 files]"),
        (
            json!({"pattern": "needle", "limit": 1}),
            ".hidden:1: needle\n[truncated by `limit`: the first 1 matches; narrow `pattern`, `path` or `glob`]",
        ),
    ] {
        check(&world, "search_files", arguments, expected).await;
    }
}

#[tokio::test]
async fn a_search_is_bounded() {
    let world = World::new();
    let long = format!("{}needle{}\n", "é".repeat(5_000), "x".repeat(5_000));
    world.write("long", &long).write("many", "needle\n".repeat(20_000)).write("huge", "x".repeat(9 << 20));
    let end = world
        .call("search_files", json!({"pattern": "needle", "path": "long"}), &CancellationToken::new())
        .await;
    assert!(
        end.content.starts_with("long:1: …é")
            && end.content.contains("éneedlex")
            && end.content.ends_with("x…\n")
    );
    assert!(end.content.len() < 400, "{}", end.content.len());
    let all = json!({"pattern": "needle", "limit": 1000, "glob": "many"});
    let end = world.call("search_files", all, &CancellationToken::new()).await;
    assert!(end.content.len() < 50_000 && end.content.contains("many:1000: needle\n[truncated by `limit`"));
    let end =
        world.call("search_files", json!({"pattern": "x$", "glob": "huge"}), &CancellationToken::new()).await;
    assert!(end.content.contains("[1 files were not searched to their end"), "{}", end.content);
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(
        world.call("search_files", json!({"pattern": "x"}), &cancel).await.status,
        CallStatus::Stopped
    );
    for (arguments, field, what) in [
        (json!({"pattern": "("}), "pattern", "unclosed group"),
        (json!({"pattern": ""}), "pattern", "is empty"),
        (json!({"pattern": "a\\nb"}), "pattern", "not allowed"),
        (json!({"pattern": "(a{1000}){1000}"}), "pattern", "size limit"),
        (json!({"pattern": "a", "glob": "["}), "glob", "cannot be used"),
        (json!({"pattern": "a", "path": "none"}), "path", "does not exist"),
        (json!({"pattern": "a", "path": ".."}), "path", "leads out"),
    ] {
        check_refused(&world, ("search_files", arguments), field, what).await;
    }
}

#[tokio::test]
async fn the_time_is_that_of_the_call() {
    let now = r#"{"utc":"2026-01-01T00:00:00Z","weekday":"Thursday"}"#;
    check(&World::new(), "current_time", json!({}), now).await;
    check_refused(&World::new(), ("current_time", json!({"zone": "CET"})), "zone", "unknown field").await;
}

#[tokio::test]
async fn rules_that_are_no_plain_file_are_not_read() {
    let world = World::new();
    for folder in ["pipe", "link", "fine"] {
        fs::create_dir(world.at(folder)).unwrap();
        fs::write(world.at(&format!("{folder}/text")), "needle").unwrap();
    }
    mknodat(CWD, world.at("pipe/.gitignore"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("/dev/zero", world.at("link/.ignore")).unwrap();
    let found = world.call("search_files", json!({"pattern": "needle"}), &CancellationToken::new()).await;
    assert_eq!(found.status, CallStatus::Ok, "{}", found.content);
    assert!(found.content.contains("fine/text"), "{}", found.content);
    for (folder, part) in [("pipe", "only regular files are read"), ("link", "`.ignore` is a symlink")] {
        assert!(!found.content.contains(folder), "{}", found.content);
        let arguments = json!({"pattern": "needle", "path": folder});
        check_refused(&world, ("search_files", arguments), "path", part).await;
    }
}
