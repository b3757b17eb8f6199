//! Cases of the journal contract: the feed.

use hermod_actors::{
    model::{Seq, SessionId},
    port::{Append, FeedCursor, FeedEntry, WriteOp},
};

use super::subject::{Subject, one, session};

async fn entries(journal: &Subject, after: FeedCursor, max: usize) -> Vec<FeedEntry> {
    journal.rows().feed(after, max).await.expect("the feed")
}

fn places(entries: &[FeedEntry]) -> Vec<(SessionId, Seq)> {
    entries.iter().map(|entry| (entry.session, entry.seq)).collect()
}

pub(super) async fn all_sessions_are_in_one_order(mut journal: Subject) {
    let [a, b] = [session(1), session(2)];
    let (in_a, in_b) = (journal.take_over(a).await.incarnation, journal.take_over(b).await.incarnation);
    assert_eq!(entries(&journal, FeedCursor::default(), 9).await, []);
    assert_eq!(journal.rows().feed_end().await, Ok(FeedCursor::default()));
    let double =
        Append { records: [one(a, in_a, 1).records, one(a, in_a, 2).records].concat(), ..one(a, in_a, 1) };
    journal.append(double).await;
    let batch = [one(b, in_b, 1), one(a, in_a, 3)].map(|append| WriteOp::Append(Box::new(append)));
    journal.batch(batch.into()).await;
    let all = [(a, 1), (a, 2), (b, 1), (a, 3)];
    for _ in 0..2 {
        let feed = entries(&journal, FeedCursor::default(), 9).await;
        assert_eq!(places(&feed), all);
        assert!(feed.iter().all(|entry| entry.record.is_ok()));
        assert!(feed.is_sorted_by(|a, b| a.cursor < b.cursor));
        assert_eq!(journal.rows().feed_end().await, Ok(feed[3].cursor));
        // From each place on, in steps of each size.
        for (n, entry) in (1..).zip(&feed) {
            assert_eq!(places(&entries(&journal, entry.cursor, 9).await), all[n..]);
            assert_eq!(
                places(&entries(&journal, entry.cursor, 1).await),
                all[n..].iter().copied().take(1).collect::<Vec<_>>()
            );
        }
        journal.reopen();
    }
}
