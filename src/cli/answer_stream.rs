//! The part of a run's answer that a terminal has shown so far: deltas in, text out. Also deltas of any text, made fit
//! for a terminal. No I/O.

use hermod_actors::{
    SanitizedText,
    model::CallId,
    shaping::{is_silent_reply, may_become_silent},
};

/// Streamed text, sanitized for a terminal. A delta may end within `\r\n` or within an emoji.
#[derive(Debug, Default)]
pub(crate) struct DeltaText {
    visible: SanitizedText,
    holds_return: bool,
}

impl DeltaText {
    /// Adds a delta and returns the text to show for it.
    pub(crate) fn push(&mut self, delta: &str) -> String {
        let mut text = String::from(if self.holds_return { "\r" } else { "" }) + delta;
        self.holds_return = text.ends_with('\r');
        if self.holds_return {
            text.pop();
        }
        self.visible.push(text.replace("\r\n", "\n").as_bytes());
        self.visible.take()
    }
}

/// The streamed texts of a run.
#[derive(Debug, Default)]
pub(crate) struct AnswerStream {
    /// The texts that count since the last tool call, one per model call, in their order.
    parts: Vec<StreamedPart>,
    /// The last text that came with tool calls; it is the answer if no text follows.
    earlier: String,
    text: DeltaText,
}

/// The text of one model call so far.
#[derive(Debug)]
struct StreamedPart {
    call: CallId,
    text: String,
    /// Whether none of it is shown, because it may become `NO_REPLY`.
    is_held: bool,
}

impl AnswerStream {
    /// Adds a delta of a call; returns the text to show for it.
    pub(crate) fn delta(&mut self, call: CallId, delta: &str) -> String {
        if self.parts.last().is_none_or(|part| part.call != call) {
            self.text = DeltaText::default();
            self.parts.push(StreamedPart { call, text: String::new(), is_held: true });
        }
        let Some(part) = self.parts.last_mut() else { return String::new() };
        part.text.push_str(delta);
        if !part.is_held {
            return self.text.push(delta);
        }
        part.is_held = may_become_silent(&part.text);
        if part.is_held { String::new() } else { self.text.push(&part.text) }
    }

    /// Adds the complete text of a call; returns the part not shown yet.
    pub(crate) fn complete(&mut self, call: CallId, text: &str) -> String {
        let shown_text = self.parts.last().filter(|part| part.call == call).map_or("", |part| &part.text);
        let rest = text.strip_prefix(shown_text).map(str::to_owned);
        let shown = rest.filter(|rest| !rest.is_empty()).map(|rest| self.delta(call, &rest));
        shown.unwrap_or_default() + &self.release(text)
    }

    /// Ends the wait for more of a text that is no `NO_REPLY`; returns what was held.
    fn release(&mut self, text: &str) -> String {
        let held = self.parts.last_mut().filter(|part| part.is_held && !is_silent_reply(text));
        let Some(part) = held else { return String::new() };
        part.is_held = false;
        self.text.push(&part.text)
    }

    /// Discards the text of a call; true if any had been shown.
    pub(crate) fn void(&mut self, call: CallId) -> bool {
        let is_shown = self.parts.iter().any(|part| part.call == call && !part.is_held);
        self.parts.retain(|part| part.call != call);
        is_shown
    }

    /// Records tool calls: earlier texts are no part of a later answer.
    pub(crate) fn tool_call(&mut self) {
        if let Some(part) = self.parts.drain(..).next_back() {
            self.earlier = part.text;
        }
    }

    /// True if the terminal already shows the whole text, as the last texts joined.
    pub(crate) fn has_shown(&self, answer: &str) -> bool {
        if !self.earlier.trim().is_empty() && self.earlier.trim() == answer.trim() {
            return true;
        }
        let mut joined = String::new();
        self.parts.iter().rev().any(|part| {
            joined.insert_str(0, &part.text);
            joined.trim() == answer.trim()
        })
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;

    use super::*;

    fn call(iteration: u32) -> CallId {
        CallId { run: RunId::from_bits(1), iteration, n: 0 }
    }

    #[test]
    fn what_hides_is_shown_wherever_a_piece_ends() {
        let text = "a\x1b[2J\r\nb\r👩\u{200d}💻\u{200b}\u{2028}\u{202e}é";
        let expect = "a␛[2J\nb␍👩\u{200d}💻<U+200B><U+2028><U+202E>é";
        let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second >= first) {
                let mut stream = DeltaText::default();
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                let shown: String = pieces.iter().map(|piece| stream.push(piece)).collect();
                assert_eq!(shown, expect, "{pieces:?}");
            }
        }
    }

    #[test]
    fn an_answer_that_was_shown_whole_is_known() {
        let mut stream = AnswerStream::default();
        assert!(!stream.has_shown("looking"));
        assert_eq!(stream.delta(call(1), "look"), "look");
        assert!(!stream.has_shown("looking"));
        assert_eq!(stream.delta(call(1), "ing"), "ing");
        assert!(stream.has_shown("looking\n"));
        stream.tool_call();
        stream.tool_call();
        assert!(stream.has_shown("looking"), "it is the answer if nothing follows");
        // A long answer in two parts.
        stream.delta(call(2), "one ");
        stream.delta(call(3), "two");
        for (answer, is_shown) in [("two", true), ("one two", true), ("one", false), ("", false)] {
            assert_eq!(stream.has_shown(answer), is_shown, "{answer}");
        }
    }

    #[test]
    fn what_was_not_shown_is_made_up_for_by_the_record() {
        let mut stream = AnswerStream::default();
        stream.delta(call(1), "the ans");
        assert_eq!(stream.complete(call(1), "the answer"), "wer");
        assert_eq!(stream.complete(call(1), "the answer"), "");
        assert_eq!(stream.complete(call(2), "whole\x07"), "whole␇");
        assert!(stream.has_shown("whole\x07"));
    }

    #[test]
    fn a_silent_answer_is_not_shown() {
        let mut stream = AnswerStream::default();
        assert_eq!(stream.delta(call(1), "NO_"), "");
        assert_eq!(stream.delta(call(1), "reply"), "");
        assert_eq!(stream.complete(call(1), "NO_reply"), "");
        assert!(!stream.void(call(1)), "nothing was shown");
        assert_eq!(stream.delta(call(2), "N"), "");
        assert_eq!(stream.delta(call(2), "ot "), "Not ");
        assert_eq!(stream.delta(call(2), "yet"), "yet");
        assert!(stream.void(call(2)));
        assert_eq!(stream.delta(call(3), "N"), "");
        assert_eq!(stream.complete(call(3), "NO"), "NO");
    }

    #[test]
    fn a_text_that_does_not_count_is_void() {
        let mut stream = AnswerStream::default();
        stream.delta(call(1), "half an ans");
        assert!(!stream.void(call(2)));
        assert!(stream.void(call(1)));
        assert!(!stream.void(call(1)) && !stream.has_shown("half an ans"));
        assert_eq!(stream.delta(call(1), "an answer"), "an answer");
        assert!(stream.has_shown("an answer"));
    }
}
