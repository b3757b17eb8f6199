//! The last text of the run under way, folded from its answers as `policy/final_text.rs` reads it from records.

use std::sync::Arc;

use crate::model::{AssistantMessage, ModelAnswered};

/// The parts of the last text; more than one if the output limit has cut it. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(super) struct LastText {
    parts: Vec<Arc<AssistantMessage>>,
    /// Whether the next answer continues the last part.
    is_open: bool,
}

impl LastText {
    pub(super) fn on_answered(&mut self, answered: &ModelAnswered) {
        if answered.is_discarded() {
            return;
        }
        if !answered.message.text.trim().is_empty() {
            if !self.is_open {
                self.parts.clear();
            }
            self.parts.push(Arc::clone(&answered.message));
        }
        self.is_open = answered.is_partial();
    }

    /// The text; empty if the run has none.
    pub(super) fn text(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallId, FinishReason, Flaw, RunId};

    #[track_caller]
    fn check(answers: &[(&str, Option<Flaw>)], expect: &str) {
        let mut last = LastText::default();
        for (text, flaw) in answers {
            let message = AssistantMessage { text: (*text).into(), ..AssistantMessage::default() };
            last.on_answered(&ModelAnswered {
                call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
                attempt: 1,
                message: Arc::new(message),
                finish: FinishReason::Stop,
                flaw: *flaw,
                fallback: None,
                usage: None,
                anomaly: None,
            });
        }
        assert_eq!(last.text(), expect);
    }

    #[test]
    fn the_last_text_is_joined_from_its_parts() {
        let part = Some(Flaw::Partial);
        check(&[], "");
        check(&[("I look", None), ("done", None)], "done");
        check(&[("done", None), ("", None)], "done");
        check(&[("before", None), ("o", part), ("n", part), ("e", None)], "one");
        check(&[("on", part), ("{", Some(Flaw::Malformed)), ("e", None), ("two", None)], "two");
    }
}
