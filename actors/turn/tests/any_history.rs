//! Whatever happens, in whatever order: the view stays well formed at every record, every run ends once, every started
//! call has one end, and when nothing more is thrown at it, it comes to rest.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, proptest};

use super::{Driver, letters};
use crate::{
    model::{
        AssistantMessage, Body, CallEnd, CallId, CallStatus, Doubt, EffectClass, Failure, FailureClass,
        Finish, Limits, Message, NotAnswered, Outcome, Past, RetryPolicy, SessionId, StopReason, Timestamp,
        ToolCall, Verdict, WhenInDoubt, WhyAgain, WhyNot,
    },
    turn::{Cursor, Dormant, Effect, Fault, Input, Plan, history::History, repair::repair},
};

const EFFECTS: [EffectClass; 3] = [EffectClass::Pure, EffectClass::Idempotent, EffectClass::Once];

/// Serves or disturbs what is in flight, as two bytes of chance say.
fn happen(driver: &mut Driver, (runs, said): (&mut u128, &mut u128), what: u8, how: u8) {
    let due = driver.turn.due(driver.now);
    match what % 16 {
        0 => {
            *runs += 1;
            let timeout_ms = how.is_multiple_of(4).then_some(u64::from(how) * 10);
            let retry = RetryPolicy { fallback_on_refusal: how.is_multiple_of(3), ..RetryPolicy::default() };
            let limits = Limits { max_tokens: 100, timeout_ms, retry, ..Limits::default() };
            let then = [WhenInDoubt::Tell, WhenInDoubt::Ask, WhenInDoubt::Retry][usize::from(how / 16 % 3)];
            driver.in_doubt = Doubt { then, patience_ms: u64::from(how) * 100 };
            let chain = &["p/m", "q/n", "r/o"][..=usize::from(how / 4 % 3)];
            driver.submit_to(chain, *runs, (limits, Past::default()));
        }
        1 => {
            let run = how.is_multiple_of(4).then(|| super::run(u128::from(how / 4) % (*runs + 1)));
            driver.feed(&Input::Stop { run, reason: StopReason::Command });
        }
        2 => {
            driver.crash();
        }
        3 if how.is_multiple_of(2) => {
            // To a run that may be queued, under way, ended or unknown; the ids of messages are far from those of runs.
            *said += 1;
            let to = u128::from(how / 2) % (*runs + 2);
            driver.steer(to, *said);
            driver.steer(to, *said);
        }
        3 if how.is_multiple_of(3) => {
            let Some((request, _)) = driver.turn.questions().pop() else { return };
            let verdict = [Verdict::Allow, Verdict::Deny][usize::from(how / 3 % 2)];
            driver.feed(&Input::Decided { call: request.call, verdict });
        }
        3 => {
            driver.pass(u64::from(how) * 20);
            driver.feed(&Input::Woke);
        }
        _ => {
            let Some(effect) = due.get(usize::from(what) / 16 % due.len().max(1)) else { return };
            serve(driver, *effect, how);
        }
    }
}

fn serve(driver: &mut Driver, effect: Effect, how: u8) {
    match effect {
        Effect::Seek { call, attempt } if call.n == 0 && how % 32 == 31 => {
            driver.feed(&Input::NoLease { call, attempt, skipped: skipped(driver, None) });
        }
        Effect::Seek { call, attempt } if call.n == 0 && how % 32 == 30 => {
            let until = driver.now.at.plus_ms(u64::from(how) * 1_000);
            driver.feed(&Input::NoLease { call, attempt, skipped: skipped(driver, Some(until)) });
        }
        Effect::Seek { call, attempt } if call.n == 0 => {
            driver.lease(call, attempt);
        }
        Effect::Seek { call, attempt } => {
            driver.feed(&Input::Permitted { call, attempt });
        }
        Effect::Ask { call, attempt } => model_says(driver, call, attempt, how),
        Effect::End { call, attempt } => match how % 4 {
            0 => drop(driver.feed(&Input::Lost { call, attempt })),
            1 => drop(driver.feed(&Input::NeverBegun { call, attempt })),
            _ => {
                let end = CallEnd::new(CallStatus::Stopped, "stopped");
                driver.feed(&Input::ToolEnded { call, attempt, end });
            }
        },
        Effect::Run { call, attempt } => match how % 8 {
            0 | 4 => drop(driver.feed(&Input::Lost { call, attempt })),
            5 => drop(driver.feed(&Input::NeverBegun { call, attempt })),
            1 => {
                let end = CallEnd::error(CallStatus::Error, "no", None, "other");
                driver.feed(&Input::ToolEnded { call, attempt, end });
            }
            _ => {
                driver.feed(&Input::ToolEnded { call, attempt, end: CallEnd::ok("yes") });
            }
        },
        Effect::WakeAt(time) => {
            driver.pass(time.ms_since(driver.now.at));
            driver.feed(&Input::Woke);
        }
        Effect::WakeAtActive(_) => {
            driver.feed(&Input::Woke);
        }
    }
}

/// Every link of the chain is closed until then, or for ever.
fn skipped(driver: &Driver, until: Option<Timestamp>) -> Arc<[NotAnswered]> {
    let candidates = driver.turn.candidates().unwrap_or_default().into_iter();
    let failure = Failure::new(FailureClass::ModelNotFound, "none");
    let why = WhyNot::Skipped { until, failure };
    candidates.map(|link| NotAnswered { model: link.model, why: why.clone() }).collect()
}

fn model_says(driver: &mut Driver, call: CallId, attempt: u32, how: u8) {
    let effect = EFFECTS[usize::from(how / 16) % EFFECTS.len()];
    let only_thought = || AssistantMessage { reasoning: format!("hm {how}"), ..AssistantMessage::default() };
    match how % 16 {
        0 if how >= 224 => drop(driver.fail(FailureClass::Auth)),
        0 if how >= 192 => {
            let retry_after_ms = Some(u64::from(how) * 100);
            drop(driver.fail(FailureClass::RateLimited { retry_after_ms, reset_at: None }));
        }
        0 => drop(driver.fail(FailureClass::Overloaded)),
        1 => drop(driver.feed(&Input::Lost { call, attempt })),
        2 | 14 => drop(driver.answer_with("", 0, Finish::Stop, effect)),
        3 => drop(driver.answer_with("cut", 1, Finish::Length, effect)),
        4 => drop(driver.answer(0, effect)),
        8 => drop(driver.answer_message(only_thought(), Finish::Stop, Vec::new())),
        9 => drop(driver.answer_message(only_thought(), Finish::Length, Vec::new())),
        10 | 11 => drop(driver.answer_with("part ", 0, Finish::Length, effect)),
        12 => drop(driver.answer_with("no", 0, Finish::Refused, effect)),
        13 => drop(driver.answer_with("I look", 1, Finish::ToolCalls, effect)),
        15 => {
            let fault = [Fault::Malformed, Fault::UnknownTool][usize::from(how / 16) % 2];
            let plan = Plan::Refuse { fault, end: CallEnd::error(CallStatus::Error, "no", None, "other") };
            driver.answer_planned("", Finish::ToolCalls, vec![plan]);
        }
        n => drop(driver.answer(usize::from(n) - 4, effect)),
    }
}

/// The alternation grammar, over the letters of `letters`: `(u (c t+)* a)*`, perhaps open at the end.
fn is_well_formed(view: &str) -> bool {
    let rounds: Vec<&str> = view.split('u').collect();
    let closed = |round: &str| round.strip_suffix('a').is_some_and(are_steps);
    let Some((before, rounds)) = rounds.split_first() else { return true };
    before.is_empty()
        && rounds.split_last().is_none_or(|(last, earlier)| {
            earlier.iter().all(|round| closed(round)) && (closed(last) || are_steps(last))
        })
}

fn are_steps(round: &str) -> bool {
    round.is_empty()
        || (round.starts_with('c') && !round.contains('a') && !round.contains("cc") && round.ends_with('t'))
}

#[test]
fn the_grammar_tells_good_from_bad() {
    for good in ["", "u", "ua", "uct", "ucttctauctctta", "uau"] {
        assert!(is_well_formed(good), "{good}");
    }
    for bad in ["a", "t", "uu", "uaa", "uc", "ut", "ucca", "uca", "uata"] {
        assert!(!is_well_formed(bad), "{bad}");
    }
}

/// Every prefix of the journal renders to a view that a provider accepts, and what was sent once is sent again as it
/// was. A postscript goes behind it, is the same for each attempt, and is gone with the call.
fn every_prefix_is_well_formed(driver: &Driver) {
    let mut turn = Dormant::empty(SessionId::from_bits(1)).awake(&[]);
    let (mut sent, mut behind) = (Vec::new(), None);
    for (record, n) in driver.records.iter().zip(1..) {
        turn.apply(record);
        let view = letters(&turn);
        assert!(is_well_formed(&view), "after {n} records: {view}");
        let (messages, _) = turn.render(Cursor::default());
        assert!(messages.starts_with(&sent), "after {n} records: another view than was sent");
        if let Body::ModelStarted(started) = &record.body {
            let postscript = turn.postscript();
            if postscript.as_ref().is_some_and(|post| post.partial.is_some()) {
                assert!(is_well_formed(&format!("{view}au")), "after {n} records: {view} with a postscript");
            }
            let same = (&messages, &postscript) == (&sent, &behind);
            assert!(started.attempt == 1 || same, "a retry has another view");
            (sent, behind) = (messages, postscript);
        }
        if matches!(&record.body, Body::ModelAnswered(answered) if !answered.is_asked_again()) {
            assert_eq!(turn.postscript(), None, "after {n} records");
        }
    }
}

/// Where in the journal a model is shown more than before: a retry shows what the first attempt has shown, and so does
/// the question that follows an answer that was not taken.
fn new_views(driver: &Driver) -> Vec<usize> {
    let (mut asked_again, mut views) = (false, Vec::new());
    for (at, record) in driver.records.iter().enumerate() {
        if let Body::ModelAnswered(answered) = &record.body {
            asked_again = answered.is_asked_again();
        }
        if matches!(record.body, Body::RunEnded(_)) {
            asked_again = false;
        }
        if matches!(&record.body, Body::ModelStarted(started) if started.attempt == 1 && !asked_again) {
            views.push(at);
        }
    }
    views
}

/// Every message that was recorded is recorded once, and stands in one place; or nobody has been asked since, or the run
/// that it was for was stopped before it began.
fn each_message_is_read_once(driver: &Driver) {
    let last_asked = new_views(driver).pop().unwrap_or(0);
    for (at, record) in driver.records.iter().enumerate() {
        let Body::MessageSteered(message) = &record.body else { continue };
        let same = |body: &Body| matches!(body, Body::MessageSteered(other) if other.next == message.next);
        assert_eq!(driver.records.iter().filter(|record| same(&record.body)).count(), 1);
        let places = driver.found(&message.text);
        let began = driver.records.iter().any(
            |record| matches!(&record.body, Body::ModelStarted(started) if started.call.run == message.run),
        );
        match places[..] {
            [('u' | 't', 1)] => {}
            [] => assert!(at > last_asked || !began, "{} was never read", message.text),
            _ => panic!("{} stands in {places:?}", message.text),
        }
    }
}

/// No call is started for the first time between a message to its run and the next request.
fn nothing_overtakes_a_message(driver: &Driver) {
    let (mut waiting, new_views) = (None, new_views(driver));
    for (at, record) in driver.records.iter().enumerate() {
        if let Body::MessageSteered(message) = &record.body {
            waiting = Some(message.run);
        }
        if new_views.contains(&at) {
            waiting = None;
        }
        if let Body::CallStarted(started) = &record.body {
            let overtakes = started.attempt == 1 && waiting == Some(started.call.run);
            assert!(!overtakes, "{} overtook a message", started.call);
        }
    }
}

/// A run that is completed has said something, whose end the model has confirmed.
fn what_is_completed_has_an_answer(driver: &Driver) {
    let mut turn = Dormant::empty(SessionId::from_bits(1)).awake(&[]);
    let mut last = None;
    for record in &driver.records {
        turn.apply(record);
        if let Body::ModelAnswered(answered) = &record.body {
            last = Some(answered.finish);
        }
        if matches!(&record.body, Body::RunEnded(ended) if ended.ended.outcome == Outcome::Completed) {
            let said = turn.render(Cursor::default()).0.into_iter().filter_map(|message| match message {
                Message::Assistant(said) if said.calls.is_empty() => Some(said.text.clone()),
                Message::Assistant(_) | Message::System(_) | Message::User(_) | Message::Tool { .. } => None,
            });
            assert!(said.last().is_some_and(|text| !text.trim().is_empty()), "completed without a word");
            assert!(matches!(last, Some(Finish::Stop | Finish::ToolCalls)), "completed by {last:?}");
        }
    }
}

fn each_run_and_call_ends_once(driver: &Driver) {
    let count =
        |wanted: &dyn Fn(&Body) -> bool| driver.records.iter().filter(|record| wanted(&record.body)).count();
    for record in &driver.records {
        let Body::RunAccepted(accepted) = &record.body else { continue };
        let ends = count(&|body| matches!(body, Body::RunEnded(ended) if ended.run == accepted.run));
        assert_eq!(ends, 1, "ends of run {}", accepted.run);
    }
    for record in &driver.records {
        let Body::CallAdmitted(admitted) = &record.body else { continue };
        let ends = count(&|body| matches!(body, Body::CallEnded(ended) if ended.call == admitted.call));
        assert_eq!(ends, 1, "ends of call {}", admitted.call);
        let call = admitted.call;
        let started = count(&|body| matches!(body, Body::CallStarted(started) if started.call == call));
        let with_leave = count(
            &|body| matches!(body, Body::CallLost(lost) if lost.call == call && lost.why != WhyAgain::Lost),
        );
        let is_once = admitted.effect == EffectClass::Once;
        assert!(!is_once || started <= 1 + with_leave, "call {call} was repeated");
        let asked = count(&|body| matches!(body, Body::ApprovalRequested(request) if request.call == call));
        let answered = count(&|body| matches!(body, Body::ApprovalAnswered(answer) if answer.call == call));
        assert!(answered <= asked, "call {call} has {answered} answers to {asked} questions");
    }
}

/// Serves what is due, kindly, until nothing is.
fn come_to_rest(driver: &mut Driver) {
    for _ in 0..10_000 {
        let due = driver.turn.due(driver.now);
        let Some(effect) = due.iter().find(|effect| !effect.is_timer()).or_else(|| due.first()) else {
            return;
        };
        // 4: the model says its last word, a tool succeeds.
        serve(driver, *effect, if matches!(effect, Effect::Run { .. }) { 2 } else { 4 });
        driver.pass(1);
    }
    panic!("still busy with {:?}", driver.turn.due(driver.now));
}

/// Any message from outside, as two bytes of chance say.
fn foreign((what, how): (u8, u8)) -> Message {
    let id = |n: u8| ["", "1", "2", "3"][usize::from(n % 4)].to_owned();
    let text = ["", "x", " ", "yy"][usize::from(how % 4)];
    let call = |n: u8| ToolCall { id: id(how / 4 + n), name: "look".into(), arguments: "{}".into() };
    let said = |calls: u8| AssistantMessage {
        text: text.into(),
        calls: (0..calls).map(call).collect(),
        ..AssistantMessage::default()
    };
    match what % 6 {
        0 => Message::User(text.into()),
        1 => Message::System(text.into()),
        2 => Message::Assistant(Arc::new(said(0))),
        3 => Message::Assistant(Arc::new(said(1 + how / 64))),
        _ => Message::Tool { call: id(how).into(), name: "look".into(), content: text.into() },
    }
}

fn rendered(past: &Past) -> Vec<Message> {
    let mut history = History::default();
    history.recall(past);
    let mut messages = history.render(Cursor::default()).0;
    messages.extend(past.unanswered.iter().map(|text| Message::User(Arc::clone(text).into())));
    messages
}

/// Every call has a name of its own, and directly behind it, in order, its result.
fn calls_are_paired(messages: &[Message]) {
    let mut seen = std::collections::BTreeSet::new();
    for (n, message) in messages.iter().enumerate() {
        let Message::Assistant(said) = message else { continue };
        for (asked, result) in said.calls.iter().zip(&messages[n + 1..]) {
            assert!(seen.insert(asked.id.clone()), "id `{}` twice", asked.id);
            assert!(matches!(result, Message::Tool { call, .. } if **call == *asked.id), "{result:?}");
        }
    }
}

/// Lets everything happen that chance says, to a session with so many runs.
fn the_promises_are_kept(mut driver: Driver, mut runs: u128, chance: Vec<(u8, u8)>) {
    let mut said = 1_000_000;
    for (what, how) in chance {
        happen(&mut driver, (&mut runs, &mut said), what, how);
    }
    come_to_rest(&mut driver);
    every_prefix_is_well_formed(&driver);
    each_run_and_call_ends_once(&driver);
    what_is_completed_has_an_answer(&driver);
    each_message_is_read_once(&driver);
    nothing_overtakes_a_message(&driver);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises(chance in proptest::collection::vec(any::<(u8, u8)>(), 0..150)) {
        the_promises_are_kept(Driver::new(), 0, chance);
    }

    #[test]
    fn any_foreign_history_keeps_the_promises(
        foreign_chance in proptest::collection::vec(any::<(u8, u8)>(), 0..40),
        chance in proptest::collection::vec(any::<(u8, u8)>(), 0..40),
    ) {
        let messages: Vec<Message> = foreign_chance.into_iter().map(foreign).collect();
        let past = repair(&messages).past;
        calls_are_paired(&rendered(&past));
        assert_eq!(repair(&rendered(&past)).past, past, "what is mended stays as it is");

        let mut driver = Driver::new();
        driver.submit_to(&["p/m"], 1, (Limits { max_tokens: 100, ..Limits::default() }, past));
        the_promises_are_kept(driver, 1, chance);
    }
}
