//! Arguments of every tool as no model would write them, through the real executor: each call comes to an end in time, and
//! the process lives. `just fuzz-tools 1800` goes on for that many seconds with each tool; `HERMOD_FUZZ_SEED` begins
//! elsewhere.
#![allow(clippy::disallowed_methods)] // a test may look at the clock

use std::{
    env,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hermod::{
    Tool,
    memory::MemoryFiles,
    tool::{Settings, TOOLS, builtin},
};
use hermod_actors::{
    RunRequest, Runtime,
    model::{AssistantMessage, CallEnd, FinishReason, ModelAnswer, OutcomeCause, ToolCall, ToolSpec},
    port::{BadArguments, PreparedCall},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, says, world};
use serde_json::{Map, Value, json};

/// What one call may take, on a busy machine and without optimisation.
const MAX_TIME: Duration = Duration::from_mins(1);
/// Calls after which the runtime is begun anew: its journal stays in memory.
const CALLS_OF_A_RUNTIME: u64 = 200;
/// Bytes of one text.
const MAX_TEXT_BYTES: usize = 150_000;

/// Parts of shell scripts, globs, regular expressions, paths, JSON and texts that mean something to a parser.
const FRAGMENTS: &[&str] = &[
    "eval ",
    "$v",
    "${v}",
    "v=",
    "'",
    "\"",
    "$(",
    ")",
    "`",
    "{a,b}",
    "{",
    "}",
    ",",
    "<<E\n",
    "E\n",
    ";",
    "|",
    "&",
    "xargs ",
    "find / -exec ",
    " \\;",
    "${",
    "cd a;",
    "\\\n",
    "base64 -d",
    "f(){ f|f& }",
    "sh -c ",
    "sudo ",
    "/",
    "[",
    "]",
    "**/",
    "!",
    "\\",
    "*",
    "?",
    "(",
    "(?:",
    "(?i)",
    "a{1000}",
    "\\pL",
    "[^",
    "\\b",
    ".*",
    "+",
    "../",
    "..",
    ".",
    "~",
    "\0",
    "x",
    " ",
    "\n",
    "\r\n",
    "\t",
    "é",
    "\u{202e}",
    "\u{200b}",
    "𝕊",
    "0",
    "1",
    "-1",
    "1e400",
    "null",
    "§",
    "#",
    "---",
    ":",
    "<a>",
    "> ",
    "- ",
    "a",
    "file",
    "needle",
];

/// Bytes of all texts of one call.
const MAX_CALL_BYTES: usize = 400_000;

/// Numbers out of a seed, and the bytes that may still be made of them.
struct Dice {
    state: u64,
    bytes_left: usize,
}

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides.max(1) as u64).unwrap()
    }

    fn fragment(&mut self) -> &'static str {
        FRAGMENTS[self.roll(FRAGMENTS.len())]
    }

    /// A few fragments, or one many times, or several many times.
    fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..=self.roll(4) {
            let part: String = (0..=self.roll(6)).map(|_| self.fragment()).collect();
            let times = [1, 1, 2, 10, 300, 20_000][self.roll(6)];
            text.push_str(&part.repeat(times.min(MAX_TEXT_BYTES / part.len().max(1))));
        }
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES.min(self.bytes_left)));
        self.bytes_left -= text.len();
        text
    }

    /// A value for a field of this schema, mostly of its kind.
    fn value(&mut self, schema: &Value) -> Value {
        if self.roll(8) == 0 {
            return self.odd();
        }
        if let Some(choices) = schema["enum"].as_array() {
            return choices[self.roll(choices.len())].clone();
        }
        match schema["type"].as_str() {
            Some("string") if self.roll(3) > 0 => {
                ["file", "a/b", ".", "needle", "create"][self.roll(5)].into()
            }
            Some("string") => self.text().into(),
            Some("integer") => {
                [json!(0), json!(1), json!(7), json!(2.0), json!(-1), json!(u64::MAX)][self.roll(6)].clone()
            }
            Some("boolean") => (self.roll(2) == 0).into(),
            Some("array") => {
                (0..[0, 1, 2, 3, 900][self.roll(5)]).map(|_| self.value(&schema["items"])).collect()
            }
            Some("object") => self.object(schema),
            _ => self.odd(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut fields = Map::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if self.roll(4) > 0 {
                fields.insert(name.clone(), self.value(schema));
            }
        }
        if self.roll(8) == 0 {
            fields.insert(self.text(), self.odd());
        }
        Value::Object(fields)
    }

    fn odd(&mut self) -> Value {
        match self.roll(6) {
            0 => Value::Null,
            1 => json!(1e300),
            2 => self.text().into(),
            3 => (0..self.roll(200)).fold(Value::Null, |inside, _| json!([inside])),
            4 => (0..self.roll(100)).fold(Value::Null, |inside, _| json!({"a": inside})),
            _ => json!(vec![0; 5_000]),
        }
    }

    /// Arguments as text, now and then damaged.
    fn arguments(&mut self, schema: &Value) -> String {
        let mut text = self.object(schema).to_string();
        match self.roll(12) {
            0 => text.truncate(text.floor_char_boundary(self.roll(text.len() + 1))),
            1 => text = Value::from(text).to_string(),
            2 => text = self.text(),
            3 => text.insert_str(text.floor_char_boundary(self.roll(text.len() + 1)), self.fragment()),
            4 => text = ["[", "{\"a\":"][self.roll(2)].repeat(self.roll(100_000)),
            _ => {}
        }
        text
    }
}

/// A tool that is judged and not run: nobody knows what these commands would do.
#[derive(Debug)]
struct OnlyJudged(Arc<dyn Tool>);

impl Tool for OnlyJudged {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn prepare(&self, arguments: &Value, workspace: &str) -> Result<PreparedCall, BadArguments> {
        let call = self.0.prepare(arguments, workspace)?;
        let end = CallEnd::ok("it would have run");
        Ok(PreparedCall { work: Box::new(|_| std::future::ready(end)), ..call })
    }
}

/// A workspace, and a runtime whose model calls one tool with what `next` holds.
struct Lab {
    _folder: tempfile::TempDir,
    runtime: Runtime,
    next: Arc<Mutex<String>>,
}

impl Lab {
    async fn begin(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("work");
        std::fs::create_dir_all(workspace.join("a")).unwrap();
        std::fs::write(workspace.join("file"), "needle\nneedle in a haystack\n".repeat(100)).unwrap();
        let memory = MemoryFiles::new(&folder.path().join("state"), 2_000, 1_000);
        let tools = builtin(Settings { memory: Some(memory), ..Settings::default() }).into_iter();
        let tools = tools.filter(|tool| tool.spec().name == name).map(|tool| match name {
            "shell" => Arc::new(OnlyJudged(tool)) as Arc<dyn Tool>,
            _ => tool,
        });
        let next = Arc::new(Mutex::new(String::new()));
        let (asked, called) = (Arc::clone(&next), name.to_owned());
        let provider = ScriptedProvider::new(Duration::ZERO, move |view| {
            if view.iter().any(|message| message["role"] == "tool") {
                return Ok(says("done"));
            }
            let arguments = asked.lock().unwrap().clone();
            let call = ToolCall { id: "c".into(), name: called.clone(), arguments };
            let message = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
            Ok(ModelAnswer { message, finish: FinishReason::ToolCalls, ..says("") })
        });
        let mut world = world(Arc::new(MemoryJournal::new()), provider, tools.collect());
        world.defaults.spec.tools = vec![name.to_owned()];
        world.defaults.spec.workspace = workspace.to_str().unwrap().to_owned();
        Self { _folder: folder, runtime: Runtime::start(world).await.unwrap(), next }
    }

    /// Has one call made. Whatever became of it, its run has an outcome.
    async fn check(&self, arguments: String, what: &str) {
        let shown: String = arguments.chars().take(300).collect();
        *self.next.lock().unwrap() = arguments;
        let run = tokio::time::timeout(MAX_TIME, self.runtime.run(RunRequest::new("do it")));
        let Ok(run) = run.await else { panic!("{what}: no end within {MAX_TIME:?}: {shown}") };
        let ended = run.unwrap_or_else(|error| panic!("{what}: {error}: {shown}")).ended;
        assert!(!matches!(ended.cause, Some(OutcomeCause::CrashLoop { .. })), "{what}: {ended:?}: {shown}");
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    env::var(variable)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn fuzz(name: &'static str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (limit, mut seed) =
        (Duration::from_secs(number("HERMOD_FUZZ_SECONDS", 2)), number("HERMOD_FUZZ_SEED", 1));
    runtime.block_on(async {
        let (begin, first) = (Instant::now(), seed);
        while begin.elapsed() < limit {
            let lab = Lab::begin(name).await;
            let spec = builtin(Settings {
                memory: Some(MemoryFiles::new("/nowhere".as_ref(), 1, 1)),
                ..Settings::default()
            });
            let schema = spec.iter().find(|tool| tool.spec().name == name).unwrap().spec().parameters.clone();
            for _ in 0..CALLS_OF_A_RUNTIME {
                let arguments = Dice { state: seed, bytes_left: MAX_CALL_BYTES }.arguments(&schema);
                lab.check(arguments, &format!("{name}, HERMOD_FUZZ_SEED={seed}")).await;
                seed += 1;
                if begin.elapsed() >= limit {
                    break;
                }
            }
            lab.runtime.suspend().await;
        }
        println!("{name}: {} calls", seed - first);
    });
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_tool_is_a_target() {
            let targets = [$(stringify!($name)),*];
            let tools: Vec<_> = TOOLS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tools, targets);
        }
    };
}

targets!(
    current_time,
    edit_file,
    list_files,
    memory,
    read_artifact,
    read_file,
    search_files,
    shell,
    skill_view,
    write_file,
);
