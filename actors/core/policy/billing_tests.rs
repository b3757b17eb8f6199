//! Tests of the cost of failed attempts, and of the checks of reported usage.

use super::*;
use crate::model::{CallId, Deadline, FailureClass, Hash, Incarnation, RunId};

const BYTES: u64 = 10_000;
const MAX_TOKENS: u64 = 4_096;

fn started() -> ModelStarted {
    let reserved = Amounts { iterations: Some(1), tokens: Some(9_000), usd: Some(70), ..Amounts::default() };
    ModelStarted {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        attempt: 1,
        model: "p/m".parse().unwrap(),
        view_seq: 1,
        request_hash: Hash::of(b""),
        bytes: BYTES,
        images: 0,
        max_tokens: MAX_TOKENS,
        prefix: None,
        reserved,
        period: None,
        price: None,
        incarnation: Incarnation::default(),
    }
}

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

#[test]
fn an_attempt_costs_what_its_request_may_have_used() {
    use RequestFate::{MayHaveRun, NotSent, Rejected};
    let check = |class: FailureClass, request: Option<RequestFate>, tokens: Option<u64>| {
        let failure = Failure { request, ..Failure::new(class, "x") };
        let spent = spent_by_failure(&started(), &failure);
        assert_eq!((spent.tokens, spent.iterations), (tokens, None), "{failure:?}");
    };
    let all = Some(9_000);
    // The request's fate in a failure counts, whatever its class.
    for class in [
        FailureClass::Network,
        FailureClass::Server,
        FailureClass::Overloaded,
        FailureClass::Timeout { which: Deadline::FirstEvent },
        FailureClass::IncompleteStream,
        FailureClass::Auth,
    ] {
        check(class.clone(), Some(NotSent), None);
        check(class.clone(), Some(Rejected), None);
        check(class, Some(MayHaveRun), all);
    }
    // Older records, and providers of a library's user, have only the class.
    for class in [FailureClass::NotSent, FailureClass::Auth, FailureClass::Overloaded] {
        check(class, None, None);
    }
    for class in
        [FailureClass::Network, FailureClass::IncompleteStream, FailureClass::Lost, FailureClass::Interrupted]
    {
        check(class, None, all);
    }
}

#[test]
fn usage_that_comes_with_a_failure_is_booked_if_it_is_believed() {
    let failed = |usage| {
        let failure = Failure::new(FailureClass::Server, "x").with_usage(Some(usage));
        with_validated_usage(&started(), failure)
    };
    let believed = failed(usage(300, 20));
    assert_eq!(spent_by_failure(&started(), &believed).tokens, Some(320));
    let anomalous = failed(usage(300, 1 << 40));
    assert_eq!(anomalous.anomaly.as_ref().map(|it| it.kind), Some(UsageAnomalyKind::OutputBeyondLimit));
    assert_eq!(spent_by_failure(&started(), &anomalous).tokens, Some(9_000));
    // Without counts the failure is the same as without a usage.
    let empty = Failure::new(FailureClass::Overloaded, "x").with_usage(Some(Usage::default()));
    let empty = with_validated_usage(&started(), empty);
    assert!(empty.usage.is_none() && empty.anomaly.is_none());
    assert_eq!(spent_by_failure(&started(), &empty).tokens, None);
}

#[track_caller]
fn check(reported: Usage, expect: Option<UsageAnomalyKind>) {
    let answer = AssistantMessage { text: "done".into(), ..AssistantMessage::default() };
    let (usage, anomaly) = validate_usage(&started(), &answer, Some(reported));
    assert_eq!(anomaly.as_ref().map(|it| it.kind), expect, "{reported:?}");
    assert_eq!(usage, expect.is_none().then_some(reported));
    assert!(anomaly.is_none_or(|it| it.reported == reported));
}

#[test]
fn a_plausible_usage_is_believed() {
    for plausible in [
        usage(2_500, 100),
        // One token per byte, and the tokens that the vendor adds.
        usage(10_000, MAX_TOKENS),
        Usage { cached_tokens: 2_400, cache_write_tokens: 100, ..usage(2_500, 1) },
        // Recorded: a vendor caches tokens that it does not count.
        Usage { cached_tokens: 373, ..usage(235, 90) },
        Usage { cached_tokens: 515, ..usage(377, 69) },
        // Recorded: hidden reasoning apart from the output.
        Usage { unlisted_reasoning_tokens: 40_000, ..usage(429, 44) },
    ] {
        check(plausible, None);
    }
}

#[test]
fn what_cannot_be_is_not_believed() {
    use UsageAnomalyKind::{InputBeyondRequest, InvalidCount, NoInput, OutputBeyondLimit, PartsBeyondWhole};
    let most = BYTES * MAX_TOKENS_PER_BYTE + MAX_HIDDEN_INPUT_TOKENS;
    check(usage(most, 1), None);
    for none_read in [Usage::default(), usage(0, 5)] {
        check(none_read, Some(NoInput));
    }
    check(usage(most + 1, 1), Some(InputBeyondRequest));
    check(usage(1, MAX_TOKENS * 2 + 1_024), None);
    check(usage(1, MAX_TOKENS * 2 + 1_025), Some(OutputBeyondLimit));
    check(
        Usage { unlisted_reasoning_tokens: MAX_UNLISTED_REASONING_TOKENS + 1, ..usage(1, 1) },
        Some(OutputBeyondLimit),
    );
    check(Usage { cached_tokens: 199, ..usage(100, 1) }, None);
    check(Usage { cached_tokens: 200, ..usage(100, 1) }, Some(PartsBeyondWhole));
    check(Usage { cached_tokens: 1_257, ..usage(1_000, 1) }, Some(PartsBeyondWhole));
    check(Usage { cache_write_tokens: 4_000, ..usage(2_500, 1) }, Some(PartsBeyondWhole));
    check(Usage { cached_tokens: 1, ..usage(0, 1) }, Some(PartsBeyondWhole));
    check(Usage { is_invalid: true, ..usage(100, 1) }, Some(InvalidCount));
    // Each count alone, from one that cannot be a number to the largest plausible one.
    for huge in [10_u64.pow(15), MAX_COUNT, MAX_COUNT + 1, 10_u64.pow(18), u64::MAX] {
        for set in [
            |usage: &mut Usage, n| usage.input_tokens = n,
            |usage: &mut Usage, n| usage.output_tokens = n,
            |usage: &mut Usage, n| usage.unlisted_reasoning_tokens = n,
            |usage: &mut Usage, n| usage.cached_tokens = n,
            |usage: &mut Usage, n| usage.cache_write_tokens = n,
        ] as [fn(&mut Usage, u64); 5]
        {
            let mut reported = usage(100, 1);
            set(&mut reported, huge);
            let answer = AssistantMessage::default();
            let (usage, anomaly) = validate_usage(&started(), &answer, Some(reported));
            assert!(usage.is_none() && anomaly.is_some(), "{reported:?}");
        }
    }
}

#[test]
fn what_was_written_in_full_is_believed_where_a_limit_was_not_kept() {
    let answer = AssistantMessage { text: "x".repeat(40_000), ..AssistantMessage::default() };
    assert!(validate_usage(&started(), &answer, Some(usage(1, 30_000))).1.is_none());
    assert!(validate_usage(&started(), &answer, Some(usage(1, 50_000))).1.is_some());
}

#[test]
fn a_picture_has_tokens_without_text() {
    let started = ModelStarted { images: 1, ..started() };
    let answer = AssistantMessage::default();
    assert!(validate_usage(&started, &answer, Some(usage(36_835 + 20_000 + 2_500, 1))).1.is_none());
    assert!(validate_usage(&started, &answer, Some(usage(1 << 20, 1))).1.is_some());
}

#[test]
fn without_a_measured_request_the_rest_is_checked() {
    let started = ModelStarted { bytes: 0, ..started() };
    let answer = AssistantMessage::default();
    assert!(validate_usage(&started, &answer, Some(usage(900_000, 1))).1.is_none());
    assert!(validate_usage(&started, &answer, Some(usage(1, 900_000))).1.is_some());
    assert_eq!(validate_usage(&started, &answer, None), (None, None));
}
