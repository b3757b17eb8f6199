//! The crate as a library: what the example answers.

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
