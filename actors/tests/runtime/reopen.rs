//! A run with an exhausted budget continues when its limits are raised, also in another process. On virtual time.

use std::{future::ready, sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RaiseError, RunError, RunRequest, Runtime, SessionChoice,
    model::{
        Amounts, BudgetAccount, CallEnd, Dimension, EffectClass, Kind, LimitIncrease, Outcome, RunState,
    },
    port::Journal,
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

const STEP: Duration = Duration::from_secs(1);
/// Calls of the model before it answers.
const CALLS: usize = 5;
const LONG: Duration = Duration::from_hours(1);

fn more(iterations: u64, wall_ms: Option<u64>) -> LimitIncrease {
    LimitIncrease { budget: Amounts { iterations: Some(iterations), ..Amounts::default() }, wall_ms }
}

async fn start(journal: &MemoryJournal) -> Runtime {
    let provider = ScriptedProvider::new(STEP, |view| {
        match view.iter().filter(|message| message["role"] == "tool").count() < CALLS {
            true => Ok(calls(&[("look", json!({}))])),
            false => Ok(says("found")),
        }
    });
    let look = ScriptedTool::new("look", EffectClass::Pure, |_| ready(CallEnd::ok("more")));
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let mut world = world(shared, provider, vec![Arc::new(look)]);
    world.defaults.spec.loop_guard = false;
    Runtime::start(world).await.expect("the runtime starts")
}

/// Lets a run exhaust its time of two and a half seconds, which is two iterations.
async fn exhausted(runtime: &Runtime) -> AcceptedRun {
    let budget = Amounts { iterations: Some(4), ..Amounts::default() };
    let wall = Some(Duration::from_millis(2_500));
    let session = SessionChoice::Key("k".into());
    let request = RunRequest { budget, wall, session, ..RunRequest::new("look") };
    let accepted = runtime.submit(request).await.unwrap();
    let result = runtime.wait(accepted.run, None).await.unwrap();
    assert_eq!((result.ended.outcome, result.legs), (Outcome::BudgetExhausted, 1));
    accepted
}

async fn account(journal: &MemoryJournal, of: AcceptedRun) -> BudgetAccount {
    journal.rows().account(of.run.into()).await.unwrap().expect("the run has an account")
}

async fn count(runtime: &Runtime, of: AcceptedRun, kind: Kind) -> usize {
    let records = runtime.journal(of.session, 1).await.unwrap();
    records.iter().filter(|(_, record)| record.body.kind() == kind).count()
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_run_goes_on_in_the_next_process_and_completes() {
    for at_rest in [false, true] {
        let journal = MemoryJournal::new();
        let runtime = start(&journal).await;
        let accepted = exhausted(&runtime).await;
        runtime.suspend().await;
        let journal = journal.reopened();
        let runtime = start(&journal).await;
        // The time between two legs does not count.
        tokio::time::sleep(LONG).await;
        let by = more(10, Some(60_000));
        if at_rest {
            let row = runtime.raise_without_resume(accepted.run, by).await.unwrap();
            assert_eq!((row.state, row.leg, row.ended), (RunState::Running, 2, None));
            tokio::time::sleep(LONG).await;
            assert_eq!(count(&runtime, accepted, Kind::ModelStarted).await, 3, "nobody takes it up");
            assert_eq!(runtime.revive_all().await.unwrap(), 1);
        } else {
            assert_eq!(runtime.raise(accepted.run, by).await.unwrap().leg, 2);
        }
        let result = runtime.wait(accepted.run, Some(LONG)).await.unwrap();
        assert_eq!((result.ended.outcome, result.legs), (Outcome::Completed, 2), "{}", result.ended);
        assert_eq!(result.text(), Some("found"));
        assert_eq!(count(&runtime, accepted, Kind::RunEnded).await, 2, "one for each leg");
        let calls = u64::try_from(CALLS).unwrap();
        let account = account(&journal, accepted).await;
        // The attempt that the time limit cut off is an iteration too.
        assert_eq!(account.limits.iterations, Some(14));
        assert_eq!((account.spent.iterations, account.spent.tool_calls), (Some(calls + 2), Some(calls)));
        assert_eq!(u64::from(result.iterations), calls + 2);
        for dimension in Dimension::ALL {
            assert_eq!(account.reserved.get(dimension).unwrap_or(0), 0, "{dimension:?}");
        }
        runtime.suspend().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_run_gets_while_it_is_under_way_it_can_use() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let budget = Amounts { iterations: Some(2), ..Amounts::default() };
    let accepted = runtime.submit(RunRequest { budget, ..RunRequest::new("look") }).await.unwrap();
    tokio::time::sleep(STEP / 2).await;
    assert_eq!(runtime.raise(accepted.run, more(10, Some(1))).await.unwrap().leg, 1);
    let result = runtime.wait(accepted.run, Some(LONG)).await.unwrap();
    assert_eq!((result.ended.outcome, result.legs), (Outcome::Completed, 1), "{}", result.ended);
    assert_eq!(account(&journal, accepted).await.limits.iterations, Some(12));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_go_on_is_refused() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = exhausted(&runtime).await;
    let check = async |run, by, expect: fn(&RaiseError) -> bool| {
        for raised in [runtime.raise(run, by).await, runtime.raise_without_resume(run, by).await] {
            assert!(
                matches!(&raised, Err(RunError::NotRaised(of, why)) if *of == run && expect(why)),
                "{raised:?}"
            );
        }
    };
    let tokens = Amounts { tokens: Some(1), ..Amounts::default() };
    let unlimited = LimitIncrease { budget: tokens, wall_ms: None };
    check(first.run, unlimited, |why| matches!(why, RaiseError::NoLimit(has) if has == "iterations, wall"))
        .await;
    let next = RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new("go on") };
    let second = runtime.run(next).await.unwrap();
    check(first.run, more(1, None), |why| matches!(why, RaiseError::Superseded)).await;
    check(second.run, more(1, None), |why| matches!(why, RaiseError::Ended(_))).await;
    let nobody = hermod_actors::model::RunId::from_bits(9);
    assert!(matches!(runtime.raise(nobody, more(1, None)).await, Err(RunError::NoRun(_))));
}
