//! Admission of the tool calls of an answer where hooks are asked about them. A call is prepared first, so that hooks see
//! only calls that their tools accept. What they leave is prepared and judged by the policy again, so no hook gets past
//! it. The verdicts are recorded with the admissions, in the append of the answer.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{admission::Admission, generation::ToolGeneration};
use crate::{
    model::{
        CallEnd, CallId, CallStatus, HookAnswer, HookDecision, HookPoint, HookedCall, ModelAnswer, RunSpec,
        SessionId,
    },
    policy::{message::MESSAGE, parse_arguments},
    port::{AllowAllCalls, CallPolicy, DecisionHooks, HookQuestion, HookSubject, TextRedactor},
    redaction::redact_hook_answer,
    turn::{CallAdmission, CallRejection},
};

/// The points at which hooks are asked about a call before its start, in this order.
const POINTS: [HookPoint; 2] = [HookPoint::PreToolCall, HookPoint::MessageSending];

/// Calls of one answer about which hooks are asked at the same time.
const MAX_CONCURRENT_QUESTIONS: usize = 4;

/// Asks the hooks about the calls of one answer.
pub(crate) struct HookedAdmission<'a> {
    pub(crate) hooks: &'a Arc<dyn DecisionHooks>,
    pub(crate) redactor: &'a Arc<dyn TextRedactor>,
    pub(crate) policy: &'a Arc<dyn CallPolicy>,
    pub(crate) session: SessionId,
    pub(crate) spec: &'a Arc<RunSpec>,
    /// The model call with the answer.
    pub(crate) model_call: CallId,
}

/// What hooks have decided about a call: they let it pass, or this is its end.
type HookedCallResult = Result<HookedCall, CallEnd>;

impl HookedAdmission<'_> {
    /// Admits or rejects each call of an answer; runs none. Without hooks this is the admission by tool and policy alone.
    pub(crate) async fn admit_calls(
        &self,
        tools: &Arc<ToolGeneration>,
        answer: &Arc<ModelAnswer>,
        cancel: &CancellationToken,
    ) -> Vec<Admission> {
        if !POINTS.iter().any(|point| self.hooks.is_asked(*point, None)) {
            return tools.admit_calls(answer, self.spec, self.policy, cancel).await;
        }
        let not_judged: Arc<dyn CallPolicy> = Arc::new(AllowAllCalls);
        let prepared = tools.admit_calls(answer, self.spec, &not_judged, cancel).await;
        let calls = prepared.iter().zip(&answer.message.calls).zip(1..);
        let questions = calls.map(|((prepared, call), n)| {
            let tool = match &prepared.0 {
                CallAdmission::Admit { tool, .. } => Some(Arc::clone(tool)),
                CallAdmission::Reject { .. } => None,
            };
            let id = CallId { n, ..self.model_call };
            async move { self.ask_about(id, tool?, &call.arguments).await }
        });
        let decided = stream::iter(questions.collect::<Vec<_>>()).buffered(MAX_CONCURRENT_QUESTIONS);
        let decided: Vec<Option<HookedCallResult>> = tokio::select! {
            biased;
            () = cancel.cancelled() => prepared.iter().map(|_| Some(Err(stopped_end()))).collect(),
            decided = decided.collect() => decided,
        };
        let mut changed = ModelAnswer::clone(answer);
        for (call, decided) in changed.message.calls.iter_mut().zip(&decided) {
            if let Some(Ok(HookedCall { arguments: Some(arguments), .. })) = decided {
                call.arguments = arguments.to_string();
            }
        }
        drop(prepared);
        let admissions = tools.admit_calls(&Arc::new(changed), self.spec, self.policy, cancel).await;
        admissions.into_iter().zip(decided).map(with_hooks).collect()
    }

    /// Asks about one call; `None` if no hook is asked about its tool.
    async fn ask_about(&self, call: CallId, tool: Arc<str>, text: &str) -> Option<HookedCallResult> {
        let is_asked = |point: &HookPoint| {
            let fits = *point != HookPoint::MessageSending || *tool == *MESSAGE;
            fits && self.hooks.is_asked(*point, Some(&tool))
        };
        let points: Vec<HookPoint> = POINTS.into_iter().filter(is_asked).collect();
        // The tool has accepted them, so they can be parsed.
        let mut arguments = parse_arguments(text).ok().filter(|_| !points.is_empty())?;
        let (mut decisions, mut is_replaced) = (Vec::new(), false);
        for point in points {
            let subject = HookSubject::Call { tool: Arc::clone(&tool), arguments: arguments.clone() };
            let (id, spec) = (call.attempt(0), Arc::clone(self.spec));
            let question = HookQuestion { point, session: self.session, id, spec, subject };
            let mut answer = self.hooks.ask(question).await;
            redact_hook_answer(&mut answer, &**self.redactor);
            let refusal = answer.refusal_text();
            let HookAnswer { decisions: more, replacement } = answer;
            decisions.extend(more);
            if let Some(refusal) = refusal {
                return Some(Err(refused_end(&refusal, decisions)));
            }
            if let Some(replacement) = replacement {
                (arguments, is_replaced) = (replacement, true);
            }
        }
        let arguments = is_replaced.then(|| arguments.to_string().into());
        Some(Ok(HookedCall { decisions: decisions.into(), arguments }))
    }
}

/// The admission with what the hooks have decided.
fn with_hooks((admission, decided): (Admission, Option<HookedCallResult>)) -> Admission {
    match (admission, decided) {
        (admission, None) => admission,
        (_, Some(Err(end))) => (CallAdmission::Reject { rejection: CallRejection::Unacceptable, end }, None),
        ((CallAdmission::Reject { rejection, end }, call), Some(Ok(hooked))) => {
            let end = CallEnd { hooks: hooked.decisions, ..end };
            (CallAdmission::Reject { rejection, end }, call)
        }
        ((CallAdmission::Admit { tool, intent, arguments, approval, hooks: _ }, call), Some(Ok(hooked))) => {
            let hooks = Some(Arc::new(hooked));
            (CallAdmission::Admit { tool, intent, arguments, approval, hooks }, call)
        }
    }
}

/// The result of a call that a hook has refused.
fn refused_end(refusal: &str, decisions: Vec<HookDecision>) -> CallEnd {
    let hint = "do not try it in another form; go on without it, or say in your answer what needs it";
    let end =
        CallEnd::error(CallStatus::NotStarted, &format!("{refusal}; the call was not started"), None, hint);
    CallEnd { hooks: decisions.into(), ..end }
}

/// The result of a call about which hooks were asked when the run was stopped.
fn stopped_end() -> CallEnd {
    CallEnd::not_started("the run was stopped while hooks were asked about it")
}
