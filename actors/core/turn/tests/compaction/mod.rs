//! Tests of compaction: a long task on a small context window, with summarisers of all kinds.

mod summaries;

use super::*;
use crate::{
    model::estimate_tokens,
    model::{
        AsideDefect, AttemptId, Body, BudgetRefusal, CallEnd, CompactionMethod, CompactionPolicy, Dimension,
        HookedSummary, LimitIncrease, ModelAnswer, ModelProfile, Outcome, OutcomeDetail, Price, RunSpec,
    },
    policy::SummaryUrgency,
    turn::{
        DueAction, WaitTracker, estimates,
        tests::{fuzz::Grammar, waits::Fixed},
    },
};

pub(super) const WINDOW: u64 = 32_768;
/// Limit of active time of some runs, in milliseconds.
const WALL: u64 = 1_000_000;
pub(super) const GOAL: &str = "Find the keel of the ship; the harbour is Ostend and the key is 4711.";

/// What the summariser does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Summariser {
    Good,
    FailsEverySecond,
    Silent,
    Verbose,
    TimesOut,
    Nobody,
}

/// A run whose tool calls have results of `result` bytes, and its driver.
pub(super) struct Task {
    pub(super) driver: Driver,
    summariser: Summariser,
    pub(super) result: usize,
    /// Number of iterations that pass before a summary is answered.
    slow: u32,
    asked: u32,
    waiting: u32,
    /// Whether `work` stops when a summary is wanted.
    halts: bool,
    /// What hooks decide about each summary, and how often they were asked.
    hooks: Option<Arc<HookedSummary>>,
    hooks_asked: usize,
}

impl Task {
    pub(super) fn new(summariser: Summariser, slow: u32, ahead: bool) -> Self {
        let mut driver = Driver::new();
        let chain = match summariser {
            Summariser::Nobody => Vec::new(),
            Summariser::Good
            | Summariser::FailsEverySecond
            | Summariser::Silent
            | Summariser::Verbose
            | Summariser::TimesOut => vec!["s/small".parse().unwrap(), "p/m".parse().unwrap()],
        };
        let known = ModelProfile { window: Some(WINDOW), ..ModelProfile::default() };
        let compression = CompactionPolicy {
            profiles: vec![known; chain.len()],
            chain,
            trigger: 50,
            protect_last: 20,
            ahead,
        };
        driver.submit_with(1, GOAL, |spec| {
            spec.profiles = vec![known];
            spec.schema_bytes = 4_000;
            spec.limits.max_tokens = 4_096;
            spec.compaction = Some(Arc::new(compression));
        });
        Self {
            driver,
            summariser,
            result: 1_800,
            slow,
            asked: 0,
            waiting: 0,
            halts: false,
            hooks: None,
            hooks_asked: 0,
        }
    }

    /// Runs this number of iterations; the last one has the final answer.
    pub(super) fn work(&mut self, iterations: u32) {
        for iteration in 1..=iterations {
            self.ask();
            if !self.driver.turn.has_work() || (self.halts && self.sought().is_some()) {
                return;
            }
            self.answer(iteration, usize::from(iteration < iterations));
        }
    }

    /// The model answers with this number of calls, and they end.
    pub(super) fn answer(&mut self, iteration: u32, calls: usize) {
        self.driver.answer(calls, EffectClass::Idempotent);
        for n in self.driver.permit_all() {
            let content = format!("{iteration}: {}", "x".repeat(self.result));
            let end = CallEnd::ok(content);
            let Some((run, _)) = self.driver.turn.current() else { panic!("nothing runs") };
            let call = CallId { run, iteration, n };
            self.driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt: 1 }, end });
        }
        self.driver.pass(10);
    }

    /// Continues until a model call of the run is under way, and checks its request.
    pub(super) fn ask(&mut self) {
        for _ in 0..100 {
            let due = self.driver.turn.due(self.driver.now);
            let Some(effect) = due.iter().find(|effect| !effect.is_timer()).copied() else {
                if !self.driver.turn.has_work() {
                    return;
                }
                self.driver.pass(1_000);
                self.driver.feed(&Input::TimerFired);
                continue;
            };
            if let Some(summary) = due
                .iter()
                .find(|due| matches!(due, DueAction::CallModel(AttemptId { call, .. }) if call.is_summary()))
            {
                self.waiting += 1;
                let must = !due
                    .iter()
                    .any(|due| matches!(due, DueAction::Acquire(AttemptId { call, .. }) if call.n == 0));
                if must || self.waiting > self.slow {
                    self.summarise(*summary);
                    continue;
                }
            }
            let ahead = due
                .iter()
                .find(|due| matches!(due, DueAction::Acquire(AttemptId { call, .. }) if call.is_summary()));
            match ahead.copied().unwrap_or(effect) {
                DueAction::Acquire(AttemptId { call, .. }) if call.is_summary() && self.halts => return,
                DueAction::Acquire(id) => {
                    let lease = self.lease(id);
                    self.driver.feed(&lease);
                }
                DueAction::CallModel(AttemptId { call, .. }) if call.is_summary() => {
                    let main = due.iter().find_map(|due| {
                        let DueAction::Acquire(AttemptId { call, attempt }) = due else { return None };
                        (call.n == 0).then_some((*call, *attempt))
                    });
                    let (call, attempt) = main.unwrap();
                    self.driver.lease(call, attempt);
                }
                DueAction::CallModel { .. } => return self.look(),
                other @ (DueAction::RunTool { .. }
                | DueAction::EndTool { .. }
                | DueAction::AwaitSubagent { .. }
                | DueAction::Begin(_)
                | DueAction::Verify(_)
                | DueAction::SaveMemory(_)
                | DueAction::WakeAt(_)
                | DueAction::WakeAtActive(_)) => panic!("{other:?}"),
            }
        }
        panic!("nobody is asked: {:?}", self.driver.turn.due(self.driver.now));
    }

    /// The lease of a call; of a summary with what hooks decide about it, if they were not asked before.
    fn lease(&mut self, id: AttemptId) -> Input {
        let model = self.driver.turn.candidates_of(id.call).unwrap()[0].model.clone();
        let Some(hooks) = self.hooks.clone().filter(|_| id.call.is_summary()) else {
            return Input::Leased { id, model };
        };
        let unhooked = self.driver.turn.unhooked_summary_bytes();
        assert!(unhooked.is_none_or(|bytes| bytes > 1_000), "{unhooked:?}");
        self.hooks_asked += usize::from(unhooked.is_some());
        Input::SummaryLeased { id, model, hooks: unhooked.map(|_| hooks) }
    }

    fn summarise(&mut self, effect: DueAction) {
        let DueAction::CallModel(AttemptId { call, attempt }) = effect else { unreachable!() };
        (self.waiting, self.asked) = (0, self.asked + 1);
        let request = self.driver.turn.summary_request().unwrap();
        let size = estimate_tokens(request.content.text.len() as u64) + request.started.max_tokens;
        let Some(run) = &self.driver.turn.current else { panic!("nothing runs") };
        let window =
            self.driver.turn.observations.window(&run.spec, &request.started.model).unwrap_or(WINDOW);
        assert!(size <= window, "a request for a summary of {size} tokens");
        assert_eq!((request.started.call, request.started.attempt), (call, attempt));
        if let Some(annotation) = self.hooks.as_ref().and_then(|hooks| hooks.annotation.as_deref()) {
            let end = format!("\n\n# What the operator adds\n{annotation}");
            assert!(request.prompt.ends_with(&end), "{}", request.prompt);
            assert_eq!(request.started.bytes, (request.prompt.len() + request.content.text.len()) as u64);
        }
        let notes = "Goal: the keel. Progress: so far so good.".to_owned();
        let text = match self.summariser {
            Summariser::FailsEverySecond if self.asked.is_multiple_of(2) => Err(FailureClass::Server),
            Summariser::TimesOut => Err(FailureClass::Timeout { which: crate::model::Deadline::Call }),
            Summariser::Silent => Ok("  ".to_owned()),
            Summariser::Verbose => Ok(format!("{}{}", request.content.text, "y".repeat(20_000))),
            Summariser::Good | Summariser::FailsEverySecond | Summariser::Nobody => Ok(notes),
        };
        self.driver.pass(3_000);
        let input = match text {
            Ok(text) => {
                let message = AssistantMessage { text, ..AssistantMessage::default() };
                let usage = Some(Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() });
                let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
                Input::Answered { started: request.started, answer, admissions: Arc::new([]) }
            }
            Err(class) => {
                let (failure, outlook) = (Failure::new(class, "x"), FailoverOptions::default());
                Input::ModelFailed {
                    id: AttemptId { call, attempt },
                    failure: Box::new(failure),
                    failover: outlook,
                }
            }
        };
        self.driver.feed(&input);
    }

    /// Checks that the request fits the window, that its view is well formed, and that it contains the goal.
    pub(super) fn look(&self) {
        let turn = &self.driver.turn;
        let Some(run) = &turn.current else { panic!("nothing runs") };
        let input = estimate_tokens(estimates::request_bytes(run, turn) as u64);
        let started = turn.model_started().unwrap();
        let window = turn.observations.window(&run.spec, &started.model).unwrap_or(WINDOW);
        assert!(input + started.max_tokens <= window, "{input} + {} tokens", started.max_tokens);
        let (messages, _) = turn.render(RenderCursor::default());
        let mut grammar = Grammar::default();
        messages.iter().for_each(|message| grammar.take(message).unwrap());
        assert!(content(&messages[0]).contains(GOAL), "the goal is gone");
    }

    /// The summary call that is wanted.
    fn sought(&self) -> Option<CallId> {
        let due = self.driver.turn.due(self.driver.now);
        due.iter().find_map(|effect| match effect {
            DueAction::Acquire(AttemptId { call, .. }) if call.is_summary() => Some(*call),
            DueAction::Acquire { .. }
            | DueAction::CallModel { .. }
            | DueAction::RunTool { .. }
            | DueAction::EndTool { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => None,
        })
    }

    pub(super) fn compactions(&self) -> Vec<(CompactionMethod, u64, u64)> {
        let bodies = self.driver.records.iter().map(|record| &record.body);
        bodies
            .filter_map(|body| {
                let Body::ContextCompacted(compacted) = body else { return None };
                Some((compacted.method, compacted.tokens_before, compacted.tokens_after))
            })
            .collect()
    }

    pub(super) fn ended(&self) -> Option<OutcomeDetail> {
        let bodies = self.driver.records.iter().rev().map(|record| &record.body);
        let mut ends = bodies.filter_map(|body| {
            let Body::RunEnded(ended) = body else { return None };
            Some(ended.ended.clone())
        });
        ends.next()
    }
}

/// Checks that a task of 300 iterations completes, with these methods of compaction.
#[track_caller]
fn check(summariser: Summariser, (slow, ahead): (u32, bool), rungs: &[CompactionMethod]) {
    let mut task = Task::new(summariser, slow, ahead);
    task.work(300);
    assert_eq!(task.ended().map(|ended| ended.outcome), Some(Outcome::Completed));
    let compactions = task.compactions();
    let mut used: Vec<CompactionMethod> = Vec::new();
    for (by, before, after) in &compactions {
        assert!(*after <= WINDOW / 4, "{by:?}: {before} -> {after}");
        if !used.contains(by) {
            used.push(*by);
        }
    }
    used.sort_by_key(|rung| rung.name());
    assert_eq!(used, rungs, "{compactions:?}");
    let again = {
        let mut again = Task { driver: task.driver.clone(), ..Task::new(summariser, slow, ahead) };
        again.driver.crash();
        again.driver.turn
    };
    assert_eq!(again.history.hash(), task.driver.turn.history.hash(), "a replay sees another view");
}

#[test]
fn a_long_task_completes_on_a_small_window() {
    let (elided, summarised, dropped) =
        (CompactionMethod::Elided, CompactionMethod::Summarised, CompactionMethod::Dropped);
    check(Summariser::Good, (0, false), &[elided, summarised]);
    check(Summariser::Good, (3, true), &[elided, summarised]);
    check(Summariser::FailsEverySecond, (0, false), &[elided, summarised]);
    check(Summariser::FailsEverySecond, (2, true), &[elided, summarised]);
    check(Summariser::Silent, (0, false), &[dropped, elided]);
    check(Summariser::Verbose, (1, true), &[dropped, elided]);
    check(Summariser::TimesOut, (0, false), &[dropped, elided]);
    check(Summariser::Nobody, (0, true), &[dropped, elided]);
}

#[test]
fn a_summary_that_is_none_is_asked_for_elsewhere_and_then_not_any_more() {
    let mut task = Task::new(Summariser::Silent, 0, false);
    task.work(500);
    let unusable: Vec<_> = task
        .driver
        .records
        .iter()
        .filter_map(|record| {
            let Body::SummaryAnswered(answered) = &record.body else { return None };
            Some((answered.unusable, answered.fallback))
        })
        .collect();
    let empty = Some(AsideDefect::Empty);
    assert_eq!(unusable[..4], [(empty, None), (empty, Some(1)), (empty, None), (empty, Some(2))]);
}

#[test]
fn where_money_is_limited_nobody_summarises_without_a_price() {
    let price = Price { input: 1, output: 1, cache_read: 1, cache_write: 1, up_to: None };
    for (own, expected) in
        [(Some(price), "s/small"), (None, "p/m"), (Some(Price { up_to: Some(9), ..price }), "p/m")]
    {
        let mut task = Task::new(Summariser::Good, 0, false);
        let Some(run) = &mut task.driver.turn.current else { panic!("nothing runs") };
        let spec = Arc::make_mut(&mut run.spec);
        spec.limits.budget.usd = Some(1_000_000_000);
        spec.profiles[0].price = Some(price);
        let compression = Arc::make_mut(spec.compaction.as_mut().unwrap());
        compression.profiles[0].price = own;
        task.work(300);
        let asked = task.driver.records.iter().find_map(|record| {
            let Body::SummaryStarted(started) = &record.body else { return None };
            Some(started.started.model.to_string())
        });
        assert_eq!(asked.as_deref(), Some(expected));
    }
}

#[test]
fn a_refused_reservation_stops_no_run_that_waits_for_a_summary() {
    let halted = || {
        let mut task = Task::new(Summariser::Good, 0, false);
        task.halts = true;
        task.work(300);
        let call = task.sought().unwrap();
        (task.driver, call)
    };
    let refused = |dimension| {
        Input::BudgetRefused(BudgetRefusal {
            account: run(1).into(),
            dimension,
            limit: 1,
            spent: 1,
            reserved: 0,
            needed: None,
        })
    };
    let (mut driver, _) = halted();
    let records = driver.feed(&refused(Dimension::Tokens));
    assert_eq!(records, ["summary.failed", "context.compacted"], "it is done without");
    assert!(
        matches!(driver.turn.due(driver.now)[..], [DueAction::Acquire(AttemptId { call, .. })] if call.n == 0)
    );

    let answered = |driver: &mut Driver, call: CallId, dimension| {
        let model = "s/small".parse().unwrap();
        driver.feed(&Input::Leased { id: AttemptId { call, attempt: 1 }, model });
        let started = driver.turn.summary_request().unwrap().started;
        let message = AssistantMessage { text: "Notes.".into(), ..AssistantMessage::default() };
        let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage: None });
        driver.feed_all(&[refused(dimension), Input::Answered { started, answer, admissions: Arc::new([]) }])
    };
    let (mut driver, call) = halted();
    let records = answered(&mut driver, call, Dimension::Iterations);
    assert_eq!(records, ["summary.answered", "context.compacted", "run.exhausted"]);
    let (mut driver, call) = halted();
    assert_eq!(answered(&mut driver, call, Dimension::Children), ["summary.answered", "context.compacted"]);
}
