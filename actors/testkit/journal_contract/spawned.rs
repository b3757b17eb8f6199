//! Cases of the journal contract: sessions that an append of another session spawns.

use super::subject::{
    Subject, account, appended, check, index_run, one, record, record_of, run, session, session_row,
};
use hermod_actors::{
    model::{Amounts, BudgetAccount, Incarnation, NewAccount, RunState},
    port::{Append, IndexRow, SpawnedSession, WriteOp, WriteOutcome, WriteRefusal},
};

/// A spawned session whose first records have these numbers.
fn spawned_session(n: u128, records: impl IntoIterator<Item = u64>) -> SpawnedSession {
    SpawnedSession { session: session(n), records: records.into_iter().map(record).collect() }
}

pub(super) async fn sessions_that_another_one_begins_are_there(mut journal: Subject) {
    let [parent, child, unopened] = [1, 2, 3].map(session);
    let fence = journal.take_over(parent).await.incarnation;
    let mut append = one(parent, fence, 1);
    let mut large = spawned_session(2, 1..=3);
    large.records.extend([record_of(4, &"é~".repeat(9_000)), record_of(5, &"x".repeat(300_000))]);
    append.spawned = vec![large.clone(), spawned_session(3, [1])];
    let limits = Amounts { tokens: Some(5), ..Amounts::default() };
    append.ledger.new_accounts =
        vec![NewAccount { id: account(2), parent: None, limits, owns_iterations: true }];
    append.index = vec![IndexRow::Session(session_row(2, "two")), index_run(2, child, RunState::Queued)];
    let batch = vec![WriteOp::Append(Box::new(append)), WriteOp::Open(child)];
    let mut written = journal.batch(batch).await;
    let Some(WriteOutcome::Opened(opened)) = written.pop() else { panic!("{written:?}") };
    assert_eq!(
        (opened.last, opened.inbox.len()),
        (5, 0),
        "an opening sees what stands before it in its batch"
    );
    assert_eq!(appended(written.remove(0)).last, 1);
    let closed = Incarnation { revival: 0, ..fence };
    for fence in [closed, fence, opened.incarnation] {
        journal.check_refused(one(unopened, fence, 2), WriteRefusal::Fenced(closed)).await;
    }
    journal.check_refused(one(child, fence, 6), WriteRefusal::Fenced(opened.incarnation)).await;
    assert_eq!(journal.append(one(child, opened.incarnation, 6)).await.last, 6);
    large.records.push(record(6));
    journal.append(one(parent, fence, 2)).await;
    journal.reopen();
    journal.check_journal(parent, &[record(1), record(2)]).await;
    journal.check_journal(child, &large.records).await;
    journal.check_journal(unopened, &[record(1)]).await;
    check(journal.rows().session_of_key("two"), Some(session_row(2, "two"))).await;
    let (spent, reserved) = (Amounts::default(), Amounts::default());
    let account_of = BudgetAccount { parent: None, limits, spent, reserved, owns_iterations: true };
    journal.check_account(account(2), Some(&account_of)).await;
    let opened = journal.take_over(unopened).await;
    assert_eq!(opened.last, 1);
    journal.append(one(unopened, opened.incarnation, 2)).await;
    journal.check_journal(unopened, &[record(1), record(2)]).await;
}

/// An opening writes no record, so another session can still spawn the opened one. Its incarnation then appends after
/// the spawned records.
pub(super) async fn a_session_that_is_only_open_can_be_begun(journal: Subject) {
    let [parent, child] = [1, 2].map(session);
    let fence = journal.take_over(parent).await.incarnation;
    let other = journal.take_over(child).await.incarnation;
    journal.append(Append { spawned: vec![spawned_session(2, [1, 2])], ..one(parent, fence, 1) }).await;
    journal.check_refused(one(child, other, 1), WriteRefusal::WrongSeq { expected: 1, last: 2 }).await;
    assert_eq!(journal.append(one(child, other, 3)).await.last, 3);
    journal.check_journal(child, &[record(1), record(2), record(3)]).await;
}

pub(super) async fn what_cannot_begin_leaves_no_trace(mut journal: Subject) {
    let [parent, old, new] = [1, 2, 3].map(session);
    let fence = journal.take_over(old).await.incarnation;
    journal.append(one(old, fence, 1)).await;
    journal.reopen();
    let fence = journal.take_over(parent).await.incarnation;
    let refused = [
        vec![spawned_session(3, [1]), spawned_session(2, [1])],
        vec![spawned_session(3, [1]), spawned_session(1, [1])],
        vec![spawned_session(3, [1]), spawned_session(4, [1]), spawned_session(3, [2])],
        vec![spawned_session(3, [1]), spawned_session(4, [])],
    ];
    for found in refused {
        let mut append = Append { spawned: found, ..one(parent, fence, 1) };
        append.index = vec![IndexRow::Session(session_row(3, "three")), index_run(3, new, RunState::Queued)];
        append.key = Some(("again".into(), run(3)));
        append.deliver = vec![(new, "\"hello\"".into())];
        journal.check_malformed(append).await;
    }
    let mut append = Append { spawned: vec![spawned_session(3, [1])], ..one(parent, fence, 2) };
    journal.check_refused(append.clone(), WriteRefusal::WrongSeq { expected: 2, last: 0 }).await;
    for id in [parent, new, session(4)] {
        journal.check_journal(id, &[]).await;
    }
    journal.check_journal(old, &[record(1)]).await;
    check(journal.rows().session(new), None).await;
    check(journal.rows().open_runs(), Vec::new()).await;
    check(journal.rows().run_of_key("again"), None).await;
    journal.check_inbox(new, &[]).await;
    append.expected = 1;
    let again = Append { expected: 2, ..append.clone() };
    let written = journal.batch([append, again].map(|append| WriteOp::Append(Box::new(append))).into()).await;
    assert!(
        matches!(written[..], [WriteOutcome::Appended(_), WriteOutcome::Refused(WriteRefusal::Malformed(_))]),
        "it has begun by the append before, in one batch too: {written:?}"
    );
    journal.check_journal(new, &[record(1)]).await;
    assert_eq!(journal.take_over(new).await.last, 1);
}
