//! The views of runs, from their rows and records and with what the runtime of this process knows.

use hermod_actors::model::{RunRow, SessionId};

use super::{
    error::{RequestError, RequestErrorKind},
    handler::RequestHandler,
    protocol::ControlResponse,
    reader::not_accepted,
    run_filter::RunFilter,
    run_folds::RunDetailFold,
    tree::{has_process, run_view, run_waits},
};
use crate::view::{RunDetailView, RunSummaryView, RunView};

impl RequestHandler {
    /// The newest runs of a session, or of all.
    pub(super) async fn runs(
        &self,
        session: Option<SessionId>,
        max: usize,
    ) -> Result<Vec<RunView>, RequestError> {
        let mut runs = Vec::new();
        for row in self.reader().read(|rows| rows.runs(session, max)).await? {
            runs.push(self.view(row).await?);
        }
        Ok(runs)
    }

    /// The newest runs that fit, as lists show them.
    pub(super) async fn list_runs(
        &self,
        max: usize,
        filter: &RunFilter,
    ) -> Result<ControlResponse, RequestError> {
        let mut summaries = Vec::new();
        for row in self.reader().newest_runs(max, filter).await? {
            summaries.push(self.summary(row).await?);
        }
        Ok(ControlResponse::Runs(summaries))
    }

    /// A run as lists show it.
    pub async fn summary(&self, row: RunRow) -> Result<RunSummaryView, RequestError> {
        // A session that cannot be read must not hide the other runs.
        let mut unreadable = None;
        let mut tolerate = |error: RequestError| {
            if error.kind != RequestErrorKind::Store {
                return Err(error);
            }
            unreadable = Some(error.text);
            Ok(())
        };
        let accepted = self.reader().acceptance(&row).await.map(Some);
        let accepted = accepted.or_else(|error| tolerate(error).map(|()| None))?;
        let spent_usd = self.spent_usd(&row).await.or_else(|error| tolerate(error).map(|()| None))?;
        let has_process = has_process(&row, self.health().as_ref()).await;
        let title = self.title(&row).await;
        let summary = RunSummaryView::new(self.view(row).await?, accepted.as_ref());
        Ok(RunSummaryView { title, spent_usd, has_process, unreadable, ..summary })
    }

    /// The title of a run's session. A row that cannot be read has none, and hides nothing else.
    async fn title(&self, row: &RunRow) -> Option<String> {
        let session = self.reader().read(|rows| rows.session(row.session)).await.ok().flatten();
        session.and_then(|session| session.title).map(|title| title.to_string())
    }

    /// Money booked on a run's account, including its subagents; `None` if no price was known.
    async fn spent_usd(&self, row: &RunRow) -> Result<Option<u64>, RequestError> {
        let account = self.reader().read(|rows| rows.account(row.id.into())).await?;
        Ok(account.and_then(|account| account.spent.usd))
    }

    /// The view of a run with current counts.
    pub(super) async fn view(&self, row: RunRow) -> Result<RunView, RequestError> {
        let row = self.reader().with_current_counts(row).await?;
        Ok(run_view(row, self.health().as_ref()).await)
    }

    /// All details of the run that `id` names.
    pub async fn run(&self, id: &str) -> Result<RunDetailView, RequestError> {
        let row = self.reader().run(id).await?;
        let mut detail = RunDetailFold::new(&row);
        let damage = self.reader().readable_records(row.session, 1, |_, record| detail.take(record)).await?;
        let accepted = match (damage, detail.accepted) {
            (None, Some(accepted)) => accepted,
            (damage, _) => {
                let reason = damage.unwrap_or_else(|| not_accepted(&row).text);
                return Ok(RunDetailView::unreadable(self.view(row).await?, reason));
            }
        };
        let health = self.health();
        let waits = match &detail.waits {
            Some(tracker) => run_waits(&row, tracker, health.as_ref()).await,
            None => Vec::new(),
        };
        // What the account lacks is no reason to hide the rest.
        let spent_usd = self.spent_usd(&row).await.unwrap_or(None);
        let title = self.title(&row).await;
        let mut run = run_view(row, health.as_ref()).await;
        if run.ended.is_none() {
            (run.iterations, run.usage) = (detail.counts.iterations, detail.counts.usage);
        }
        Ok(RunDetailView {
            run,
            title,
            waits,
            cost: detail.bill.nano_usd(),
            spent_usd,
            unpriced: detail.bill.unpriced().to_vec(),
            input: accepted.input.to_string(),
            last_text: detail.last_text,
            spec: Some((*accepted.spec).clone()),
            unreadable: None,
        })
    }
}
