//! Calls in doubt and the persons who are asked about them: the real binary, killed with its runners and their commands.

use std::{fs, path::Path, sync::Arc, time::Duration};

use hermod::{
    clock::SystemClock,
    store::redb::{Durability, OpenError, RedbJournal},
};
use hermod_actors::{
    RunRequest, Runtime,
    model::{CallEnd, CallStatus, EffectClass, InDoubtAction, InDoubtPolicy, RunState},
    port::AttachOutcome,
};
use hermod_testkit::{ScriptedProvider, ScriptedTool, calls, world};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    killed_command::kill_command,
    running::{Lines, Running, kinds, texts, until},
    world::{World, object, stderr},
};

/// Notes its pid, waits to be released, and says so.
const COMMAND: &str =
    "echo $$ >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done; echo released";
const HELD: [&str; 3] = ["runs", "resume", "--all"];
const ALL: [&str; 4] = ["runs", "resume", "--all", "--wait"];
const TELL: &[(&str, &str)] = &[("HERMOD_TOOLS__IN_DOUBT", "tell")];
const RETRY: &[(&str, &str)] = &[("HERMOD_TOOLS__IN_DOUBT", "retry")];
const ASK: &[(&str, &str)] = &[("HERMOD_TOOLS__IN_DOUBT", "ask")];
const ASK_SHORTLY: &[(&str, &str)] = &[("HERMOD_TOOLS__IN_DOUBT", "ask"), ("HERMOD_APPROVALS__EXPIRY", "3s")];
/// What is known of the command, as the model and the person read it.
const KNOWN: [&str; 4] =
    [r#"shell {"command":"echo $$ >> ran;"#, "} was started at 20", "interrupted", "its effect is unknown"];

/// Starts a run whose command waits, and returns when the command is under way.
fn begun(world: &World, settings: &[(&str, &str)]) -> Running {
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": COMMAND } }] },
        { "say": "read: {{result:1.1}}" },
    ]));
    let mut command = world.hermod(&["run", &script, "--json", "do it"]);
    command.envs(settings.iter().copied());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = Running::new(command.spawn().unwrap());
    until("the command runs", || {
        fs::read_to_string(world.work().join("ran")).is_ok_and(|ran| ran.ends_with('\n'))
    });
    running
}

/// Leaves a run behind that was killed with all that belongs to it, and says its id.
fn interrupted(world: &World, settings: &[(&str, &str)]) -> String {
    let running = begun(world, settings);
    running.signal(Signal::KILL);
    running.end();
    kill_command(world);
    shown(world, "last")["id"].as_str().unwrap().to_owned()
}

/// Likewise, parked by the next process.
fn parked(world: &World) -> String {
    let run = interrupted(world, ASK);
    let output = world.run(&["run", "--resume", &run, "--json"]);
    check_left_parked(&output);
    run
}

#[track_caller]
fn check_left_parked(output: &std::process::Output) {
    let (result, progress) = texts(output);
    assert_eq!(output.status.code(), Some(6), "{progress}");
    let result = object(&result);
    assert_eq!((&result["outcome"], &result["error"]), (&Value::Null, &json!("parked")));
    assert!(progress.contains("answer with `hermod approvals`"), "{progress}");
}

fn shown(world: &World, run: &str) -> Value {
    object(&world.ok(&["runs", "show", run, "--json"]))
}

fn questions(world: &World) -> Vec<Value> {
    object(&world.ok(&["approvals", "list", "--json"])).as_array().unwrap().clone()
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[track_caller]
fn check_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is missing: {text}"));
}

/// The run has completed: what its model read of the call is this, and the command was begun so often.
#[track_caller]
fn check_completed(world: &World, run: &str, (parts, times): (&[&str], usize)) {
    let run = shown(world, run);
    assert_eq!(run["outcome"], "completed", "{run}");
    let records = world.journal(run["id"].as_str().unwrap());
    let ends = of_kind(&records, "call.ended");
    assert_eq!(ends.len(), 1);
    let read = ends[0]["content"].as_str().unwrap();
    let content = object(read);
    let whole = content["error"].as_str().unwrap_or(read);
    check_has(whole, parts);
    let in_doubt = content["error"].is_string();
    assert_eq!((ends[0]["status"] == "in_doubt", world.times_run()), (in_doubt, times));
    if in_doubt {
        assert_eq!(content["hint"], "look at what is there before you repeat anything");
    }
    // The scripted model says what it was shown.
    assert!(run["said"].as_str().unwrap().contains(read), "{run}");
}

/// The run asks about its call, wherever one looks.
#[track_caller]
fn check_parked(world: &World, run: &str) {
    let row = shown(world, run);
    assert_eq!(row["state"], "parked");
    let [asked] = &questions(world)[..] else { panic!("one question") };
    let call = format!("{run}.1.1");
    let question = asked["question"].as_str().unwrap();
    assert_eq!(
        *asked,
        json!({
            "call": call, "run": run, "session": row["session"], "question": question,
            "before_start": false, "wants_text": false, "rules": [], "allow_rules": [],
            "since": asked["since"], "expires_at": asked["expires_at"],
        })
    );
    check_has(question, &KNOWN);
    assert!(question.ends_with("Is it to be made again?"), "{question}");
    let until = asked["expires_at"].as_str().unwrap();
    let waits = row["waits"].as_array().unwrap();
    let person = waits.iter().find(|wait| wait["what"] == "person").unwrap();
    assert_eq!((&person["call"], &person["until"]), (&json!(call), &asked["expires_at"]));
    let allow = format!("for a person (`hermod approvals allow {call}` or `deny {call}`)");
    check_has(&world.ok(&["runs", "show", run]), &[&allow, &format!("gives up at {until}")]);
    check_has(&world.ok(&["approvals", "list"]), &[&call, question, &format!("taken for a no at {until}")]);
    check_has(&world.ok(&["runs", "list"]), &["parked"]);
    check_has(&world.ok(&["tree"]), &["parked", "asks a person"]);
}

/// A process that holds the store, with nothing under way.
fn holder(world: &World) -> (Running, Lines) {
    let mut running = world.running(&HELD);
    let mut lines = Lines::of(&mut running);
    lines.until("holding   the store");
    (running, lines)
}

#[test]
fn the_model_is_told() {
    let world = World::new();
    let run = interrupted(&world, TELL);
    let output = world.run(&["run", "--resume", "last", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let messages = object(&texts(&output).0)["messages"].clone();
    assert_eq!(messages[2]["role"], "tool");
    check_has(object(messages[2]["content"].as_str().unwrap())["error"].as_str().unwrap(), &KNOWN);
    check_completed(&world, &run, (&KNOWN, 1));
    assert!(!kinds(&world.journal(&run)).contains(&"call.lost"));
}

#[test]
fn it_is_made_again() {
    let world = World::new();
    let run = interrupted(&world, RETRY);
    world.release();
    assert_eq!(world.run(&ALL).status.code(), Some(0));
    check_completed(&world, &run, (&[r#""stdout":"released"#], 2));
    let records = world.journal(&run);
    let [lost] = of_kind(&records, "call.lost")[..] else { panic!("one is lost") };
    assert_eq!((&lost["attempt"], &lost["why"]), (&json!(1), &json!("in_doubt")));
    let attempts: Vec<_> =
        of_kind(&records, "call.started").iter().map(|call| call["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2]);
}

#[test]
fn a_person_is_asked_and_a_kill_changes_nothing() {
    let world = World::new();
    let run = parked(&world);
    check_parked(&world, &run);
    let (asked, records) = (questions(&world), world.journal(&run));
    let (running, _lines) = holder(&world);
    check_parked(&world, &run);
    running.signal(Signal::KILL);
    running.end();
    check_parked(&world, &run);
    assert_eq!(questions(&world), asked);
    let after = world.journal(&run);
    assert_eq!(after[..records.len()], records);
    assert_eq!(kinds(&after[records.len()..]), ["session.revived"]);
    // Whoever takes it up again is told the same, at once.
    check_left_parked(&world.run(&["run", "--resume", &run, "--json"]));
    let output = world.run(&ALL);
    assert_eq!((output.status.code(), world.times_run()), (Some(6), 1));
    check_has(&texts(&output).0, &[&run, "parked"]);
}

/// Answers, with somebody who holds the store or without, and looks at what comes of it.
fn check_answered(verdict: &str, held: bool) {
    let world = World::new();
    let run = parked(&world);
    world.release();
    let holding = held.then(|| holder(&world));
    let output = world.run(&["approvals", verdict, &format!("{run}.1.1"), "--json"]);
    let (answer, hint) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{hint}");
    let answer = object(&answer);
    assert_eq!(
        (&answer["call"], &answer["verdict"], &answer["run"]["id"]),
        (&json!(format!("{run}.1.1")), &json!(verdict), &json!(run))
    );
    if let Some((running, mut lines)) = holding {
        lines.until("ended     completed");
        running.signal(Signal::TERM);
        assert_eq!(running.end().status.code(), Some(143));
    } else {
        assert_eq!((shown(&world, &run)["state"].clone(), world.times_run()), (json!("suspended"), 1));
        let output = world.run(&["run", "--resume", &run]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let no = [&KNOWN[..], &["the operator was asked and has decided that it is not made again"]].concat();
    let yes = [r#""stdout":"released"#];
    check_completed(&world, &run, if verdict == "allow" { (&yes, 2) } else { (&no, 1) });
    let records = world.journal(&run);
    let [answered] = of_kind(&records, "approval.answered")[..] else { panic!("one answer") };
    assert_eq!((&answered["verdict"], &answered["by"]), (&json!(verdict), &json!("person")));
    assert!(questions(&world).is_empty());
}

#[test]
fn an_answer_lets_the_run_go_on() {
    for (verdict, held) in [("allow", false), ("allow", true), ("deny", false), ("deny", true)] {
        check_answered(verdict, held);
    }
}

#[test]
fn who_answers_at_rest_is_told_that_nobody_runs_the_run() {
    let world = World::new();
    let run = parked(&world);
    let other = world.script(&json!([{ "say": "late", "delay": "5m" }]));
    // The holder has another conversation.
    let mut running = world.running(&["run", &other, "wait"]);
    Lines::of(&mut running).until("asks ");
    let output = world.run(&["approvals", "deny", &run]);
    check_has(&texts(&output).0, &["is denied"]);
    check_has(&stderr(&output), &[&format!("it goes on with `hermod runs resume {run}`")]);
    world.ok(&["stop", "last"]);
    running.end();
    assert_eq!(world.run(&ALL).status.code(), Some(0));
    check_completed(&world, &run, (&["has decided"], 1));
}

#[test]
fn silence_is_a_no() {
    const NO: [&str; 2] = [KNOWN[3], "the operator was asked and has not answered, so it is not made again"];
    let by_expiry = |world: &World, run: &str| {
        check_completed(world, run, (&NO, 1));
        let records = world.journal(run);
        let [answered] = of_kind(&records, "approval.answered")[..] else { panic!("one answer") };
        assert_eq!((&answered["verdict"], &answered["by"]), (&json!("deny"), &json!("expiry")));
    };
    let world = World::new();
    let run = interrupted(&world, ASK_SHORTLY);
    let mut running = world.running(&HELD);
    let mut lines = Lines::of(&mut running);
    lines.until("shell denied: no answer in time");
    lines.until("ended     completed");
    by_expiry(&world, &run);
    running.signal(Signal::TERM);
    running.end();
    // With nobody there when the time is over: the next one finds it.
    for resume in [&ALL[..], &["run", "--resume", "last"]] {
        let world = World::new();
        let run = interrupted(&world, ASK_SHORTLY);
        let mut running = world.running(&HELD);
        Lines::of(&mut running).until("asks ");
        running.signal(Signal::KILL);
        running.end();
        until("it has expired", || world.ok(&["approvals", "list"]).contains("; expired "));
        let records = world.journal(&run);
        world.fails(&["approvals", "allow", &run], 2, "silence is a no");
        assert_eq!(world.journal(&run), records);
        let output = world.run(resume);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        by_expiry(&world, &run);
    }
}

#[test]
fn an_answer_to_nothing_changes_nothing() {
    let world = World::new();
    check_has(&stderr(&world.run(&["approvals", "list"])), &["no run waits for a person"]);
    assert!(questions(&world).is_empty());
    world.fails(&["approvals", "allow", "last"], 2, "there is no last run");
    let run = parked(&world);
    let unknown = "00000000000000000000000001";
    let check = || {
        let records = world.journal(&run);
        for verdict in ["allow", "deny"] {
            let fails = |call: &str, part: &str| world.fails(&["approvals", verdict, call], 2, part);
            fails(&format!("{run}.1.2"), &format!("call {run}.1.2 has no pending approval"));
            fails(&format!("{unknown}.1.1"), &format!("no run or session `{unknown}`"));
            fails(unknown, &format!("no run or session `{unknown}`"));
            fails("nonsense", "no run or session `nonsense`");
            fails(
                &format!("{run}.1"),
                &format!("`{run}.1` is not a call id: expected <run>.<iteration>.<n>"),
            );
            fails(shown(&world, &run)["session"].as_str().unwrap(), "is a session");
        }
        assert_eq!(world.journal(&run), records);
        check_parked(&world, &run);
    };
    check();
    let (running, mut lines) = holder(&world);
    check();
    world.ok(&["approvals", "deny", "last"]);
    lines.until("ended     completed");
    let records = world.journal(&run);
    world.fails(&["approvals", "allow", &format!("{run}.1.1")], 2, "has no pending approval");
    running.signal(Signal::TERM);
    running.end();
    world.fails(&["approvals", "allow", &format!("{run}.1.1")], 2, "has no pending approval");
    world.fails(&["approvals", "allow", "last"], 2, &format!("run {run} has no pending approval"));
    assert_eq!(world.journal(&run), records);
}

/// The store, when whoever had it in this process has let go of it.
async fn opened(state: &Path) -> RedbJournal {
    let opened = async {
        loop {
            match RedbJournal::open(state, Durability::Strict) {
                Err(OpenError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                opened => break opened.unwrap(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), opened).await.expect("the store is let go of")
}

/// Starts a run that makes two calls at once, which both are in doubt.
async fn two_questions(state: &Path) -> String {
    // A call that is started and not begun when its process is suspended is in no doubt.
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let begin = || async {
        let (journal, begins) = (Arc::new(opened(state).await), begins.clone());
        let tool = ScriptedTool::new("build", EffectClass::Once, move |invocation| {
            begins.send(()).unwrap();
            async move {
                invocation.cancel.cancelled().await;
                CallEnd::new(CallStatus::Stopped, "stopped")
            }
        });
        let tool = tool.with_attach(|_, _| async { AttachOutcome::Unknown });
        let build = |n: u32| ("build", json!({ "n": n }));
        let provider = ScriptedProvider::new(Duration::ZERO, move |_| Ok(calls(&[build(1), build(2)])));
        let mut world = world(journal, provider, vec![Arc::new(tool)]);
        world.clock = Arc::new(SystemClock::default());
        world.defaults.spec.in_doubt =
            InDoubtPolicy { action: InDoubtAction::Ask, ..InDoubtPolicy::default() };
        Runtime::start(world).await.unwrap()
    };
    let runtime = begin().await;
    let accepted = runtime.submit(RunRequest::new("go")).await.unwrap();
    for _ in 0..2 {
        begun.recv().await.unwrap();
    }
    runtime.suspend().await;
    let runtime = begin().await;
    runtime.revive_all().await.unwrap();
    assert_eq!(runtime.wait_until_ended_or_parked(accepted.run).await.unwrap().state, RunState::Parked);
    runtime.suspend().await;
    accepted.run.to_string()
}

#[test]
fn of_two_questions_one_has_to_be_named() {
    let world = World::new();
    let run = tokio::runtime::Runtime::new().unwrap().block_on(two_questions(&world.state()));
    let records = world.journal(&run);
    let both = format!("run {run} and its subagents ask about several calls; name one: {run}.1.1, {run}.1.2");
    world.fails(&["approvals", "allow", "last"], 2, &both);
    assert_eq!(world.journal(&run), records);
    world.ok(&["approvals", "deny", &format!("{run}.1.1")]);
    let calls: Vec<_> = questions(&world).iter().map(|asked| asked["call"].clone()).collect();
    assert_eq!(calls, [json!(format!("{run}.1.2"))]);
    assert_eq!(shown(&world, &run)["state"], "parked");
    world.ok(&["approvals", "deny", "last"]);
    assert_eq!(shown(&world, &run)["state"], "suspended");
}

#[test]
fn a_stop_needs_no_person() {
    for held in [false, true] {
        let world = World::new();
        let run = parked(&world);
        let holding = held.then(|| holder(&world));
        check_has(&world.ok(&["stop", "last"]), &[&format!("run {run} has ended: stopped (by command)")]);
        let records = world.journal(&run);
        let ends = of_kind(&records, "call.ended");
        assert_eq!((ends.len(), &ends[0]["status"]), (1, &json!("in_doubt")));
        assert!(of_kind(&records, "approval.answered").is_empty());
        assert!(questions(&world).is_empty());
        drop(holding);
        check_has(&stderr(&world.run(&ALL)), &["nothing   is unfinished"]);
        assert_eq!(world.times_run(), 1);
    }
}

#[test]
fn what_is_said_meanwhile_is_kept() {
    let world = World::new();
    let run = parked(&world);
    let records = world.journal(&run);
    world.fails(&["steer", &run, "hurry"], 2, "it waits for a person: answer it");
    assert_eq!(world.journal(&run), records);
    let (running, mut lines) = holder(&world);
    world.ok(&["steer", &run, "take the other road"]);
    lines.until("steered   take the other road");
    check_parked(&world, &run);
    running.signal(Signal::KILL);
    running.end();
    // Another task of the conversation waits behind it.
    let output = world.run(&["run", "--resume", &run, "--json", "and then rest"]);
    check_left_parked(&output);
    let output = world.run(&ALL);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    world.ok(&["approvals", "deny", &run]);
    // The other task begins with the same command.
    world.release();
    assert_eq!(world.run(&ALL).status.code(), Some(0));
    let said = shown(&world, &run)["said"].clone();
    check_has(
        said.as_str().unwrap(),
        &[KNOWN[3], "The user sent this while you were working", "take the other road"],
    );
    assert_eq!(shown(&world, "last")["outcome"], "completed");
}

#[test]
fn it_is_the_same_while_its_process_lives() {
    for settings in [TELL, RETRY, ASK] {
        let world = World::new();
        let running = begun(&world, settings);
        kill_command(&world);
        if settings == RETRY {
            until("it runs again", || world.times_run() == 2);
            world.release();
        }
        let output = running.end();
        if settings == ASK {
            check_left_parked(&output);
            check_parked(&world, shown(&world, "last")["id"].as_str().unwrap());
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let again = [r#""stdout":"released"#];
        check_completed(&world, "last", if settings == RETRY { (&again, 2) } else { (&KNOWN, 1) });
    }
}
