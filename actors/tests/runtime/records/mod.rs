//! Every record that is written can be read: records of every kind, made of arbitrary arguments of the public
//! constructors.

mod bodies;
mod hooks;
mod parts;
mod queues;
mod schedules;
mod values;

use std::sync::Arc;

use hermod_actors::model::{
    AgentName, AnswerOrigin, AssistantMessage, Body, CallId, FinishReason, ImportedHistory, ImportedRound,
    InDoubtPolicy, InboxMessage, Kind, Lane, Limits, ModelAnswered, ModelRow, OpaqueState, PendingApproval,
    Record, RunAccepted, RunCounts, RunId, RunRow, RunSpec, RunState, SessionRow, Timestamp, decode, encode,
};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use self::{
    bodies::{approval_requested, body},
    parts::{child, ended, parent, stop_reason},
    queues::queue_overrides,
    values::{
        Made, account, agent, call, density, listed, maybe, model, number, run, session, shared, small, time,
        usage,
    },
};

/// Records of each kind that are written and read.
const CASES: u32 = 200;

/// Runs `CASES` cases, and checks that each was checked.
fn each<T: std::fmt::Debug>(of: &Made<T>, check: impl Fn(T) -> Result<(), TestCaseError>) {
    let counted = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let checked = runner.run(of, |made| {
        counted.set(counted.get() + 1);
        check(made)
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    assert_eq!(counted.get(), CASES);
}

#[test]
fn every_kind_of_record_can_be_read_back() {
    for kind in Kind::ALL {
        each(&(body(*kind), time(), number()).boxed(), |(body, at, active_ms)| {
            prop_assert_eq!(body.kind(), *kind);
            let record = Record { at, active_ms, body };
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
            Ok(())
        });
    }
}

fn json_comes_back<T>(made: &T) -> Result<(), TestCaseError>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let stored = serde_json::to_vec(made).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let read = serde_json::from_slice::<T>(&stored);
    prop_assert_eq!(read.as_ref().map_err(ToString::to_string), Ok(made));
    Ok(())
}

#[test]
fn every_row_beside_the_records_can_be_read_back() {
    let session_row = (session(), shared(), agent(), time(), maybe(shared()), queue_overrides()).prop_map(
        |(id, key, agent, opened_at, title, queue)| SessionRow { id, key, agent, opened_at, title, queue },
    );
    each(&session_row.boxed(), |row| json_comes_back(&row));
    let model_row = (model(), maybe(density()), maybe(number()), listed())
        .prop_map(|(model, density, window, listed)| ModelRow { model, density, window, listed });
    each(&model_row.boxed(), |row| json_comes_back(&row));
    let state = select(vec![RunState::Queued, RunState::Running, RunState::Parked, RunState::Ended]);
    let times = (time(), maybe(time()), maybe(time()), maybe(ended()));
    let counts = (small(), usage(), maybe(parent()), small(), number(), number());
    let pending =
        (approval_requested(), time()).prop_map(|(request, since)| PendingApproval { request, since });
    let progress = (
        maybe((small(), usage()).prop_map(|(iterations, usage)| RunCounts { iterations, usage }).boxed()),
        maybe(prop::collection::vec(pending, 0..3).boxed()),
    );
    let run_row = (run(), (session(), agent()), account(), state, times, counts, progress).prop_map(
        |(
            id,
            (session, agent),
            account,
            state,
            (accepted_at, started_at, ended_at, ended),
            (iterations, usage, parent, leg, first, last),
            (counts, approvals),
        )| RunRow {
            deliver_to: vec!["ops".into()],
            asides_until: Some(last),
            lane: Lane::Cron,
            schedule: Some("nightly".parse().expect("a name")),
            id,
            session,
            agent,
            account,
            state,
            accepted_at,
            started_at,
            ended_at,
            ended,
            iterations,
            usage,
            parent,
            leg,
            first,
            last,
            counts,
            approvals,
        },
    );
    each(&run_row.boxed(), |row| json_comes_back(&row));
    each(&schedules::schedule(), |row| json_comes_back(&row));
    each(&schedules::occurrence_row(), |row| json_comes_back(&row));
    let item = prop_oneof![
        (call(), child()).prop_map(|(call, child)| InboxMessage::ChildEnded { call, child }),
        (run(), stop_reason()).prop_map(|(run, reason)| InboxMessage::Stop { run, reason }),
    ];
    each(&item.boxed(), |item| {
        prop_assert_eq!(InboxMessage::parse(&item.to_json()), Ok(item));
        Ok(())
    });
}

/// Two records with opaque state, at the two places where it nests deepest.
fn carriers(opaque: OpaqueState) -> [Body; 2] {
    let message =
        || Arc::new(AssistantMessage { opaque: Some(Arc::new(opaque.clone())), ..Default::default() });
    let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 0 };
    let answered = ModelAnswered {
        call,
        attempt: 1,
        message: message(),
        finish: FinishReason::Stop,
        flaw: None,
        fallback: None,
        usage: None,
        anomaly: None,
    };
    let round = ImportedRound { user: "u".into(), steps: Vec::new(), answer: message() };
    let accepted = RunAccepted {
        run: call.run,
        input: "i".into(),
        images: Arc::default(),
        history: Arc::new(ImportedHistory { rounds: vec![round], unanswered: None }),
        spec: Arc::new(RunSpec {
            agent: AgentName::default(),
            chain: vec!["p/m".parse().expect("a model's name")],
            profiles: Vec::new(),
            thinking: None,
            lane: Lane::default(),
            workspace: "/w".into(),
            isolation_key: "t".into(),
            tools: Vec::new(),
            schema_bytes: 0,
            limits: Limits::default(),
            system: None,
            in_doubt: InDoubtPolicy::default(),
            compaction: None,
            title: None,
            vision: None,
            memory: None,
            delegation: None,
            must_answer: false,
            loop_guard: true,
            expects: Vec::new(),
            script: None,
            deliver_to: Vec::new(),
        }),
        request_hash: None,
        queueing: None,
        hold: None,
        occurrence: None,
        parent: None,
    };
    [Body::ModelAnswered(Box::new(answered)), Body::RunAccepted(Box::new(accepted))]
}

#[test]
fn opaque_state_that_nests_too_deep_is_refused_and_any_other_can_be_read_back() {
    let origin = Arc::new(AnswerOrigin { provider: "p".into(), wire: "w".into(), model: "m".into() });
    let (mut made, mut refused) = (0, 0);
    for depth in 0..200_usize {
        let part = (0..depth)
            .fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({ "k": inner }) });
        let Ok(opaque) = OpaqueState::new(Arc::clone(&origin), vec![json!(0), part]) else {
            refused += 1;
            continue;
        };
        made += 1;
        for body in carriers(opaque) {
            let record = Record { at: Timestamp(0), active_ms: 0, body };
            assert_eq!(decode(&encode(&record)), Ok(record), "{depth} deep");
        }
    }
    assert_eq!((made, refused), (65, 135));
}
