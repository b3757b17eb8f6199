//! What becomes part of a reply beside the text: reasoning, tools, errors, and how the run ended.

use super::*;

#[test]
fn parts_of_an_answer_are_one_text() {
    for shape in [blocks_at(BlockBreak::TextEnd), blocks_at(BlockBreak::MessageEnd)] {
        let mut run = Shaped::new(options(shape));
        run.text(1, 1, "A text that");
        run.answer_flawed((1, 1), ("A text that", ""), &[], Some(Flaw::Partial));
        run.text(2, 1, " goes");
        run.retry(2, 2);
        run.text(2, 2, " goes on");
        run.answer((2, 2), " goes on", "", &[]);
        run.completes();
        run.check(&["block A text that goes on", "final Some(Answer) -"]);
    }
}

#[test]
fn reasoning_is_off_streamed_or_a_message_before_the_text() {
    let shape = |reasoning| {
        let mut run = Shaped::new(ReplyOptions { reasoning, ..DELTAS });
        run.think(1, 1, "h");
        run.think(1, 1, "m");
        run.text(1, 1, "done");
        run.answer((1, 1), "done", "hm", &[]);
        run.completes();
        run
    };
    shape(ReasoningMode::Off).check(&["delta done", "final Some(Answer) done"]);
    let streamed = ["reasoning h", "reasoning m", "delta done", "final Some(Answer) done"];
    shape(ReasoningMode::Stream).check(&streamed);
    shape(ReasoningMode::Block).check(&["reasoning hm", "delta done", "final Some(Answer) done"]);
    // From the records alone.
    for reasoning in [ReasoningMode::Stream, ReasoningMode::Block] {
        let mut run = Shaped::new(ReplyOptions { reasoning, ..options(blocks_at(BlockBreak::MessageEnd)) });
        run.answer((1, 1), "done", "hm", &[]);
        run.check(&["reasoning hm", "block done"]);
    }
}

#[test]
fn tools_are_summarised_as_they_end() {
    let shape = |verbose| {
        let mut run = Shaped::new(ReplyOptions { verbose, ..DELTAS });
        run.answer((1, 1), "", "", &[("look", r#"{"a":1}"#), ("look", "{}")]);
        run.tool_ends(1, 2, CallEnd::new(CallStatus::NotStarted, "no"));
        run.tool_ends(1, 1, CallEnd::ok("line\nline"));
        run
    };
    shape(Verbosity::Off).check(&[]);
    shape(Verbosity::On).check(&["tool look {}: not started", r#"tool look {"a":1}: ok"#]);
    shape(Verbosity::Full).check(&["tool look {}: not started\nno", "tool look {\"a\":1}: ok\nline\nline"]);
}

#[test]
fn the_error_of_a_tool_is_told_if_there_is_nothing_else() {
    let error = || CallEnd::error(CallStatus::Error, "no such file", None, "look");
    let with = |answer: &str, ends: &[(&str, CallEnd)]| {
        let mut run = Shaped::new(DELTAS);
        for ((tool, end), iteration) in ends.iter().zip(1..) {
            run.answer((iteration, 1), "", "", &[(tool, r#"{"text":"hello"}"#)]);
            run.tool_ends(iteration, 1, end.clone());
        }
        run.answer((9, 1), answer, "", &[]);
        run.completes();
        run.shown().pop().unwrap()
    };
    assert_eq!(with("NO_REPLY", &[("read", error())]), "final silent Some(ToolError) read: no such file");
    assert_eq!(with("done", &[("read", error())]), "final Some(Answer) done");
    assert_eq!(with("NO_REPLY", &[("read", error()), ("read", CallEnd::ok("x"))]), "final silent None -");
    let spoken = [("message", CallEnd::ok("sent")), ("read", error())];
    assert_eq!(with("NO_REPLY", &spoken), "final silent None -", "a message tool has spoken");
    let failed = [("message", error())];
    assert_eq!(with("NO_REPLY", &failed), "final silent Some(ToolError) message: no such file");
}

#[test]
fn what_the_message_tool_has_sent_is_not_delivered_again() {
    for shape in [ReplyShape::Deltas, blocks_at(BlockBreak::TextEnd), blocks_at(BlockBreak::MessageEnd)] {
        let answered = |answer: &str, end: CallEnd| {
            let mut run = Shaped::new(options(shape));
            run.answer((1, 1), "", "", &[("message", r#"{"target":"me","text":"Hello there, friend"}"#)]);
            run.tool_ends(1, 1, end);
            answer.split_inclusive(' ').for_each(|piece| run.text(2, 1, piece));
            run.answer((2, 1), answer, "", &[]);
            run.completes();
            run.shown()
        };
        assert_eq!(answered(" Hello there,\nfriend", CallEnd::ok("sent")), ["final Some(Sent) -"]);
        for (answer, end) in [
            ("Hello there, stranger", CallEnd::ok("sent")),
            ("Hello there", CallEnd::ok("sent")),
            ("Hello there, friend", CallEnd::new(CallStatus::Error, "x")),
        ] {
            let shown = answered(answer, end);
            let text: String = shown
                .iter()
                .filter_map(|line| line.split_once(' '))
                .filter(|(kind, _)| *kind != "final")
                .map(|(_, text)| text)
                .collect();
            assert_eq!(text, answer);
        }
    }
}

#[test]
fn a_run_that_did_not_complete_says_why() {
    let ended = |outcome, cause| {
        let mut run = Shaped::new(DELTAS);
        run.answer((1, 1), "I look", "", &[("look", "{}")]);
        run.text(2, 1, "hal");
        run.ends(OutcomeDetail { outcome, cause });
        run.shown().pop().unwrap()
    };
    let empty = "failed (empty_answer: the model answered nothing)";
    assert_eq!(
        ended(Outcome::Failed, Some(OutcomeCause::EmptyAnswer)),
        format!("final Some(Failure) {empty}")
    );
    let stop = OutcomeCause::Stop { reason: StopReason::Command };
    assert_eq!(ended(Outcome::Stopped, Some(stop)), "final None -");
    assert_eq!(ended(Outcome::Refused, None), "final Some(Partial) I look");
}
