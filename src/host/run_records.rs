//! Reads the records of a run at the owner of the store, or in the store if there is no owner.

use std::sync::Arc;

use hermod_actors::model::{RunId, Seq};
use tokio::time::sleep;

use super::{
    error::HostError,
    handover::DecodedRecord,
    store_client::{MAX_TRIES, RETRY_DELAY, StoreAccess, StoreClient},
};
use crate::{
    control::{AskError, ControlRequest, ControlResponse, RequestError, RunRecords, StoreReader},
    store::redb::RedbJournal,
};

impl StoreClient {
    /// Passes the records of a run to `each`, in order, with those of its session that lie between. It goes on at the
    /// same record if the owner ends meanwhile.
    pub async fn run_records<E: From<HostError> + ToString>(
        &self,
        run: RunId,
        mut each: impl FnMut(Seq, DecodedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut next, mut failure, mut disconnects) = (None, None, 0);
        loop {
            let mut client = match self.access().await? {
                StoreAccess::Owner(client) => client,
                StoreAccess::Store(journal) => {
                    let page = page(journal, run, next).await?;
                    for stored in page.records {
                        each(stored.seq, Ok(stored.record))?;
                    }
                    next = page.next;
                    if next.is_none() {
                        return Ok(());
                    }
                    continue;
                }
            };
            let request = ControlRequest::RunsRecords { run: run.to_string(), from: next };
            let take_response = |answer| {
                let ControlResponse::RunRecord { seq, record } = answer else { return Ok(()) };
                next = Some(seq + 1);
                let record = record.decode().map(Arc::new).map_err(|error| error.to_string());
                each(seq, record).map_err(|error| {
                    let rejection = RequestError::usage(error.to_string());
                    failure = Some(error);
                    rejection
                })
            };
            match client.request(&request, take_response).await {
                Ok(_) => return Ok(()),
                Err(AskError::Disconnected) if disconnects < MAX_TRIES => {
                    disconnects += 1;
                    sleep(RETRY_DELAY).await;
                }
                Err(AskError::Disconnected) => return Err(self.unreachable_owner().into()),
                Err(AskError::Rejected(error)) => {
                    return Err(failure.take().unwrap_or_else(|| HostError::from(error).into()));
                }
            }
        }
    }
}

/// A page of records from the store opened here, which is closed before they are shown.
async fn page(journal: Arc<RedbJournal>, run: RunId, from: Option<Seq>) -> Result<RunRecords, HostError> {
    let reader = StoreReader::new(journal);
    let row = reader.run(&run.to_string()).await?;
    Ok(reader.run_records(&row, from).await?)
}
