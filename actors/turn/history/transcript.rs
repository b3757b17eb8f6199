//! A part of a conversation as text, for whoever is to summarise it.

use super::{
    History,
    rounds::{End, Step},
    short::Part,
};
use crate::model::Place;

/// Bytes of a text that are told; of a longer one its head and its tail.
const TEXT: usize = 6_000;
/// Bytes of a result or of arguments that are told.
const RESULT: usize = 2_000;

impl History {
    /// The conversation from one place on, to another at most, in so many bytes; and up to where that is. One part is told
    /// whatever its length.
    pub(in crate::turn) fn transcript(&self, from: Place, to: Place, room: usize) -> (String, Place) {
        let (mut told, mut upto) = (String::new(), from);
        for (behind, part) in self.told_from(from).take_while(|(behind, _)| *behind <= to) {
            let mut text = String::new();
            part.tell(&mut text);
            if upto != from && told.len() + text.len() > room {
                break;
            }
            told.push_str(&text);
            upto = behind;
        }
        (told, upto)
    }
}

impl Part<'_> {
    fn tell(&self, to: &mut String) {
        match self {
            Self::User(round) => {
                say(to, "user", &round.user.text, TEXT);
                if !round.user.images.is_empty() {
                    say(to, "user", "[pictures]", TEXT);
                }
                if let Some(note) = &round.note.0 {
                    say(to, "user, behind it", note, TEXT);
                }
            }
            Self::Step(step) => tell_step(step, to),
            Self::End(End::Answer(message) | End::Closed(message)) => {
                say(to, "assistant", &message.text, TEXT);
            }
        }
    }
}

fn tell_step(step: &Step, to: &mut String) {
    if !step.answer.text.is_empty() {
        say(to, "assistant", &step.answer.text, TEXT);
    }
    for (call, result) in step.answer.calls.iter().zip(&step.results) {
        say(to, &format!("assistant calls {}", call.name), &call.arguments, RESULT);
        say(to, &format!("result of {}", call.name), &result.end.content, RESULT);
    }
    if let Some(note) = &step.note.0 {
        say(to, "user, meanwhile", note, TEXT);
    }
}

fn say(to: &mut String, who: &str, what: &str, most: usize) {
    let what = what.trim();
    let whole = if what.len() <= most {
        format!("## {who}\n{what}\n\n")
    } else {
        let (head, tail) = (floor(what, most * 2 / 3), ceil(what, what.len() - most / 3));
        let left_out = tail - head;
        format!("## {who}\n{}\n[… {left_out} bytes …]\n{}\n\n", &what[..head], &what[tail..])
    };
    to.push_str(&whole);
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}
