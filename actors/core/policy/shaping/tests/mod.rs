//! Tests of the whole policy: any text is delivered once and whole, and each rule of a reply.

mod replies;
mod sent;
mod stream_and_record;

use std::sync::Arc;

use proptest::prelude::*;

use super::{fence::FenceScan, *};
use crate::model::{
    AssistantMessage, Body, CallAdmitted, CallEnd, CallEnded, CallId, CallStatus, Durable, EffectClass,
    EventBody, FinishReason, Flaw, Hash, HookedCall, ModelAnswered, Outcome, OutcomeCause, OutcomeDetail,
    Record, RunEnded, RunId, StopReason, Timestamp, ToolCall, Usage,
};

const SIZES: BlockSizes = BlockSizes { min_chars: 10, max_chars: 30 };

/// Any text with much of what cuts and fences depend on.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("```".to_owned()),
        Just("```rust\n".to_owned()),
        Just("~~~~\n".to_owned()),
        Just("\n```\n".to_owned()),
        Just(" ".to_owned()),
        Just(". ".to_owned()),
        "[a-zé。]{1,12}",
        "[a-z]{40}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Whether a fence is open at the end of a block.
fn ends_in_fence(block: &TextBlock) -> bool {
    let text = block.text();
    FenceScan::new(&text, text.len(), None).fence_at(text.len()).is_some()
}

/// The blocks of a text that comes in pieces of `step` characters, with a pause after each if it `pauses`.
fn blocks(text: &str, step: usize, pauses: bool) -> (Vec<TextBlock>, usize) {
    let (mut chunker, mut blocks, mut most) = (BlockChunker::new(SIZES), Vec::new(), 0);
    let letters: Vec<char> = text.chars().collect();
    for piece in letters.chunks(step) {
        let piece: String = piece.iter().collect();
        chunker.push(&piece);
        let cuts = if pauses { &[Cut::Full, Cut::Idle][..] } else { &[Cut::Full] };
        for cut in cuts {
            while let Some(block) = chunker.next_block(*cut) {
                blocks.push(block);
            }
        }
        most = most.max(chunker.waiting_bytes());
    }
    while let Some(block) = chunker.next_block(Cut::End) {
        blocks.push(block);
    }
    (blocks, most)
}

proptest! {
    #[test]
    fn blocks_are_the_text(text in text(), step in 1..50_usize, pauses in any::<bool>()) {
        let (blocks, _) = blocks(&text, step, pauses);
        let joined: String = blocks.iter().map(|block| block.body.as_str()).collect();
        // Only white space at the end, or too much of it, is in no block.
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        prop_assert_eq!(plain(&joined), plain(&text));
        for block in &blocks {
            let at = usize::try_from(block.at).unwrap();
            prop_assert_eq!(&text[at..at + block.body.len()], block.body.as_str());
            prop_assert!(!block.body.trim().is_empty() && block.body.chars().count() <= SIZES.max_chars);
        }
    }

    #[test]
    fn no_block_ends_inside_of_a_fence(text in text(), step in 1..50_usize) {
        for block in blocks(&text, step, false).0 {
            prop_assert!(!ends_in_fence(&block), "{:?}", block.text());
        }
    }

    #[test]
    fn what_waits_is_bounded(text in text(), times in 1..20_usize) {
        let (_, most) = blocks(&text.repeat(times), 3, false);
        prop_assert!(most <= 4 * SIZES.max_chars + 12, "{most}");
    }

    #[test]
    fn a_reply_has_the_text_once(text in "[a-z. \n]{0,90}", step in 1..50_usize, cut in 0..60_usize, early in any::<bool>()) {
        let break_at = if early { BlockBreak::TextEnd } else { BlockBreak::MessageEnd };
        let mut run = Shaped::new(options(blocks_at(break_at)));
        let letters: Vec<char> = text.chars().collect();
        // The first attempt is cut off somewhere.
        run.text(1, 1, &letters.iter().take(cut).collect::<String>());
        run.retry(1, 2);
        letters.chunks(step).for_each(|piece| run.text(1, 2, &piece.iter().collect::<String>()));
        run.answer((1, 2), &text, "", &[]);
        let blocks: String = run.shown().iter().filter_map(|line| line.strip_prefix("block ")).collect();
        let plain = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
        prop_assert_eq!(plain(&blocks), plain(&text));
    }
}

fn blocks_at(break_at: BlockBreak) -> ReplyShape {
    ReplyShape::Blocks(BlockSettings { sizes: SIZES, break_at, idle_ms: 1_000 })
}

const fn options(shape: ReplyShape) -> ReplyOptions {
    ReplyOptions { shape, reasoning: ReasoningMode::Off, verbose: Verbosity::Off }
}

/// A run whose events are shaped.
struct Shaped {
    shaper: ReplyShaper,
    pieces: Vec<ReplyPiece>,
    now_ms: u64,
}

fn call(iteration: u32, n: u32) -> CallId {
    CallId { run: RunId::from_bits(1), iteration, n }
}

impl Shaped {
    fn new(options: ReplyOptions) -> Self {
        Self { shaper: ReplyShaper::new(options), pieces: Vec::new(), now_ms: 0 }
    }

    fn event(&mut self, event: &EventBody) {
        self.pieces.extend(self.shaper.on_event(event, self.now_ms));
    }

    fn record(&mut self, body: Body) {
        let record = Durable::mark_durable(Arc::new(Record { at: Timestamp(0), active_ms: 0, body }));
        self.event(&EventBody::Recorded { record });
    }

    fn text(&mut self, iteration: u32, attempt: u32, delta: &str) {
        self.event(&EventBody::TextDelta { call: call(iteration, 0), attempt, delta: delta.into() });
    }

    fn think(&mut self, iteration: u32, attempt: u32, delta: &str) {
        self.event(&EventBody::ReasoningDelta { call: call(iteration, 0), attempt, delta: delta.into() });
    }

    fn retry(&mut self, iteration: u32, attempt: u32) {
        self.event(&EventBody::Retry { call: call(iteration, 0), attempt });
    }

    /// The durable answer of an attempt, with calls of these tools.
    fn answer(&mut self, id: (u32, u32), text: &str, reasoning: &str, calls: &[(&str, &str)]) {
        self.answer_flawed(id, (text, reasoning), calls, None);
    }

    fn answer_flawed(
        &mut self,
        (iteration, attempt): (u32, u32),
        (text, reasoning): (&str, &str),
        calls: &[(&str, &str)],
        flaw: Option<Flaw>,
    ) {
        let tool = |(name, arguments): &(&str, &str)| ToolCall {
            id: "c".into(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        };
        let message = AssistantMessage {
            text: text.into(),
            reasoning: reasoning.into(),
            calls: calls.iter().map(tool).collect(),
            opaque: None,
        };
        self.record(Body::ModelAnswered(Box::new(ModelAnswered {
            call: call(iteration, 0),
            attempt,
            message: Arc::new(message),
            finish: FinishReason::Stop,
            flaw,
            fallback: None,
            usage: None,
            anomaly: None,
        })));
        for ((name, _), n) in calls.iter().zip(1..) {
            self.admitted(iteration, n, name, None);
        }
    }

    fn admitted(&mut self, iteration: u32, n: u32, tool: &str, hooks: Option<HookedCall>) {
        self.record(Body::CallAdmitted(CallAdmitted {
            call: call(iteration, n),
            tool: tool.into(),
            effect: EffectClass::Pure,
            access: crate::model::Access::default(),
            detached: false,
            polls: false,
            arguments: Hash::of(b""),
            same_as: None,
            hooks: hooks.map(Arc::new),
        }));
    }

    fn tool_ends(&mut self, iteration: u32, n: u32, end: CallEnd) {
        self.record(Body::CallEnded(CallEnded::new(call(iteration, n), 1, end)));
    }

    fn ends(&mut self, ended: OutcomeDetail) {
        let (run, usage) = (RunId::from_bits(1), Usage::default());
        self.record(Body::RunEnded(RunEnded { run, ended, iterations: 1, usage }));
    }

    fn completes(&mut self) {
        self.ends(OutcomeDetail { outcome: Outcome::Completed, cause: None });
    }

    /// The pieces so far, a line each.
    fn shown(&self) -> Vec<String> {
        let line = |piece: &ReplyPiece| match piece {
            ReplyPiece::Delta { text, .. } => format!("delta {text}"),
            ReplyPiece::Block { text, .. } => format!("block {text}"),
            ReplyPiece::Reasoning { text, .. } => format!("reasoning {text}"),
            ReplyPiece::Tool(summary) => format!("tool {}", summary.text),
            ReplyPiece::Retry { call, .. } => format!("retry {}", call.iteration),
            ReplyPiece::Final(FinalReply { text, source, is_silent, .. }) => {
                let silent = if *is_silent { " silent" } else { "" };
                format!("final{silent} {source:?} {}", text.as_deref().unwrap_or("-"))
            }
        };
        let mut lines: Vec<String> = Vec::new();
        for piece in &self.pieces {
            if let ReplyPiece::Retry { .. } = piece {
                lines.retain(|line| !line.starts_with("block ") && !line.starts_with("delta "));
            }
            lines.push(line(piece));
        }
        lines
    }

    #[track_caller]
    fn check(&self, expect: &[&str]) {
        assert_eq!(self.shown(), expect);
    }
}

const DELTAS: ReplyOptions = options(ReplyShape::Deltas);

#[test]
fn deltas_come_at_once_and_the_final_reply_replaces_them() {
    let mut run = Shaped::new(DELTAS);
    run.text(1, 1, "I lo");
    run.text(1, 1, "ok.");
    run.answer((1, 1), "I look.", "", &[("look", "{}")]);
    run.tool_ends(1, 1, CallEnd::ok("r"));
    // A reader that joined late gets the rest of a text from its record.
    run.text(2, 1, "do");
    run.answer((2, 1), "done", "", &[]);
    run.completes();
    run.check(&["delta I lo", "delta ok.", "delta do", "delta ne", "final Some(Answer) done"]);
}

#[test]
fn a_retry_voids_what_was_shown() {
    let mut run = Shaped::new(DELTAS);
    run.text(1, 1, "hal");
    run.retry(1, 2);
    run.text(1, 2, "whole");
    run.answer((1, 2), "whole", "", &[]);
    run.completes();
    run.check(&["retry 1", "delta whole", "final Some(Answer) whole"]);
    // Nothing was shown, so nothing is void.
    let mut run = Shaped::new(options(blocks_at(BlockBreak::TextEnd)));
    run.text(1, 1, "hal");
    run.retry(1, 2);
    run.text(1, 2, "whole");
    run.answer((1, 2), "whole", "", &[]);
    run.completes();
    run.check(&["block whole", "final Some(Answer) -"]);
    // A call that another one follows without a word, such as the grace call.
    let mut run = Shaped::new(DELTAS);
    run.text(1, 1, "hal");
    run.text(2, 1, "whole");
    run.check(&["retry 1", "delta whole"]);
}

#[test]
fn blocks_come_at_the_end_of_a_text_or_of_a_message() {
    let text = "First one.\n\nSecond one is longer.\n\nEnd";
    let stream = |break_at| {
        let mut run = Shaped::new(options(blocks_at(break_at)));
        text.split_inclusive(' ').for_each(|piece| run.text(1, 1, piece));
        let before = run.shown().len();
        run.answer((1, 1), text, "", &[]);
        run.completes();
        (before, run)
    };
    let (before, run) = stream(BlockBreak::TextEnd);
    assert_eq!(before, 2, "{:?}", run.shown());
    run.check(&[
        "block First one.\n\n",
        "block Second one is longer.\n\n",
        "block End",
        "final Some(Answer) -",
    ]);
    let (before, run) = stream(BlockBreak::MessageEnd);
    assert_eq!(before, 0);
    run.check(&["block First one.\n\n", "block Second one is longer.\n\nEnd", "final Some(Answer) -"]);
}

#[test]
fn a_long_fence_is_closed_and_opened_again() {
    let mut run = Shaped::new(options(blocks_at(BlockBreak::TextEnd)));
    let text = "Look:\n```rust\nlet a = 1;\nlet b = 2;\nlet c = 3;\n```\nThat is all.";
    run.text(1, 1, text);
    run.answer((1, 1), text, "", &[]);
    run.check(&[
        "block Look:\n",
        "block ```rust\nlet a = 1;\nlet b = 2;\n```",
        "block ```rust\nlet c = 3;\n```\nThat is all.",
    ]);
}

#[test]
fn text_is_sent_after_a_pause() {
    let mut run = Shaped::new(options(blocks_at(BlockBreak::TextEnd)));
    assert_eq!(run.shaper.idle_at_ms(), None);
    run.now_ms = 5;
    run.text(1, 1, "One moment. Mo");
    assert_eq!(run.shaper.idle_at_ms(), Some(1_005));
    assert_eq!(run.shaper.on_time(1_004), []);
    let pieces = run.shaper.on_time(1_005);
    run.pieces.extend(pieces);
    run.check(&["block One moment. "]);
    assert_eq!(run.shaper.idle_at_ms(), None);
    run.text(1, 1, "re");
    run.answer((1, 1), "One moment. More", "", &[]);
    run.check(&["block One moment. ", "block More"]);
}

#[test]
fn a_silent_answer_is_not_shown_not_even_its_first_letters() {
    for shape in [ReplyShape::Deltas, blocks_at(BlockBreak::TextEnd), blocks_at(BlockBreak::MessageEnd)] {
        for reasoning in [ReasoningMode::Off, ReasoningMode::Block] {
            let mut run = Shaped::new(ReplyOptions { reasoning, ..options(shape) });
            run.think(1, 1, "nothing to say");
            [" ", "no", "_Re", "PLY"].iter().for_each(|piece| run.text(1, 1, piece));
            run.answer((1, 1), " no_RePLY", "nothing to say", &[]);
            run.completes();
            run.check(&["final silent None -"]);
        }
    }
    let mut run = Shaped::new(DELTAS);
    ["N", "O", "W"].iter().for_each(|piece| run.text(1, 1, piece));
    run.check(&["delta NOW"]);
    let mut run = Shaped::new(DELTAS);
    run.text(1, 1, "NO");
    run.answer((1, 1), "NO", "", &[]);
    run.completes();
    run.check(&["delta NO", "final Some(Answer) NO"]);
}

#[test]
fn a_silent_answer_that_is_asked_for_again_is_not_shown_either() {
    let mut run = Shaped::new(DELTAS);
    run.text(1, 1, "NO_REPLY");
    run.retry(1, 2);
    run.answer_flawed((1, 1), ("NO_REPLY", ""), &[], Some(Flaw::Silent));
    run.text(2, 1, "fine");
    run.answer((2, 1), "fine", "", &[]);
    run.completes();
    run.check(&["delta fine", "final Some(Answer) fine"]);
}
