//! Fields of requests and results, on virtual time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hermod_actors::{
    AnswerSource, RunError, RunRequest, Runtime, RuntimeDependencies, SessionChoice, SubmitError, TaskPart,
    model::{
        AgentName, AssistantMessage, Body, EffectClass, Failure, FailureClass, FinishReason, Hash, Limits,
        Message, ModelAnswer, Outcome, RunSpec, ThinkingLevel,
    },
    port::{Journal, Tool},
};
use hermod_testkit::{
    FaultyJournal, JournalFault, MemoryArtifacts, MemoryJournal, ScriptedProvider, ScriptedTool, calls, says,
    world,
};
use serde_json::{Value, json};

async fn start(journal: &MemoryJournal, provider: ScriptedProvider) -> Runtime {
    let read: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"));
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    Runtime::start(world(journal, provider, vec![read])).await.expect("the runtime starts")
}

/// A model that answers with the roles and texts that it sees.
fn mirror(delay: Duration) -> ScriptedProvider {
    ScriptedProvider::new(delay, |view| Ok(says(&shown(view))))
}

fn shown(view: &[Value]) -> String {
    let text = |message: &Value| message["text"].as_str().unwrap_or_default().replace('\n', "/");
    let line = |message: &Value| format!("{} {}", message["role"].as_str().unwrap_or(""), text(message));
    view.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn assistant(text: &str) -> Message {
    Message::Assistant(Arc::new(AssistantMessage { text: text.into(), ..AssistantMessage::default() }))
}

#[tokio::test(start_paused = true)]
async fn a_history_is_mended_recorded_and_told() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal, mirror(Duration::ZERO)).await;
    let history = vec![
        Message::System("be kind".into()),
        user("a"),
        user("b"),
        Message::Tool { call: "x".into(), name: "read".into(), content: "lost".into() },
        assistant("c"),
    ];
    let request = RunRequest {
        history: history.clone(),
        system: Some("be brief".into()),
        session: SessionChoice::Key("k".into()),
        ..RunRequest::new("d")
    };
    let result = runtime.run(request.clone()).await.unwrap();
    let view = "system You are a test.//be kind//be brief; user a//b; assistant c; user d";
    assert_eq!(result.text(), Some(view));
    assert_eq!(result.messages, [user("a\n\nb"), assistant("c"), user("d"), assistant(view)]);
    // The system message is for that run alone; the history stays.
    let next = RunRequest { history: Vec::new(), system: None, ..request.clone() };
    let next = runtime.run(RunRequest { input: "e".into(), ..next }).await.unwrap();
    assert!(next.text().unwrap().starts_with("system You are a test.; user a//b; assistant c; user d; "));
    assert_eq!(next.messages.len(), 2, "{:?}", next.messages);

    let refused = runtime.run(request).await.unwrap_err();
    assert_eq!(refused, RunError::NotAccepted(SubmitError::HasHistory(result.session)));
    assert!(refused.to_string().starts_with("history: session "), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_session_takes_runs_of_its_agent_alone() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal, mirror(Duration::ZERO)).await;
    let agent = |name: &str| name.parse::<AgentName>().unwrap();
    let request = |name: &str, input: &str| {
        let limits = Limits { max_tokens: 1_000, ..Limits::default() };
        let chain = vec!["test/model".parse().unwrap()];
        let spec = Some(RunSpec { agent: agent(name), limits, ..RunSpec::new(chain, "/w") });
        RunRequest { session: SessionChoice::Key("k".into()), spec, ..RunRequest::new(input) }
    };
    // Both find that there is no session yet, and one of them opens it.
    let (one, other) = tokio::join!(runtime.run(request("a", "x")), runtime.run(request("b", "y")));
    let (opened, refused) = match (one, other) {
        (Ok(opened), Err(refused)) | (Err(refused), Ok(opened)) => (opened, refused),
        both => panic!("one of them is refused: {both:?}"),
    };
    let row = runtime.row(opened.run).await.unwrap();
    let expect = SubmitError::OtherAgent { session: opened.session, agent: row.agent.clone() };
    assert_eq!(refused, RunError::NotAccepted(expect));
    let again = runtime.run(request(row.agent.as_str(), "z")).await.unwrap();
    assert_eq!((again.session, runtime.row(again.run).await.unwrap().agent), (opened.session, row.agent));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_has_its_history_and_its_system_message() {
    let journal = MemoryJournal::new();
    let request = RunRequest {
        history: vec![user("a"), assistant("b")],
        system: Some("s".into()),
        ..RunRequest::new("c")
    };
    let runtime = start(&journal, mirror(Duration::from_hours(1))).await;
    let accepted = runtime.submit(request).await.unwrap();
    runtime.suspend().await;
    let runtime = start(&journal.reopened(), mirror(Duration::ZERO)).await;
    runtime.revive_all().await.unwrap();
    let result = runtime.wait(accepted.run, None).await.unwrap();
    assert_eq!(result.text(), Some("system You are a test.//s; user a; assistant b; user c"));
}

#[tokio::test(start_paused = true)]
async fn the_same_history_handed_in_twice_is_one_run() {
    let runtime = start(&MemoryJournal::new(), mirror(Duration::ZERO)).await;
    let request = RunRequest {
        history: vec![user("a"), assistant("b")],
        session: SessionChoice::Key("k".into()),
        idempotency_key: Some("once".into()),
        request_hash: Some(Hash::of(b"first")),
        ..RunRequest::new("c")
    };
    let (first, again) = tokio::join!(runtime.submit(request.clone()), runtime.submit(request));
    assert_eq!(first.unwrap().run, again.unwrap().run);
}

fn picture(last: u8) -> Bytes {
    Bytes::copy_from_slice(&[&b"GIF89a"[..], &[last]].concat())
}

#[tokio::test(start_paused = true)]
async fn a_key_with_another_task_is_refused() {
    let journal = MemoryJournal::new();
    let artifacts = Arc::new(MemoryArtifacts::default());
    let process = async |journal: MemoryJournal| {
        let made = world(Arc::new(journal), mirror(Duration::ZERO), Vec::new());
        Runtime::start(RuntimeDependencies { artifacts: artifacts.clone(), ..made }).await.unwrap()
    };
    let mut runtime = process(journal.clone()).await;
    let first = RunRequest {
        history: vec![user("a"), assistant("b")],
        images: vec![picture(1)],
        session: SessionChoice::Key("k".into()),
        idempotency_key: Some("once".into()),
        request_hash: Some(Hash::of(b"first")),
        ..RunRequest::new("c")
    };
    let run = runtime.submit(first.clone()).await.unwrap();
    let of = |change: fn(&mut RunRequest)| {
        let mut request = first.clone();
        change(&mut request);
        request
    };
    let others = [
        (of(|r| r.input = "d".into()), TaskPart::Input),
        (of(|r| r.images.clear()), TaskPart::Images),
        (of(|r| r.images[0] = Bytes::from_static(b"GIF89a\x02")), TaskPart::Images),
        (of(|r| r.images[0] = Bytes::from_static(b"GIF89a\x01\x01")), TaskPart::Images),
        (of(|r| r.history.clear()), TaskPart::History),
        (of(|r| r.session = SessionChoice::New), TaskPart::Session),
        (of(|r| r.session = SessionChoice::Key("other".into())), TaskPart::Session),
        (of(|r| r.request_hash = Some(Hash::of(b"other"))), TaskPart::Settings),
    ];
    let same = [
        first.clone(),
        of(|r| r.system = Some("s".into())),
        of(|r| r.timeout = Some(Duration::from_secs(9))),
        of(|r| r.thinking = Some(ThinkingLevel::Low)),
        RunRequest { session: SessionChoice::Id(run.session), ..first.clone() },
        of(|r| r.request_hash = None),
    ];
    // The second time in another process, after the end of the run.
    for _ in 0..2 {
        for (request, part) in &others {
            let refused = runtime.submit(request.clone()).await;
            let Err(RunError::KeyConflict(conflict)) = &refused else { panic!("{part:?}: {refused:?}") };
            assert_eq!((conflict.run, conflict.part), (run.run, *part));
        }
        for request in &same {
            assert_eq!(runtime.submit(request.clone()).await.unwrap(), run);
        }
        runtime.wait(run.run, None).await.unwrap();
        runtime.suspend().await;
        runtime = process(journal.reopened()).await;
    }
    let runtime = start(&MemoryJournal::new(), mirror(Duration::ZERO)).await;
    let (first, again) = tokio::join!(
        runtime.submit(RunRequest { idempotency_key: Some("two".into()), ..RunRequest::new("a") }),
        runtime.submit(RunRequest { idempotency_key: Some("two".into()), ..RunRequest::new("b") }),
    );
    let refused = if first.is_ok() { again } else { first }.unwrap_err().to_string();
    assert!(refused.contains("idempotency_key `two` stands for run"), "{refused}");
    assert!(refused.contains("which has another text: its task is"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_task_id_is_given_or_made() {
    let runtime = start(&MemoryJournal::new(), mirror(Duration::ZERO)).await;
    let made = runtime.run(RunRequest::new("a")).await.unwrap();
    assert_eq!(made.task, Some(made.run.to_string()));
    let given = RunRequest { task: Some("mine".into()), ..RunRequest::new("a") };
    let given = runtime.run(given).await.unwrap();
    assert_eq!(given.task.as_deref(), Some("mine"));
    let records = runtime.journal(given.session, 1).await.unwrap();
    let task = records.iter().find_map(|(_, record)| {
        let Body::RunAccepted(accepted) = &record.body else { return None };
        Some(accepted.spec.isolation_key.clone())
    });
    assert_eq!(task.as_deref(), Some("mine"), "it is on disk");
}

#[tokio::test(start_paused = true)]
async fn the_result_has_the_calls_of_this_run_with_their_results() {
    let provider = ScriptedProvider::new(Duration::ZERO, |view| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says("done")),
        _ => Ok(calls(&[("read", json!({}))])),
    });
    let runtime = start(&MemoryJournal::new(), provider).await;
    let result = runtime.run(RunRequest::new("a")).await.unwrap();
    assert_eq!(result.answer.as_ref().map(|said| said.source), Some(AnswerSource::Final));
    let [input, asked, returned, answer] = &result.messages[..] else { panic!("{:?}", result.messages) };
    assert_eq!((input, answer), (&user("a"), &assistant("done")));
    assert!(matches!(asked, Message::Assistant(said) if said.calls.len() == 1), "{asked:?}");
    assert!(matches!(returned, Message::Tool { content, .. } if &*content.text == "content"), "{returned:?}");
}

#[tokio::test(start_paused = true)]
async fn chat_gives_the_answer_or_says_why_there_is_none() {
    let runtime =
        start(&MemoryJournal::new(), ScriptedProvider::new(Duration::ZERO, |_| Ok(says("hi")))).await;
    assert_eq!(runtime.chat("a").await.unwrap(), "hi");
    let cut = |_: &[Value]| Ok(ModelAnswer { finish: FinishReason::Length, ..says("half a") });
    let runtime = start(&MemoryJournal::new(), ScriptedProvider::new(Duration::ZERO, cut)).await;
    let error = runtime.chat("a").await.unwrap_err();
    let RunError::NotCompleted(result) = &error else { panic!("{error}") };
    assert_eq!((result.ended.outcome, result.text()), (Outcome::Failed, Some("half a".repeat(4).as_str())));
    assert_eq!(result.answer.as_ref().map(|said| said.source), Some(AnswerSource::Partial));
    assert!(error.to_string().contains("truncated"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_counts_active_time_and_is_not_the_wall_budget() {
    let runtime = start(&MemoryJournal::new(), mirror(Duration::from_secs(5))).await;
    // The second run waits for the first. Only its own time counts.
    let request = RunRequest {
        session: SessionChoice::Key("k".into()),
        timeout: Some(Duration::from_secs(6)),
        ..RunRequest::new("a")
    };
    let (first, second) = tokio::join!(runtime.run(request.clone()), runtime.run(request.clone()));
    for result in [first, second] {
        assert_eq!(result.unwrap().ended.outcome, Outcome::Completed);
    }
    let short = Some(Duration::from_secs(2));
    let ended = |request: RunRequest| async { runtime.run(request).await.unwrap().ended.outcome };
    assert_eq!(ended(RunRequest { timeout: short, ..RunRequest::new("a") }).await, Outcome::TimedOut);
    assert_eq!(ended(RunRequest { wall: short, ..RunRequest::new("a") }).await, Outcome::BudgetExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_known_reset_does_not_time_a_run_out() {
    let begin = tokio::time::Instant::now();
    let provider =
        ScriptedProvider::new(Duration::ZERO, move |_| match begin.elapsed() < Duration::from_mins(1) {
            true => {
                let class = FailureClass::RateLimited { retry_after_ms: Some(61_000), reset_at: None };
                Err(Failure::new(class, "later"))
            }
            false => Ok(says("now")),
        });
    let runtime = start(&MemoryJournal::new(), provider).await;
    let request = RunRequest { timeout: Some(Duration::from_secs(10)), ..RunRequest::new("a") };
    let result = runtime.run(request).await.unwrap();
    assert_eq!((result.ended.outcome, result.text()), (Outcome::Completed, Some("now")));
    assert!(begin.elapsed() >= Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_refused_submission_is_answered_too() {
    let slow = JournalFault::Slow(Duration::from_secs(1));
    let journal = FaultyJournal::new(Arc::new(MemoryJournal::new()), slow, 1);
    let world = world(Arc::new(journal), mirror(Duration::from_secs(1)), Vec::new());
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let request = RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new("d") };
    let first = runtime.submit(request.clone()).await.unwrap();
    // The run's end is being committed, and no run follows it.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let submit = |key: &str| {
        let idempotency_key = Some(key.into());
        let history = vec![user("a"), assistant("b")];
        let submitted = runtime.submit(RunRequest { idempotency_key, history, ..request.clone() });
        Box::pin(async move {
            tokio::time::timeout(Duration::from_hours(1), submitted).await.expect("it is answered")
        })
    };
    let refused = Err(RunError::NotAccepted(SubmitError::HasHistory(first.session)));
    let answers = futures::future::join(submit("1"), submit("2")).await;
    assert_eq!(answers, (refused.clone(), refused));
}
