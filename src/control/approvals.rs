//! What a store says of questions that wait for a person.

use hermod_actors::{
    RunError,
    model::{CallId, RunRow, RunState},
    port::{Clock, Read},
    questions,
};

use super::{
    fault::{Fault, FaultKind},
    protocol::Approval,
    reader::Reader,
};
use crate::clock::{SystemClock, rfc3339};

impl Reader {
    /// The questions of all parked runs, in the order of runs; not of those that this program cannot read.
    pub async fn approvals(&self) -> Result<Vec<Approval>, Fault> {
        let mut open = Vec::new();
        for row in self.runs(Read::OpenRuns).await? {
            if row.state == RunState::Parked && self.quarantined(row.session).await?.is_none() {
                open.extend(self.approvals_of(&row).await?);
            }
        }
        Ok(open)
    }

    /// The question that `id` names, which can be answered still: a call, or a run that has one only.
    pub async fn asked(&self, id: &str) -> Result<(RunRow, CallId), Fault> {
        let call = id.parse::<CallId>().ok();
        let row = match call {
            Some(call) => self.run(&call.run.to_string()).await?,
            None => self.run(id).await.map_err(|fault| no_call(id, fault))?,
        };
        let mut open = self.approvals_of(&row).await?;
        open.retain(|approval| call.is_none_or(|call| approval.call == call));
        let now = SystemClock::default().at();
        let (open, late): (Vec<_>, Vec<_>) = open.into_iter().partition(|approval| approval.expires_at > now);
        match (call, open.as_slice()) {
            (_, []) if let [late, ..] = late.as_slice() => Err(Fault::usage(format!(
                "the question about call {} was open until {}, and silence is a no; run {run} goes on with `hermod runs \
                 resume {run}`",
                late.call,
                rfc3339(late.expires_at),
                run = row.id,
            ))),
            (Some(call), []) => Err(RunError::NotAsked(call).into()),
            (None, []) => {
                Err(Fault::usage(format!("run {} asks nobody; see `hermod approvals list`", row.id)))
            }
            (_, [only]) => Ok((row, only.call)),
            (_, several) => {
                let calls: Vec<String> = several.iter().map(|approval| approval.call.to_string()).collect();
                Err(Fault::usage(format!(
                    "run {} asks about several calls; name one: {}",
                    row.id,
                    calls.join(", ")
                )))
            }
        }
    }

    async fn approvals_of(&self, row: &RunRow) -> Result<Vec<Approval>, Fault> {
        let mut records = Vec::new();
        self.records(row.session, 1, |(_, record)| {
            records.push(record);
            Ok::<(), Fault>(())
        })
        .await?;
        let open = questions(row.session, records.iter()).into_iter();
        Ok(open
            .map(|question| Approval {
                call: question.request.call,
                session: row.session,
                question: question.request.question,
                since: question.since,
                expires_at: question.request.expires_at,
            })
            .collect())
    }
}

/// What looks like a call's id and is none.
fn no_call(id: &str, fault: Fault) -> Fault {
    match id.parse::<CallId>() {
        Err(error) if id.contains('.') && fault.kind == FaultKind::Usage => {
            Fault::usage(format!("{error}; see `hermod approvals list`"))
        }
        Ok(_) | Err(_) => fault,
    }
}
