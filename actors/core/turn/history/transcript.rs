//! Renders a part of a conversation as text for a summary call.

use super::{History, rounds::Step, trim::HistoryPart};
use crate::model::HistoryPosition;

/// Most bytes of a text in the transcript; of a longer text it has the head and the tail.
const MAX_TEXT_BYTES: usize = 6_000;
/// Most bytes of a result or of arguments in the transcript.
const MAX_RESULT_BYTES: usize = 2_000;

impl History {
    /// The conversation from `from` to at most `to`, in at most `max_bytes`, and the position where this text ends.
    /// The first part is included whatever its length.
    pub(in crate::turn) fn transcript(
        &self,
        from: HistoryPosition,
        to: HistoryPosition,
        max_bytes: usize,
    ) -> (String, HistoryPosition) {
        let (mut transcript, mut end) = (String::new(), from);
        for (next, part) in self.parts_from(from).take_while(|(next, _)| *next <= to) {
            let mut text = String::new();
            part.write_to(&mut text);
            if end != from && transcript.len() + text.len() > max_bytes {
                break;
            }
            transcript.push_str(&text);
            end = next;
        }
        (transcript, end)
    }
}

impl HistoryPart<'_> {
    fn write_to(&self, to: &mut String) {
        match self {
            Self::User(round) => {
                write_section(to, "user", &round.user.text, MAX_TEXT_BYTES);
                if !round.user.images.is_empty() {
                    write_section(to, "user", "[pictures]", MAX_TEXT_BYTES);
                }
                if let Some(note) = &round.note.0 {
                    write_section(to, "user, behind it", note, MAX_TEXT_BYTES);
                }
            }
            Self::Step(step) => write_step(step, to),
            Self::End(message) => {
                write_section(to, "assistant", &message.text, MAX_TEXT_BYTES);
            }
        }
    }
}

fn write_step(step: &Step, to: &mut String) {
    if !step.answer.text.is_empty() {
        write_section(to, "assistant", &step.answer.text, MAX_TEXT_BYTES);
    }
    for (call, result) in step.answer.calls.iter().zip(&step.results) {
        write_section(to, &format!("assistant calls {}", call.name), &call.arguments, MAX_RESULT_BYTES);
        write_section(to, &format!("result of {}", call.name), &result.end.content, MAX_RESULT_BYTES);
    }
    if let Some(note) = &step.note.0 {
        write_section(to, "user, meanwhile", note, MAX_TEXT_BYTES);
    }
}

fn write_section(to: &mut String, heading: &str, text: &str, max_bytes: usize) {
    let text = text.trim();
    let whole = if text.len() <= max_bytes {
        format!("## {heading}\n{text}\n\n")
    } else {
        let (head, tail) = (
            text.floor_char_boundary(max_bytes * 2 / 3),
            text.ceil_char_boundary(text.len() - max_bytes / 3),
        );
        let left_out = tail - head;
        format!("## {heading}\n{}\n[… {left_out} bytes …]\n{}\n\n", &text[..head], &text[tail..])
    };
    to.push_str(&whole);
}
