//! Cases of the journal contract: messages of the outbox, and the states of their deliveries.

use std::{collections::BTreeSet, sync::Arc};

use hermod_actors::{
    model::{
        CallId, Delivery, DeliveryQuery, DeliveryState, Incarnation, OutboxContent, OutboxMessage,
        StoredDelivery, Timestamp,
    },
    port::{Append, IndexRow, WriteOp, WriteOutcome, WriteRefusal},
};

use super::subject::{Subject, check, one, run, session};

fn message(n: u32, target: &str) -> OutboxMessage {
    let call = CallId { run: run(1), iteration: 1, n };
    OutboxMessage {
        id: OutboxMessage::id_of_call(call),
        target: target.into(),
        session: session(1),
        run: run(1),
        created_at: Timestamp(10),
        content: OutboxContent::Message {
            call,
            text: format!("text {n}").into(),
            attachments: Arc::default(),
        },
    }
}

fn sending(fence: Incarnation, expected: u64, messages: &[OutboxMessage]) -> Append {
    let rows = messages.iter().map(|message| IndexRow::Outbox(Box::new(message.clone())));
    Append { index: rows.collect(), ..one(session(1), fence, expected) }
}

/// The numbers of the messages in a state, by the numbers of their calls.
async fn in_state(journal: &Subject, state: DeliveryState, target: Option<&str>) -> Vec<StoredDelivery> {
    let query = DeliveryQuery { target: target.map(Into::into), ..DeliveryQuery::of_state(state, 100) };
    journal.rows().deliveries(query).await.expect("it can be read")
}

fn calls(found: &[StoredDelivery]) -> Vec<u32> {
    let n = |stored: &StoredDelivery| match stored.delivery.message.content {
        OutboxContent::Message { call, .. } => call.n,
        OutboxContent::Result { .. } | OutboxContent::Notice { .. } => 0,
    };
    found.iter().map(n).collect()
}

async fn write(journal: &Subject, write: WriteOp) -> bool {
    match journal.batch(vec![write]).await[..] {
        [WriteOutcome::DeliveryUpdated(is_updated)] => is_updated,
        ref other => panic!("{other:?}"),
    }
}

async fn update(journal: &Subject, stored: &StoredDelivery, change: impl FnOnce(&mut Delivery)) -> bool {
    let mut stored = stored.clone();
    change(&mut stored.delivery);
    write(journal, WriteOp::UpdateDelivery(Box::new(stored))).await
}

pub(super) async fn messages_wait_in_their_order(mut journal: Subject) {
    use DeliveryState::{Dead, Delivered, Pending};
    let fence = journal.take_over(session(1)).await.incarnation;
    journal.append(sending(fence, 1, &[message(1, "b"), message(2, "a"), message(3, "b")])).await;
    journal.reopen();
    let fence = journal.take_over(session(1)).await.incarnation;
    journal.append(sending(fence, 2, &[message(4, "b")])).await;
    assert_eq!(calls(&in_state(&journal, Pending, None).await), [1, 2, 3, 4]);
    assert_eq!(calls(&in_state(&journal, Pending, Some("b")).await), [1, 3, 4]);
    assert_eq!(in_state(&journal, Pending, Some("c")).await, []);
    assert_eq!(
        (in_state(&journal, Dead, None).await, in_state(&journal, Delivered, None).await),
        (vec![], vec![])
    );
    let first = DeliveryQuery { target: Some("b".into()), ..DeliveryQuery::of_state(Pending, 1) };
    let found = journal.rows().deliveries(first).await.expect("it can be read");
    assert_eq!(calls(&found), [1]);
    assert_eq!(found[0].delivery, Delivery::new(message(1, "b")));
    let known = DeliveryQuery { id: Some(message(3, "b").id), ..DeliveryQuery::of_state(Pending, 1) };
    assert_eq!(calls(&journal.rows().deliveries(known).await.expect("it can be read")), [3]);
    let all = DeliveryQuery::of_state(Pending, 2);
    let except = |targets: &[&str]| targets.iter().map(|target| (*target).into()).collect::<BTreeSet<_>>();
    let queries = [
        (DeliveryQuery { except: Some(except(&["a"]).into()), ..all.clone() }, vec![1, 3]),
        (DeliveryQuery { except: Some(except(&["a", "b"]).into()), ..all.clone() }, vec![]),
        (DeliveryQuery { run: Some(run(1)), ..all.clone() }, vec![1, 2]),
        (DeliveryQuery { run: Some(run(2)), ..all }, vec![]),
    ];
    for (query, expect) in queries {
        assert_eq!(calls(&journal.rows().deliveries(query).await.expect("it can be read")), expect);
    }
}

pub(super) async fn a_refused_append_sends_nothing(journal: Subject) {
    let fence = journal.take_over(session(1)).await.incarnation;
    let refusal = WriteRefusal::WrongSeq { expected: 5, last: 0 };
    journal.check_refused(sending(fence, 5, &[message(1, "b")]), refusal).await;
    let all = DeliveryQuery::of_state(DeliveryState::Pending, 9);
    check(journal.rows().deliveries(all), Vec::new()).await;
}

pub(super) async fn a_delivery_ends_once_and_a_dead_one_can_be_retried(mut journal: Subject) {
    use DeliveryState::{Dead, Delivered, Pending};
    let fence = journal.take_over(session(1)).await.incarnation;
    journal.append(sending(fence, 1, &[message(1, "b"), message(2, "b"), message(3, "b")])).await;
    let pending = in_state(&journal, Pending, None).await;
    assert!(
        update(&journal, &pending[0], |delivery| {
            (delivery.attempts, delivery.next_at) = (1, Some(Timestamp(99)));
        })
        .await
    );
    journal.reopen();
    let again = in_state(&journal, Pending, None).await;
    assert_eq!((again[0].number, again[0].delivery.attempts), (pending[0].number, 1));
    assert_eq!(again[0].delivery.next_at, Some(Timestamp(99)));
    let end = |state| {
        move |delivery: &mut Delivery| {
            (delivery.state, delivery.ended_at) = (state, Some(Timestamp(100)));
        }
    };
    assert!(update(&journal, &again[0], end(Dead)).await);
    assert!(update(&journal, &again[1], end(Delivered)).await);
    assert!(!update(&journal, &again[0], end(Delivered)).await, "it is not pending any more");
    assert_eq!(calls(&in_state(&journal, Pending, None).await), [3]);
    assert_eq!(calls(&in_state(&journal, Delivered, Some("b")).await), [2]);
    let dead = in_state(&journal, Dead, None).await;
    assert_eq!(calls(&dead), [1]);
    assert!(write(&journal, WriteOp::RetryDelivery(dead[0].number, Timestamp(200))).await);
    assert!(!write(&journal, WriteOp::RetryDelivery(dead[0].number, Timestamp(200))).await);
    assert!(
        !write(&journal, WriteOp::RetryDelivery(again[1].number, Timestamp(200))).await,
        "it is delivered"
    );
    let pending = in_state(&journal, Pending, None).await;
    assert_eq!(calls(&pending), [3, 1], "it is behind the others");
    let expect = Delivery { since: Timestamp(200), ..Delivery::new(message(1, "b")) };
    assert_eq!(pending[1].delivery, expect);
}
