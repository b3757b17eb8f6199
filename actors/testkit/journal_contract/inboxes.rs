//! Cases of the journal contract: inbox messages wait until an append consumes them.

use super::subject::{Subject, appended, check, one, record, session, session_row};
use hermod_actors::port::{Append, IndexRow, WriteOp, WriteOutcome, WriteRefusal};

async fn deliver(journal: &Subject, to: u128, item: &str) -> u64 {
    match journal.batch(vec![WriteOp::Deliver(session(to), item.into())]).await[..] {
        [WriteOutcome::Delivered(row)] => row,
        ref other => panic!("{other:?}"),
    }
}

pub(super) async fn items_wait_until_they_are_taken(mut journal: Subject) {
    let first = deliver(&journal, 1, "\"a\"").await;
    let second = deliver(&journal, 1, "\"b\"").await;
    deliver(&journal, 2, "\"other\"").await;
    assert!(first < second);
    journal.reopen();
    let opened = journal.take_over(session(1)).await;
    assert_eq!(opened.inbox, journal.check_inbox(session(1), &["\"a\"", "\"b\""]).await);
    assert_eq!(opened.inbox[0].id, first);
    let taking = Append {
        consumed: vec![first],
        deliver: vec![(session(2), "\"from 1\"".into()), (session(1), "\"to itself\"".into())],
        ..one(session(1), opened.incarnation, 1)
    };
    let batch = vec![WriteOp::Append(Box::new(taking)), WriteOp::Open(session(2))];
    let mut written = journal.batch(batch).await;
    let Some(WriteOutcome::Opened(other)) = written.pop() else { panic!("{written:?}") };
    assert_eq!(other.inbox.len(), 2, "an opening sees what stands before it in its batch");
    assert_eq!(appended(written.remove(0)).last, 1);
    journal.check_inbox(session(1), &["\"b\"", "\"to itself\""]).await;
    journal.check_inbox(session(2), &["\"other\"", "\"from 1\""]).await;
    journal.check_inbox(session(3), &[]).await;
}

pub(super) async fn only_rows_that_wait_can_be_taken(journal: Subject) {
    let row = deliver(&journal, 1, "1").await;
    let foreign = deliver(&journal, 2, "2").await;
    let fence = journal.take_over(session(1)).await.incarnation;
    let taking = |expected, take| Append { consumed: take, ..one(session(1), fence, expected) };
    journal.check_malformed(taking(1, vec![row + 1_000])).await;
    journal.check_malformed(taking(1, vec![foreign])).await;
    journal.check_malformed(taking(1, vec![row, row])).await;
    journal.check_inbox(session(1), &["1"]).await;
    journal.append(taking(1, vec![row])).await;
    journal.check_inbox(session(1), &[]).await;
    journal.check_malformed(taking(2, vec![row])).await;
    journal.check_inbox(session(2), &["2"]).await;
}

pub(super) async fn rows_can_be_taken_without_a_record(mut journal: Subject) {
    let id = session(1);
    let rows = [deliver(&journal, 1, "1").await, deliver(&journal, 1, "2").await];
    let fence = journal.take_over(id).await.incarnation;
    let taking = |expected, take| Append { consumed: take, ..Append::new(id, fence, expected, Vec::new()) };
    journal.check_malformed(taking(1, vec![rows[1] + 1_000])).await;
    assert_eq!(journal.append(taking(1, vec![rows[0]])).await.last, 0);
    journal.check_inbox(id, &["2"]).await;
    journal.append(one(id, fence, 1)).await;
    journal.check_refused(taking(1, vec![rows[1]]), WriteRefusal::WrongSeq { expected: 1, last: 1 }).await;
    let mut append = taking(2, vec![rows[1]]);
    append.deliver = vec![(session(2), "\"taken\"".into())];
    append.index = vec![IndexRow::Session(session_row(1, "one"))];
    let batch = vec![WriteOp::Append(Box::new(append)), WriteOp::Open(id)];
    let mut written = journal.batch(batch).await;
    let Some(WriteOutcome::Opened(opened)) = written.pop() else { panic!("{written:?}") };
    assert_eq!((opened.last, opened.inbox.len()), (1, 0));
    assert_eq!(appended(written.remove(0)).last, 1, "the last one there is");
    journal.check_refused(taking(2, vec![rows[1]]), WriteRefusal::Fenced(opened.incarnation)).await;
    journal.append(Append { fence: opened.incarnation, ..one(id, fence, 2) }).await;
    journal.reopen();
    journal.check_journal(id, &[record(1), record(2)]).await;
    journal.check_inbox(id, &[]).await;
    journal.check_inbox(session(2), &["\"taken\""]).await;
    check(journal.rows().session(id), Some(session_row(1, "one"))).await;
}

pub(super) async fn numbers_are_never_used_again(mut journal: Subject) {
    let mut before = 0;
    for expected in 1..=3 {
        let row = deliver(&journal, 1, "0").await;
        assert!(row > before, "{row} after {before}");
        let fence = journal.take_over(session(1)).await.incarnation;
        journal.append(Append { consumed: vec![row], ..one(session(1), fence, expected) }).await;
        before = row;
        journal.reopen();
    }
}

pub(super) async fn a_session_with_something_in_its_inbox_is_not_let_go(journal: Subject) {
    let fence = journal.take_over(session(1)).await.incarnation;
    deliver(&journal, 2, "2").await;
    let batch = vec![WriteOp::Deliver(session(1), "1".into()), WriteOp::Close(session(1), fence)];
    let written = journal.batch(batch).await;
    let [WriteOutcome::Delivered(row), WriteOutcome::Closed(false)] = written[..] else {
        panic!("{written:?}")
    };
    let taking = Append { consumed: vec![row], ..one(session(1), fence, 1) };
    let batch = vec![WriteOp::Append(Box::new(taking)), WriteOp::Close(session(1), fence)];
    let written = journal.batch(batch).await;
    let [WriteOutcome::Appended(_), WriteOutcome::Closed(true)] = &written[..] else { panic!("{written:?}") };
    deliver(&journal, 1, "later").await;
    assert_eq!(journal.take_over(session(1)).await.inbox.len(), 1);
}
