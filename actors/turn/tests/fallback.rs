//! Which model of a chain is asked.

use super::{Driver, check, model, tool};
use crate::{
    model::{CallEnd, EffectClass, FailureClass, Limits, Past},
    turn::{Effect, Input},
};

#[test]
fn when_a_model_cannot_answer_the_one_behind_it_is_asked() {
    let chain = |driver: &Driver| {
        let links = driver.turn.candidates().unwrap_or_default().into_iter();
        links.map(|link| link.model.to_string()).collect::<Vec<_>>()
    };
    let mut driver = Driver::new();
    driver.submit_to(&["p/m", "q/n"], 1, (Limits { max_tokens: 100, ..Limits::default() }, Past::default()));
    driver.lease(model(1, 1), 1);
    assert_eq!(driver.fail(FailureClass::Server), ["model.failed"]);
    assert_eq!(chain(&driver), ["p/m", "q/n"], "it is tried again first");
    driver.pass(60_000);
    driver.lease(model(1, 1), 2);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed"]);
    check(&driver, "u", &[Effect::Seek { call: model(1, 1), attempt: 3 }]);
    driver.lease(model(1, 1), 3);
    driver.crash();
    assert_eq!(chain(&driver), ["q/n"], "also after a crash");
    driver.lease(model(1, 1), 4);
    driver.answer(1, EffectClass::Pure);
    driver.feed(&Input::Permitted { call: tool(1, 1, 1), attempt: 1 });
    driver.feed(&Input::ToolEnded { call: tool(1, 1, 1), attempt: 1, end: CallEnd::ok("r") });
    assert_eq!(chain(&driver), ["p/m", "q/n"], "the next call begins with the first again");
    driver.lease(model(1, 2), 1);
    driver.fail(FailureClass::Auth);
    driver.lease(model(1, 2), 2);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed", "run.ended"], "there is no third");
}

#[test]
fn what_is_wrong_with_the_request_asks_nobody_else() {
    for class in [FailureClass::InvalidRequest, FailureClass::ContentRefused] {
        let mut driver = Driver::new();
        driver.submit_to(
            &["p/m", "q/n"],
            1,
            (Limits { max_tokens: 100, ..Limits::default() }, Past::default()),
        );
        driver.lease(model(1, 1), 1);
        assert_eq!(driver.fail(class), ["model.failed", "run.ended"]);
    }
}
