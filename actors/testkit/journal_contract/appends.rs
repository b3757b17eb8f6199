//! Cases of the journal contract: sequence numbers, fencing, atomicity and sizes of appends.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::subject::{
    Subject, account, appended, check, index_run, one, record, record_of, run, session, session_row,
};
use hermod_actors::{
    model::{
        Amounts, AssistantMessage, Body, CallId, FinishReason, Incarnation, ModelAnswered, NewAccount,
        OpaqueState, Record, RunState, Timestamp,
    },
    port::{Append, IndexRow, SpawnedSession, StoredRecord, WriteOp, WriteOutcome, WriteRefusal},
};

pub(super) async fn records_come_back_in_a_dense_sequence(journal: Subject) {
    let id = session(1);
    journal.check_journal(id, &[]).await;
    let opened = journal.take_over(id).await;
    assert_eq!((opened.last, opened.inbox.len()), (0, 0));
    let records: Vec<_> = (1..=5).map(record).collect();
    let first = Append::new(id, opened.incarnation, 1, records[..2].to_vec());
    assert_eq!(journal.append(first).await.last, 2);
    let second = Append::new(id, opened.incarnation, 3, records[2..].to_vec());
    assert_eq!(journal.append(second).await.last, 5);
    journal.check_journal(id, &records).await;
    journal.check_journal(session(2), &[]).await;
    let some = [(3, &records[2]), (4, &records[3])];
    let some = some.map(|(seq, record)| StoredRecord { seq, record: Arc::clone(record) });
    check(journal.journal().records(id, 3, 2), some.to_vec()).await;
    check(journal.journal().records(id, 6, 2), Vec::new()).await;
    check(journal.journal().records(id, 1, 0), Vec::new()).await;
    assert_eq!(journal.take_over(id).await.last, 5);
}

pub(super) async fn a_wrong_sequence_is_refused(journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let wrong = |expected, last| WriteRefusal::WrongSeq { expected, last };
    journal.check_refused(one(id, fence, 2), wrong(2, 0)).await;
    journal.check_refused(one(id, fence, 0), wrong(0, 0)).await;
    journal.append(one(id, fence, 1)).await;
    journal.check_refused(one(id, fence, 1), wrong(1, 1)).await;
    journal.check_refused(one(id, fence, u64::MAX), wrong(u64::MAX, 1)).await;
    journal.check_journal(id, &[record(1)]).await;
}

pub(super) async fn an_older_incarnation_is_fenced(journal: Subject) {
    let (id, other) = (session(1), session(2));
    let first = journal.take_over(id).await.incarnation;
    journal.append(one(id, first, 1)).await;
    let neighbour = journal.take_over(other).await.incarnation;
    let batch = vec![
        WriteOp::Append(Box::new(one(id, first, 2))),
        WriteOp::Open(id),
        WriteOp::Append(Box::new(one(id, first, 3))),
    ];
    let written = journal.batch(batch).await;
    let [WriteOutcome::Appended(_), WriteOutcome::Opened(opened), WriteOutcome::Refused(refused)] =
        &written[..]
    else {
        panic!("{written:?}")
    };
    let second = opened.incarnation;
    assert!(second > first, "{second} after {first}");
    assert_eq!(opened.last, 2, "what stands before the opening in its batch is in the journal");
    assert_eq!(*refused, WriteRefusal::Fenced(second));
    journal.check_refused(one(id, first, 3), WriteRefusal::Fenced(second)).await;
    let future = Incarnation { revival: second.revival + 1, ..second };
    journal.check_refused(one(id, future, 3), WriteRefusal::Fenced(second)).await;
    journal.append(one(id, second, 3)).await;
    journal.append(one(other, neighbour, 1)).await;
    journal.check_journal(id, &[record(1), record(2), record(3)]).await;
}

pub(super) async fn a_session_that_is_let_go_is_fenced_until_it_is_opened(mut journal: Subject) {
    let (id, other) = (session(1), session(2));
    let first = journal.take_over(id).await.incarnation;
    journal.append(one(id, first, 1)).await;
    let neighbour = journal.take_over(other).await.incarnation;
    let second = journal.take_over(id).await.incarnation;
    let fenced = |by| WriteOutcome::Refused(WriteRefusal::Fenced(by));
    assert_eq!(journal.close(id, first).await, fenced(second), "somebody else has it by now");
    assert_eq!(journal.close(id, neighbour).await, fenced(second));
    journal.append(one(id, second, 2)).await;
    assert_eq!(journal.close(id, second).await, WriteOutcome::Closed(true));
    let closed = Incarnation { revival: 0, ..second };
    for fence in [first, second, closed, Incarnation { revival: second.revival + 1, ..second }] {
        journal.check_refused(one(id, fence, 3), WriteRefusal::Fenced(closed)).await;
        assert_eq!(journal.close(id, fence).await, fenced(closed));
    }
    journal.append(one(other, neighbour, 1)).await;
    let opened = journal.take_over(id).await;
    assert!(opened.incarnation > second, "{} after {second}", opened.incarnation);
    assert_eq!(opened.last, 2);
    for old in [first, second] {
        journal.check_refused(one(id, old, 3), WriteRefusal::Fenced(opened.incarnation)).await;
        assert_eq!(journal.close(id, old).await, fenced(opened.incarnation));
    }
    let batch = vec![
        WriteOp::Append(Box::new(one(id, opened.incarnation, 3))),
        WriteOp::Close(id, opened.incarnation),
        WriteOp::Append(Box::new(one(id, opened.incarnation, 4))),
        WriteOp::Open(id),
    ];
    let written = journal.batch(batch).await;
    let [WriteOutcome::Appended(_), WriteOutcome::Closed(true), refused, WriteOutcome::Opened(last)] =
        &written[..]
    else {
        panic!("{written:?}")
    };
    assert_eq!(*refused, fenced(closed));
    assert_eq!(last.last, 3, "what stands before the close in its batch is in the journal");
    assert_eq!(journal.close(id, last.incarnation).await, WriteOutcome::Closed(true));
    journal.check_journal(id, &[record(1), record(2), record(3)]).await;
    journal.reopen();
    assert_eq!(journal.take_over(id).await.last, 3);
}

pub(super) async fn reopening_fences_the_process_before(mut journal: Subject) {
    let id = session(1);
    let old = journal.take_over(id).await.incarnation;
    journal.append(one(id, old, 1)).await;
    journal.reopen();
    let unopened = Incarnation { epoch: old.epoch + 1, revival: 0 };
    journal.check_refused(one(id, old, 2), WriteRefusal::Fenced(unopened)).await;
    journal.check_refused(one(id, unopened, 2), WriteRefusal::Fenced(unopened)).await;
    let opened = journal.take_over(id).await;
    assert!(opened.incarnation.epoch > old.epoch);
    assert_eq!(opened.last, 1);
    journal.check_refused(one(id, old, 2), WriteRefusal::Fenced(opened.incarnation)).await;
    journal.append(one(id, opened.incarnation, 2)).await;
    journal.check_journal(id, &[record(1), record(2)]).await;
}

pub(super) async fn a_refusal_leaves_no_trace_and_disturbs_nobody(journal: Subject) {
    let [before, refused, after] = [1, 2, 3].map(session);
    let mut fences = Vec::new();
    for id in [before, refused, after] {
        fences.push(journal.take_over(id).await.incarnation);
    }
    let mut full = one(refused, fences[1], 2);
    let limits = Amounts { tokens: Some(5), ..Amounts::default() };
    full.ledger.new_accounts.push(NewAccount {
        id: account(1),
        parent: None,
        limits,
        owns_iterations: false,
    });
    full.index = vec![IndexRow::Session(session_row(2, "two")), index_run(2, refused, RunState::Running)];
    full.key = Some(("again".into(), run(2)));
    full.deliver = vec![(after, "\"hello\"".into())];
    let batch = vec![
        WriteOp::Append(Box::new(one(before, fences[0], 1))),
        WriteOp::Append(Box::new(full)),
        WriteOp::Append(Box::new(one(after, fences[2], 1))),
        WriteOp::Append(Box::new(one(refused, fences[1], 1))),
    ];
    let mut written = journal.batch(batch).await;
    assert_eq!(written.remove(1), WriteOutcome::Refused(WriteRefusal::WrongSeq { expected: 2, last: 0 }));
    assert!(written.into_iter().all(|written| appended(written).last == 1));
    for id in [before, refused, after] {
        journal.check_journal(id, &[record(1)]).await;
    }
    journal.check_account(account(1), None).await;
    check(journal.rows().session_of_key("two"), None).await;
    check(journal.rows().session(refused), None).await;
    check(journal.rows().open_runs(), Vec::new()).await;
    check(journal.rows().run_of_key("again"), None).await;
    journal.check_inbox(after, &[]).await;
}

pub(super) async fn an_append_of_nothing_is_malformed(journal: Subject) {
    let fence = journal.take_over(session(1)).await.incarnation;
    let nothing = Append::new(session(1), fence, 1, Vec::new());
    journal.check_malformed(nothing.clone()).await;
    let spawned = SpawnedSession { session: session(2), records: vec![record(1)] };
    let send = vec![(session(2), "\"hello\"".into())];
    journal.check_malformed(Append { deliver: send, spawned: vec![spawned], ..nothing }).await;
    journal.check_journal(session(1), &[]).await;
    journal.check_journal(session(2), &[]).await;
    journal.check_inbox(session(2), &[]).await;
}

pub(super) async fn large_records_come_back(mut journal: Subject) {
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let lengths = [16 * 1024 - 300, 16 * 1024 + 300, 2 * 1024 * 1024];
    let mut records: Vec<_> =
        (1..).zip(lengths).map(|(n, length)| record_of(n, &"é~".repeat(length / 3))).collect();
    records.push(Arc::clone(&records[2]));
    assert_eq!(journal.append(Append::new(id, fence, 1, records.clone())).await.last, 4);
    journal.check_journal(id, &records).await;
    let item = format!("\"{}\"", "x".repeat(100_000));
    journal.batch(vec![WriteOp::Deliver(id, item.as_str().into())]).await;
    journal.check_inbox(id, &[&item]).await;
    journal.reopen();
    journal.check_journal(id, &records).await;
    let opened = journal.take_over(id).await;
    assert_eq!((opened.last, &*opened.inbox[0].item), (4, item.as_str()));
}

pub(super) async fn reads_never_show_half_an_append(journal: Subject) {
    const RECORDS: u64 = 200;
    let id = session(1);
    let fence = journal.take_over(id).await.incarnation;
    let mut append = Append::new(id, fence, 1, (1..=RECORDS).map(record).collect());
    append.index = vec![index_run(1, id, RunState::Running)];
    let read = || journal.journal().records(id, 1, usize::MAX);
    let records = async || read().await.expect("the records are read").len() as u64;
    let runs = async || usize::from(journal.rows().run(run(1)).await.expect("the row is read").is_some());
    let reading = async {
        let mut reads = 0;
        // The loop ends: the commit is under way before the first read.
        while records().await < RECORDS {
            let (before, counted, after) = (runs().await, records().await, runs().await);
            assert!(counted == 0 || counted == RECORDS, "{counted} of {RECORDS} records");
            assert!(before == 0 || counted == RECORDS, "the row came before its records");
            assert!(after == 1 || counted == 0, "the records came before their row");
            reads += 1;
            // A slow store needs time, and virtual time stands still while any task is busy.
            if reads % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::task::yield_now().await;
        }
    };
    let (appended, ()) = futures::join!(journal.append(append), reading);
    assert_eq!(appended.last, RECORDS);
}

/// The record's opaque state nests too deep for the decoder. Only deserialization can make one: its constructor
/// refuses.
pub(super) async fn what_cannot_be_read_back_is_not_written(journal: Subject) {
    let nested = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let origin = json!({ "provider": "p", "wire": "w", "model": "m" });
    let opaque = json!({ "origin": origin, "parts": [nested] });
    let opaque: OpaqueState = serde_json::from_value(opaque).expect("a value has no limit of depth");
    let message = AssistantMessage { opaque: Some(Arc::new(opaque)), ..AssistantMessage::default() };
    let answered = ModelAnswered {
        call: CallId { run: run(1), iteration: 1, n: 0 },
        attempt: 1,
        message: Arc::new(message),
        finish: FinishReason::Stop,
        flaw: None,
        fallback: None,
        usage: None,
        anomaly: None,
    };
    let body = Body::ModelAnswered(Box::new(answered));
    let bad = Arc::new(Record { at: Timestamp(1), active_ms: 1, body });
    let (id, child) = (session(1), session(2));
    let fence = journal.take_over(id).await.incarnation;
    let appending = Append::new(id, fence, 1, vec![record(1), Arc::clone(&bad)]);
    let spawning =
        Append { spawned: vec![SpawnedSession { session: child, records: vec![bad] }], ..one(id, fence, 1) };
    for append in [appending, spawning] {
        let written = journal.batch(vec![WriteOp::Append(Box::new(append))]).await.remove(0);
        let WriteOutcome::Refused(WriteRefusal::Unreadable { kind: "model.answered", .. }) = written else {
            panic!("{written:?}")
        };
    }
    journal.check_journal(id, &[]).await;
    journal.check_journal(child, &[]).await;
    journal.append(one(id, fence, 1)).await;
    journal.check_journal(id, &[record(1)]).await;
}
