//! 200 runs at once over one account whose provider allows so many requests within a window: how many of them were
//! refused, and whether all runs complete.
//!
//! `cargo bench --bench limits`. The provider is behind HTTP, in this process.

mod common;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use common::{is_measured, load::remote};
use futures::future::join_all;
use hermod::clock::SystemClock;
use hermod_actors::{
    RunRequest, Runtime,
    model::{EffectClass, Outcome},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, says, world};
use tokio::{net::TcpListener, time::Instant};

const RUNS: usize = 200;
/// Requests that the provider allows within its window.
const LIMIT: usize = 100;
const WINDOW: Duration = Duration::from_secs(5);

const CALL: &str = concat!(
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","#,
    r#""function":{"name":"tick","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
    "\n\ndata: [DONE]\n\n"
);
const SAY: &str = concat!(
    r#"data: {"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#,
    "\n\ndata: [DONE]\n\n"
);

/// What the provider says of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// What is left, with every response.
    Telling,
    /// When to come back, with a refusal.
    Curt,
}

#[derive(Debug)]
struct Account {
    manners: Manners,
    /// The beginning of the window, and the requests in it.
    window: Mutex<(Instant, usize)>,
    made: AtomicUsize,
    refused: AtomicUsize,
}

async fn answer(State(account): State<Arc<Account>>, body: String) -> Response {
    account.made.fetch_add(1, Ordering::Relaxed);
    let (left, reset) = {
        let mut window = account.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0.elapsed() >= WINDOW {
            *window = (Instant::now(), 0);
        }
        window.1 += 1;
        (LIMIT.checked_sub(window.1), WINDOW.saturating_sub(window.0.elapsed()))
    };
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: String| {
        headers.insert(name, value.parse().expect("digits and letters"));
    };
    if account.manners == Manners::Telling {
        set("x-ratelimit-limit-requests", LIMIT.to_string());
        set("x-ratelimit-remaining-requests", left.unwrap_or(0).to_string());
        set("x-ratelimit-reset-requests", format!("{}ms", reset.as_millis()));
    }
    if left.is_none() {
        account.refused.fetch_add(1, Ordering::Relaxed);
        set("retry-after-ms", reset.as_millis().to_string());
        return (StatusCode::TOO_MANY_REQUESTS, headers, r#"{"error":{"message":"slow down"}}"#)
            .into_response();
    }
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    let said = if body.contains(r#""role":"tool""#) { SAY } else { CALL };
    (headers, said).into_response()
}

async fn measure(manners: Manners) {
    let window = Mutex::new((Instant::now(), 0));
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let account = Arc::new(Account { manners, window, made, refused });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("it is bound"));
    let routes = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&account));
    let serving = tokio::spawn(axum::serve(listener, routes).into_future());

    let nobody = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("nothing")));
    let tick = ScriptedTool::fixed("tick", EffectClass::Pure, "tock");
    let mut world = world(Arc::new(MemoryJournal::new()), nobody, vec![Arc::new(tick)]);
    world.providers = vec![("test".into(), Arc::new(remote(&base_url)), RUNS)];
    world.clock = Arc::new(SystemClock::default());
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let begin = Instant::now();
    let results = join_all((0..RUNS).map(|_| runtime.run(RunRequest::new("go")))).await;
    let took = begin.elapsed().as_secs_f64();
    let is_complete = |result: &Result<_, _>| {
        result
            .as_ref()
            .is_ok_and(|result: &hermod_actors::RunResult| result.ended.outcome == Outcome::Completed)
    };
    let completed = results.iter().filter(|result| is_complete(result)).count();
    let (made, refused) = (account.made.load(Ordering::Relaxed), account.refused.load(Ordering::Relaxed));
    println!("| {manners:?} | {completed} of {RUNS} | {made} | {refused} | {took:.1} |");
    serving.abort();
}

fn main() {
    if !is_measured() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    println!("| the provider is | completed | requests | refused | s |\n| --- | --- | --- | --- | --- |");
    for manners in [Manners::Telling, Manners::Curt] {
        runtime.block_on(measure(manners));
    }
}
