//! Providers that are exchanged while runs continue.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunError, RunRequest, Runtime, SessionChoice,
    model::{BreakerState, FailureClass, RunId},
    port::ModelProvider,
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, VirtualClock, says};
use tokio::time::{Instant, sleep};

use super::{Side, limited, of, run};

type Providers = Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>;

/// A runtime with these providers, and a list of them to change.
async fn start(sides: &[&Side], calls: usize) -> (Runtime, Providers) {
    let mut world = of(sides, (&MemoryJournal::new(), &Arc::new(VirtualClock::new(1))));
    world.providers.iter_mut().for_each(|(_, _, bound)| *bound = calls);
    let providers = world.providers.clone();
    (Runtime::start(world).await.expect("the runtime starts"), providers)
}

/// A provider that answers with this text after ten seconds.
fn slow(text: &'static str) -> Arc<dyn ModelProvider> {
    Arc::new(ScriptedProvider::new(Duration::from_secs(10), move |_| Ok(says(text))))
}

async fn submit(runtime: &Runtime) -> RunId {
    let request = RunRequest { session: SessionChoice::New, ..RunRequest::new("do it") };
    runtime.submit(request).await.expect("it is accepted").run
}

async fn text(runtime: &Runtime, run: RunId) -> String {
    let result = runtime.wait(run, None).await.expect("it ends");
    result.text().map_or_else(|| result.ended.to_string(), ToOwned::to_owned)
}

#[tokio::test(start_paused = true)]
async fn providers_that_stay_keep_their_breakers_and_statistics() {
    let (first, second) = (Side::failing(1, limited(3_600)), Side::answering());
    let (runtime, mut providers) = start(&[&first, &second], 9).await;
    assert_eq!(run(&runtime).await.text(), Some("from the second"));
    let before = runtime.providers().await;
    providers.push(("c".into(), slow("from the third"), 9));
    runtime.exchange_providers(providers.clone()).expect("they are valid");
    let after = runtime.providers().await;
    assert_eq!(after[..2], before);
    assert!(matches!(after[0].models[0].breaker, BreakerState::Open { .. }), "{after:?}");
    assert_eq!((after.len(), after[2].name.as_str(), after[2].answered), (3, "c", 0));
    // Another adapter of the same name has a new gate.
    providers[0].1 = Arc::new(Side::answering().provider);
    runtime.exchange_providers(providers).expect("they are valid");
    let status = runtime.providers().await.remove(0);
    assert_eq!((status.failed, status.models.len()), (0, 0));
    assert_eq!(run(&runtime).await.text(), Some("from the second"), "its first answer");
    assert_eq!(runtime.providers().await[0].answered, 1, "the new actor counts");
    let tree = runtime.supervision_tree().await.expect("it runs");
    assert!(tree.children.iter().all(|child| child.restarts == 0), "{tree:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_end_as_they_are_and_those_that_wait_go_on_along_the_chain() {
    let (first, second) = (Side::answering(), Side::answering());
    let first =
        Side { provider: ScriptedProvider::new(Duration::from_secs(10), |_| Ok(says("slow"))), ..first };
    let (runtime, mut providers) = start(&[&first, &second], 1).await;
    let (under_way, waits) = (submit(&runtime).await, submit(&runtime).await);
    sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    runtime.exchange_providers(providers.split_off(1)).expect("they are valid");
    assert_eq!(text(&runtime, waits).await, "from the second");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(text(&runtime, under_way).await, "slow");
    let names: Vec<_> = runtime.providers().await.into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_takes_the_provider_that_replaces_its_own() {
    let first = Side::answering();
    let first =
        Side { provider: ScriptedProvider::new(Duration::from_secs(10), |_| Ok(says("old"))), ..first };
    let (runtime, mut providers) = start(&[&first], 1).await;
    let (under_way, waits) = (submit(&runtime).await, submit(&runtime).await);
    sleep(Duration::from_secs(2)).await;
    providers[0].1 = slow("new");
    let begun = Instant::now();
    runtime.exchange_providers(providers).expect("they are valid");
    assert_eq!(text(&runtime, waits).await, "new");
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    assert_eq!(text(&runtime, under_way).await, "old");
}

#[tokio::test(start_paused = true)]
async fn without_another_link_a_waiting_call_fails_as_if_its_provider_were_not_configured() {
    let first = Side::failing(9, FailureClass::Auth);
    let (runtime, _) = start(&[&first], 1).await;
    assert_eq!(run(&runtime).await.text(), None, "its key is refused, and the breaker opens");
    let waits = submit(&runtime).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(first.asked().len(), 1, "it waits for the breaker");
    runtime.exchange_providers(vec![("c".into(), slow("other"), 1)]).expect("they are valid");
    let ended = text(&runtime, waits).await;
    assert!(ended.contains("no provider for `a/m` is configured here; there are: c"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_set_with_an_invalid_provider_is_refused_whole() {
    let first = Side::answering();
    let (runtime, providers) = start(&[&first], 1).await;
    let check = |name: &str, calls: usize, says: &str| {
        let set = vec![("b".into(), slow("b"), 1), (name.into(), slow("other"), calls)];
        let error = runtime.exchange_providers(set).expect_err("it is invalid");
        assert!(
            matches!(&error, RunError::Invalid { field: "providers", error } if error.contains(says)),
            "{error}"
        );
    };
    check("b", 1, "`b` is there twice");
    check("a/b", 1, "`a/b` contains `/`");
    check("", 1, "name");
    check("c", 0, "`c` may have 0 concurrent calls");
    check("c", usize::MAX, "concurrent calls");
    let names: Vec<_> = runtime.providers().await.into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(run(&runtime).await.text(), Some("from the second"));
    drop(providers);
}
