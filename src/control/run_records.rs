//! The records of one run, for clients: those of its session from its acceptance to its end that are its own, or the
//! session's.

use hermod_actors::{
    model::{RecordJson, RunRow, RunState, Seq},
    port::StoredRecord,
};
use tokio::sync::mpsc;

use super::{
    error::RequestError,
    handler::{RequestHandler, send},
    protocol::ControlResponse,
    reader::{PAGE_RECORDS, StoreReader},
};

/// A page of a run's records.
#[derive(Debug)]
pub struct RunRecords {
    /// The records, in order.
    pub records: Vec<StoredRecord>,
    /// The number from which the next page goes on; `None` after the last record.
    pub next: Option<Seq>,
}

impl StoreReader {
    /// A page of a run's records, from the number `from` of its session on; `None` is the first record of the run.
    pub async fn run_records(&self, row: &RunRow, from: Option<Seq>) -> Result<RunRecords, RequestError> {
        let from = from.unwrap_or(row.first).max(row.first).max(1);
        let last = if row.state == RunState::Ended { row.last } else { Seq::MAX };
        let page = self.page(row.session, from, PAGE_RECORDS).await?;
        let end = page.last().map(|stored| stored.seq);
        let is_over = page.len() < PAGE_RECORDS || end.is_some_and(|end| end >= last);
        let is_own = |stored: &StoredRecord| {
            stored.seq <= last && stored.record.body.run().is_none_or(|run| run == row.id)
        };
        let records = page.into_iter().filter(is_own).collect();
        Ok(RunRecords { records, next: end.filter(|_| !is_over).map(|end| end + 1) })
    }
}

impl RequestHandler {
    /// Sends the records of the run that `id` names; `None` if the client is gone.
    pub(super) async fn send_run_records(
        &self,
        id: &str,
        from: Option<Seq>,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let row = self.reader().run(id).await?;
        let mut next = from;
        loop {
            let page = self.reader().run_records(&row, next).await?;
            for StoredRecord { seq, record, .. } in page.records {
                let record = RecordJson::new(&record).map_err(|error| {
                    RequestError::internal(format!("record {seq} cannot be shown as JSON: {error}"))
                })?;
                if !send(to, ControlResponse::RunRecord { seq, record }).await {
                    return Ok(None);
                }
            }
            next = page.next;
            if next.is_none() {
                return Ok(Some(ControlResponse::End {}));
            }
        }
    }
}
