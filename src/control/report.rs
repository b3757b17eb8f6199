//! Reports what happened in a time, by the rows of all runs and the records of those that were under way in it. The
//! money is that of the accounts: of a run that lies within the time, its account; of another one, its records.

use std::collections::BTreeMap;

use hermod_actors::model::{
    AgentName, DeliveryQuery, DeliveryState, Outcome, OutcomeCause, OutcomeDetail, RunId, RunRow, RunState,
    StoreLimits, Timestamp,
};

use super::{
    continuation::{BudgetUsage, continuation},
    error::RequestError,
    handler::RequestHandler,
    protocol::ControlResponse,
    report_cost::{CostTotals, RunCostFold},
    report_schedules::report_schedules,
    tree::has_process,
};
use crate::{
    clock,
    view::{
        ApprovalView, DeliveryView, ReportAgentView, ReportList, ReportRunView, ReportRunsView, ReportView,
        ReportWaitKind, ReportWaitView, RunSummaryView,
    },
};

/// Items of each list.
const MAX_ITEMS: usize = 10;
/// Kinds of failures: a page of a morning shows them all.
const MAX_FAILURES: usize = 50;
/// Dead letters that are counted.
const MAX_DEAD_LETTERS: usize = 1_000;

/// The report under construction.
struct ReportBuilder<'h> {
    handler: &'h RequestHandler,
    since: Timestamp,
    until: Timestamp,
    now: Timestamp,
    runs: ReportRunsView,
    agents: BTreeMap<AgentName, AgentTotals>,
    costs: CostTotals,
    failed: Vec<ReportRunView>,
    /// Failed runs that are like none of `failed`, which has as many as are shown.
    other_failures: u64,
    budgets: Vec<ReportWaitView>,
}

#[derive(Default)]
struct AgentTotals {
    runs: u64,
    completed: u64,
    /// Signed: what subagents spent is on the accounts above them too.
    nano_usd: i128,
}

impl RequestHandler {
    /// What happened from `since` until `until`. The limits count only without a runtime that has its own.
    pub async fn report(
        &self,
        (since, until): (Timestamp, Timestamp),
        limits: StoreLimits,
    ) -> Result<ReportView, RequestError> {
        let now = clock::now();
        let mut report = ReportBuilder {
            handler: self,
            since,
            until,
            now,
            runs: ReportRunsView::default(),
            agents: BTreeMap::new(),
            costs: CostTotals::default(),
            failed: Vec::new(),
            other_failures: 0,
            budgets: Vec::new(),
        };
        let mut pages = self.reader().run_pages();
        while let Some(page) = pages.next().await? {
            for row in page.into_iter().rev().filter(|row| row.accepted_at < until) {
                let is_over = row.ended.is_some() && row.ended_at.is_some_and(|ended_at| ended_at < since);
                if !is_over {
                    report.add(row).await?;
                }
            }
        }
        report.build(limits).await
    }
}

impl ReportBuilder<'_> {
    /// Adds a run that was under way in the time.
    async fn add(&mut self, row: RunRow) -> Result<(), RequestError> {
        let ended = row.ended.as_ref().filter(|_| row.ended_at.is_none_or(|at| at < self.until));
        let outcome = ended.map(|ended| ended.outcome);
        let mut cost = RunCostFold::new((self.since, self.until), row.parent.is_some());
        let is_readable = self.fold_records(&row, &mut cost).await?;
        let name = outcome.map_or("unfinished", Outcome::name);
        self.runs.total += 1;
        self.runs.subagents += u64::from(row.parent.is_some());
        self.runs.resumed += u64::from(cost.is_resumed);
        *self.runs.outcomes.entry(name.to_owned()).or_default() += 1;
        let totals = self.agents.entry(row.agent.clone()).or_default();
        totals.runs += 1;
        totals.completed += u64::from(outcome == Some(Outcome::Completed));
        match self.account(&row).await? {
            Some(spent) => self.book(&row, spent).await?,
            None => self.agents.entry(row.agent.clone()).or_default().nano_usd += cost.nano_usd,
        }
        if let Some(ended) = ended.cloned()
            && row.parent.is_none()
            && !matches!(ended.outcome, Outcome::Completed | Outcome::Stopped)
        {
            self.add_failure(&row, ended, cost.last_error, is_readable).await?;
        }
        Ok(())
    }

    /// Folds the records of a run, as far as they can be read.
    async fn fold_records(&mut self, row: &RunRow, cost: &mut RunCostFold) -> Result<bool, RequestError> {
        let run = row.id;
        // A title is made after the end.
        let last = if row.state == RunState::Ended {
            row.asides_until.map_or(row.last, |last| last.max(row.last))
        } else {
            u64::MAX
        };
        let costs = &mut self.costs;
        let take = |seq, record: &hermod_actors::model::Record| {
            if seq <= last && record.body.run().is_none_or(|of| of == run) {
                cost.take(record, costs);
            }
        };
        let reader = self.handler.reader();
        Ok(reader.readable_records_until(row.session, (row.first.max(1), last), take).await?.is_none())
    }

    /// What is booked on the account of a run that lies within the time, with its subagents; `None` of another run.
    async fn account(&self, row: &RunRow) -> Result<Option<u64>, RequestError> {
        let is_over = row.ended_at.is_some_and(|at| at < self.until) || self.until >= self.now;
        if row.accepted_at < self.since || !is_over {
            return Ok(None);
        }
        let account = self.handler.reader().read(|rows| rows.account(row.account)).await?;
        Ok(account.map(|account| account.spent.usd.unwrap_or(0)))
    }

    /// Books what an account has. It is on the account of the parent too, from which it is taken.
    async fn book(&mut self, row: &RunRow, spent: u64) -> Result<(), RequestError> {
        self.agents.entry(row.agent.clone()).or_default().nano_usd += i128::from(spent);
        let Some(parent) = row.parent else { return Ok(()) };
        let parent = self.handler.reader().read(|rows| rows.run(parent.call.run)).await?;
        if let Some(parent) = parent
            && self.account(&parent).await?.is_some()
        {
            self.agents.entry(parent.agent).or_default().nano_usd -= i128::from(spent);
        }
        Ok(())
    }

    async fn add_failure(
        &mut self,
        row: &RunRow,
        ended: OutcomeDetail,
        last_error: Option<String>,
        is_readable: bool,
    ) -> Result<(), RequestError> {
        let is_budget = ended.outcome == Outcome::BudgetExhausted;
        let reader = self.handler.reader();
        let input = match reader.acceptance(row).await {
            Ok(accepted) => RunSummaryView::shorten_input(&accepted.input),
            Err(_) if !is_readable => String::new(),
            Err(error) => return Err(error),
        };
        if !is_budget {
            let alike = |run: &&mut ReportRunView| run.input == input && run.ended.as_ref() == Some(&ended);
            if let Some(alike) = self.failed.iter_mut().find(alike) {
                alike.times += 1;
                return Ok(());
            }
            if self.failed.len() == MAX_FAILURES {
                self.other_failures += 1;
                return Ok(());
            }
        }
        let account = reader.read(|rows| rows.account(row.account)).await?;
        let spent = account.map(|account| account.spent).unwrap_or_default();
        let used = BudgetUsage { tokens: spent.tokens.unwrap_or(0), nano_usd: spent.usd.unwrap_or(0) };
        let next = continuation(row.id, &ended, used).map(|next| next.command);
        let next = next.unwrap_or_else(|| format!("hermod run --resume {} TEXT", row.id));
        let ended_at = row.ended_at.unwrap_or(row.accepted_at);
        if is_budget {
            self.budgets.push(ReportWaitView {
                what: ReportWaitKind::Budget,
                run: row.id,
                call: None,
                text: format!("{ended}: {input}"),
                since: ended_at,
                until: None,
                next,
            });
            return Ok(());
        }
        // The cause has the last failure of a provider.
        let last_error = last_error.filter(|_| !matches!(ended.cause, Some(OutcomeCause::Provider { .. })));
        self.failed.push(ReportRunView {
            run: row.id,
            session: row.session,
            agent: row.agent.clone(),
            input,
            ended: Some(ended),
            ended_at,
            times: 1,
            last_error,
            next,
        });
        Ok(())
    }

    async fn build(mut self, limits: StoreLimits) -> Result<ReportView, RequestError> {
        let reader = self.handler.reader();
        let mut waiting: Vec<_> = reader.approvals().await?.into_iter().map(approval_wait).collect();
        waiting.extend(self.unowned_runs().await?);
        waiting.append(&mut self.budgets);
        let dead = DeliveryQuery::of_state(DeliveryState::Dead, MAX_DEAD_LETTERS);
        let mut dead = reader.read(|rows| rows.deliveries(dead)).await?;
        dead.reverse();
        let ControlResponse::Limits(limits) = self.handler.periods(limits).await? else {
            return Err(RequestError::internal("limits were asked for"));
        };
        let nano_usd = self.agents.values().map(|totals| totals.nano_usd).sum();
        let agent = |(agent, totals): (AgentName, AgentTotals)| ReportAgentView {
            agent,
            runs: totals.runs,
            completed: totals.completed,
            spent_usd: u64::try_from(totals.nano_usd.max(0)).unwrap_or(u64::MAX),
        };
        let agents = self.agents.into_iter().map(agent).collect();
        Ok(ReportView {
            since: self.since,
            until: self.until,
            runs: ReportRunsView { agents, ..self.runs },
            failed: ReportList { items: self.failed, more: self.other_failures },
            waiting: ReportList::new(waiting, MAX_ITEMS),
            dead_letters: ReportList::new(dead.into_iter().map(DeliveryView::in_list).collect(), MAX_ITEMS),
            schedules: report_schedules(reader, (self.since, self.until)).await?,
            cost: self.costs.view(nano_usd),
            limits,
            service: None,
        })
    }

    /// The runs that neither wait for a person nor have a process.
    async fn unowned_runs(&self) -> Result<Vec<ReportWaitView>, RequestError> {
        let (reader, health) = (self.handler.reader(), self.handler.health());
        let mut waits = Vec::new();
        for row in reader.read(|rows| rows.open_runs()).await? {
            let waits_for_person = row.state == RunState::Parked;
            // A subagent goes on with the run above it.
            if waits_for_person || row.parent.is_some() || has_process(&row, health.as_ref()).await {
                continue;
            }
            let input = reader.acceptance(&row).await.map(|accepted| accepted.input.to_string());
            let text = RunSummaryView::shorten_input(&input.unwrap_or_else(|error| error.text));
            let (since, next) = (row.started_at.unwrap_or(row.accepted_at), resume(row.id));
            let what = ReportWaitKind::Process;
            waits.push(ReportWaitView { what, run: row.id, call: None, text, since, until: None, next });
        }
        Ok(waits)
    }
}

fn resume(run: RunId) -> String {
    format!("hermod runs resume {run}")
}

fn approval_wait(approval: ApprovalView) -> ReportWaitView {
    let ApprovalView { call, run, wants_text, question, since, expires_at, .. } = approval;
    let (what, next) = if wants_text {
        (ReportWaitKind::Question, format!("hermod approvals answer {call} TEXT"))
    } else {
        (ReportWaitKind::Approval, format!("hermod approvals allow {call}"))
    };
    ReportWaitView { what, run, call: Some(call), text: question, since, until: Some(expires_at), next }
}
