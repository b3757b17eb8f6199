//! Each mutant breaks a promise that the sound runtime keeps, in the smallest scenario on virtual time.

use std::{
    future::{pending, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, LocalBoxFuture, join},
};
use hermod_actors::{
    AcceptedRun, RunRequest, Runtime, RuntimeDependencies, RuntimeEnd, SessionChoice,
    model::{
        Amounts, ApprovalNeed, Body, BudgetAccount, CallEnd, CallStatus, EffectClass, Expectation,
        ExpectationMiss, Outcome, RunId, RunSpec, RunState, StopReason,
    },
    mutants::Mutant,
    port::{AttachOutcome, CallPolicy, CallVerdict, Journal, ProposedCall, Tool, Verification, Verifier},
};
use hermod_testkit::{
    ActorFault, ActorKind, CASES, FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, ScriptedTool,
    StoreOpener, calls, inject, says, world,
};
use serde_json::json;

const STEP: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_hours(1);

/// Whether a promise is kept, or how it was broken.
type Kept = Result<(), String>;

fn kept(holds: bool, broken: impl FnOnce() -> String) -> Kept {
    if holds { Ok(()) } else { Err(broken()) }
}

/// The promise that a mutant breaks.
fn promise(mutation: Mutant) -> LocalBoxFuture<'static, Kept> {
    match mutation {
        Mutant::AcknowledgeEarly => what_is_accepted_is_in_the_store().boxed_local(),
        Mutant::RepeatInDoubt => what_is_in_doubt_is_not_repeated().boxed_local(),
        Mutant::NoFence => a_process_whose_store_was_taken_over_ends().boxed_local(),
        Mutant::NoEnd => a_run_that_has_ended_has_its_terminal_record().boxed_local(),
        Mutant::NoEndRow => a_run_with_its_terminal_record_has_ended().boxed_local(),
        Mutant::ForgetInbox | Mutant::RepeatInbox | Mutant::RepeatOccurrence => {
            the_journal_keeps_its_contract().boxed_local()
        }
        Mutant::DebitLate => an_account_is_never_exceeded().boxed_local(),
        Mutant::DropLateUsage => a_late_answer_is_paid_for().boxed_local(),
        Mutant::ReviveEarly => attempts_do_not_overlap().boxed_local(),
        Mutant::IgnoreLoops => a_loop_ends().boxed_local(),
        Mutant::SkipVerification => what_is_expected_is_checked().boxed_local(),
        Mutant::DueEarly => nothing_is_done_before_the_revival_is_durable().boxed_local(),
        // `tests/schedules` finds these.
        Mutant::AdvanceEarly | Mutant::RandomJitter => ready(Ok(())).boxed_local(),
        Mutant::StartUnapproved => a_call_that_needs_approval_waits_for_it().boxed_local(),
    }
}

/// Checks a promise on virtual time, on this thread.
fn outcome(promise: LocalBoxFuture<'static, Kept>) -> Kept {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("tokio starts").block_on(promise)
}

#[test]
fn each_mutation_breaks_its_promise_and_nothing_else_does() {
    for mutation in Mutant::ALL {
        assert_eq!(outcome(promise(mutation)), Ok(()), "{mutation:?} is not planted");
        let broken = mutation.run_with(|| outcome(promise(mutation)));
        println!("{mutation:?}: {}", broken.expect_err(&format!("{mutation:?} is planted")));
        assert_eq!(outcome(promise(mutation)), Ok(()), "{mutation:?} is not planted any more");
    }
}

#[test]
fn what_a_panic_leaves_is_not_planted() {
    let [mutation, ..] = Mutant::ALL;
    let panicked = catch_unwind(AssertUnwindSafe(|| mutation.run_with(|| panic!("of the test"))));
    assert!(panicked.is_err());
    assert_eq!(outcome(promise(mutation)), Ok(()));
}

#[test]
fn the_contract_of_journals_finds_what_is_planted_in_the_journal() {
    let check = |mutation: Mutant, cases: &[&str]| {
        let broken = mutation.run_with(|| outcome(the_journal_keeps_its_contract().boxed_local()));
        assert_eq!(broken, Err(format!("cases fail: {}", cases.join(", "))), "{mutation:?}");
    };
    let (wait, take) = ("items_wait_until_they_are_taken", "only_rows_that_wait_can_be_taken");
    let bare = "rows_can_be_taken_without_a_record";
    check(
        Mutant::NoFence,
        &[
            "an_older_incarnation_is_fenced",
            "a_session_that_is_let_go_is_fenced_until_it_is_opened",
            "reopening_fences_the_process_before",
            "sessions_that_another_one_begins_are_there",
            "rows_can_be_taken_without_a_record",
        ],
    );
    check(Mutant::ForgetInbox, &[wait, take, bare, "numbers_are_never_used_again"]);
    check(Mutant::RepeatOccurrence, &["an_occurrence_has_one_row"]);
    check(Mutant::RepeatInbox, &[wait, take, bare, "a_session_with_something_in_its_inbox_is_not_let_go"]);
}

/// A model that asks for `times` calls of `build` at once, then says "done".
fn asks(times: usize) -> ScriptedProvider {
    ScriptedProvider::new(STEP, move |view| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says("done")),
        Some(_) | None => Ok(calls(&vec![("build", json!({})); times])),
    })
}

/// A model that asks for the same call for ever.
fn asks_on() -> ScriptedProvider {
    ScriptedProvider::new(STEP, |_| Ok(calls(&[("build", json!({}))])))
}

/// A model that answers "done" after this time, and the number of its calls.
fn answers(after: Duration) -> (ScriptedProvider, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let script = move |_: &[serde_json::Value]| {
        count.fetch_add(1, SeqCst);
        Ok(says("done"))
    };
    (ScriptedProvider::new(after, script), asked)
}

fn on(journal: impl Journal, provider: ScriptedProvider, tools: &[&ScriptedTool]) -> RuntimeDependencies {
    let tools = tools.iter().map(|tool| Arc::new((*tool).clone()) as Arc<dyn Tool>).collect();
    world(Arc::new(journal), provider, tools)
}

async fn start(world: RuntimeDependencies) -> Runtime {
    Runtime::start(world).await.expect("the runtime starts")
}

async fn submit(runtime: &Runtime) -> AcceptedRun {
    let request = RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new("do it") };
    runtime.submit(request).await.expect("it is accepted")
}

async fn account(journal: &MemoryJournal, run: RunId) -> BudgetAccount {
    journal.rows().account(run.into()).await.expect("it is read").expect("the run has an account")
}

/// The number of `run.ended` records of a run, and the state in its row.
async fn ends(journal: &MemoryJournal, of: AcceptedRun) -> (usize, RunState) {
    let records = journal.records(of.session, 1, usize::MAX).await.expect("its records");
    let is_end = |body: &Body| matches!(body, Body::RunEnded(ended) if ended.run == of.run);
    let ends = records.iter().filter(|stored| is_end(&stored.record.body)).count();
    let row = journal.rows().run(of.run).await.expect("it is read").expect("the run has a row");
    (ends, row.state)
}

/// The disk is full when the submission is written.
async fn what_is_accepted_is_in_the_store() -> Kept {
    let store = MemoryJournal::new();
    let full = FaultyJournal::new(Arc::new(store.clone()), JournalFault::FullDisk, 2);
    let runtime = start(on(full, asks(1), &[])).await;
    let accepted = runtime.submit(RunRequest::new("a")).await;
    let runs = store.rows().runs(None, 9).await.expect("the rows");
    let broken = || format!("{accepted:?}, and the store has {} runs", runs.len());
    kept(accepted.is_err() && runs.is_empty(), broken)
}

/// The process ends during a call of effect class `Once`.
async fn what_is_in_doubt_is_not_repeated() -> Kept {
    let journal = MemoryJournal::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let tool = ScriptedTool::new("build", EffectClass::Once, move |_| match count.fetch_add(1, SeqCst) {
        0 => pending().boxed(),
        _ => ready(CallEnd::ok("built")).boxed(),
    });
    let tool = tool.with_attach(|_, _| ready(AttachOutcome::Unknown));
    let runtime = start(on(journal.clone(), asks(1), &[&tool])).await;
    let accepted = submit(&runtime).await;
    tokio::time::sleep(STEP * 2).await;
    runtime.suspend().await;
    let runtime = start(on(journal.reopened(), asks(1), &[&tool])).await;
    runtime.revive_all().await.expect("the store is read");
    let result = runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    let begun = begun.load(SeqCst);
    kept(begun == 1, || format!("begun {begun} times without leave, then {}", result.ended))
}

/// A policy that asks about every call.
#[derive(Debug)]
struct AskAlways;

impl CallPolicy for AskAlways {
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict {
        CallVerdict::Ask(Arc::new(ApprovalNeed {
            rules: vec!["ask".into()],
            allow_rules: vec![call.tool.into()],
            question: "May it start?".into(),
        }))
    }
}

/// The policy asks about a call, and no person answers.
async fn a_call_that_needs_approval_waits_for_it() -> Kept {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let tool = ScriptedTool::new("build", EffectClass::Once, move |_| {
        count.fetch_add(1, SeqCst);
        ready(CallEnd::ok("built")).boxed()
    });
    let world = on(MemoryJournal::new(), asks(1), &[&tool]);
    let runtime = start(RuntimeDependencies { policy: Arc::new(AskAlways), ..world }).await;
    let accepted = submit(&runtime).await;
    tokio::time::sleep(LONG).await;
    let (begun, state) = (begun.load(SeqCst), runtime.row(accepted.run).await.expect("its row").state);
    kept(begun == 0 && state == RunState::Parked, || format!("begun {begun} times, and the run is {state:?}"))
}

/// A process that was taken for dead continues while the next one owns the store.
async fn a_process_whose_store_was_taken_over_ends() -> Kept {
    let journal = MemoryJournal::new();
    let tool = ScriptedTool::new("build", EffectClass::Pure, |_| async {
        tokio::time::sleep(STEP * 5).await;
        CallEnd::ok("built")
    });
    let old = start(on(journal.clone(), asks(1), &[&tool])).await;
    let accepted = submit(&old).await;
    tokio::time::sleep(STEP * 2).await;
    let new = start(on(journal.reopened(), asks(1), &[&tool])).await;
    new.revive_all().await.expect("the store is read");
    let ended = tokio::time::timeout(LONG, old.wait_for_end()).await;
    new.wait(accepted.run, Some(LONG)).await.expect("it ends");
    kept(matches!(ended, Ok(RuntimeEnd::Store(_))), || "the old process writes on".into())
}

/// A model repeats a call with the same result for ever.
async fn a_loop_ends() -> Kept {
    let tool = ScriptedTool::fixed("build", EffectClass::Pure, "built");
    let runtime = start(on(MemoryJournal::new(), asks_on(), &[&tool])).await;
    let accepted = submit(&runtime).await;
    let result = runtime.wait(accepted.run, Some(STEP * 60)).await;
    let is_detected = result.as_ref().is_ok_and(|result| result.ended.outcome == Outcome::LoopDetected);
    kept(is_detected, || format!("after 60 answers: {result:?}"))
}

/// The default verifier of a runtime takes no expectations, so this one is given.
#[derive(Debug)]
struct AllMissing;

impl Verifier for AllMissing {
    fn validate(&self, _: &RunSpec) -> Result<(), String> {
        Ok(())
    }

    fn verify(&self, verification: Verification) -> BoxFuture<'static, Vec<ExpectationMiss>> {
        Box::pin(ready(verification.all_missing("it is not there")))
    }
}

async fn what_is_expected_is_checked() -> Kept {
    let runtime = start(on(MemoryJournal::new(), answers(STEP).0, &[])).await;
    runtime.set_verifier(Arc::new(AllMissing));
    let expects = vec![Expectation::Text { contains: "out".into() }];
    let result = runtime.run(RunRequest { expects, ..RunRequest::new("do it") }).await;
    let is_failed = result.as_ref().is_ok_and(|result| result.ended.outcome == Outcome::Failed);
    kept(is_failed, || format!("{result:?}"))
}

async fn a_run_that_has_ended_has_its_terminal_record() -> Kept {
    let (ends, state) = after_a_run().await;
    kept(state != RunState::Ended || ends == 1, || format!("{state:?} with {ends} terminal records"))
}

async fn a_run_with_its_terminal_record_has_ended() -> Kept {
    let (ends, state) = after_a_run().await;
    kept((state == RunState::Ended) == (ends == 1), || format!("{state:?} with {ends} terminal records"))
}

async fn after_a_run() -> (usize, RunState) {
    let journal = MemoryJournal::new();
    let runtime = start(on(journal.clone(), answers(STEP).0, &[])).await;
    let accepted = submit(&runtime).await;
    tokio::time::sleep(LONG).await;
    ends(&journal, accepted).await
}

async fn the_journal_keeps_its_contract() -> Kept {
    let mut broken = Vec::new();
    // This slow case concerns neither fencing nor inboxes.
    for (name, case) in CASES.iter().filter(|(name, _)| *name != "large_records_come_back") {
        let mut last: Option<MemoryJournal> = None;
        let open: StoreOpener = Box::new(move || {
            let next = last.as_ref().map_or_else(MemoryJournal::new, MemoryJournal::reopened);
            last = Some(next.clone());
            Box::new(next)
        });
        if AssertUnwindSafe(case(open)).catch_unwind().await.is_err() {
            broken.push(*name);
        }
    }
    kept(broken.is_empty(), || format!("cases fail: {}", broken.join(", ")))
}

/// Five calls at once, with a budget for two.
async fn an_account_is_never_exceeded() -> Kept {
    let journal = MemoryJournal::new();
    let tool = ScriptedTool::fixed("build", EffectClass::Pure, "built");
    let mut world = on(journal.clone(), asks(5), &[&tool]);
    world.defaults.spec.limits.budget = Amounts { tool_calls: Some(2), ..Amounts::default() };
    let runtime = start(world).await;
    let accepted = submit(&runtime).await;
    runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    let spent = account(&journal, accepted.run).await.spent.tool_calls;
    kept(spent <= Some(2), || format!("{spent:?} of 2 calls"))
}

/// A run is stopped after its model has answered and before the answer arrives.
async fn a_late_answer_is_paid_for() -> Kept {
    let store = MemoryJournal::new();
    let slow = FaultyJournal::new(Arc::new(store.clone()), JournalFault::Slow(STEP), 1);
    let (provider, asked) = answers(STEP * 2);
    let runtime = start(on(slow, provider, &[])).await;
    let accepted = submit(&runtime).await;
    // An append is in flight while both the stop and the answer arrive.
    tokio::time::sleep(STEP * 3 / 2).await;
    let next = submit(&runtime);
    let stop = async {
        tokio::time::sleep(STEP / 4).await;
        runtime.stop(accepted.run, StopReason::Command).await
    };
    join(next, stop).await.1.expect("it is stopped");
    let told = (asked.load(SeqCst) == 1).then_some(15);
    let account = account(&store, accepted.run).await;
    assert_eq!(account.reserved.tokens, Some(0), "the answer came late");
    kept(account.spent.tokens == told, || format!("spent {:?}, told {told:?}", account.spent.tokens))
}

/// A session crashes during a call.
async fn attempts_do_not_overlap() -> Kept {
    struct Under(Arc<AtomicUsize>);
    impl Drop for Under {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let tool = ScriptedTool::new("build", EffectClass::Pure, move |_| {
        seen.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
        let under = Under(Arc::clone(&under_way));
        async move {
            tokio::time::sleep(STEP * 5).await;
            drop(under);
            CallEnd::new(CallStatus::Ok, "built")
        }
    });
    let runtime = start(on(MemoryJournal::new(), asks(1), &[&tool])).await;
    let accepted = submit(&runtime).await;
    tokio::time::sleep(STEP * 2).await;
    inject(&runtime, ActorKind::Session(accepted.session), ActorFault::Panic).await;
    runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    let most = most.load(SeqCst);
    kept(most == 1, || format!("{most} attempts at once"))
}

/// The store never acknowledges the revival.
async fn nothing_is_done_before_the_revival_is_durable() -> Kept {
    let store = MemoryJournal::new();
    let runtime = start(on(store.clone(), answers(STEP).0, &[])).await;
    submit(&runtime).await;
    runtime.suspend().await;
    let silent = FaultyJournal::new(Arc::new(store.reopened()), JournalFault::LostAnswer, 2);
    let (provider, asked) = answers(STEP);
    let runtime = start(on(silent, provider, &[])).await;
    runtime.revive_all().await.expect("the store is read");
    tokio::time::sleep(LONG).await;
    let asked = asked.load(SeqCst);
    kept(asked == 0, || format!("the model was asked {asked} times"))
}
