//! Checks that the outbox rows of each append are those of the calls and runs that end in it: none is missing, none is
//! there twice.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{hold, world::World};
use crate::{
    journal::{Append, IndexRow},
    model::{Body, CallId, CallStatus, OutboxContent, OutboxMessage, Record, RunId},
    policy::message::MESSAGE,
};

impl World {
    /// Checks the rows of an append whose records are in the journal.
    pub(super) fn outbox_agrees(&mut self, decision: &Append) -> Result<(), String> {
        let mut expected = BTreeSet::new();
        for (n, record) in decision.records.iter().enumerate() {
            match &record.body {
                Body::CallEnded(ended)
                    if self.is_message(ended.call) && ended.end.status == CallStatus::Ok =>
                {
                    hold!(ended.attempt == 0, "a message was started: {ended:?}");
                    let result: Value = serde_json::from_str(&ended.end.content).unwrap_or_default();
                    // An equal call of the same answer has the id of the first.
                    expected.insert(result["id"].as_str().unwrap_or("none").to_owned());
                }
                Body::RunEnded(ended) => {
                    // The run may be reopened in the same append.
                    let later = reopenings(ended.run, &decision.records[n..]);
                    let leg = self.leg(ended.run) - later;
                    let ids = self.targets(ended.run).into_iter();
                    let ids = ids.map(|to| OutboxMessage::id_of_result(ended.run, leg, &to).to_string());
                    expected.extend(ids);
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        for row in &decision.index {
            let IndexRow::Outbox(message) = row else { continue };
            if let OutboxContent::Message { call, .. } = &message.content {
                hold!(message.id == OutboxMessage::id_of_call(*call), "{message:?} has another id");
            }
            hold!(self.sent.insert(message.id.to_string()), "{message:?} is sent twice");
            found.push(message.id.to_string());
        }
        hold!(
            found.iter().collect::<BTreeSet<_>>() == expected.iter().collect(),
            "{found:?}, not {expected:?}"
        );
        Ok(())
    }

    fn is_message(&self, call: CallId) -> bool {
        self.journal.iter().any(|record| {
            matches!(&record.body, Body::CallAdmitted(admitted) if admitted.call == call && *admitted.tool == *MESSAGE)
        })
    }

    fn targets(&self, run: RunId) -> Vec<String> {
        let spec = self.journal.iter().find_map(|record| match &record.body {
            Body::RunAccepted(accepted) if accepted.run == run => Some(&accepted.spec),
            _ => None,
        });
        spec.map(|spec| spec.deliver_to.clone()).unwrap_or_default()
    }

    /// The leg of the run that its last end ends.
    fn leg(&self, run: RunId) -> u32 {
        let records: Vec<_> = self.journal.iter().map(|record| Arc::clone(record)).collect();
        reopenings(run, &records) + 1
    }
}

/// How often these records reopen the run.
fn reopenings(run: RunId, records: &[Arc<Record>]) -> u32 {
    let reopened = |body: &Body| matches!(body, Body::RunReopened(reopened) if reopened.run == run);
    u32::try_from(records.iter().filter(|record| reopened(&record.body)).count()).unwrap_or(u32::MAX)
}
