//! Invariants of subagents, in addition to those of all runs.

use std::collections::BTreeMap;

use super::invariants::{FinalState, Violations};
use hermod_actors::{
    model::{Body, InboxMessage, RunId, SessionId},
    port::InboxItem,
};

/// A parent run receives the end of each of its subagents exactly once; a force-failed parent at most once.
pub(super) fn ended_once(past: &FinalState<'_>) -> Violations {
    let mut ends = BTreeMap::<(SessionId, RunId), usize>::new();
    for (session, records) in &past.journals {
        for record in records {
            if let Body::ChildEnded(ended) = &record.body {
                *ends.entry((*session, ended.child.run)).or_default() += 1;
            }
        }
    }
    let mut found = Violations::new();
    for record in past.records() {
        let Body::RunAccepted(accepted) = &record.body else { continue };
        let Some(parent) = accepted.parent else { continue };
        let times = ends.remove(&(parent.session, accepted.run)).unwrap_or(0);
        if times != 1 && !(times == 0 && past.is_force_failed(parent.call.run)) {
            found.push(format!("{} of {} was heard {times} times", accepted.run, parent.call.run));
        }
    }
    found.extend(ends.keys().map(|(session, run)| format!("{run} was heard in {session} and not begun")));
    found
}

/// Inboxes are empty, except for items of force-failed runs and stops left over from an earlier life.
pub(super) fn inboxes_are_empty(past: &FinalState<'_>) -> Violations {
    let left = past.inboxes.iter().filter(|(session, item)| match InboxMessage::parse(item) {
        // No session is opened for an item of a run that is over.
        Ok(InboxMessage::ChildEnded { call, .. }) => !past.is_force_failed(call.run),
        Ok(InboxMessage::Stop { run, .. }) => {
            !is_of_force_failed(past, run) && !is_left_over(past, *session, item)
        }
        Err(_) => true,
    });
    left.map(|(session, item)| format!("{item} lies in the inbox of {session}")).collect()
}

/// Whether the item lay in the inbox when the present life began, in a session without an open run and without a record
/// since. A session that resumes reads its inbox, and a stop has no effect on an ended run.
fn is_left_over(past: &FinalState<'_>, session: SessionId, item: &InboxItem) -> bool {
    let records = past.journals.get(&session).map_or(0, Vec::len);
    past.inner.leftover_inboxes.iter().any(|(of, left, had)| (*of, left, *had) == (session, item, records))
}

fn is_of_force_failed(past: &FinalState<'_>, run: RunId) -> bool {
    past.records().any(|record| match &record.body {
        Body::RunAccepted(accepted) if accepted.run == run => {
            past.is_force_failed(run)
                || accepted.parent.is_some_and(|parent| past.is_force_failed(parent.call.run))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{external_world::ExternalWorld, plan::SimulationPlan},
        *,
    };
    use hermod_actors::model::{Outcome, OutcomeDetail, Record, RunEnded, StopReason, Timestamp, Usage};

    /// Checks whether a stop may lie in the inbox of a session with `records` records. `left` is the number of records
    /// the session had when the present life began with the stop in its inbox; `None` if it began without.
    #[track_caller]
    fn check(records: usize, left: Option<usize>, may_lie: bool) {
        let (session, run) = (SessionId::from_bits(1), RunId::from_bits(2));
        let item = InboxMessage::Stop { run, reason: StopReason::Parent }.to_json();
        let outside = ExternalWorld::new(0);
        let mut inner = outside.lock();
        inner.leftover_inboxes.extend(left.map(|had| (session, Arc::clone(&item), had)));
        let ended = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let body = Body::RunEnded(RunEnded { run, ended, iterations: 1, usage: Usage::default() });
        let record = Arc::new(Record { at: Timestamp::default(), active_ms: 0, body });
        let journals = BTreeMap::from([(session, vec![record; records])]);
        let plan = SimulationPlan::of(0);
        let (fates, inboxes) = (BTreeMap::new(), vec![(session, item)]);
        let queues = Vec::new();
        let past = FinalState { journals, inboxes, fates, queues, inner: &inner, plan: &plan };
        assert_eq!(inboxes_are_empty(&past).is_empty(), may_lie);
    }

    #[test]
    fn a_stop_is_left_over_only_if_nobody_came_to_its_session_since_a_process_died() {
        check(5, Some(5), true);
        check(5, Some(4), false);
        check(5, None, false);
    }
}
