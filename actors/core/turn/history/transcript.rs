//! Renders a part of a conversation as text for a summary call.

use super::{History, rounds::Step, trim::HistoryPart};
use crate::model::HistoryPosition;

/// Most bytes of a text in the transcript; of a longer text it has the head and the tail.
const MAX_TEXT_BYTES: usize = 6_000;
/// Most bytes of a result or of arguments in the transcript.
const MAX_RESULT_BYTES: usize = 2_000;

impl History {
    /// The conversation from `from` to at most `to`, in at most `room` bytes, and the position where this text ends.
    /// The first part is included whatever its length.
    pub(in crate::turn) fn transcript(
        &self,
        from: HistoryPosition,
        to: HistoryPosition,
        room: usize,
    ) -> (String, HistoryPosition) {
        let (mut told, mut upto) = (String::new(), from);
        for (behind, part) in self.parts_from(from).take_while(|(behind, _)| *behind <= to) {
            let mut text = String::new();
            part.write_to(&mut text);
            if upto != from && told.len() + text.len() > room {
                break;
            }
            told.push_str(&text);
            upto = behind;
        }
        (told, upto)
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

fn write_section(to: &mut String, who: &str, what: &str, most: usize) {
    let what = what.trim();
    let whole = if what.len() <= most {
        format!("## {who}\n{what}\n\n")
    } else {
        let (head, tail) =
            (what.floor_char_boundary(most * 2 / 3), what.ceil_char_boundary(what.len() - most / 3));
        let left_out = tail - head;
        format!("## {who}\n{}\n[… {left_out} bytes …]\n{}\n\n", &what[..head], &what[tail..])
    };
    to.push_str(&whole);
}
