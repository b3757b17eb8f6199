//! What the calls of one answer mean: their order, and calls that are not plain.

use super::{Driver, model, tool};
use crate::{
    model::{Access, CallEnd, EffectClass, Finish, Hash, Limits},
    port::Intent,
    turn::{Input, Plan},
};

/// A driver whose model is being asked.
fn asked() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver
}

fn touching(access: &Access) -> Plan {
    let intent = Intent { effect: EffectClass::Idempotent, access: access.clone() };
    Plan::Admit { tool: "tool".into(), intent, arguments: Hash::of(b"{}") }
}

/// The calls of one answer run in these waves: what is under way together, each ended before the next.
#[track_caller]
fn check_waves(calls: &[Access], waves: &[&[u32]]) {
    let mut driver = asked();
    driver.answer_planned("", Finish::ToolCalls, calls.iter().map(touching).collect());
    for wave in waves {
        let running = driver.permit_all();
        assert_eq!(running, *wave, "{calls:?}");
        // A crash changes nothing of the order.
        driver.crash();
        assert_eq!(driver.permit_all(), *wave, "{calls:?} after a crash");
        for n in running {
            driver.feed(&Input::ToolEnded { call: tool(1, 1, n), attempt: 2, end: CallEnd::ok("r") });
        }
    }
    assert_eq!(driver.view(), format!("uc{}", "t".repeat(calls.len())), "{calls:?}");
}

#[test]
fn calls_that_conflict_keep_their_order() {
    let (read, write) = (Access::reads("/w/a"), Access::writes("/w/a"));
    let (other, shell) = (Access::writes("/w/b"), Access::Anything);
    check_waves(&[read.clone(), read.clone()], &[&[1, 2]]);
    check_waves(&[shell.clone(), shell.clone(), shell.clone()], &[&[1, 2, 3]]);
    check_waves(&[write.clone(), read.clone()], &[&[1], &[2]]);
    check_waves(&[read.clone(), write.clone(), read.clone()], &[&[1], &[2], &[3]]);
    check_waves(&[write.clone(), other.clone(), read.clone()], &[&[1, 2], &[3]]);
    check_waves(&[shell.clone(), read.clone(), write.clone(), other], &[&[1, 2], &[3, 4]]);
    check_waves(&[read.clone(), Access::Alone, read, shell, write], &[&[1], &[2], &[3, 4], &[5]]);
}

#[test]
fn what_waits_starts_in_the_append_of_the_result_it_waited_for() {
    let mut driver = asked();
    let (write, read) = (Access::writes("/w/a"), Access::reads("/w/a"));
    driver.answer_planned("", Finish::ToolCalls, vec![touching(&write), touching(&read)]);
    assert_eq!(driver.permit_all(), [1]);
    let mut draft = driver.turn.draft(driver.now);
    draft.feed(&Input::ToolEnded { call: tool(1, 1, 1), attempt: 1, end: CallEnd::ok("r") });
    assert_eq!(draft.wants().len(), 1);
    draft.feed(&Input::Permitted { call: tool(1, 1, 2), attempt: 1 });
    let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["call.ended", "call.started"]);
}
