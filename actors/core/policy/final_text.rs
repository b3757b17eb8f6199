//! The last text of a run and how it came about, from the run's records. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Body, ModelAnswered, Outcome, Record};

/// The last text of a run and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalText {
    /// The text, not empty.
    pub text: String,
    /// How the text came about.
    pub source: AnswerSource,
}

/// How a run's last text came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerSource {
    /// The answer: the text of the model's last message.
    Final,
    /// The answer, joined from parts: all but the last hit the output limit.
    Joined,
    /// The answer, written beside tool calls; no text followed them.
    EarlierText,
    /// No answer: the last text of a run that did not complete.
    Partial,
}

/// The last text of a run that ended with `outcome`; `None` if it has none.
pub fn final_text(records: &[Arc<Record>], outcome: Outcome) -> Option<FinalText> {
    let answers: Vec<&ModelAnswered> = records
        .iter()
        .filter_map(|record| {
            let Body::ModelAnswered(answered) = &record.body else { return None };
            (!answered.is_discarded()).then_some(&**answered)
        })
        .collect();
    let last = answers.iter().rposition(|answered| !answered.message.text.trim().is_empty())?;
    let parts = answers[..last].iter().rev().take_while(|answered| answered.is_partial()).count();
    let text = answers[last - parts..=last].iter().map(|answered| answered.message.text.as_str()).collect();
    let source = match (outcome == Outcome::Completed, parts) {
        (false, _) => AnswerSource::Partial,
        (true, _) if last + 1 < answers.len() => AnswerSource::EarlierText,
        (true, 0) => AnswerSource::Final,
        (true, _) => AnswerSource::Joined,
    };
    Some(FinalText { text, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, CallId, FinishReason, Flaw, RunId, Timestamp, ToolCall};

    /// Answers: text, number of calls, and flaw.
    #[track_caller]
    fn check(
        answers: &[(&str, usize, Option<Flaw>)],
        outcome: Outcome,
        expect: Option<(&str, AnswerSource)>,
    ) {
        let record = |((text, calls, flaw), iteration): (&(&str, usize, Option<Flaw>), u32)| {
            let call = ToolCall { id: "c".into(), name: "look".into(), arguments: "{}".into() };
            let calls = vec![call; *calls];
            let message = AssistantMessage { text: (*text).into(), calls, ..AssistantMessage::default() };
            let call = CallId { run: RunId::from_bits(1), iteration, n: 0 };
            let (message, finish, flaw) = (Arc::new(message), FinishReason::Stop, *flaw);
            let (fallback, usage) = (None, None);
            let anomaly = None;
            let answered =
                ModelAnswered { call, attempt: 1, message, finish, flaw, fallback, usage, anomaly };
            let body = Body::ModelAnswered(Box::new(answered));
            Arc::new(Record { at: Timestamp(0), active_ms: 0, body })
        };
        let records: Vec<_> = answers.iter().zip(1..).map(record).collect();
        let expect = expect.map(|(text, source)| FinalText { text: text.into(), source });
        assert_eq!(final_text(&records, outcome), expect);
    }

    const PLAIN: Option<Flaw> = None;
    const PART: Option<Flaw> = Some(Flaw::Partial);

    #[test]
    fn the_last_word_is_the_answer() {
        check(&[], Outcome::Failed, None);
        check(&[("", 1, PLAIN)], Outcome::Stopped, None);
        check(
            &[("I look", 1, PLAIN), ("done", 0, PLAIN)],
            Outcome::Completed,
            Some(("done", AnswerSource::Final)),
        );
    }

    #[test]
    fn parts_are_joined() {
        let parts = [("before", 1, PLAIN), ("o", 0, PART), ("n", 0, PART), ("e", 0, PLAIN)];
        check(&parts, Outcome::Completed, Some(("one", AnswerSource::Joined)));
        check(&parts[..3], Outcome::Failed, Some(("on", AnswerSource::Partial)));
        // Discarded answers between the parts are left out.
        let discarded = [("on", 0, PART), ("{", 1, Some(Flaw::Malformed)), ("e", 0, PLAIN)];
        check(&discarded, Outcome::Completed, Some(("one", AnswerSource::Joined)));
        // Earlier answers are left out too.
        check(
            &[("on", 0, PART), ("e", 1, PLAIN), ("done", 0, PLAIN)],
            Outcome::Completed,
            Some(("done", AnswerSource::Final)),
        );
    }

    #[test]
    fn an_answer_may_have_come_earlier() {
        let earlier = [("done", 1, PLAIN), ("", 0, PLAIN)];
        check(&earlier, Outcome::Completed, Some(("done", AnswerSource::EarlierText)));
        let in_parts = [("do", 0, PART), ("ne", 1, PLAIN), ("", 1, PLAIN), ("", 0, PLAIN)];
        check(&in_parts, Outcome::Completed, Some(("done", AnswerSource::EarlierText)));
    }

    #[test]
    fn without_completion_there_is_no_answer() {
        for outcome in [Outcome::Failed, Outcome::Stopped, Outcome::TimedOut, Outcome::BudgetExhausted] {
            check(&[("I look", 1, PLAIN)], outcome, Some(("I look", AnswerSource::Partial)));
        }
    }
}
