//! What a parent's model reads of an ended subagent: its outcome, its cost, and an answer of limited length. Also the
//! end of a subagent whose session was removed.

use std::sync::Arc;

use serde_json::json;

use crate::{
    model::{
        Artifact, CallId, ChildEnded, Dimension, Outcome, OutcomeCause, OutcomeDetail, Record, RunRow,
        SubagentRef, Usage,
    },
    policy::{Bill, FinalText, final_text},
};

/// Most bytes of all answers of one call, unless the minimum for each answer is more.
const MAX_ANSWERS_BYTES: usize = 24_000;
/// Minimum for the shown bytes of one answer.
const MIN_ANSWER_BYTES: usize = 2_000;
/// Divisor of the parent model's context window: the answers of one call take at most this share of it, unless the
/// minimum for each answer is more.
const WINDOW_DIVISOR: u64 = 10;
/// The note beside the missing answer of a subagent that wrote none.
const NO_TEXT: &str = "the subagent ended before it had written any text; `reason` says why";

/// Most bytes of one answer: an equal share for each task of the call. `window` is the context window of the parent's
/// model, in bytes.
pub fn max_answer_bytes(window: Option<u64>, tasks: usize) -> usize {
    let share = window.map(|window| usize::try_from(window / WINDOW_DIVISOR).unwrap_or(usize::MAX));
    let all = MAX_ANSWERS_BYTES.min(share.unwrap_or(usize::MAX));
    (all / tasks.max(1)).max(MIN_ANSWER_BYTES)
}

/// The report on a subagent's run.
#[derive(Debug)]
pub struct SubagentReport<'a> {
    row: &'a RunRow,
    ended: OutcomeDetail,
    bill: Bill,
    text: Option<FinalText>,
    max_bytes: usize,
}

impl<'a> SubagentReport<'a> {
    /// Reports a run by its row and records, with at most `max_bytes` of its answer.
    pub fn new(row: &'a RunRow, records: &[Arc<Record>], max_bytes: usize) -> Self {
        let ended = row.ended.clone().unwrap_or(OutcomeDetail { outcome: Outcome::Failed, cause: None });
        let mut bill = Bill::default();
        records.iter().for_each(|record| bill.take(record));
        let text = final_text(records, ended.outcome);
        Self { row, ended, bill, text, max_bytes }
    }

    /// The whole answer, if the report shows only parts of it.
    pub fn full_answer_if_truncated(&self) -> Option<&str> {
        self.text.as_ref().map(|text| text.text.as_str()).filter(|answer| answer.len() > self.max_bytes)
    }

    /// The end of the subagent for its parent's call. `artifact` has the whole answer, if the report cuts it.
    pub fn end(&self, call: CallId, artifact: Option<&Artifact>) -> ChildEnded {
        let Self { row, ended, .. } = self;
        let answer = self.text.as_ref().map_or("", |text| text.text.as_str());
        let mut result = json!({
            "outcome": ended.outcome.name(),
            "answer": truncated(answer, self.max_bytes),
            "artifacts": artifact.iter().map(|artifact| artifact.handle.as_str()).collect::<Vec<_>>(),
            "iterations": row.iterations,
            "usage": {"input_tokens": row.usage.input_tokens, "output_tokens": row.usage.output_tokens},
            "cost_usd": self.bill.nano_usd().map(|nano| Dimension::Usd.display(nano).to_string()),
            "trace": {"session": row.session.to_string(), "run": row.id.to_string()},
        });
        if let Some(cause) = &ended.cause {
            result["reason"] = cause.to_string().into();
        }
        if let Some(text) = &self.text {
            result["answer_source"] = json!(text.source);
        } else {
            result["answer"] = serde_json::Value::Null;
            result["note"] = NO_TEXT.into();
        }
        if let Some(Artifact { bytes, handle, .. }) = artifact {
            result["note"] = format!("the answer is cut; all {bytes} bytes: `read_artifact` {handle}").into();
        }
        ChildEnded {
            call,
            child: SubagentRef { session: row.session, run: row.id },
            ended: ended.clone(),
            result: result.to_string().into(),
            iterations: row.iterations,
            usage: row.usage,
        }
    }
}

/// The end of a subagent whose session was removed from the store: its parent must not wait for it.
pub fn removed_subagent_end(call: CallId, child: SubagentRef) -> ChildEnded {
    let error = format!("session {} was removed from the store", child.session);
    let ended = OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Unreadable { error });
    let result = json!({
        "outcome": ended.outcome.name(),
        "answer": "",
        "reason": ended.cause.as_ref().map(ToString::to_string),
        "trace": {"session": child.session.to_string(), "run": child.run.to_string()},
    });
    let (result, usage) = (result.to_string().into(), Usage::default());
    ChildEnded { call, child, ended, result, iterations: 0, usage }
}

/// The text, or its beginning and its end if it is longer than `max` bytes.
fn truncated(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(max * 2 / 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - max / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        AssistantMessage, Body, FinishReason, ModelAnswered, ParentRef, RunId, RunState, SessionId, Timestamp,
    };

    const CALL: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 3 };

    fn row(ended: Option<OutcomeDetail>) -> RunRow {
        RunRow {
            state: RunState::Ended,
            ended,
            iterations: 4,
            usage: Usage { input_tokens: 5, output_tokens: 6, ..Usage::default() },
            parent: Some(ParentRef { session: SessionId::from_bits(1), call: CALL, n: 0 }),
            last: 9,
            ..RunRow::new(RunId::from_bits(2), SessionId::from_bits(2), Timestamp(0), 2)
        }
    }

    fn answered(text: &str) -> Arc<Record> {
        let call = CallId { run: RunId::from_bits(2), iteration: 1, n: 0 };
        let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
        let body = Body::ModelAnswered(Box::new(ModelAnswered {
            call,
            attempt: 1,
            message: Arc::new(message),
            finish: FinishReason::Stop,
            flaw: None,
            fallback: None,
            usage: None,
            anomaly: None,
        }));
        Arc::new(Record { at: Timestamp(0), active_ms: 0, body })
    }

    /// Checks the answer that is shown of `text`, the note, and whether the whole answer is kept as an artifact.
    #[track_caller]
    fn check(text: Option<&str>, kept: bool, expect: (Option<&str>, Option<&str>, bool)) {
        let row = row(Some(OutcomeDetail { outcome: Outcome::Completed, cause: None }));
        let records: Vec<_> = text.map(answered).into_iter().collect();
        let report = SubagentReport::new(&row, &records, 12);
        let artifact = kept.then(|| Artifact { handle: "a.txt".into(), bytes: 20, sha256: None });
        let end = report.end(CALL, artifact.as_ref());
        let told: serde_json::Value = serde_json::from_str(&end.result).unwrap();
        let shown =
            (told["answer"].as_str(), told["note"].as_str(), report.full_answer_if_truncated().is_some());
        assert_eq!(shown, expect);
        assert_eq!(
            (end.call, end.child.run, end.iterations, told["iterations"].as_u64()),
            (CALL, row.id, 4, Some(4))
        );
    }

    #[test]
    fn a_long_answer_is_cut_and_its_artifact_named() {
        check(Some("short"), false, (Some("short"), None, false));
        let cut = Some("abcdefgh\n[… 9 bytes left out …]\nrst");
        check(Some("abcdefghijklmnopqrst"), false, (cut, None, true));
        let note = Some("the answer is cut; all 20 bytes: `read_artifact` a.txt");
        check(Some("abcdefghijklmnopqrst"), true, (cut, note, true));
        check(Some("ääääääääää"), false, (Some("ääää\n[… 10 bytes left out …]\nä"), None, true));
        check(None, false, (None, Some(NO_TEXT), false));
    }

    #[test]
    fn an_unknown_outcome_is_a_failure_and_a_removed_subagent_has_a_reason() {
        let row = row(None);
        assert_eq!(SubagentReport::new(&row, &[], 9).end(CALL, None).ended.outcome, Outcome::Failed);
        let child = SubagentRef { session: row.session, run: row.id };
        let removed = removed_subagent_end(CALL, child);
        assert_eq!(removed.ended.outcome, Outcome::Failed);
        assert!(removed.result.contains("was removed from the store"), "{}", removed.result);
    }

    #[test]
    fn tasks_share_the_space_for_answers() {
        assert_eq!(max_answer_bytes(None, 0), 24_000);
        assert_eq!(max_answer_bytes(None, 3), 8_000);
        assert_eq!(max_answer_bytes(Some(100_000), 1), 10_000);
        assert_eq!(max_answer_bytes(Some(1_000), 2), MIN_ANSWER_BYTES);
    }
}
