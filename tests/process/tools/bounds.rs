//! Arguments that are made to take long, much memory or a deep stack: every tool comes to a verdict on them at once.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use hermod::{
    Tool,
    memory::MemoryFiles,
    policy::command::denial_reason,
    tool::{Settings, builtin},
};
use hermod_actors::model::{CallEnd, CallStatus};
use hermod_testkit::{invocation, run_call};
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use serde_json::{Value, json};

/// What a judgement may take here, in a build without optimisation on a busy machine; with it, it takes milliseconds.
const MAX_TIME: Duration = Duration::from_mins(1);
/// The stack of the threads that judge.
const STACK_BYTES: usize = 2 << 20;

/// Does it on a thread of its own, and fails if it does not come back.
#[track_caller]
fn bounded<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = mpsc::channel();
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(move || done.send(work()).expect("the test waits")).expect("a thread");
    match end.recv_timeout(MAX_TIME) {
        Ok(result) => result,
        Err(error) => panic!("{what}: it panicked, or came to no verdict within {MAX_TIME:?}: {error}"),
    }
}

/// Variables that each run the next one ten times, with `last` at the end.
fn tree_of_evals(levels: usize, step: &str, last: &str) -> String {
    let calls = |next: usize| format!("eval \"$v{next}\";{step}").repeat(10);
    let levels = (0..levels).map(|n| format!("v{n}='{}'\n", calls(n + 1)));
    let script: Vec<_> = levels.collect();
    format!("v{}='{last}'\n{}eval \"$v0\"", script.len(), script.into_iter().rev().collect::<String>())
}

/// Scripts of at most 128 KiB that take much more work than that if they are judged without a limit.
fn bombs() -> Vec<(&'static str, String)> {
    let many = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
    vec![
        ("evals with one state", tree_of_evals(12, "", "true")),
        ("evals that change the state", tree_of_evals(12, "x=$x.;", "true")),
        ("evals that change the folder", tree_of_evals(12, "cd a;", "true")),
        ("many variables", many(8_000, &|n| format!("v{n}=0;"))),
        ("many variables in one word", many(3_000, &|n| format!("v{n}=0;")) + &"$v1".repeat(20_000)),
        ("doubled variables", many(60, &|n| format!("a{}=$a{n}$a{n};", n + 1)).replace("$a0", "xx")),
        ("doubled text in a pipe", "echo ".to_owned() + &"x".repeat(30_000) + &" | tee".repeat(10_000)),
        ("braces", format!("rm -rf {}", "{a,b}".repeat(10_000))),
        ("open braces", "{".repeat(100_000)),
        ("commas in braces", format!("echo {{{}}}", ",".repeat(100_000))),
        ("unclosed names", "${".repeat(50_000)),
        ("unclosed names in a word", format!("a=1; echo '{}'", "${a".repeat(30_000))),
        ("functions without an end", "f()".repeat(30_000)),
        ("functions with pipes", "f() { f|f ".repeat(10_000)),
        ("nested substitutions", "$(".repeat(50_000)),
        ("closed substitutions", "$(".repeat(30_000) + &")".repeat(30_000)),
        ("backquotes", "`\"'".repeat(30_000)),
        ("nested quotes", "bash -c \"".repeat(10_000)),
        ("here-documents", many(5_000, &|n| format!("cat <<E{n};"))),
        ("placeholders of find", format!("find {} -exec {} \\;", "/a".repeat(25_000), "{}".repeat(25_000))),
        ("nested finds", "find / -exec ".repeat(8_000)),
        ("deep folder", format!("cd {}; rm {}", "a/".repeat(25_000), "b ".repeat(25_000))),
        ("many folders", "cd a;".repeat(25_000)),
        ("words for xargs", format!("echo {} | xargs rm", "a ".repeat(60_000))),
        ("wrappers", "sudo env nice ".repeat(9_000)),
        ("assignments", "a=b ".repeat(30_000)),
        ("parentheses", "(".repeat(120_000)),
        ("pipes in a case", format!("{})", "a|".repeat(50_000))),
        ("evals of evals", "eval ".repeat(20_000)),
        ("base64", format!("echo {} | base64 -d | sh", "ZWNobyB4Cg".repeat(10_000))),
    ]
}

#[test]
fn a_script_is_judged_within_its_budget() {
    for (name, script) in bombs() {
        assert!(script.len() < 128 * 1024, "{name} has {} bytes", script.len());
        bounded(name, move || denial_reason(&script));
    }
}

#[test]
fn what_is_too_much_to_judge_is_refused_and_what_only_repeats_is_not() {
    const UNJUDGED: Option<&str> = Some("nests or expands into more than can be judged");
    let of = |name: &str| {
        let (_, script) = bombs().into_iter().find(|(other, _)| *other == name).expect("it is listed");
        bounded(name, move || denial_reason(&script))
    };
    assert_eq!(of("evals with one state"), None);
    assert_eq!(of("evals that change the state"), UNJUDGED);
    assert_eq!(of("doubled variables"), UNJUDGED);
    assert_eq!(of("braces"), UNJUDGED);
    assert_eq!(of("many variables"), None);
    let script = tree_of_evals(12, "", "rm -rf /");
    assert!(
        bounded("a catastrophe", move || denial_reason(&script)).is_some_and(|why| why.contains("deletes"))
    );
    let lines: Vec<_> =
        (0..2_000).map(|n| format!("test -e file-{n} || echo 'file {n} is missing' >&2\n")).collect();
    let long = lines.concat();
    assert_eq!(denial_reason(&long), None);
}

/// Texts that parsers of several languages go down the stack with, or make much of.
fn deep_texts() -> Vec<String> {
    let opened =
        ["{", "[", "(", "{a,", "[[", "(?:", "<a>", "> ", "- ", "$(", "\"", "\\", "../", "a/", "*", "**/"];
    let mut texts: Vec<_> = opened.iter().map(|part| part.repeat(97_000)).collect();
    texts.push("{".repeat(48_000) + &"}".repeat(48_000));
    texts.push("(".repeat(48_000) + &")".repeat(48_000));
    texts.push(r"\pL".repeat(30_000));
    texts.push(r"(\pL{1000}){1000}".to_owned());
    texts.push("a{1000}{1000}{1000}".to_owned());
    texts.push("[^a]*".repeat(20_000));
    texts.push("\u{202e}".repeat(50_000));
    texts.push("x".repeat(1 << 20));
    texts
}

/// JSON as deep as the parser of arguments takes it.
fn deep_value() -> Value {
    (0..120).fold(json!({}), |inside, n| if n % 2 == 0 { json!([inside]) } else { json!({"edits": inside}) })
}

fn tools() -> (tempfile::TempDir, Vec<Arc<dyn Tool>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = MemoryFiles::new(&folder.path().join("state"), 2_000, 1_000);
    let settings = Settings { memory: Some(memory), ..Settings::default() };
    (folder, builtin(settings))
}

/// The arguments of a tool with `value` as one of its fields, for each of them.
fn arguments(schema: &Value, value: &Value) -> Vec<Value> {
    let known = schema["properties"].as_object().cloned().unwrap_or_default();
    let usual = |schema: &Value| match schema["type"].as_str() {
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") => json!("x"),
        Some("integer") => json!(1),
        Some("array") => json!([]),
        _ => Value::Null,
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let base = required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), usual(&known[name])));
    let base: serde_json::Map<_, _> = base.collect();
    let fields = known.iter().map(|(name, schema)| match schema["type"].as_str() {
        Some("array") => (name.clone(), item(&schema["items"], value)),
        _ => (name.clone(), value.clone()),
    });
    let unknown = [(value.as_str().unwrap_or("unknown").to_owned(), json!(1))];
    let all = fields.chain(unknown).map(|(name, value)| {
        let mut arguments = base.clone();
        arguments.insert(name, value);
        Value::Object(arguments)
    });
    all.collect()
}

/// Many items with `value` in each field, or in themselves.
fn item(schema: &Value, value: &Value) -> Value {
    let one = match schema["properties"].as_object() {
        Some(fields) => fields.keys().map(|name| (name.clone(), value.clone())).collect(),
        None => value.clone(),
    };
    let count = if value.as_str().is_some_and(|text| text.len() < 100) { 1_000 } else { 3 };
    Value::Array(vec![one; count])
}

#[test]
fn every_tool_comes_to_a_verdict_on_every_argument() {
    let (_folder, tools) = tools();
    assert!(tools.len() >= 10);
    for tool in tools {
        let name = tool.spec().name.clone();
        let values = deep_texts().into_iter().map(Value::from).chain([deep_value(), json!(vec![0; 100_000])]);
        for value in values {
            let all = arguments(&tool.spec().parameters, &value);
            let tool = Arc::clone(&tool);
            bounded(&name, move || {
                for arguments in all {
                    if let Err(bad) = tool.prepare(&arguments, "/nowhere") {
                        assert!(
                            bad.error.len() < 20_000,
                            "{} has {} bytes",
                            tool.spec().name,
                            bad.error.len()
                        );
                    }
                }
            });
        }
    }
}

#[test]
fn a_workspace_cannot_bring_rules_that_break_the_search() {
    let (folder, tools) = tools();
    let search = tools.into_iter().find(|tool| tool.spec().name == "search_files").expect("it is there");
    fs::create_dir(folder.path().join("below")).expect("a folder");
    fs::write(folder.path().join("below/file"), "needle\n").expect("a file");
    for (rules, part) in [
        ("{".repeat(97_000), "has a rule in line 1 that has 97000 bytes"),
        ("#\n".to_owned() + &"{a,".repeat(100), "has a rule in line 2 that has 100 braces"),
        ("*a*b\n".repeat(20_000), "has more than 10000 rules"),
    ] {
        for place in [".gitignore", "below/.ignore"] {
            let path = folder.path().join(place);
            fs::write(&path, &rules).expect("a file");
            let workspace = folder.path().to_str().expect("UTF-8").to_owned();
            let arguments = json!({"pattern": "needle", "path": "below"});
            let call = run_call(&*search, &arguments, invocation(&workspace));
            let end = bounded(place, move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(call)
            });
            assert_eq!(end.status, CallStatus::Error, "{place}: {}", end.content);
            assert!(end.content.contains(part), "{place}: {}", end.content);
            fs::remove_file(path).expect("it is there");
        }
    }
}

#[test]
fn arguments_that_do_not_do_are_named_briefly() {
    let (_folder, tools) = tools();
    let check = |name: &str, arguments: Value, part: &str| {
        let tool = tools.iter().find(|tool| tool.spec().name == name).expect("it is there");
        let bad = tool.prepare(&arguments, "/nowhere").expect_err("it does not do");
        assert!(bad.error.contains(part), "{}", bad.error);
    };
    let long = "a".repeat(200_000);
    check(
        "shell",
        json!({"command": long}),
        "`command` has 200000 bytes, and the system takes at most 131071",
    );
    check("search_files", json!({"pattern": long}), "has 200000 bytes, more than 4096");
    check("search_files", json!({"pattern": "(".repeat(200) + &")".repeat(200)}), "cannot be used");
    check("search_files", json!({"pattern": "a", "glob": "{".repeat(40)}), "has 40 braces, more than 32");
    check("search_files", json!({"pattern": "a", "glob": long}), "has 200000 bytes, more than 4096");
}

/// The tools that take a path, each with this one.
fn with_path(path: &str) -> [(&'static str, Value); 6] {
    let edits = json!([{"old": "a", "new": "b"}]);
    [
        ("list_files", json!({"path": path})),
        ("search_files", json!({"path": path, "pattern": "needle"})),
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "x"})),
        ("edit_file", json!({"path": path, "edits": edits})),
        ("shell", json!({"workdir": path, "command": "true"})),
    ]
}

async fn run(tools: &[Arc<dyn Tool>], workspace: &Path, (name, arguments): (&str, Value)) -> CallEnd {
    let tool = tools.iter().find(|tool| tool.spec().name == name).expect("it is there");
    run_call(&**tool, &arguments, invocation(workspace.to_str().expect("UTF-8"))).await
}

/// A path that no system call takes is refused before any step of it is made.
#[tokio::test]
async fn a_path_is_as_short_as_the_system_wants_it() {
    let (folder, tools) = tools();
    for path in ["a/".repeat(20_000) + "b", "x".repeat(4_096), "a/../".repeat(1_000), "./".repeat(3_000)] {
        for call in with_path(&path) {
            let name = call.0;
            let end = run(&tools, folder.path(), call).await;
            assert_eq!(end.status, CallStatus::Error, "{name}");
            assert!(end.content.contains("and a path has less than 4096"), "{name}: {}", end.content);
            assert!(end.content.len() < 2_000, "{name}: {} bytes", end.content.len());
        }
    }
    assert!(!folder.path().join("a").exists());
}

/// A command can make folders deeper than any path is long. What works on trees comes to an end there.
#[tokio::test]
async fn a_tree_may_be_deeper_than_a_path_is_long() {
    let (folder, tools) = tools();
    let top = folder.path().join("top");
    fs::create_dir(&top).expect("a folder");
    fs::write(folder.path().join("file"), "needle").expect("a file");
    let mut deepest = open(&top, OFlags::DIRECTORY, Mode::empty()).expect("it is there");
    for _ in 0..2_500 {
        mkdirat(&deepest, "d", Mode::RWXU).expect("a folder");
        deepest = openat(&deepest, "d", OFlags::DIRECTORY, Mode::empty()).expect("it is there");
    }
    for call in with_path(".").into_iter().take(2) {
        let name = call.0;
        let end = run(&tools, folder.path(), call).await;
        assert_eq!(end.status, CallStatus::Ok, "{name}: {}", end.content);
        assert!(end.content.contains("file"), "{name}: {}", end.content);
    }
}
