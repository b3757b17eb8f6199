//! What must hold of subagents beside what must hold of all runs.

use std::collections::BTreeMap;

use super::judge::{Found, Past};
use crate::model::{Body, Inbox, RunId, SessionId};

/// Whoever works for a run is heard by it, once; of a run that others have ended, at most once.
pub(super) fn heard_once(past: &Past<'_>) -> Found {
    let mut heard = BTreeMap::<(SessionId, RunId), usize>::new();
    for (session, records) in &past.journals {
        for record in records {
            if let Body::ChildEnded(ended) = &record.body {
                *heard.entry((*session, ended.child.run)).or_default() += 1;
            }
        }
    }
    let mut found = Found::new();
    for record in past.records() {
        let Body::RunAccepted(accepted) = &record.body else { continue };
        let Some(parent) = accepted.parent else { continue };
        let times = heard.remove(&(parent.session, accepted.run)).unwrap_or(0);
        if times != 1 && !(times == 0 && past.is_buried(parent.call.run)) {
            found.push(format!("{} of {} was heard {times} times", accepted.run, parent.call.run));
        }
    }
    found.extend(heard.keys().map(|(session, run)| format!("{run} was heard in {session} and not begun")));
    found
}

/// Nothing lies in an inbox that anybody could want.
pub(super) fn all_is_heard(past: &Past<'_>) -> Found {
    let left = past.inboxes.iter().filter(|(_, item)| match Inbox::read(item) {
        // Nobody opens a session for what concerns a run that is over.
        Ok(Inbox::ChildEnded { call, .. }) => !past.is_buried(call.run),
        Ok(Inbox::Stop { run, .. }) => !works_for_a_buried(past, run),
        Err(_) => true,
    });
    left.map(|(session, item)| format!("{item} lies in the inbox of {session}")).collect()
}

fn works_for_a_buried(past: &Past<'_>, run: RunId) -> bool {
    past.records().any(|record| match &record.body {
        Body::RunAccepted(accepted) if accepted.run == run => {
            past.is_buried(run) || accepted.parent.is_some_and(|parent| past.is_buried(parent.call.run))
        }
        _ => false,
    })
}
