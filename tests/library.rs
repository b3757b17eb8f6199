//! The crate as a library: what the example answers.

use hermod::{
    Builder,
    tool::{Settings, make},
};

#[path = "../examples/two_tools.rs"]
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
