//! The text and the reasoning of a model call that a client has been sent: deltas and whole answers in, what is left to
//! send out. A client cannot take a text back, so a void one is marked as such. Pure.

use hermod_actors::model::{Attempt, CallId};

/// What a client is sent behind a text that does not count.
const VOID: &str = "\n\n*(What stands above is void: the model is asked again.)*\n\n";

/// One kind of text of the present model call.
#[derive(Debug, Default)]
pub(super) struct SentText {
    of: Option<(CallId, Attempt)>,
    sent: String,
    /// The next delta may begin with what was sent: the stream was joined anew.
    is_rejoined: bool,
}

impl SentText {
    /// Adds a delta; returns what is to be sent.
    pub(super) fn delta(&mut self, of: (CallId, Attempt), delta: &str) -> String {
        let mark = self.begin(of);
        let rest = match delta.strip_prefix(self.sent.as_str()) {
            Some(rest) if self.is_rejoined => rest,
            Some(_) | None => delta,
        };
        self.is_rejoined = false;
        self.sent.push_str(rest);
        mark + rest
    }

    /// The attempt has answered with this text; returns what is to be sent.
    pub(super) fn complete(&mut self, of: (CallId, Attempt), text: &str) -> String {
        let mark = self.begin(of);
        let rest = match text.strip_prefix(self.sent.as_str()) {
            Some(rest) => mark + rest,
            // Deltas were lost on the way.
            None => mark + VOID + text,
        };
        *self = Self::default();
        rest
    }

    /// What was sent of the call does not count; returns what is to be sent.
    pub(super) fn void(&mut self, call: CallId) -> &'static str {
        let is_void = self.of.is_some_and(|(of, _)| of == call) && !self.sent.is_empty();
        if self.of.is_some_and(|(of, _)| of == call) {
            *self = Self::default();
        }
        if is_void { VOID } else { "" }
    }

    /// The stream was joined anew.
    pub(super) const fn rejoin(&mut self) {
        self.is_rejoined = true;
    }

    /// Begins the text of another attempt; returns the mark behind one that was not completed.
    fn begin(&mut self, of: (CallId, Attempt)) -> String {
        if self.of == Some(of) {
            return String::new();
        }
        let mark = if self.sent.is_empty() { "" } else { VOID };
        *self = Self { of: Some(of), ..Self::default() };
        mark.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;

    use super::*;

    const FIRST: CallId = CallId { run: RunId::from_bits(1), iteration: 1, n: 0 };
    const SECOND: CallId = CallId { iteration: 2, ..FIRST };

    #[test]
    fn a_text_is_sent_once() {
        let mut text = SentText::default();
        assert_eq!(text.delta((FIRST, 1), "one"), "one");
        assert_eq!(text.delta((FIRST, 1), " two"), " two");
        assert_eq!(text.complete((FIRST, 1), "one two three"), " three");
        assert_eq!(text.complete((SECOND, 1), "four"), "four");
        assert_eq!(text.complete((SECOND, 1), ""), "");
    }

    #[test]
    fn what_a_new_stream_repeats_is_left_out() {
        let mut text = SentText::default();
        text.delta((FIRST, 1), "one");
        text.rejoin();
        assert_eq!(text.delta((FIRST, 1), "one two"), " two");
        assert_eq!(text.delta((FIRST, 1), "one two"), "one two", "only the first delta repeats");
        text.rejoin();
        assert_eq!(text.delta((FIRST, 2), "new"), format!("{VOID}new"), "another attempt");
    }

    #[test]
    fn a_void_text_is_marked() {
        let mut text = SentText::default();
        assert_eq!(text.void(FIRST), "");
        text.delta((FIRST, 1), "one");
        assert_eq!(text.void(SECOND), "");
        assert_eq!(text.void(FIRST), VOID);
        assert_eq!(text.void(FIRST), "", "it is marked once");
        text.delta((SECOND, 1), "on");
        assert_eq!(text.complete((SECOND, 1), "two"), format!("{VOID}two"), "deltas were lost");
        assert_eq!(text.delta((SECOND, 1), "x"), "x");
    }
}
