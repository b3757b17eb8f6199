//! Limits of models from a provider's list: which are known, and when the list is requested. Decides by an explicit
//! time and starts nothing.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::oneshot;

use crate::model::{ListedLimits, ModelLimits, Timestamp};

/// Milliseconds until a list that answered is requested again: a day.
pub(crate) const LIST_TTL_MS: u64 = 24 * 60 * 60 * 1_000;
/// Milliseconds until a list that did not answer is requested again: ten minutes, doubled with each failure in a row up
/// to [`LIST_TTL_MS`].
const FIRST_BACKOFF_MS: u64 = 10 * 60 * 1_000;
/// Most models whose limits are kept; others are not requested.
const MAX_MODELS: usize = 256;
/// Most concurrent requests.
const MAX_REQUESTS: usize = 8;

/// Receives the limits of a model, or `None` if they are not known.
pub(crate) type LimitsReply = oneshot::Sender<Option<ListedLimits>>;

/// The models of one provider whose limits a run needed.
#[derive(Debug, Default)]
pub(super) struct ModelLists(BTreeMap<Arc<str>, ListedModel>);

#[derive(Debug)]
struct ListedModel {
    limits: Option<ListedLimits>,
    /// Requests in a row that were not answered.
    failures: u32,
    /// Time of the next request; `None` while one is in flight.
    next_at: Option<Timestamp>,
    /// Whether a run needed the limits since the last request.
    is_used: bool,
    waiting: Vec<LimitsReply>,
}

impl ModelLists {
    /// A run needs the limits of a model. Replies at once, unless a request is in flight or due.
    pub(super) fn request(&mut self, model: Arc<str>, reply: LimitsReply, now: Timestamp) {
        if self.0.len() >= MAX_MODELS && !self.0.contains_key(&model) {
            return send(reply, None);
        }
        let entry = self.0.entry(model).or_insert_with(|| ListedModel {
            limits: None,
            failures: 0,
            next_at: Some(now),
            is_used: true,
            waiting: Vec::new(),
        });
        entry.is_used = true;
        match entry.next_at {
            Some(at) if at > now => send(reply, entry.limits),
            Some(_) | None => entry.waiting.push(reply),
        }
    }

    /// The next model to request now; counts as in flight from now on. A model that no run needed since its last
    /// request is forgotten.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Arc<str>> {
        if self.is_full() {
            return None;
        }
        let is_due = |entry: &ListedModel| entry.next_at.is_some_and(|at| at <= now);
        self.0.retain(|_, entry| entry.is_used || !is_due(entry));
        let (model, entry) = self.0.iter_mut().find(|(_, entry)| is_due(entry))?;
        (entry.next_at, entry.is_used) = (None, !entry.waiting.is_empty());
        Some(Arc::clone(model))
    }

    /// A request has ended; `None` if it was not answered.
    pub(super) fn on_end(&mut self, model: &str, limits: Option<ModelLimits>, now: Timestamp) {
        let Some(entry) = self.0.get_mut(model) else { return };
        let pause_ms = if let Some(limits) = limits {
            (entry.limits, entry.failures) = (Some(ListedLimits { at: now, limits }), 0);
            LIST_TTL_MS
        } else {
            let backoff_ms = FIRST_BACKOFF_MS.saturating_mul(1 << entry.failures.min(8));
            entry.failures = entry.failures.saturating_add(1);
            backoff_ms.min(LIST_TTL_MS)
        };
        entry.next_at = Some(now.plus_ms(pause_ms));
        entry.waiting.drain(..).for_each(|reply| send(reply, entry.limits));
    }

    /// The time of the next request; `None` while no further one may be in flight.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|entry| entry.next_at).min().filter(|_| !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.0.values().filter(|entry| entry.next_at.is_none()).count() >= MAX_REQUESTS
    }
}

fn send(reply: LimitsReply, limits: Option<ListedLimits>) {
    if reply.send(limits).is_err() {
        tracing::trace!("the limits of a model come too late for a run");
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const HOUR: i64 = 3_600_000;

    /// The window that a run gets that needs the limits at this time; pending if it waits.
    fn request(lists: &mut ModelLists, at: i64) -> Poll<Option<u64>> {
        let (reply, mut limits) = oneshot::channel();
        lists.request("m".into(), reply, Timestamp(at));
        match limits.try_recv() {
            Ok(listed) => Poll::Ready(listed.and_then(|listed| listed.limits.window)),
            Err(_) => Poll::Pending,
        }
    }

    fn end(lists: &mut ModelLists, window: Option<u64>, at: i64) {
        let limits = window.map(|window| ModelLimits { window: Some(window), max_output: None });
        lists.on_end("m", limits, Timestamp(at));
    }

    /// Checks the times of the requests in hourly steps until `until`, when runs need the limits at these times.
    #[track_caller]
    fn check(needs: &[i64], answers: impl Fn(usize) -> Option<u64>, until: i64, expect: &[i64]) {
        let (mut lists, mut requests) = (ModelLists::default(), Vec::new());
        for hour in 0..=until {
            if needs.contains(&hour) {
                let _window = request(&mut lists, hour * HOUR);
            }
            while lists.take_due(Timestamp(hour * HOUR)).is_some() {
                requests.push(hour);
                end(&mut lists, answers(requests.len()), hour * HOUR);
            }
        }
        assert_eq!(requests, expect, "needed at {needs:?}");
    }

    #[test]
    fn a_list_is_requested_daily_while_runs_need_it() {
        let answers = |_| Some(9);
        check(&[0], answers, 100, &[0, 24]);
        check(&[0, 30, 60, 90], answers, 100, &[0, 24, 48, 72, 96]);
        check(&[0, 80], answers, 100, &[0, 24, 80]);
    }

    #[test]
    fn a_list_that_does_not_answer_is_requested_more_and_more_rarely() {
        let always: Vec<i64> = (0..200).collect();
        check(&always, |_| None, 100, &[0, 1, 2, 3, 5, 8, 14, 25, 47, 71, 95]);
        check(&always, |count| (count == 3).then_some(9), 30, &[0, 1, 2, 26, 27, 28, 29]);
    }

    #[test]
    fn runs_share_a_request_and_a_backoff_keeps_none_waiting() {
        let mut lists = ModelLists::default();
        assert_eq!((request(&mut lists, 0), request(&mut lists, 0)), (Poll::Pending, Poll::Pending));
        assert_eq!(lists.take_due(Timestamp(0)).as_deref(), Some("m"));
        assert_eq!((lists.take_due(Timestamp(0)), request(&mut lists, 1)), (None, Poll::Pending));
        end(&mut lists, None, 2);
        assert_eq!(request(&mut lists, 3), Poll::Ready(None));
        assert_eq!(lists.take_due(Timestamp(600_002)).as_deref(), Some("m"));
        end(&mut lists, Some(9), 600_003);
        assert_eq!(request(&mut lists, 600_004), Poll::Ready(Some(9)));
        // A later failure keeps what is known.
        assert_eq!(lists.take_due(Timestamp(24 * HOUR + 600_003)).as_deref(), Some("m"));
        end(&mut lists, None, 24 * HOUR + 600_004);
        assert_eq!(request(&mut lists, 24 * HOUR + 600_005), Poll::Ready(Some(9)));
    }

    #[test]
    fn models_and_requests_are_bounded() {
        let mut lists = ModelLists::default();
        for n in 0..1_000 {
            let (reply, _) = oneshot::channel();
            lists.request(n.to_string().into(), reply, Timestamp(0));
        }
        assert_eq!((lists.0.len(), request(&mut lists, 0)), (MAX_MODELS, Poll::Ready(None)));
        let first = lists.take_due(Timestamp(0)).expect("it is due");
        assert_eq!(std::iter::from_fn(|| lists.take_due(Timestamp(0))).count(), MAX_REQUESTS - 1);
        assert_eq!(lists.next_at(), None, "the end of a request is waited for");
        lists.on_end(&first, None, Timestamp(1));
        assert_eq!(lists.next_at(), Some(Timestamp(0)));
    }
}
