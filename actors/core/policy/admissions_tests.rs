//! Tests of admission control: breakers, limiters and credentials together.

use super::*;
use crate::model::{Deadline, FailureClass};

const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

fn fail(admissions: &mut Admissions, model: &str, class: FailureClass) -> CredentialId {
    let (model, now): (Arc<str>, _) = (model.into(), Timestamp(0));
    let ticket = admissions.admit(&model, 0, now);
    admissions.on_attempt_end(&model, ticket, AttemptEnd::Failed(&Failure::new(class, "x")), now);
    ticket.credential
}

/// Checks whether `a` and another model of the same provider are ready after these failures of `a`.
fn check(classes: &[FailureClass], a: bool, b: bool) {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, RateLimits::default());
    for class in classes {
        fail(&mut admissions, "a", class.clone());
    }
    let free = |model| admissions.readiness(model, Timestamp(0)) == Readiness::Ready;
    assert_eq!((free("a"), free("b")), (a, b), "{classes:?}");
}

#[test]
fn a_failure_is_held_against_what_failed() {
    check(&[SLOW_DOWN], false, true);
    check(&[FailureClass::ModelNotFound], false, true);
    check(&[FailureClass::Auth], false, true);
    check(&[const { FailureClass::Server }; 3], false, true);
    check(&[const { FailureClass::Network }; 2], true, true);
    check(&[const { FailureClass::Network }; 3], false, false);
    check(&[const { FailureClass::Timeout { which: Deadline::Connect } }; 3], false, false);
    check(&[const { FailureClass::Timeout { which: Deadline::Gap } }; 3], false, true);
    // The endpoint responded in between.
    check(
        &[FailureClass::Network, FailureClass::Network, FailureClass::Server, FailureClass::Network],
        true,
        true,
    );
}

#[test]
fn a_credential_that_fails_gives_way_to_the_next() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 3, RateLimits::default());
    let used: Vec<_> = (0..3).map(|_| fail(&mut admissions, "a", FailureClass::Auth).0).collect();
    assert_eq!(used, [0, 1, 2]);
    assert!(matches!(admissions.readiness("a", Timestamp(0)), Readiness::Until(_, CooldownSource::Breaker)));
    assert_eq!(admissions.readiness("b", Timestamp(0)), Readiness::Ready);
    let ticket = admissions.admit(&"a".into(), 0, Timestamp(0));
    let none = Some(crate::model::RateQuota { remaining: 0, reset_at: Timestamp(9), limit: None });
    admissions.on_rate_info(ticket, RateInfo { requests: none, tokens: None }, Timestamp(0));
    admissions.reset();
    assert_eq!(admissions.readiness("a", Timestamp(0)), Readiness::Ready);
    assert_eq!(admissions.admit(&"a".into(), 0, Timestamp(0)).credential, ticket.credential);
}

#[test]
fn what_an_answer_leaves_of_its_reservation_lets_others_in() {
    let limits = RateLimits { requests: None, tokens: Some(100) };
    let mut admissions = Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, limits);
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets = [admissions.admit(&model, 60, now), admissions.admit(&model, 60, now)];
    assert!(admissions.on_rate_info(tickets[0], RateInfo::default(), now), "it has said something");
    let room = Readiness::Until(Timestamp(61_000), CooldownSource::Limiter);
    assert_eq!(admissions.readiness("a", now), room);
    assert!(
        !admissions.on_attempt_end(&model, tickets[1], AttemptEnd::Dropped, now),
        "nobody knows what it has cost"
    );
    assert_eq!(admissions.readiness("a", now), room);
    assert!(admissions.on_attempt_end(&model, tickets[0], AttemptEnd::Answered(Some(10)), now));
    assert_eq!(admissions.readiness("a", now), Readiness::Ready);
}

#[test]
fn attempts_under_way_are_counted() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::LeastUsed, 2, RateLimits::default());
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets: Vec<_> = (0..4).map(|_| admissions.admit(&model, 0, now)).collect();
    assert_eq!(tickets.iter().map(|ticket| ticket.credential.0).collect::<Vec<_>>(), [0, 1, 0, 1]);
    admissions.on_attempt_end(&model, tickets[1], AttemptEnd::Answered(None), now);
    admissions.on_attempt_end(&model, tickets[3], AttemptEnd::Dropped, now);
    assert_eq!(admissions.admit(&model, 0, now).credential, CredentialId(1));
}

#[test]
fn a_probe_that_begins_to_be_answered_lets_the_others_in() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, RateLimits::default());
    let (model, later): (Arc<str>, _) = ("a".into(), Timestamp(30_000));
    fail(&mut admissions, "a", SLOW_DOWN);
    let probe = admissions.admit(&model, 0, later);
    assert_eq!(admissions.readiness("a", later), Readiness::Probing);
    assert!(admissions.on_answer_start("a", probe));
    assert_eq!(admissions.readiness("a", later), Readiness::Ready);
    assert!(!admissions.on_attempt_end("a", probe, AttemptEnd::Answered(None), later), "it was known before");
}

#[test]
fn a_provider_that_has_said_nothing_yet_is_asked_by_a_few_only() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, RateLimits::default());
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets: Vec<_> =
        (0..MAX_CALLS_BEFORE_FIRST_RESPONSE).map(|_| admissions.admit(&model, 0, now)).collect();
    assert_eq!(admissions.readiness("a", now), Readiness::WarmingUp);
    assert!(admissions.on_attempt_end(&model, tickets[0], AttemptEnd::Dropped, now), "there is room for one");
    assert_eq!(admissions.readiness("a", now), Readiness::Ready);
    admissions.admit(&model, 0, now);
    assert_eq!(admissions.readiness("a", now), Readiness::WarmingUp);
    let unreached = Failure::new(FailureClass::Network, "connection refused");
    assert!(
        admissions.on_attempt_end(&model, tickets[2], AttemptEnd::Failed(&unreached), now),
        "there is room for one"
    );
    admissions.admit(&model, 0, now);
    assert_eq!(admissions.readiness("a", now), Readiness::WarmingUp, "nobody was reached");
    assert!(admissions.on_rate_info(tickets[1], RateInfo::default(), now), "it has said something");
    assert_eq!(admissions.readiness("a", now), Readiness::Ready);
}

#[test]
fn a_credential_that_has_no_room_gives_way_to_the_next() {
    let limits = RateLimits { requests: Some(1), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 2, limits);
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let used = [admissions.admit(&model, 0, now), admissions.admit(&model, 0, Timestamp(1_000))];
    assert_eq!(used.map(|ticket| ticket.credential.0), [0, 1]);
    let room = Readiness::Until(Timestamp(61_000), CooldownSource::Limiter);
    assert_eq!(admissions.readiness("another model", Timestamp(2_000)), room);
}

/// The time when the model is ready again after this failure, with a limit of one attempt per minute.
fn check_limited(classes: &[FailureClass], expect: Readiness) {
    let limits = RateLimits { requests: Some(1), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, limits);
    for class in classes {
        fail(&mut admissions, "a", class.clone());
    }
    assert_eq!(admissions.readiness("a", Timestamp(0)), expect, "{classes:?}");
}

#[test]
fn nobody_insists_against_the_limits_of_an_account() {
    let shut = |ms| Readiness::Until(Timestamp(ms), CooldownSource::Provider);
    check_limited(&[SLOW_DOWN], shut(61_000));
    check_limited(&[FailureClass::ModelNotFound], shut(600_000));
    check_limited(&[const { FailureClass::Network }; 3], shut(61_000));
    check_limited(
        &[FailureClass::InvalidRequest],
        Readiness::Until(Timestamp(61_000), CooldownSource::Limiter),
    );
}

#[test]
fn who_insists_gets_a_credential_that_is_only_held() {
    let limits = RateLimits { requests: Some(2), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 3, limits);
    let hour = FailureClass::RateLimited { retry_after_ms: Some(3_600_000), reset_at: None };
    let used = [hour, SLOW_DOWN, SLOW_DOWN].map(|class| fail(&mut admissions, "a", class).0);
    assert_eq!(used, [0, 1, 2]);
    // The second credential is in cooldown and within its limits; later only the third one is.
    let insists = [(); 2].map(|()| fail(&mut admissions, "a", SLOW_DOWN).0);
    assert_eq!(insists, [1, 2]);
    // While the endpoint is unreachable, the model's own credentials still count.
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 2, RateLimits::default());
    let hour = FailureClass::RateLimited { retry_after_ms: Some(3_600_000), reset_at: None };
    fail(&mut admissions, "a", hour);
    for _ in 0..3 {
        fail(&mut admissions, "b", FailureClass::Network);
    }
    assert_eq!(fail(&mut admissions, "a", FailureClass::Network).0, 1);
}

/// Checks the readiness of `a` at second `at`. Failures of `class` opened a breaker at 0 s, and the free probe of 29 s
/// ended so at 29.5 s.
fn check_free_probe(class: &FailureClass, end: Option<Result<(), FailureClass>>, at: i64, expect: Readiness) {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1, RateLimits::default());
    for _ in 0..3 {
        fail(&mut admissions, "a", class.clone());
    }
    assert_eq!(admissions.free_probe_at(Timestamp(0)), Some(Timestamp(29_000)));
    assert!(admissions.begin_free_probe(Timestamp(28_999)).is_none());
    let probe = admissions.begin_free_probe(Timestamp(29_000)).expect("it is due");
    let failure = end.clone().and_then(Result::err).map(|class| Failure::new(class, "x"));
    let reached = end.as_ref().map(|_| failure.as_ref().map_or(Ok(()), Err));
    admissions.on_free_probe_end(probe, reached, Timestamp(29_500));
    let ready = admissions.readiness("a", Timestamp(at * 1_000));
    assert_eq!(ready, expect, "{class:?}, probe {end:?}, at {at} s");
}

#[test]
fn a_free_probe_concludes_only_what_a_connection_tells() {
    use FailureClass::{Network, Server};
    let open = |until| Readiness::Until(Timestamp(until), CooldownSource::Breaker);
    // The endpoint's breaker counts only connections, so it closes.
    check_free_probe(&Network, Some(Ok(())), 29, Readiness::Ready);
    // A connection does not tell that a model answers: its trial is a call after the cooldown.
    check_free_probe(&Server, Some(Ok(())), 29, open(30_000));
    check_free_probe(&Server, Some(Ok(())), 30, Readiness::Ready);
    // Without a connection no call would succeed: the next cooldown begins.
    for class in [Network, Server] {
        check_free_probe(&class, Some(Err(Network)), 30, open(89_500));
        let late = FailureClass::Timeout { which: Deadline::Connect };
        check_free_probe(&class, Some(Err(late)), 30, open(89_500));
        // Another failure, or none in time, leaves the trial to a call.
        for end in [Some(Err(Server)), Some(Err(FailureClass::Auth)), None] {
            check_free_probe(&class, end.clone(), 29, open(30_000));
            check_free_probe(&class, end, 30, Readiness::Ready);
        }
    }
}
