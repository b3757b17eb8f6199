//! What a store says of questions that wait for a person.

use hermod_actors::{
    model::{CallId, RunRow, RunState},
    port::Read,
    questions,
};

use super::{fault::Fault, protocol::Approval, reader::Reader};

impl Reader {
    /// The questions of all parked runs, in the order of runs.
    pub async fn approvals(&self) -> Result<Vec<Approval>, Fault> {
        let mut open = Vec::new();
        for row in self.runs(Read::OpenRuns).await? {
            if row.state == RunState::Parked {
                open.extend(self.approvals_of(&row).await?);
            }
        }
        Ok(open)
    }

    /// The question that `id` names: a call, or a run that has one only.
    pub async fn asked(&self, id: &str) -> Result<(RunRow, CallId), Fault> {
        if let Ok(call) = id.parse::<CallId>() {
            return Ok((self.run(&call.run.to_string()).await?, call));
        }
        let row = self.run(id).await?;
        match self.approvals_of(&row).await?.as_slice() {
            [] => Err(Fault::usage(format!("run {} asks nobody; see `hermod approvals list`", row.id))),
            [only] => Ok((row, only.call)),
            several => {
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
