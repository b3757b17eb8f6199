//! Hooks of the real binary: what they decide, what becomes of a run whose hook misbehaves, and what is asked again after
//! kills.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, kinds, until},
    world::{World, object, stderr},
};

/// One shell command, then an answer with its result.
fn one_call(command: &str) -> Value {
    json!([
        { "call": [{ "tool": "shell", "arguments": { "command": command } }] },
        { "say": "result: {{result:1.1}}" },
    ])
}

/// Runs one shell command to the end, and returns the records of the run.
#[track_caller]
fn records_of(world: &World, command: &str, code: i32) -> Vec<Value> {
    let script = world.script(&one_call(command));
    let output = world.run(&["run", &script, "go", "--json"]);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    let result = object(&String::from_utf8_lossy(&output.stdout));
    world.journal(result["run"].as_str().unwrap())
}

#[track_caller]
fn record<'r>(records: &'r [Value], kind: &str) -> &'r Value {
    let found = records.iter().find(|record| record["kind"] == kind);
    found.unwrap_or_else(|| panic!("there is no {kind}: {:?}", kinds(records)))
}

/// A hook that appends what it gets to a ledger, and answers this.
pub(crate) fn noting(ledger: &Path, answer: &Value) -> String {
    format!("cat >> {}; echo '{answer}'", ledger.display())
}

pub(crate) fn hook(name: &str, on: &[&str], command: &str, more: &str) -> String {
    format!("[hooks.{name}]\non = {on:?}\ncommand = {command:?}\n{more}\n")
}

pub(crate) fn ledger_lines(ledger: &Path) -> Vec<Value> {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

#[test]
fn a_hook_that_gives_no_verdict_refuses_and_the_run_goes_on() {
    let check = |command: &str, reason: &str| {
        let world = World::new();
        world.configure(&hook("guard", &["pre_tool_call"], command, "deadline = \"400ms\""));
        let records = records_of(&world, "touch ran", 0);
        assert!(!world.work().join("ran").exists(), "{command}");
        let ended = record(&records, "call.ended");
        assert_eq!(ended["status"], "not_started", "{ended}");
        assert_eq!(ended["hooks"][0]["ruling"], "refused", "{ended}");
        for part in ["the hook `guard` refuses this", reason] {
            assert!(ended["content"].as_str().unwrap().contains(part), "{part}: {ended}");
        }
        assert_eq!(record(&records, "run.ended")["outcome"], "completed");
        assert!(!kinds(&records).contains(&"call.admitted"), "{records:?}");
    };
    check("sleep 60", "no answer within 400ms");
    check("echo it is broken >&2; exit 3", "it exits with 3 and says: it is broken");
    check("kill -9 $$", "a signal ends it");
    check("yes", "its answer has more than 262144 bytes");
    check("echo yes", "is no verdict");
    check("true", "its answer is empty");
    check("/nothing/here", "it exits with 127");
    check("echo '{\"verdict\":\"refuse\",\"reason\":\"not today\"}'", "refuses this: not today");
}

#[test]
fn what_a_hook_replaces_is_judged_again_and_recorded() {
    let world = World::new();
    let ledger = world.work().join("ledger");
    let replace = |command: &str| json!({ "verdict": "replace", "arguments": { "command": command } });
    let first = noting(&ledger, &replace("touch replaced"));
    let second = noting(&ledger, &json!({ "verdict": "allow" }));
    let hooks = hook("second", &["before_tool_call"], &second, "priority = -1\ntools = [\"sh*\"]")
        + &hook("first", &["pre_tool_call"], &first, "priority = 7")
        + &hook("other", &["pre_tool_call"], "exit 1", "tools = [\"write_file\"]");
    world.configure(&hooks);
    let records = records_of(&world, "touch original", 0);
    assert!(world.work().join("replaced").exists() && !world.work().join("original").exists());
    let admitted = record(&records, "call.admitted");
    assert_eq!(admitted["hooks"]["arguments"], json!({ "command": "touch replaced" }).to_string());
    let decisions = admitted["hooks"]["decisions"].as_array().unwrap();
    let decisions: Vec<_> = decisions.iter().map(|one| (&one["hook"], &one["ruling"])).collect();
    assert_eq!(decisions, [(&json!("first"), &json!("replaced")), (&json!("second"), &json!("allowed"))]);
    let asked = ledger_lines(&ledger);
    assert_eq!(asked[0]["arguments"]["command"], "touch original", "{asked:?}");
    assert_eq!(asked[1]["arguments"]["command"], "touch replaced", "a later hook sees what is left");
    assert_eq!(asked[0]["id"], format!("{}/0/pre_tool_call", admitted["call"].as_str().unwrap()));
    // The policy denies it, whatever hooks say.
    world.configure(&hook("first", &["pre_tool_call"], &noting(&ledger, &replace("rm -rf /")), ""));
    let records = records_of(&world, "true", 0);
    let ended = record(&records, "call.ended");
    assert!(!kinds(&records).contains(&"call.started"), "{ended}");
    assert_eq!(ended["hooks"][0]["ruling"], "replaced", "{ended}");
}

#[test]
fn a_result_is_replaced_or_withheld_before_it_is_recorded() {
    let world = World::new();
    let public = json!({ "verdict": "replace", "result": "nothing to see" });
    let ledger = world.work().join("ledger");
    let hooks = hook("scrub", &["post_tool_call"], &noting(&ledger, &public), "")
        + &hook("last", &["tool_result_persist"], &noting(&ledger, &json!({ "verdict": "allow" })), "");
    world.configure(&hooks);
    let records = records_of(&world, "echo private", 0);
    let ended = record(&records, "call.ended");
    assert_eq!((&ended["content"], &ended["status"]), (&json!("nothing to see"), &json!("ok")), "{ended}");
    let points: Vec<_> = ended["hooks"].as_array().unwrap().iter().map(|one| &one["point"]).collect();
    assert_eq!(points, ["post_tool_call", "tool_result_persist"]);
    let asked = ledger_lines(&ledger);
    assert!(asked[0]["result"].as_str().unwrap().contains("private"), "{asked:?}");
    assert_eq!(asked[1]["result"], "nothing to see", "{asked:?}");
    assert!(!records.iter().any(|one| one["kind"] == "call.ended" && one.to_string().contains("private")));
    world.configure(&hook("scrub", &["post_tool_call"], "exit 1", ""));
    let records = records_of(&world, "touch ran; echo private", 0);
    let ended = record(&records, "call.ended");
    assert!(world.work().join("ran").exists());
    assert!(!ended["content"].as_str().unwrap().contains("private"), "{ended}");
    assert!(ended["content"].as_str().unwrap().contains("its result is withheld"), "{ended}");
}

#[test]
fn a_refused_model_call_is_not_sent() {
    let world = World::new();
    let refuse = json!({ "verdict": "refuse", "reason": "not at night" });
    let ledger = world.work().join("ledger");
    world.configure(&hook("night", &["before_model_call"], &noting(&ledger, &refuse), ""));
    let records = records_of(&world, "true", 5);
    let failed = record(&records, "model.failed");
    assert!(
        failed["failure"]["message"]
            .as_str()
            .unwrap()
            .contains("the hook `night` refuses this: not at night"),
        "{failed}"
    );
    assert_eq!(failed["failure"]["request"], "not_sent", "{failed}");
    assert_eq!(record(&records, "run.ended")["outcome"], "refused");
    assert_eq!(ledger_lines(&ledger).len(), 1);
}

#[test]
fn the_prompt_of_a_session_is_what_hooks_leave_of_it() {
    let world = World::new();
    let (ledger, whole) =
        (world.work().join("ledger"), json!({ "verdict": "replace", "prompt": "Only this." }));
    let bootstrap = json!({ "verdict": "replace", "add": [{ "name": "house", "text": "No shouting." }] });
    let first = hook("boot", &["agent:bootstrap"], &noting(&ledger, &bootstrap), "");
    world.configure(&first);
    let opened = |records: &[Value]| record(records, "session.opened")["prompt"].as_str().unwrap().to_owned();
    let prompt = opened(&records_of(&world, "true", 0));
    assert!(prompt.ends_with("No shouting.") && prompt.len() > 100, "{prompt}");
    world.configure(&(first + &hook("all", &["before_prompt_build"], &noting(&ledger, &whole), "")));
    assert_eq!(opened(&records_of(&world, "true", 0)), "Only this.");
    let layers = ledger_lines(&ledger).pop().unwrap()["layers"].clone();
    assert_eq!(layers.as_array().unwrap().last().unwrap()["name"], "house", "{layers}");
    world.configure(&hook("all", &["before_prompt_build"], "echo nonsense", ""));
    let output = world.run(&["run", &world.script(&one_call("true")), "go"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("the hook `all` refuses this at before_prompt_build"),
        "{}",
        stderr(&output)
    );
}

/// An endpoint that answers each request with this, and keeps what it got.
fn endpoint(status: &'static str, answer: Value) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&seen);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut head = Vec::new();
            while let Some(Ok(line)) = reader.by_ref().lines().next() {
                if line.is_empty() {
                    break;
                }
                head.push(line);
            }
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            kept.lock().unwrap().push(format!("{}\n{}", head.join("\n"), String::from_utf8_lossy(&body)));
            let answer = answer.to_string();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            stream.write_all((head + &answer).as_bytes()).unwrap();
        }
    });
    (url, seen)
}

#[test]
fn an_endpoint_decides_too_and_gets_its_token() {
    let world = World::new();
    let token = world.state().with_file_name("token");
    fs::write(&token, "t0ken-of-the-hook").unwrap();
    let (url, seen) = endpoint("200 OK", json!({ "verdict": "refuse", "reason": "says the endpoint" }));
    let config = |url: &str| {
        format!(
            "[hooks.remote]\non = [\"pre_tool_call\"]\nurl = \"{url}\"\nbearer = \"file:{}\"\n",
            token.display()
        )
    };
    world.configure(&config(&url));
    let records = records_of(&world, "touch ran", 0);
    assert!(record(&records, "call.ended")["content"].as_str().unwrap().contains("says the endpoint"));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].contains("authorization: Bearer t0ken-of-the-hook"), "{}", seen[0]);
    assert!(seen[0].contains("\"name\":\"pre_tool_call\""), "{}", seen[0]);
    let (url, _) = endpoint("503 Service Unavailable", json!({ "verdict": "allow" }));
    world.configure(&config(&url));
    let records = records_of(&world, "touch ran", 0);
    let ended = record(&records, "call.ended");
    assert!(ended["content"].as_str().unwrap().contains("it answers with the status 503"), "{ended}");
    assert!(!world.work().join("ran").exists());
}

/// Kills of the run.
const KILLS: usize = 20;
/// Calls of the run, one after the other.
const CALLS: usize = 24;

/// The iteration of a call, from its id.
fn iteration(call: &Value) -> usize {
    call.as_str().unwrap().split('.').nth(1).unwrap().parse().unwrap()
}

#[test]
fn killed_twenty_times_a_recorded_verdict_is_not_asked_for_again() {
    let world = World::new();
    let ledger = world.work().join("ledger");
    let done = world.work().join("done");
    world.configure(&hook("guard", &["pre_tool_call"], &noting(&ledger, &json!({ "verdict": "allow" })), ""));
    let call = |n: usize| json!({ "call": [{ "tool": "shell", "arguments": { "command": format!("echo {n} >> done") } }] });
    let mut steps: Vec<Value> = (0..CALLS).map(call).collect();
    steps.push(json!({ "say": "done" }));
    let script = world.script(&json!(steps));
    let mut running = world.running(&["run", &script, "go"]);
    let accepted = Lines::of(&mut running).until("accepted  run ");
    let run = accepted.split(' ').nth(3).unwrap().to_owned();
    let count = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    // How often the run was killed while so many calls were admitted.
    let mut kills = BTreeMap::<usize, usize>::new();
    for n in 0..KILLS {
        // In turn when a hook is asked, and when a command has run.
        let (path, before) = if n % 2 == 0 { (&ledger, count(&ledger)) } else { (&done, count(&done)) };
        until("there is progress", || count(path) > before);
        running.signal(Signal::KILL);
        running.end();
        let admitted = kinds(&world.journal(&run)).iter().filter(|kind| **kind == "call.admitted").count();
        *kills.entry(admitted).or_default() += 1;
        assert!(admitted < CALLS, "the run has ended before it was killed {KILLS} times");
        running = resumed(&world);
    }
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let records = world.journal(&run);
    let admitted: Vec<&Value> = records.iter().filter(|one| one["kind"] == "call.admitted").collect();
    assert_eq!(admitted.len(), CALLS);
    let mut asked = BTreeMap::<usize, usize>::new();
    for line in ledger_lines(&ledger) {
        *asked.entry(iteration(&line["call"])).or_default() += 1;
    }
    for (n, admitted) in admitted.iter().enumerate() {
        assert_eq!(admitted["hooks"]["decisions"][0]["ruling"], "allowed", "{admitted}");
        let (times, kills) = (asked[&iteration(&admitted["call"])], kills.get(&n).copied().unwrap_or(0));
        assert!(
            (1..=1 + kills).contains(&times),
            "call {n} was asked about {times} times, with {kills} kills"
        );
    }
    let numbers: BTreeSet<String> = fs::read_to_string(&done).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(numbers.len(), CALLS);
    assert_eq!(count(&done), CALLS, "no command ran twice");
}

pub(crate) fn resumed(world: &World) -> Running {
    world.running(&["runs", "resume", "--all", "--wait"])
}
