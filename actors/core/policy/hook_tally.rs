//! Joins the verdicts of the hooks at one point, which are asked one after the other, by priority. A refusal is final:
//! no later hook is asked, so no allow can undo it. A hook without a verdict refuses.

use std::sync::Arc;

use serde_json::Value;

use crate::model::{HookAnswer, HookDecision, HookPoint, HookRuling, HookVerdict, HookedRun};

/// Most characters of a hook's reason that are kept.
const MAX_REASON_CHARS: usize = 500;

/// Most bytes of a text that a hook gives for a run.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// What hooks may change of a run that has not begun.
const CHANGED_OF_RUN: [&str; 2] = ["input", "context"];

/// The verdicts so far.
#[derive(Debug, Clone)]
pub struct HookTally {
    point: HookPoint,
    answer: HookAnswer,
}

impl HookTally {
    /// No hook has been asked yet.
    pub const fn new(point: HookPoint) -> Self {
        Self { point, answer: HookAnswer { decisions: Vec::new(), replacement: None } }
    }

    /// What an earlier hook has put in place of the arguments or the result: the next hook is asked about that.
    pub const fn replacement(&self) -> Option<&Value> {
        self.answer.replacement.as_ref()
    }

    /// Whether no further hook may be asked.
    pub fn is_final(&self) -> bool {
        self.answer.refusal().is_some()
    }

    /// Takes the verdict of the next hook; an error says why it has given none. Of no effect after a refusal.
    pub fn take(&mut self, hook: &Arc<str>, verdict: Result<HookVerdict, String>) {
        if self.is_final() {
            return;
        }
        let verdict = verdict.and_then(|verdict| self.accepted(verdict));
        let (ruling, reason) = match verdict {
            Ok(HookVerdict::Allow) => (HookRuling::Allowed, None),
            Ok(HookVerdict::Replace(value)) => {
                let before = self.answer.replacement.take().filter(|_| self.point == HookPoint::BeforeRun);
                self.answer.replacement = Some(match before {
                    Some(before) => with_change_of_run(before, value),
                    None => value,
                });
                (HookRuling::Replaced, None)
            }
            Ok(HookVerdict::Refuse(reason)) => (HookRuling::Refused, Some(reason)),
            Err(error) => (HookRuling::Refused, Some(format!("it has given no verdict: {error}"))),
        };
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect::<String>().into());
        let (hook, point) = (Arc::clone(hook), self.point);
        self.answer.decisions.push(HookDecision { hook, point, ruling, reason });
    }

    /// The joint answer.
    pub fn into_answer(self) -> HookAnswer {
        self.answer
    }

    /// The verdict, unless it replaces what cannot be replaced here, or by something else than is there.
    fn accepted(&self, verdict: HookVerdict) -> Result<HookVerdict, String> {
        let HookVerdict::Replace(value) = &verdict else { return Ok(verdict) };
        match self.point {
            HookPoint::PreToolCall | HookPoint::MessageSending if value.is_object() => Ok(verdict),
            HookPoint::PreToolCall | HookPoint::MessageSending => {
                Err("the arguments that it gives are no JSON object".to_owned())
            }
            HookPoint::PostToolCall | HookPoint::ToolResultPersist => Ok(verdict),
            HookPoint::BeforeRun => {
                change_of_run(value)?;
                Ok(verdict)
            }
            HookPoint::BeforeModelCall => Err(format!("nothing can be replaced at {}", self.point.name())),
        }
    }
}

/// What becomes of a run by this answer of the hooks that were asked before it.
pub fn hooked_run(answer: &HookAnswer) -> HookedRun {
    let change = answer.replacement.as_ref().and_then(|value| change_of_run(value).ok());
    let (input, context) = change.unwrap_or_default();
    HookedRun {
        decisions: answer.decisions.clone().into(),
        input: input.map(Into::into),
        context: context.map(Into::into),
    }
}

/// The change of a run that hooks ask for with this value: the text that replaces its task, and what is added to it.
fn change_of_run(value: &Value) -> Result<(Option<&str>, Option<&str>), String> {
    let fields = value.as_object().ok_or("what it gives is no object with `input` or `context`")?;
    let known = |field: &&String| !CHANGED_OF_RUN.contains(&field.as_str());
    if let Some(unknown) = fields.keys().find(known) {
        return Err(format!("it gives `{unknown}`, which is neither `input` nor `context`"));
    }
    let text = |field: &str| match fields.get(field).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("`{field}` is empty")),
        Some(Value::String(text)) if text.len() > MAX_TEXT_BYTES => {
            Err(format!("`{field}` has {} bytes, more than {MAX_TEXT_BYTES}", text.len()))
        }
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("`{field}` is no text")),
    };
    let [input, context] = CHANGED_OF_RUN;
    match (text(input)?, text(context)?) {
        (None, None) => Err("it changes neither `input` nor `context`".to_owned()),
        change => Ok(change),
    }
}

/// A change of a run, changed again by a later hook: contexts add up, the last input counts.
fn with_change_of_run(mut before: Value, change: Value) -> Value {
    let (Some(fields), Value::Object(change)) = (before.as_object_mut(), change) else { return before };
    for (field, value) in change {
        match (fields.get_mut(&field), value) {
            (_, Value::Null) => {}
            (Some(Value::String(earlier)), Value::String(later)) if field == CHANGED_OF_RUN[1] => {
                earlier.push_str("\n\n");
                earlier.push_str(&later);
            }
            (_, value) => drop(fields.insert(field, value)),
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks what follows from these verdicts: how many hooks count, the refusing one, and what is replaced.
    #[track_caller]
    fn check(
        point: HookPoint,
        verdicts: &[Result<HookVerdict, &str>],
        (rulings, refused, replacement): (&[HookRuling], Option<&str>, Option<Value>),
    ) {
        let mut tally = HookTally::new(point);
        for (verdict, n) in verdicts.iter().cloned().zip(1..) {
            tally.take(&format!("h{n}").into(), verdict.map_err(str::to_owned));
        }
        let answer = tally.into_answer();
        let found: Vec<_> = answer.decisions.iter().map(|decision| decision.ruling).collect();
        assert_eq!(found, rulings, "{verdicts:?}");
        assert_eq!(answer.refusal_text().as_deref(), refused, "{verdicts:?}");
        assert_eq!(answer.replacement, replacement, "{verdicts:?}");
    }

    #[test]
    fn a_refusal_is_final_and_the_last_replacement_counts() {
        use HookRuling::{Allowed, Refused, Replaced};
        use HookVerdict::{Allow, Refuse, Replace};
        let pre = HookPoint::PreToolCall;
        let one = || Replace(json!({"n": 1}));
        let two = || Replace(json!({"n": 2}));
        check(pre, &[], (&[], None, None));
        check(pre, &[Ok(Allow), Ok(Allow)], (&[Allowed, Allowed], None, None));
        check(pre, &[Ok(one()), Ok(Allow)], (&[Replaced, Allowed], None, Some(json!({"n": 1}))));
        check(pre, &[Ok(one()), Ok(two())], (&[Replaced, Replaced], None, Some(json!({"n": 2}))));
        let no = || Refuse("no".to_owned());
        let refused = Some("the hook `h1` refuses this: no");
        check(pre, &[Ok(no()), Ok(Allow)], (&[Refused], refused, None));
        check(pre, &[Ok(no()), Ok(one())], (&[Refused], refused, None));
        let refused = Some("the hook `h2` refuses this: no");
        check(pre, &[Ok(Allow), Ok(no())], (&[Allowed, Refused], refused, None));
        check(pre, &[Ok(Refuse(" ".to_owned()))], (&[Refused], Some("the hook `h1` refuses this"), None));
    }

    #[test]
    fn a_hook_without_a_verdict_that_fits_refuses() {
        use HookRuling::{Allowed, Refused, Replaced};
        use HookVerdict::{Allow, Replace};
        let failed = Some("the hook `h1` refuses this: it has given no verdict: it died");
        check(HookPoint::PreToolCall, &[Err("it died"), Ok(Allow)], (&[Refused], failed, None));
        let nonsense = Some(
            "the hook `h1` refuses this: it has given no verdict: the arguments that it gives are no JSON object",
        );
        for point in [HookPoint::PreToolCall, HookPoint::MessageSending] {
            check(point, &[Ok(Replace(json!("text")))], (&[Refused], nonsense, None));
        }
        let result = Ok(Replace(json!("text")));
        for point in [HookPoint::PostToolCall, HookPoint::ToolResultPersist] {
            check(point, std::slice::from_ref(&result), (&[Replaced], None, Some(json!("text"))));
        }
        let fixed = Some(
            "the hook `h2` refuses this: it has given no verdict: nothing can be replaced at before_model_call",
        );
        check(HookPoint::BeforeModelCall, &[Ok(Allow), result], (&[Allowed, Refused], fixed, None));
    }

    #[test]
    fn hooks_before_a_run_change_its_text_one_after_the_other() {
        use HookRuling::{Allowed, Refused, Replaced};
        use HookVerdict::{Allow, Replace};
        let run = HookPoint::BeforeRun;
        let (input, context) = (Replace(json!({"input": "i"})), Replace(json!({"context": "c"})));
        check(run, &[Ok(Allow)], (&[Allowed], None, None));
        let both = Some(json!({"input": "i", "context": "c"}));
        check(run, &[Ok(input.clone()), Ok(context.clone())], (&[Replaced, Replaced], None, both));
        let twice = Some(json!({"context": "c\n\nc"}));
        check(run, &[Ok(context.clone()), Ok(context)], (&[Replaced, Replaced], None, twice));
        let last = Some(json!({"input": "j"}));
        check(run, &[Ok(input), Ok(Replace(json!({"input": "j"})))], (&[Replaced, Replaced], None, last));
        let nonsense = |value: Value, why: &str| {
            let refused = format!("the hook `h1` refuses this: it has given no verdict: {why}");
            check(run, &[Ok(Replace(value))], (&[Refused], Some(&refused), None));
        };
        nonsense(json!({}), "it changes neither `input` nor `context`");
        nonsense(json!("text"), "what it gives is no object with `input` or `context`");
        nonsense(json!({"input": 1}), "`input` is no text");
        nonsense(json!({"context": " \n"}), "`context` is empty");
        nonsense(json!({"inputs": "i"}), "it gives `inputs`, which is neither `input` nor `context`");
    }

    #[test]
    fn a_reason_is_bounded() {
        let mut tally = HookTally::new(HookPoint::PostToolCall);
        tally.take(&"h".into(), Ok(HookVerdict::Refuse("ä".repeat(10_000))));
        let reason = tally.into_answer().decisions.remove(0).reason.unwrap();
        assert_eq!(reason.chars().count(), MAX_REASON_CHARS);
    }
}
