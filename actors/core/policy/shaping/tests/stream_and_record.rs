//! What a client gets of a message whose record differs from its stream, or that takes several model calls.

use super::*;
use crate::model::{AccountId, BudgetRefusal, Dimension, RunExhausted};

/// The text of the last message as a client has it that keeps blocks, or deltas, by what `retry` says.
fn kept(pieces: &[ReplyPiece]) -> String {
    let (mut first, mut text) = (None, String::new());
    for piece in pieces {
        match piece {
            ReplyPiece::Delta { message: call, text: more, .. }
            | ReplyPiece::Block { call, text: more, .. } => {
                if first.replace(*call) != Some(*call) {
                    text.clear();
                }
                text.push_str(more);
            }
            ReplyPiece::Retry { message, at, .. } if first == Some(*message) => {
                text.truncate(usize::try_from(*at).unwrap());
            }
            ReplyPiece::Retry { .. }
            | ReplyPiece::Reasoning { .. }
            | ReplyPiece::Tool(_)
            | ReplyPiece::Final(_) => {}
        }
    }
    text
}

#[test]
fn a_retry_names_what_stays_of_a_message_that_an_earlier_call_began() {
    let (part, void, rest) =
        ("One paragraph.\n\nTwo, which ", "goes wrong.\n\nHalf", "goes on well.\n\nDone.");
    for shape in [ReplyShape::Deltas, blocks_at(BlockBreak::TextEnd), blocks_at(BlockBreak::MessageEnd)] {
        let mut run = Shaped::new(options(shape));
        run.text(1, 1, part);
        run.answer_flawed((1, 1), (part, ""), &[], Some(Flaw::Partial));
        run.text(2, 1, void);
        run.retry(2, 2);
        run.text(2, 2, rest);
        run.answer((2, 2), rest, "", &[]);
        assert_eq!(kept(&run.pieces), format!("{part}{rest}"), "{:?}", run.pieces);
    }
}

#[test]
fn reasoning_that_waits_is_kept_over_a_retry_of_a_later_call() {
    let mut run = Shaped::new(ReplyOptions { reasoning: ReasoningMode::Block, ..DELTAS });
    run.think(1, 1, "first");
    run.text(1, 1, "no");
    run.answer_flawed((1, 1), ("no", "first"), &[], Some(Flaw::Partial));
    run.think(2, 1, "void");
    run.retry(2, 2);
    run.text(2, 2, "t that");
    run.answer((2, 2), "t that", "", &[]);
    run.check(&["reasoning first", "delta not that"]);
}

#[test]
fn a_text_that_is_recorded_otherwise_than_it_was_streamed_is_sent_anew() {
    for shape in [ReplyShape::Deltas, blocks_at(BlockBreak::TextEnd)] {
        for recorded in ["The key is [redacted:KEY], and é.", "The", ""] {
            let mut run = Shaped::new(options(shape));
            run.text(1, 1, "The key is se");
            run.think(1, 1, "hm");
            run.text(1, 1, "cret, and ");
            run.answer((1, 1), recorded, "hm", &[]);
            assert_eq!(kept(&run.pieces), recorded, "{:?}", run.pieces);
        }
    }
}

#[test]
fn a_run_that_ends_within_an_answer_sends_what_is_durable_of_it() {
    for (shape, source) in [
        (ReplyShape::Deltas, "final Some(Partial) A text that"),
        (blocks_at(BlockBreak::TextEnd), "final Some(Partial) -"),
        (blocks_at(BlockBreak::MessageEnd), "final Some(Partial) -"),
    ] {
        let mut run = Shaped::new(options(shape));
        run.answer_flawed((1, 1), ("A text that", ""), &[], Some(Flaw::Partial));
        run.text(2, 1, " is refused.\n\n");
        run.ends(OutcomeDetail { outcome: Outcome::Refused, cause: None });
        assert_eq!(run.shown().pop().as_deref(), Some(source));
        if shape != ReplyShape::Deltas {
            assert_eq!(kept(&run.pieces), "A text that", "{:?}", run.pieces);
        }
    }
}

#[test]
fn the_text_of_the_grace_call_has_the_parts_that_it_continues() {
    let mut run = Shaped::new(DELTAS);
    run.answer((1, 1), "I look.", "", &[("look", "{}")]);
    run.tool_ends(1, 1, CallEnd::ok("r"));
    run.answer_flawed((2, 1), ("A text that", ""), &[], Some(Flaw::Partial));
    run.record(Body::RunExhausted(RunExhausted {
        run: RunId::from_bits(1),
        refusal: BudgetRefusal {
            account: AccountId::from_bits(1),
            dimension: Dimension::Iterations,
            limit: 2,
            spent: 2,
            reserved: 0,
            needed: Some(1),
        },
    }));
    run.answer((3, 1), " ends here.", "", &[]);
    run.ends(OutcomeDetail { outcome: Outcome::BudgetExhausted, cause: None });
    assert_eq!(run.shown().pop().as_deref(), Some("final Some(Partial) A text that ends here."));
}

/// A long message takes time in proportion to its length: this one took minutes when each block was found by a look at
/// all of the rest.
#[test]
#[allow(clippy::disallowed_methods)] // a test may look at the clock
fn a_long_message_is_cut_in_time() {
    for paragraph in ["word ", "```\ncode\n", "x", " ", "`", "\n", "a\n```b "] {
        let text = paragraph.repeat((1 << 19) / paragraph.len());
        let mut run = Shaped::new(options(blocks_at(BlockBreak::MessageEnd)));
        let started = std::time::Instant::now();
        run.answer((1, 1), &format!("{text}."), "", &[]);
        let took = started.elapsed();
        assert!(took.as_secs() < 60, "{took:?} for {paragraph:?}");
    }
}
