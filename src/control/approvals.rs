//! Queries of [`StoreReader`] for pending approvals: all of them, and the one that a caller's id names. [`ApprovalWriter`]
//! answers them.

use std::sync::Arc;

use hermod_actors::{
    RunError, Runtime, SubmitError,
    model::{
        ApprovalDecision, ApprovalScope, Body, CallId, IdError, PersonAnswer, Record, RunId, RunRow, RunState,
    },
    open_approvals,
};
use tokio::{sync::Mutex, task::spawn_blocking};

use super::{
    error::{RequestError, RequestErrorKind},
    reader::StoreReader,
};
use crate::{
    clock::{self, rfc3339},
    policy::{ApprovedRules, ApprovedRulesError, Rule, RuleError},
    view::ApprovalView,
};

impl StoreReader {
    /// The pending approvals of all parked runs, in the order of runs. Sessions that this version cannot read are left
    /// out.
    pub async fn approvals(&self) -> Result<Vec<ApprovalView>, RequestError> {
        let mut open = Vec::new();
        for row in self.read(|rows| rows.open_runs()).await? {
            if row.state == RunState::Parked {
                open.extend(self.readable_approvals(&row).await?);
            }
        }
        Ok(open)
    }

    /// The pending approval that `id` names, which can still be answered. A run's id works if the run and
    /// its subagents have exactly one.
    pub async fn find_approval(&self, id: &str) -> Result<ApprovalView, RequestError> {
        let call = self.find_call(id).await?;
        let (row, mut open) = if let Some(call) = call {
            let row = self.run(&call.run.to_string()).await?;
            let open = self.approvals_of(&row).await?;
            (row, open)
        } else {
            let row = self.run(id).await.map_err(|no_run| not_a_call(id, no_run))?;
            let open = self.approvals_below(&row).await?;
            (row, open)
        };
        open.retain(|approval| call.is_none_or(|call| approval.call == call));
        let now = clock::now();
        let (mut open, late): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|approval| approval.expires_at > now);
        match (call, open.as_slice()) {
            (_, []) if let [late, ..] = late.as_slice() => Err(RequestError::usage(format!(
                "the question about call {} was open until {}, and silence is a no; run {run} goes on with `hermod runs \
                 resume {run}`",
                late.call,
                rfc3339(late.expires_at),
                run = late.call.run,
            ))),
            (Some(call), []) => Err(RunError::NoPendingApproval(call).into()),
            (None, []) => Err(RequestError::usage(format!(
                "run {} has no pending approval; see `hermod approvals list`",
                row.id
            ))),
            (_, [_]) => Ok(open.remove(0)),
            (_, several) => {
                let calls: Vec<String> = several.iter().map(|approval| approval.call.to_string()).collect();
                Err(RequestError::usage(format!(
                    "run {} and its subagents ask about several calls; name one: {}",
                    row.id,
                    calls.join(", ")
                )))
            }
        }
    }

    /// The call with this id, whose run may be named by the end of its id; `None` if `id` has not the form of a call.
    async fn find_call(&self, id: &str) -> Result<Option<CallId>, RequestError> {
        if let Ok(call) = id.parse::<CallId>() {
            return Ok(Some(call));
        }
        let Some((run, call)) = id.split_once('.') else { return Ok(None) };
        if run.parse::<RunId>().is_ok() {
            return Ok(None);
        }
        // A run of any id tells whether the rest has the form of a call.
        if format!("{}.{call}", RunId::from_bits(0)).parse::<CallId>().is_err() {
            return Ok(None);
        }
        let run = self.run(run).await?.id;
        format!("{run}.{call}").parse::<CallId>().map(Some).map_err(|error| not_a_call_id(&error))
    }

    /// The pending approvals of a run and of its subagents.
    async fn approvals_below(&self, row: &RunRow) -> Result<Vec<ApprovalView>, RequestError> {
        let mut open = self.approvals_of(row).await?;
        for other in self.read(|rows| rows.open_runs()).await? {
            let is_below = other.state == RunState::Parked
                && self.ancestors(&other).await?.iter().any(|above| above.id == row.id);
            if is_below {
                open.extend(self.readable_approvals(&other).await?);
            }
        }
        Ok(open)
    }

    /// The pending approvals of a run; none if they are only in records that cannot be read.
    async fn readable_approvals(&self, row: &RunRow) -> Result<Vec<ApprovalView>, RequestError> {
        if row.approvals.is_none() && self.quarantine_reason(row.session).await?.is_some() {
            return Ok(Vec::new());
        }
        self.approvals_of(row).await
    }

    /// The pending approvals of a run: those of its row, else those of its records. Only a parked run's row has them,
    /// and not if an earlier version wrote it.
    async fn approvals_of(&self, row: &RunRow) -> Result<Vec<ApprovalView>, RequestError> {
        let approvals = if let Some(approvals) = &row.approvals {
            approvals.clone()
        } else {
            let mut records = Vec::new();
            self.records(row.session, 1, |_, record| records.push(record)).await?;
            open_approvals(row.session, records.iter().map(AsRef::as_ref))
        };
        Ok(approvals.into_iter().map(|pending| ApprovalView::new(row.session, pending)).collect())
    }
}

/// Most bytes of a person's answer to a question of a model.
const MAX_ANSWER_BYTES: usize = 32 * 1024;

/// A person's decision about a call, if it fits the request: only the policy's questions have rules for a wider scope,
/// and a question of the model is answered with text.
pub fn decision(
    approval: &ApprovalView,
    verdict: ApprovalDecision,
    scope: ApprovalScope,
) -> Result<PersonAnswer, RequestError> {
    let call = approval.call;
    let error = match verdict {
        ApprovalDecision::Deny if scope == ApprovalScope::Once => return Ok(PersonAnswer::Deny),
        ApprovalDecision::Deny => {
            format!("a denial is about call {call} only, not `{scope}`: leave the scope out")
        }
        ApprovalDecision::Allow if approval.wants_text => {
            format!("call {call} is a question: answer it with `hermod approvals answer {call} TEXT`")
        }
        ApprovalDecision::Allow if scope == ApprovalScope::Once || !approval.allow_rules.is_empty() => {
            return Ok(PersonAnswer::Allow(scope));
        }
        ApprovalDecision::Allow => format!(
            "no rule can allow call {call} for `{scope}`: allow it once, and write a rule for such calls into \
             `policy.allow`"
        ),
    };
    Err(RequestError::usage(error))
}

/// Answers pending approvals, and keeps the rules of those for always.
///
/// The owner of a store has one, and only the owner answers approvals. So no two approvals for always are between their
/// rules and their records at the same time, and the rules that one added are not those of another one.
#[derive(Debug)]
pub struct ApprovalWriter {
    approved: Arc<ApprovedRules>,
    /// Held from the first rule of an approval until it is recorded or its rules are removed.
    always: Mutex<()>,
}

impl ApprovalWriter {
    /// A writer that adds rules to `approved`.
    pub fn new(approved: ApprovedRules) -> Self {
        Self { approved: Arc::new(approved), always: Mutex::default() }
    }

    /// Answers `approval`, without resuming a run that no process runs. Returns the run's row.
    ///
    /// The rules of an approval for always are durable before its record. If the approval is refused, because the question
    /// has expired, is answered or its run has ended, the rules that it added are removed again.
    ///
    /// A crash, or the end of the process, can leave rules without their approval: if it comes after the rules and before
    /// the record, or after a refusal and before the removal. In the first case the question stays open. The rules are
    /// those that a person wanted for always, and `hermod policy list` shows them. No crash leaves the record of an
    /// approval for always without its rules.
    pub async fn answer(
        &self,
        runtime: &Runtime,
        reader: &StoreReader,
        approval: &ApprovalView,
        answer: &PersonAnswer,
    ) -> Result<RunRow, RequestError> {
        if *answer != PersonAnswer::Allow(ApprovalScope::Always) {
            return Ok(runtime.decide_without_resume(approval.call, answer.clone()).await?);
        }
        let _always = self.always.lock().await;
        let added = self.add_rules(approval).await?;
        let error = match runtime.decide_without_resume(approval.call, answer.clone()).await {
            Ok(row) => return Ok(row),
            Err(error) => error,
        };
        let removed = match is_unrecorded(&error, reader, approval).await {
            Ok(true) => self.change_rules(move |approved| approved.remove(&added)).await,
            Ok(false) => Ok(()),
            Err(unknown) => Err(unknown),
        };
        let refusal = RequestError::from(error);
        Err(match removed {
            Ok(()) => refusal,
            Err(error) => {
                let text = format!(
                    "{refusal}; its rules may be left among the approved ones (see `hermod policy list`): {error}"
                );
                RequestError::new(refusal.kind, text)
            }
        })
    }

    /// Makes the rules of an approval durable, and returns those that were not there before.
    async fn add_rules(&self, approval: &ApprovalView) -> Result<Vec<Rule>, RequestError> {
        let invalid = |error: RuleError| RequestError::internal(error.to_string());
        let rules = approval.allow_rules.iter().map(|rule| rule.parse::<Rule>());
        let rules: Vec<Rule> = rules.collect::<Result<_, _>>().map_err(invalid)?;
        self.change_rules(move |approved| approved.add(&rules)).await
    }

    async fn change_rules<T: Send + 'static>(
        &self,
        change: impl FnOnce(&ApprovedRules) -> Result<T, ApprovedRulesError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let approved = Arc::clone(&self.approved);
        let changed = spawn_blocking(move || change(&approved)).await;
        let changed = changed.map_err(|error| RequestError::internal(error.to_string()))?;
        changed.map_err(|error| RequestError::new(RequestErrorKind::Store, error.to_string()))
    }
}

/// Whether an approval for always that has failed with this error is not recorded, and will not be.
async fn is_unrecorded(
    error: &RunError,
    reader: &StoreReader,
    approval: &ApprovalView,
) -> Result<bool, RequestError> {
    // The record may still be on its way to the disk.
    if matches!(error, RunError::Terminated(_) | RunError::NotAccepted(SubmitError::CrashLooping(_))) {
        return Ok(false);
    }
    // It is there if another person has answered in the same way, or if the session crashed before it replied.
    let mut is_recorded = false;
    let visit = |_, record: Arc<Record>| {
        is_recorded |= matches!(&record.body, Body::ApprovalAnswered(answered)
            if answered.call == approval.call
                && answered.decision == ApprovalDecision::Allow
                && answered.scope == ApprovalScope::Always);
    };
    reader.records(approval.session, 1, visit).await?;
    Ok(!is_recorded)
}

/// A person's answer with text, if the request wants one.
pub fn text_answer(approval: &ApprovalView, text: String) -> Result<PersonAnswer, RequestError> {
    let call = approval.call;
    if !approval.wants_text {
        return Err(RequestError::usage(format!(
            "call {call} is no question that takes text: use `hermod approvals allow {call}` or `hermod approvals deny \
             {call}`"
        )));
    }
    if text.trim().is_empty() || text.len() > MAX_ANSWER_BYTES {
        let bytes = text.len();
        return Err(RequestError::usage(format!(
            "text: has {bytes} bytes; an answer has 1 to {MAX_ANSWER_BYTES} and is not blank"
        )));
    }
    Ok(PersonAnswer::Text(text.into()))
}

fn not_a_call_id(error: &IdError) -> RequestError {
    RequestError::usage(format!("{error}; see `hermod approvals list`"))
}

/// The parse error of a malformed call id in place of `no_run`, which only says that no such run exists.
fn not_a_call(id: &str, no_run: RequestError) -> RequestError {
    match id.parse::<CallId>() {
        Err(error) if id.contains('.') && no_run.kind == RequestErrorKind::Usage => not_a_call_id(&error),
        Ok(_) | Err(_) => no_run,
    }
}
