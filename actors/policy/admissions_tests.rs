use super::*;
use crate::model::{Deadline, FailureClass};

const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

fn fail(admissions: &mut Admissions, model: &str, class: FailureClass) -> CredentialId {
    let (model, now): (Arc<str>, _) = (model.into(), Timestamp(0));
    let ticket = admissions.pass((&model, 0), now);
    admissions.end(&model, ticket, (End::Failed(&Failure::new(class, "x")), now));
    ticket.credential
}

/// After these failures of `a`, whether it and another model of the same provider can be asked.
fn check(classes: &[FailureClass], a: bool, b: bool) {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 1), RateLimits::default());
    for class in classes {
        fail(&mut admissions, "a", class.clone());
    }
    let free = |model| admissions.gauge(model, Timestamp(0)) == Gauge::Free;
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
    // It was reached in between.
    check(
        &[FailureClass::Network, FailureClass::Network, FailureClass::Server, FailureClass::Network],
        true,
        true,
    );
}

#[test]
fn a_credential_that_fails_gives_way_to_the_next() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 3), RateLimits::default());
    let used: Vec<_> = (0..3).map(|_| fail(&mut admissions, "a", FailureClass::Auth).0).collect();
    assert_eq!(used, [0, 1, 2]);
    assert!(matches!(admissions.gauge("a", Timestamp(0)), Gauge::Until(_, Cooldown::Guessed)));
    assert_eq!(admissions.gauge("b", Timestamp(0)), Gauge::Free);
    let ticket = admissions.pass((&"a".into(), 0), Timestamp(0));
    let none = Some(crate::model::RateLeft { remaining: 0, reset_at: Timestamp(9), limit: None });
    admissions.learn(ticket, (RateInfo { requests: none, tokens: None }, Timestamp(0)));
    admissions.reset();
    assert_eq!(admissions.gauge("a", Timestamp(0)), Gauge::Free);
    assert_eq!(admissions.pass((&"a".into(), 0), Timestamp(0)).credential, ticket.credential);
}

#[test]
fn what_an_answer_leaves_of_its_reservation_lets_others_in() {
    let limits = RateLimits { requests: None, tokens: Some(100) };
    let mut admissions = Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 1), limits);
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets = [admissions.pass((&model, 60), now), admissions.pass((&model, 60), now)];
    assert!(admissions.learn(tickets[0], (RateInfo::default(), now)), "it has said something");
    let room = Gauge::Until(Timestamp(61_000), Cooldown::Pace);
    assert_eq!(admissions.gauge("a", now), room);
    assert!(!admissions.end(&model, tickets[1], (End::Dropped, now)), "nobody knows what it has cost");
    assert_eq!(admissions.gauge("a", now), room);
    assert!(admissions.end(&model, tickets[0], (End::Answered(Some(10)), now)));
    assert_eq!(admissions.gauge("a", now), Gauge::Free);
}

#[test]
fn attempts_under_way_are_counted() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::LeastUsed, 2), RateLimits::default());
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets: Vec<_> = (0..4).map(|_| admissions.pass((&model, 0), now)).collect();
    assert_eq!(tickets.iter().map(|ticket| ticket.credential.0).collect::<Vec<_>>(), [0, 1, 0, 1]);
    admissions.end(&model, tickets[1], (End::Answered(None), now));
    admissions.end(&model, tickets[3], (End::Dropped, now));
    assert_eq!(admissions.pass((&model, 0), now).credential, CredentialId(1));
}

#[test]
fn a_probe_that_begins_to_be_answered_lets_the_others_in() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 1), RateLimits::default());
    let (model, later): (Arc<str>, _) = ("a".into(), Timestamp(30_000));
    fail(&mut admissions, "a", SLOW_DOWN);
    let probe = admissions.pass((&model, 0), later);
    assert_eq!(admissions.gauge("a", later), Gauge::Probing);
    assert!(admissions.answering("a", probe));
    assert_eq!(admissions.gauge("a", later), Gauge::Free);
    assert!(!admissions.end("a", probe, (End::Answered(None), later)), "it was known before");
}

#[test]
fn a_provider_that_has_said_nothing_yet_is_asked_by_a_few_only() {
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 1), RateLimits::default());
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let tickets: Vec<_> = (0..FIRST).map(|_| admissions.pass((&model, 0), now)).collect();
    assert_eq!(admissions.gauge("a", now), Gauge::Starting);
    assert!(admissions.end(&model, tickets[0], (End::Dropped, now)), "there is room for one");
    assert_eq!(admissions.gauge("a", now), Gauge::Free);
    admissions.pass((&model, 0), now);
    assert_eq!(admissions.gauge("a", now), Gauge::Starting);
    let unreached = Failure::new(FailureClass::Network, "connection refused");
    assert!(admissions.end(&model, tickets[2], (End::Failed(&unreached), now)), "there is room for one");
    admissions.pass((&model, 0), now);
    assert_eq!(admissions.gauge("a", now), Gauge::Starting, "nobody was reached");
    assert!(admissions.learn(tickets[1], (RateInfo::default(), now)), "it has said something");
    assert_eq!(admissions.gauge("a", now), Gauge::Free);
}

#[test]
fn a_credential_that_has_no_room_gives_way_to_the_next() {
    let limits = RateLimits { requests: Some(1), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 2), limits);
    let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
    let used = [admissions.pass((&model, 0), now), admissions.pass((&model, 0), Timestamp(1_000))];
    assert_eq!(used.map(|ticket| ticket.credential.0), [0, 1]);
    let room = Gauge::Until(Timestamp(61_000), Cooldown::Pace);
    assert_eq!(admissions.gauge("another model", Timestamp(2_000)), room);
}

/// With an attempt a minute: when the model can be asked again that has failed in this way, whoever asks.
fn check_limited(classes: &[FailureClass], expect: Gauge) {
    let limits = RateLimits { requests: Some(1), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 1), limits);
    for class in classes {
        fail(&mut admissions, "a", class.clone());
    }
    assert_eq!(admissions.gauge("a", Timestamp(0)), expect, "{classes:?}");
}

#[test]
fn nobody_insists_against_the_limits_of_an_account() {
    let shut = |ms| Gauge::Until(Timestamp(ms), Cooldown::Named);
    check_limited(&[SLOW_DOWN], shut(61_000));
    check_limited(&[FailureClass::ModelNotFound], shut(600_000));
    check_limited(&[const { FailureClass::Network }; 3], shut(61_000));
    check_limited(&[FailureClass::InvalidRequest], Gauge::Until(Timestamp(61_000), Cooldown::Pace));
}

#[test]
fn who_insists_gets_a_credential_that_is_only_held() {
    let limits = RateLimits { requests: Some(2), tokens: None };
    let mut admissions = Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 3), limits);
    let hour = FailureClass::RateLimited { retry_after_ms: Some(3_600_000), reset_at: None };
    let used = [hour, SLOW_DOWN, SLOW_DOWN].map(|class| fail(&mut admissions, "a", class).0);
    assert_eq!(used, [0, 1, 2]);
    // The second is held and has room for one more; then the third is the one that has.
    let insists = [(); 2].map(|()| fail(&mut admissions, "a", SLOW_DOWN).0);
    assert_eq!(insists, [1, 2]);
    // While nobody can be reached, the model's own credentials count no less.
    let mut admissions =
        Admissions::new(BreakerPolicy::default(), (PoolStrategy::FillFirst, 2), RateLimits::default());
    let hour = FailureClass::RateLimited { retry_after_ms: Some(3_600_000), reset_at: None };
    fail(&mut admissions, "a", hour);
    for _ in 0..3 {
        fail(&mut admissions, "b", FailureClass::Network);
    }
    assert_eq!(fail(&mut admissions, "a", FailureClass::Network).0, 1);
}
