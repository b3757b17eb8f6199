//! The crate as a library: what the example answers.

use std::sync::Arc;

use hermod::{
    ApiMode, Builder, RunError, RunRequest,
    tool::{Settings, make},
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
};

#[path = "../../examples/two_tools.rs"]
#[allow(dead_code)] // its `main` is the example's
mod two_tools;

#[tokio::test]
async fn the_smallest_agent_uses_both_tools() {
    let answer = two_tools::answer().await.expect("an answer");
    let (time, product) = answer
        .strip_prefix("[rehearsal] It is ")
        .and_then(|answer| answer.split_once(", and 6 * 7 is "))
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(humantime::parse_rfc3339(time).is_ok(), "{answer}");
    assert_eq!(product, "42.");
}

/// The README shows pieces of the example; what a reader copies from it compiles.
#[test]
fn the_readme_quotes_the_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../../examples/two_tools.rs"));
    let blocks = readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let quoted: Vec<&str> = blocks.collect();
    assert_eq!(quoted.len(), 2);
    for block in quoted {
        assert!(example.contains(block), "examples/two_tools.rs does not have:\n{block}");
    }
}

/// The path of the first request to a model that an endpoint below `path` gets.
async fn first_path(mode: ApiMode, path: &str) -> String {
    let state = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}{path}", listener.local_addr().expect("an address"));
    let builder = Builder::new(state.path()).workspace("src");
    let builder = builder.model_in(mode, "mine/m".parse().expect("a model"), &url, None);
    let runtime = builder.start().await.expect("it starts");
    let submit = async { runtime.submit(RunRequest::new("go")).await.expect("it is accepted") };
    let path = async {
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            let mut line = String::new();
            BufReader::new(socket).read_line(&mut line).await.expect("a request");
            let path = line.strip_prefix("POST ").and_then(|rest| rest.split(' ').next());
            // Lists of models are asked for a window that is not known.
            if let Some(path) = path.filter(|path| *path != "/api/show") {
                return path.to_owned();
            }
        }
    };
    tokio::join!(submit, path).1
}

#[tokio::test]
async fn a_model_is_asked_in_the_format_that_is_stated_or_that_its_url_tells() {
    let check = async |mode: ApiMode, path: &str, expect: &str| {
        assert_eq!(first_path(mode, path).await, expect, "{mode:?} {path}");
    };
    check(ApiMode::Auto, "/v1", "/v1/chat/completions").await;
    check(ApiMode::Auto, "/v1/responses", "/v1/responses").await;
    check(ApiMode::ChatCompletions, "/v1", "/v1/chat/completions").await;
    check(ApiMode::AnthropicMessages, "/v1", "/v1/messages").await;
    check(ApiMode::CodexResponses, "/v1", "/v1/responses").await;
}

#[tokio::test]
async fn a_shared_runtime_is_ended_by_one_for_all() {
    let state = tempfile::tempdir().expect("a folder");
    // The endpoint accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let builder = Builder::new(state.path()).workspace("src");
    let runtime = builder.model("mine/m".parse().expect("a model"), &url, None).start().await;
    let runtime = Arc::new(runtime.expect("it starts"));
    let sharing = Arc::clone(&runtime);
    let run = tokio::spawn(async move { sharing.run(RunRequest::new("go")).await });
    while runtime.open_runs().await.expect("rows").is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.shut_down().await;
    let ended = run.await.expect("no panic");
    assert!(matches!(ended, Err(RunError::Terminated(_))), "{ended:?}");
    assert_eq!(runtime.open_runs().await.expect("rows").len(), 1, "it goes on at the next start");
}

#[tokio::test]
async fn what_does_not_fit_together_is_told() {
    let state = tempfile::tempdir().expect("a folder");
    let model = |name: &str| name.parse().expect("a model");
    let builder = || Builder::new(state.path()).model(model("a/m"), "http://127.0.0.1:9/v1", None);
    let check = async |builder: Builder, part: &str| {
        let error = builder.start().await.expect_err("it does not start").to_string();
        assert!(error.contains(part), "{error}");
    };
    check(Builder::new(state.path()), "model").await;
    let twice = builder().workspace("src").model(model("a/n"), "http://127.0.0.1:8/v1", None);
    check(twice, "two providers `a`").await;
    let tool = || make::<two_tools::GetTime>(Settings::default());
    check(builder().workspace("src").tool(tool()).tool(tool()), "two tools `get_time`").await;
    check(builder().workspace(state.path()), "state directory").await;
    check(builder().workspace("no-such"), "workspace no-such").await;
}
