//! Answers with flaws, through the whole runtime: what follows, and what callers and later runs read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hermod_actors::{
    AnswerSource, RunRequest, RunResult, Runtime,
    model::{AssistantMessage, Body, EffectClass, FinishReason, Message, ModelAnswer, Outcome},
    port::{Journal, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

/// A model that gives these answers in order, then repeats the last one.
fn in_turn(answers: Vec<ModelAnswer>) -> ScriptedProvider {
    let next = AtomicUsize::new(0);
    ScriptedProvider::new(Duration::from_millis(1), move |_| {
        let at = next.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        Ok(answers[at].clone())
    })
}

/// A runtime whose chain is these models.
async fn start(journal: &MemoryJournal, chain: Vec<Vec<ModelAnswer>>) -> Runtime {
    let look: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("look", EffectClass::Pure, "result"));
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    let mut world = world(journal, in_turn(vec![says("")]), vec![look]);
    world.defaults.spec.tools.push("todo".into());
    (world.providers, world.defaults.spec.chain) = chain
        .into_iter()
        .zip(1..)
        .map(|(answers, n)| {
            let provider: Arc<dyn hermod_actors::port::ModelProvider> = Arc::new(in_turn(answers));
            let link = format!("p{n}/m").parse().expect("a link");
            ((format!("p{n}").into(), provider, 10), link)
        })
        .unzip();
    Runtime::start(world).await.expect("the runtime starts")
}

fn cut(text: &str) -> ModelAnswer {
    ModelAnswer { finish: FinishReason::Length, ..says(text) }
}

fn looks() -> ModelAnswer {
    calls(&[("look", json!({}))])
}

fn keeps_house(text: &str) -> ModelAnswer {
    let asked = calls(&[("todo", json!({}))]);
    ModelAnswer { message: AssistantMessage { text: text.into(), ..asked.message.clone() }, ..asked }
}

/// Checks a run with this chain: its outcome, its text and the source of the text, and its iterations.
async fn check(
    chain: Vec<Vec<ModelAnswer>>,
    outcome: Outcome,
    answer: Option<(&str, AnswerSource)>,
    iterations: u32,
) -> RunResult {
    let runtime = start(&MemoryJournal::new(), chain).await;
    let result = runtime.run(RunRequest::new("task")).await.expect("it ends");
    assert_eq!(result.ended.outcome, outcome, "{}", result.ended);
    assert_eq!(result.answer.as_ref().map(|said| (said.text.as_str(), said.source)), answer);
    assert_eq!(result.iterations, iterations);
    // The next run reads the same text as the caller.
    let last = result.messages.last();
    let read = matches!(last, Some(Message::Assistant(said)) if Some(said.text.as_str()) == result.text());
    assert_eq!(read, outcome == Outcome::Completed, "{last:?}");
    result
}

#[tokio::test(start_paused = true)]
async fn a_text_that_was_cut_off_twice_is_joined() {
    let parts = vec![cut("one, "), cut("two, "), says("three")];
    let joined = Some(("one, two, three", AnswerSource::Joined));
    check(vec![parts], Outcome::Completed, joined, 3).await;
    let cut_off = Some(("aaaa", AnswerSource::Partial));
    let result = check(vec![vec![cut("a")]], Outcome::Failed, cut_off, 4).await;
    assert!(result.ended.to_string().starts_with("failed (truncated"), "{}", result.ended);
}

#[tokio::test(start_paused = true)]
async fn after_a_tool_and_a_silence_the_answer_comes() {
    let answers = vec![looks(), says(""), says("done")];
    let result = check(vec![answers], Outcome::Completed, Some(("done", AnswerSource::Final)), 3).await;
    let [_, asked, returned, _] = &result.messages[..] else { panic!("{:?}", result.messages) };
    assert!(matches!(asked, Message::Assistant(said) if said.calls.len() == 1), "{asked:?}");
    assert!(matches!(returned, Message::Tool { content, .. } if &*content.text == "result"), "{returned:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_housekeeping_is_the_answer() {
    let answers = vec![keeps_house("It is 42."), says("")];
    check(vec![answers], Outcome::Completed, Some(("It is 42.", AnswerSource::EarlierText)), 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_model_is_followed_by_the_next_one() {
    let second = vec![says("I am here")];
    let answer = Some(("I am here", AnswerSource::Final));
    check(vec![vec![says("")], second], Outcome::Completed, answer, 5).await;
    let silent = || vec![looks(), says("")];
    let result = check(vec![silent(), vec![says("")]], Outcome::Failed, None, 1 + 1 + 4 + 4).await;
    assert!(result.ended.to_string().starts_with("failed (empty_answer"), "{}", result.ended);
    assert_eq!(result.messages.len(), 4, "the call and its result stay");
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_model_had_said_is_a_partial() {
    let looks =
        ModelAnswer { message: AssistantMessage { text: "I look".into(), ..looks().message }, ..looks() };
    let partial = Some(("I look", AnswerSource::Partial));
    check(vec![vec![looks, says("")]], Outcome::Failed, partial, 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_on_the_ladder_does_not_begin_it_anew() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal, vec![vec![looks(), says("")]]).await;
    let accepted = runtime.submit(RunRequest::new("task")).await.expect("accepted");
    let mut watch = runtime.watch(accepted.session, 1);
    let mut answers = 0;
    // The call, the empty answer that gets a nudge, and the answer to the nudge.
    while answers < 3 {
        let event = watch.next().await.expect("the store is read");
        if let hermod_actors::model::EventBody::Recorded { record } = event.body {
            answers += usize::from(matches!(record.body, Body::ModelAnswered(_)));
        }
    }
    runtime.suspend().await;
    let runtime = start(&journal.reopened(), vec![vec![says("")]]).await;
    runtime.revive_all().await.expect("the store is read");
    let result = runtime.wait(accepted.run, None).await.expect("it ends");
    let records = runtime.journal(result.session, 1).await.expect("the store is read");
    let died = |body: &Body| matches!(body, Body::SessionRevived(_));
    assert!(records.iter().any(|(_, record)| died(&record.body)), "it ended before the process did");
    let flaws: Vec<_> = records
        .iter()
        .filter_map(|(_, record)| {
            let Body::ModelAnswered(answered) = &record.body else { return None };
            Some(answered.flaw.map_or_else(String::new, |flaw| format!("{flaw:?}")))
        })
        .collect();
    assert_eq!(flaws, ["", "EmptyAfterTool", "Empty", "Empty", "Empty", ""]);
}
