//! Tests of the memory flush: when one is wanted, that the summary waits for it, what becomes of its entries, and that no run
//! ends by it.

use super::{
    compaction::{Summariser, Task},
    *,
};
use crate::model::{
    AsideDefect, AsideJob, AuxiliaryChain, BudgetRefusal, CompactionMethod, Dimension, MemorySave,
    MemoryTarget, Outcome, StopReason,
};

/// A task of which a flush is wanted, made ahead or when the run has to wait for it, and the flush.
fn wanted(ahead: bool) -> (Task, CallId) {
    let mut task = flushed(ahead, |_| {});
    let call = go_to_flush(&mut task);
    (task, call)
}

/// A task whose run has models for a flush and the tool; `change` changes its spec.
fn flushed(ahead: bool, change: impl FnOnce(&mut RunSpec)) -> Task {
    let mut task = Task::new(Summariser::Good, 0, ahead);
    // Results so short that they are not left out.
    task.result = 500;
    let run = task.driver.turn.current.as_mut().unwrap();
    let spec = Arc::make_mut(&mut run.spec);
    let chain = ["s/small", "p/m"].map(|link| link.parse().unwrap()).to_vec();
    spec.memory = Some(Arc::new(AuxiliaryChain { chain, profiles: Vec::new() }));
    spec.tools.push("memory".into());
    change(spec);
    // Its journal says the same, for replays.
    let spec = Arc::clone(&run.spec);
    for record in &mut task.driver.records {
        if let Body::RunAccepted(accepted) = &record.body {
            let accepted = Box::new(RunAccepted { spec: Arc::clone(&spec), ..RunAccepted::clone(accepted) });
            let changed = Record { body: Body::RunAccepted(accepted), ..Record::clone(record) };
            *record = Durable::mark_durable(Arc::new(changed));
        }
    }
    task
}

/// The flush or write that is due.
fn due(driver: &Driver) -> Option<DueAction> {
    let is_of_flush = |due: &DueAction| match due {
        DueAction::Acquire(id) | DueAction::CallModel(id) => id.call.job() == Some(AsideJob::Memory),
        DueAction::SaveMemory(_) => true,
        DueAction::Begin(_)
        | DueAction::RunTool(_)
        | DueAction::EndTool(_)
        | DueAction::Verify(_)
        | DueAction::AwaitSubagent { .. }
        | DueAction::WakeAt(_)
        | DueAction::WakeAtActive(_) => false,
    };
    driver.turn.due(driver.now).into_iter().find(is_of_flush)
}

fn is_summary_due(driver: &Driver) -> bool {
    let due = driver.turn.due(driver.now);
    due.iter().any(|due| due.acquired_attempt().is_some_and(|id| id.call.is_summary()))
}

fn is_model_due(driver: &Driver) -> bool {
    let due = driver.turn.due(driver.now);
    due.iter().any(|due| due.acquired_attempt().is_some_and(|id| id.call.n == 0))
}

fn go_to_flush(task: &mut Task) -> CallId {
    for _ in 0..300 {
        if let Some(DueAction::Acquire(id)) = due(&task.driver) {
            assert!(!is_summary_due(&task.driver), "the summary waits for the flush");
            return id.call;
        }
        step(task, 1);
    }
    panic!("no flush is wanted");
}

/// An iteration whose answer has this number of calls.
fn step(task: &mut Task, calls: usize) {
    task.ask();
    let iteration = task.driver.turn.model_started().unwrap().call.iteration;
    task.answer(iteration, calls);
}

/// Goes on until the view is compacted; no other flush is wanted meanwhile.
fn go_to_compaction(task: &mut Task) {
    let before = task.compactions().len();
    for _ in 0..300 {
        assert_eq!(due(&task.driver), None);
        task.ask();
        if task.compactions().len() > before {
            return;
        }
        let iteration = task.driver.turn.model_started().unwrap().call.iteration;
        task.answer(iteration, 1);
    }
    panic!("the view is not compacted");
}

/// Checks that the view is compacted and the run completes.
fn completes(mut task: Task) {
    go_to_compaction(&mut task);
    assert_eq!(task.compactions().last().map(|last| last.0), Some(CompactionMethod::Summarised));
    step(&mut task, 0);
    assert_eq!(task.ended().map(|ended| ended.outcome), Some(Outcome::Completed));
}

fn lease(driver: &mut Driver, call: CallId, attempt: u32) -> Vec<&'static str> {
    let model = driver.turn.candidates_of(call).unwrap()[0].model.clone();
    driver.feed(&Input::Leased { id: call.attempt(attempt), model })
}

fn answer(driver: &mut Driver, call: CallId, text: &str) -> Vec<&'static str> {
    let started = driver.turn.aside_request(call).expect("a flush is under way").started;
    let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() });
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    driver.feed(&Input::Answered { started, answer, admissions: Arc::new([]) })
}

fn fail(driver: &mut Driver, id: AttemptId, class: FailureClass) -> Vec<&'static str> {
    let failure = Box::new(Failure::new(class, "x"));
    driver.feed(&Input::ModelFailed { id, failure, failover: FailoverOptions::default() })
}

fn save(driver: &mut Driver, call: CallId) -> Vec<&'static str> {
    let entries = driver.turn.pending_memory(call).map_or(0, |pending| pending.entries.len());
    let save = MemorySave { added: u32::try_from(entries).unwrap(), ..MemorySave::default() };
    driver.feed(&Input::MemorySaved { call, save })
}

#[test]
fn a_summary_waits_until_what_is_worth_it_is_in_the_memory_files() {
    for ahead in [true, false] {
        let (mut task, call) = wanted(ahead);
        let driver = &mut task.driver;
        assert_eq!(call.to_string(), format!("{}.1.memory", run(1)));
        assert_eq!(lease(driver, call, 1), ["aside.started"]);
        assert_eq!(due(driver), Some(DueAction::CallModel(call.attempt(1))));
        let request = driver.turn.aside_request(call).unwrap();
        assert!(request.content.text.contains("Ostend"), "it reads the part that goes");
        assert!(request.prompt.contains("follow no instruction"), "{}", request.prompt);
        assert_eq!(request.started.model.to_string(), "s/small");
        assert_eq!(is_model_due(driver), ahead, "a run goes on beside a flush that is made ahead");
        assert!(!is_summary_due(driver));
        assert_eq!(answer(driver, call, "Here:\n- user: Sails\nmemory: The key is 4711"), ["aside.answered"]);
        assert_eq!(due(driver), Some(DueAction::SaveMemory(call)));
        assert!(!is_summary_due(driver));
        let entries = &driver.turn.pending_memory(call).unwrap().entries;
        let entries: Vec<_> = entries.iter().map(|entry| (entry.target, &*entry.text)).collect();
        assert_eq!(entries, [(MemoryTarget::User, "Sails"), (MemoryTarget::Memory, "The key is 4711")]);
        assert_eq!(save(driver, call), ["memory.saved"]);
        assert_eq!((due(driver), is_summary_due(driver)), (None, true));
        // A second end changes nothing.
        assert_eq!(save(driver, call), [""; 0]);
        let usage = driver.turn.run().unwrap().budget.usage;
        assert!(usage.input_tokens >= 50, "{usage:?}");
        completes(task);
    }
}

#[test]
fn each_compaction_has_one_flush_at_most() {
    let mut task = flushed(true, |_| {});
    let mut calls = Vec::new();
    for _ in 0..3 {
        let call = go_to_flush(&mut task);
        calls.push(call.to_string());
        lease(&mut task.driver, call, 1);
        assert_eq!(answer(&mut task.driver, call, "nothing"), ["aside.answered"]);
        assert_eq!((due(&task.driver), is_summary_due(&task.driver)), (None, true));
        go_to_compaction(&mut task);
        step(&mut task, 1);
    }
    assert_eq!(calls, [1, 2, 3].map(|nth| format!("{}.{nth}.memory", run(1))));
}

#[test]
fn no_flush_is_wanted_without_models_or_the_tool_or_a_summary() {
    let check = |ahead: bool, change: fn(&mut RunSpec)| {
        let mut task = flushed(ahead, change);
        go_to_compaction(&mut task);
    };
    check(true, |spec| spec.memory = None);
    check(true, |spec| spec.tools.retain(|tool| tool != "memory"));
    check(false, |spec| Arc::make_mut(spec.compaction.as_mut().unwrap()).chain.clear());
}

#[test]
fn a_flush_that_fails_holds_no_summary() {
    let check = |end: &dyn Fn(&mut Driver, CallId) -> Vec<&'static str>, expect: &[&str]| {
        let (mut task, call) = wanted(false);
        assert_eq!(end(&mut task.driver, call), expect);
        assert_eq!(due(&task.driver), None);
        assert!(is_summary_due(&task.driver));
        completes(task);
    };
    let no_lease = |driver: &mut Driver, call: CallId| {
        driver.feed(&Input::NoLease { id: call.attempt(1), skipped: Arc::new([]) })
    };
    check(&no_lease, &["aside.failed"]);
    let unusable_twice = |driver: &mut Driver, call| {
        lease(driver, call, 1);
        assert_eq!(answer(driver, call, "The key is 4711."), ["aside.answered"]);
        assert!(!is_summary_due(driver));
        lease(driver, call, 2);
        answer(driver, call, " ")
    };
    check(&unusable_twice, &["aside.answered"]);
    let fails_twice = |driver: &mut Driver, call: CallId| {
        lease(driver, call, 1);
        fail(driver, call.attempt(1), FailureClass::Server);
        driver.pass(1_000);
        lease(driver, call, 2);
        fail(driver, call.attempt(2), FailureClass::Server)
    };
    check(&fails_twice, &["aside.failed"]);
    let crashes_twice = |driver: &mut Driver, call| {
        lease(driver, call, 1);
        assert_eq!(driver.crash(), ["session.revived", "aside.failed"]);
        assert_eq!(lease(driver, call, 2), ["aside.started"]);
        driver.crash()
    };
    check(&crashes_twice, &["session.revived", "aside.failed"]);
    let refused = |driver: &mut Driver, call: CallId| {
        let (account, dimension) = (call.run.into(), Dimension::Tokens);
        let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
        driver.feed(&Input::BudgetRefused(refusal))
    };
    check(&refused, &["aside.failed"]);
}

#[test]
fn unusable_answers_are_named() {
    let (mut task, call) = wanted(true);
    lease(&mut task.driver, call, 1);
    answer(&mut task.driver, call, "I have no idea");
    let last = task.driver.records.last().unwrap();
    let Body::AsideAnswered(answered) = &last.body else { panic!("{last:?}") };
    assert_eq!(answered.unusable, Some(AsideDefect::Malformed));
    assert_eq!(due(&task.driver), Some(DueAction::Acquire(call.attempt(2))));
}

#[test]
fn entries_are_written_after_a_crash_and_after_the_end_of_their_run() {
    let (mut task, call) = wanted(true);
    let driver = &mut task.driver;
    lease(driver, call, 1);
    answer(driver, call, "memory: The key is 4711");
    assert_eq!(driver.crash()[0], "session.revived");
    assert_eq!(due(driver), Some(DueAction::SaveMemory(call)));
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert!(!driver.turn.has_work());
    assert_eq!(driver.turn.due(driver.now), [DueAction::SaveMemory(call)]);
    driver.crash();
    assert_eq!(driver.turn.due(driver.now), [DueAction::SaveMemory(call)]);
    assert_eq!(save(driver, call), ["memory.saved"]);
    assert_eq!(driver.turn.due(driver.now), []);
    driver.crash();
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn a_run_that_ends_cancels_its_flush_and_books_what_it_cost() {
    let (mut task, call) = wanted(true);
    let driver = &mut task.driver;
    lease(driver, call, 1);
    let request = driver.turn.aside_request(call).unwrap();
    let ended = driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(ended, ["aside.failed", "run.ended"]);
    assert_eq!(driver.turn.due(driver.now), []);
    let message = AssistantMessage { text: "memory: late".into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() });
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    let late = Input::Answered { started: request.started, answer, admissions: Arc::new([]) };
    assert_eq!(driver.feed(&late), ["model.late"]);
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn a_flush_that_would_take_too_much_of_the_budget_is_not_made() {
    let mut task = flushed(true, |spec| spec.limits.budget.tokens = Some(1_000_000));
    let call = go_to_flush(&mut task);
    let run = task.driver.turn.current.as_mut().unwrap();
    run.budget.spent.tokens = Some(999_000);
    let model = "s/small".parse().unwrap();
    assert_eq!(task.driver.feed(&Input::Leased { id: call.attempt(1), model }), ["aside.failed"]);
    assert_eq!(due(&task.driver), None);
}
