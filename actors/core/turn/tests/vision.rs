//! Tests of descriptions of pictures: when a run wants them, and what becomes of the run with them and without.

use super::*;
use crate::model::{
    Artifact, AsideJob, AuxiliaryChain, CallEnd, Image, ImageFormat, Message, ModelProfile, RunAccepted,
    RunState,
};

fn image(name: &str) -> Image {
    let artifact = Artifact { handle: name.into(), bytes: 10, sha256: None };
    Image::new(ImageFormat::Png, artifact)
}

/// A run of these models with one picture. Models whose name begins with `blind` see none. `describers` may describe.
fn shown(chain: &[&str], describers: &[&str]) -> Driver {
    let mut driver = Driver::new();
    let images = [image("1.0.0"), image("1.0.1")].into();
    let spec = spec_of(chain, describers);
    let accepted = RunAccepted { images, ..RunAccepted::new(run(1), "What is on them?", spec) };
    driver.feed(&Input::Submitted { accepted: Box::new(accepted), key: None });
    driver
}

fn spec_of(chain: &[&str], describers: &[&str]) -> Arc<RunSpec> {
    let links =
        |names: &[&str]| names.iter().map(|name| format!("p/{name}").parse().unwrap()).collect::<Vec<_>>();
    let profile =
        |name: &&str| ModelProfile { images: Some(!name.starts_with("blind")), ..ModelProfile::default() };
    let mut spec = limits::spec();
    (spec.chain, spec.profiles) = (links(chain), chain.iter().map(profile).collect());
    spec.vision = Some(Arc::new(AuxiliaryChain {
        chain: links(describers),
        profiles: describers.iter().map(profile).collect(),
    }));
    Arc::new(spec)
}

const fn model(iteration: u32, attempt: u32) -> AttemptId {
    CallId { run: run(1), iteration, n: 0 }.attempt(attempt)
}

fn vision(nth: u32, attempt: u32) -> AttemptId {
    CallId::aside(run(1), nth, AsideJob::Vision).attempt(attempt)
}

/// The calls that wait for a lease.
fn acquired(driver: &Driver) -> Vec<AttemptId> {
    let due = driver.turn.due(driver.now);
    due.iter()
        .filter(|due| matches!(due, DueAction::Acquire(_)))
        .filter_map(DueAction::acquired_attempt)
        .collect()
}

fn lease(driver: &mut Driver, id: AttemptId) -> Vec<&'static str> {
    let first = driver.turn.candidates_of(id.call).and_then(|links| Some(links.first()?.model.clone()));
    let Some(model) = first else {
        return driver.feed(&Input::NoLease { id, skipped: Arc::new([]) });
    };
    driver.feed(&Input::Leased { id, model })
}

fn describe(driver: &mut Driver, id: AttemptId, text: &str) -> Vec<&'static str> {
    let started = driver.turn.aside_request(id.call).expect("it is under way").started;
    let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() });
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    driver.feed(&Input::Answered { started, answer, admissions: Arc::new([]) })
}

fn fail(driver: &mut Driver, id: AttemptId, class: FailureClass) -> Vec<&'static str> {
    let failure = Box::new(Failure::new(class, "x"));
    driver.feed(&Input::ModelFailed { id, failure, failover: FailoverOptions::default() })
}

/// All that the next request of the run shows.
fn view(driver: &Driver) -> String {
    let (messages, _) = driver.turn.render(RenderCursor::default());
    let texts = messages.iter().map(|message| match message {
        Message::User(content) | Message::Tool { content, .. } => content.text_with_note().to_string(),
        Message::Assistant(answer) => answer.text.clone(),
        Message::System(text) => text.to_string(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn pictures_are_described_before_a_blind_model_is_called() {
    let mut driver = shown(&["blind"], &["sees"]);
    assert_eq!(acquired(&driver), [vision(1, 1)]);
    assert_eq!(lease(&mut driver, model(1, 1)), <[&str; 0]>::default(), "the call waits");
    assert_eq!(lease(&mut driver, vision(1, 1)), ["aside.started"]);
    let request = driver.turn.aside_request(vision(1, 1).call).unwrap();
    assert_eq!((request.content.images.len(), request.started.images), (2, 2));
    assert!(request.content.text.contains("What is on them?"), "{:?}", request.content);
    let generation = driver.turn.generation();
    assert_eq!(describe(&mut driver, vision(1, 1), " 1. A keel.\n"), ["aside.answered"]);
    assert!(driver.turn.generation() > generation);
    assert!(view(&driver).contains("<pictures>\n1. A keel.\n</pictures>"), "{}", view(&driver));
    assert_eq!(acquired(&driver), [model(1, 1)]);
    driver.lease(model(1, 1).call, 1);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"]);
}

#[test]
fn only_a_model_that_sees_none_needs_a_description() {
    let check = |chain: &[&str], describers: &[&str], expect: AttemptId| {
        assert_eq!(acquired(&shown(chain, describers)), [expect], "{chain:?} {describers:?}");
    };
    check(&["sees", "blind"], &["sees"], model(1, 1));
    check(&["blind", "sees"], &["sees"], vision(1, 1));
    check(&["blind"], &[], model(1, 1));
    check(&["blind"], &["blind-too"], model(1, 1));
    let mut driver = shown(&["sees", "blind"], &["sees"]);
    driver.lease(model(1, 1).call, 1);
    let (failure, failover) = (Failure::new(FailureClass::Auth, "x"), FailoverOptions::default());
    driver.feed(&Input::ModelFailed { id: model(1, 1), failure: Box::new(failure), failover });
    assert_eq!(acquired(&driver), [vision(1, 1)], "the next model sees none");
}

#[test]
fn a_description_that_cannot_be_had_is_given_up() {
    let check = |class: FailureClass, records: &[&str], next: &[AttemptId]| {
        let mut driver = shown(&["blind"], &["sees"]);
        lease(&mut driver, vision(1, 1));
        assert_eq!(fail(&mut driver, vision(1, 1), class.clone()), records, "{class:?}");
        assert_eq!(acquired(&driver), next, "{class:?}");
        assert!(!view(&driver).contains("<pictures>"));
    };
    check(FailureClass::Auth, &["aside.failed"], &[model(1, 1)]);
    check(FailureClass::Interrupted, &["aside.failed"], &[vision(1, 2)]);
    check(FailureClass::Server, &["aside.failed"], &[]);
    let mut driver = shown(&["blind"], &["sees"]);
    driver.feed(&Input::NoLease { id: vision(1, 1), skipped: Arc::new([]) });
    assert_eq!(acquired(&driver), [model(1, 1)]);
    let mut driver = shown(&["blind"], &["sees"]);
    for attempt in 1..=2 {
        lease(&mut driver, vision(1, attempt));
        assert_eq!(describe(&mut driver, vision(1, attempt), "  "), ["aside.answered"]);
    }
    assert_eq!(acquired(&driver), [model(1, 1)], "two empty answers are enough");
}

#[test]
fn crashes_repeat_a_description_four_times_at_most() {
    let mut driver = shown(&["blind"], &["sees"]);
    for attempt in 1..=4 {
        assert_eq!(acquired(&driver), [vision(1, attempt)]);
        lease(&mut driver, vision(1, attempt));
        driver.crash();
    }
    assert_eq!(acquired(&driver), [model(1, 1)]);
}

#[test]
fn a_description_outlives_a_crash_and_is_made_once() {
    let mut driver = shown(&["blind"], &["sees"]);
    lease(&mut driver, vision(1, 1));
    describe(&mut driver, vision(1, 1), "A keel.");
    driver.crash();
    assert!(view(&driver).contains("A keel."));
    assert_eq!(acquired(&driver), [model(1, 1)]);
    driver.lease(model(1, 1).call, 1);
    driver.answer(1, EffectClass::Pure);
    let id = CallId { n: 1, ..model(1, 1).call }.attempt(1);
    driver.feed(&Input::Permitted(id));
    let end = CallEnd { images: [image("1.1.1")].into(), ..CallEnd::ok("a picture") };
    driver.feed(&Input::ToolEnded { id, end });
    assert_eq!(acquired(&driver), [vision(2, 1)], "the picture of a result is described too");
    lease(&mut driver, vision(2, 1));
    assert_eq!(driver.turn.aside_request(vision(2, 1).call).unwrap().content.images.len(), 1);
    describe(&mut driver, vision(2, 1), "A mast.");
    assert_eq!(acquired(&driver), [model(2, 1)]);
    assert!(view(&driver).contains("A mast."));
}

#[test]
fn a_stop_cancels_a_description_under_way() {
    let mut driver = shown(&["blind"], &["sees"]);
    lease(&mut driver, vision(1, 1));
    let records = driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
    assert_eq!(records, ["aside.failed", "run.ended"]);
    assert_eq!(acquired(&driver), []);
    let row = driver.index.iter().rev().find_map(|row| {
        let IndexRow::Run(row) = row else { return None };
        Some(row.state)
    });
    assert_eq!(row, Some(RunState::Ended));
}

#[test]
fn pictures_of_a_run_that_called_no_model_are_described_for_the_next_one() {
    let check = |is_described: bool, expect: CallId| {
        let mut driver = shown(&["blind"], &["sees"]);
        lease(&mut driver, vision(1, 1));
        if is_described {
            describe(&mut driver, vision(1, 1), "A keel.");
        }
        driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
        let accepted = RunAccepted::new(run(2), "And now?", spec_of(&["blind"], &["sees"]));
        driver.feed(&Input::Submitted { accepted: Box::new(accepted), key: None });
        assert_eq!(acquired(&driver), [expect.attempt(1)], "{is_described}");
        if !is_described {
            lease(&mut driver, expect.attempt(1));
            assert_eq!(driver.turn.aside_request(expect).unwrap().content.images.len(), 2);
            describe(&mut driver, expect.attempt(1), "A keel.");
        }
        assert!(view(&driver).contains("A keel."));
        driver.crash();
        assert_eq!(acquired(&driver), [CallId { run: run(2), iteration: 1, n: 0 }.attempt(1)]);
    };
    check(false, CallId::aside(run(2), 1, AsideJob::Vision));
    check(true, CallId { run: run(2), iteration: 1, n: 0 });
}

#[test]
fn a_description_reserves_at_most_a_third_of_what_is_left() {
    let mut driver = shown(&["blind"], &["sees"]);
    let limit = |tokens| {
        let mut driver = shown(&["blind"], &["sees"]);
        let Some(run) = &mut driver.turn.current else { panic!("a run is under way") };
        Arc::make_mut(&mut run.spec).limits.budget.tokens = Some(tokens);
        lease(&mut driver, vision(1, 1))
    };
    assert_eq!(limit(10_000), ["aside.failed"]);
    assert_eq!(limit(100_000), ["aside.started"]);
    // The account refuses the reservation of the description: the run goes on without one.
    let refusal = crate::model::BudgetRefusal {
        account: run(1).into(),
        dimension: crate::model::Dimension::Tokens,
        limit: 10,
        spent: 0,
        reserved: 0,
        needed: Some(11),
    };
    driver.feed(&Input::BudgetRefused(refusal));
    assert_eq!(acquired(&driver), [model(1, 1)]);
}
