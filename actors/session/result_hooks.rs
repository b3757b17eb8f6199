//! Asks hooks about the result of a tool call, before it is recorded. A hook that gives no verdict keeps the result from
//! the model.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{
        AttemptId, CallEnd, CallStatus, HookAnswer, HookDecision, HookPoint, HookRuling, MAX_RESULT_BYTES,
        RunSpec, SessionId,
    },
    policy::SanitizedText,
    port::{DecisionHooks, HookQuestion, HookSubject, TextRedactor},
    redaction::redact_hook_answer,
};

/// The points, in this order.
const POINTS: [HookPoint; 2] = [HookPoint::PostToolCall, HookPoint::ToolResultPersist];
/// How long hooks are still asked once the run is being stopped.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(2);

/// A tool call that has ended.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) session: SessionId,
    pub(super) id: AttemptId,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Arc<str>,
    pub(super) spec: Arc<RunSpec>,
}

impl EndedCall {
    /// The result as hooks leave it. Without hooks it is not touched.
    pub(super) async fn with_hooks(
        self,
        mut end: CallEnd,
        hooks: &dyn DecisionHooks,
        redactor: &dyn TextRedactor,
        cancel: &CancellationToken,
    ) -> CallEnd {
        for point in POINTS {
            if !hooks.is_asked(point, Some(&self.tool)) {
                continue;
            }
            let stopped = async {
                cancel.cancelled().await;
                sleep(STOPPED_TIMEOUT).await;
            };
            let mut answer = tokio::select! {
                biased;
                answer = hooks.ask(self.question(point, &end)) => answer,
                () = stopped => not_asked(point),
            };
            redact_hook_answer(&mut answer, redactor);
            end = applied(answer, end);
        }
        end
    }

    fn question(&self, point: HookPoint, end: &CallEnd) -> HookQuestion {
        let subject = HookSubject::Result {
            tool: Arc::clone(&self.tool),
            arguments: Arc::clone(&self.arguments),
            status: end.status,
            content: Arc::clone(&end.content),
        };
        HookQuestion { point, session: self.session, id: self.id, spec: Arc::clone(&self.spec), subject }
    }
}

/// The end of a call after this answer of the hooks.
fn applied(mut answer: HookAnswer, end: CallEnd) -> CallEnd {
    let content = match answer.replacement.take() {
        Some(Value::String(text)) => Some(text),
        replacement => replacement.map(|value| value.to_string()),
    };
    let content = content.map(|text| SanitizedText::sanitize(&text).into_owned());
    if let Some(long) = content.as_ref().filter(|text| text.len() > MAX_RESULT_BYTES)
        && let Some(decision) =
            answer.decisions.iter_mut().rev().find(|one| one.ruling == HookRuling::Replaced)
    {
        let reason = format!("its result has {} bytes, more than {MAX_RESULT_BYTES}", long.len());
        (decision.ruling, decision.reason) = (HookRuling::Refused, Some(reason.into()));
    }
    let refusal = answer.refusal_text();
    let hooks: Arc<[HookDecision]> = end.hooks.iter().cloned().chain(answer.decisions).collect();
    // The call has run, so its message is sent whatever the model reads of it.
    let attachments = Arc::clone(&end.attachments);
    match (refusal, content) {
        (Some(refusal), _) => {
            let error = format!(
                "{refusal}; the call has ended as `{}`, and its result is withheld",
                end.status.name()
            );
            let hint = "do not repeat the call: it has run; go on without its result";
            let status = if end.status == CallStatus::Stopped { end.status } else { CallStatus::Error };
            CallEnd { hooks, attachments, ..CallEnd::error(status, &error, None, hint) }
        }
        (None, Some(content)) => CallEnd { hooks, attachments, ..CallEnd::new(end.status, content) },
        (None, None) => CallEnd { hooks, ..end },
    }
}

/// The answer of hooks that were not asked to the end, because the run was stopped.
fn not_asked(point: HookPoint) -> HookAnswer {
    let reason = Some("the run was stopped before there was a verdict".into());
    let decision = HookDecision { hook: point.name().into(), point, ruling: HookRuling::Refused, reason };
    HookAnswer { decisions: vec![decision], replacement: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{model::HookVerdict, policy::HookTally};

    #[track_caller]
    fn check(
        verdict: Result<HookVerdict, &str>,
        end: &CallEnd,
        (status, part): (CallStatus, &str),
    ) -> CallEnd {
        let mut tally = HookTally::new(HookPoint::PostToolCall);
        tally.take(&"scrub".into(), verdict.map_err(str::to_owned));
        let end = applied(tally.into_answer(), end.clone());
        assert_eq!(end.status, status);
        assert!(end.content.contains(part), "{}", end.content);
        end
    }

    #[test]
    fn a_result_is_what_hooks_leave_of_it() {
        let artifact = crate::model::Artifact { handle: "a".into(), bytes: 3, sha256: None };
        let end = CallEnd { artifact: Some(artifact), ..CallEnd::ok("secret") };
        let same = check(Ok(HookVerdict::Allow), &end, (CallStatus::Ok, "secret"));
        assert_eq!(same, CallEnd { hooks: Arc::clone(&same.hooks), ..end.clone() });
        let replaced = check(Ok(HookVerdict::Replace(json!("public"))), &end, (CallStatus::Ok, "public"));
        assert_eq!(
            (replaced.artifact, replaced.hooks.len()),
            (None, 1),
            "the whole output is not named either"
        );
        check(Ok(HookVerdict::Replace(json!({"a": 1}))), &end, (CallStatus::Ok, r#"{"a":1}"#));
        for verdict in [Ok(HookVerdict::Refuse("private".into())), Err("it hangs")] {
            let withheld = check(verdict, &end, (CallStatus::Error, "the hook `scrub` refuses this"));
            assert!(!withheld.content.contains("secret"), "{}", withheld.content);
        }
        let long = HookVerdict::Replace(json!("x".repeat(MAX_RESULT_BYTES + 1)));
        check(Ok(long), &end, (CallStatus::Error, "its result has 50001 bytes, more than 50000"));
        let stopped = CallEnd::new(CallStatus::Stopped, "secret");
        check(Err("it hangs"), &stopped, (CallStatus::Stopped, "its result is withheld"));
    }
}
