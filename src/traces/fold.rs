//! Folds the records of one leg of a run into spans, in the terms of OpenTelemetry's conventions for generative AI. Pure:
//! the same records give the same spans. No text of users, models or tools becomes a part of a span.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{
    Bill,
    model::{
        AssistantMessage, Attempt, Body, CallEnded, CallId, ModelRef, ModelStarted, Outcome, Price, Record,
        RunAccepted, RunCounts, RunEnded, RunId, RunSpec, SessionId, Timestamp, Usage,
    },
};

use super::{
    names,
    span::{Attribute, AttributeValue, Span, SpanId, SpanKind, TraceId},
};

/// Nano-dollars of a dollar.
const NANO: f64 = 1e9;
/// The class of the error of a call that its run has left open.
const UNFINISHED: &str = "unfinished";
/// The name of a tool that the run does not have: the model made it up.
const UNKNOWN_TOOL: &str = "_unknown";

/// The leg of a run whose spans are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedLeg {
    /// The trace.
    pub trace: TraceId,
    /// The session of the run.
    pub session: SessionId,
    /// The number of the leg, from 1.
    pub leg: u32,
}

/// The spans of one leg of a run: its own, one of each call, and nothing of subagents, which have runs of their own.
#[derive(Debug)]
pub struct LegSpans {
    leg: TracedLeg,
    run: RunId,
    spec: Arc<RunSpec>,
    /// The span of the leg; `None` once it has ended.
    root: Option<Span>,
    /// Whether a model was called.
    has_begun: bool,
    /// Calls that have begun.
    open: BTreeMap<CallId, OpenCall>,
    /// When calls that have not begun were admitted, and their tools.
    admitted: BTreeMap<CallId, (Timestamp, Arc<str>)>,
    /// The last answer, with its iteration and its time.
    answer: Option<(u32, Timestamp, Arc<AssistantMessage>)>,
    counts: RunCounts,
    bill: Bill,
    ended: Vec<Span>,
}

/// A call under way.
#[derive(Debug)]
struct OpenCall {
    span: Span,
    attempts: Attempt,
    price: Option<Price>,
    /// The last failure of an attempt, which is that of the call if nothing follows.
    failed: Option<(Timestamp, &'static str)>,
}

impl LegSpans {
    /// Begins with the record that accepted the run; `None` if it is another record. The other records are those of the
    /// leg.
    pub fn new(leg: TracedLeg, acceptance: &Record) -> Option<Self> {
        let Body::RunAccepted(accepted) = &acceptance.body else { return None };
        let mut bill = Bill::default();
        bill.take(acceptance);
        Some(Self {
            leg,
            run: accepted.run,
            spec: Arc::clone(&accepted.spec),
            root: Some(root_span(leg, accepted, acceptance.at)),
            has_begun: false,
            open: BTreeMap::new(),
            admitted: BTreeMap::new(),
            answer: None,
            counts: RunCounts::default(),
            bill,
            ended: Vec::new(),
        })
    }

    /// Adds the next record of the session. Those of other runs change nothing.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other kinds are handled before, or are not shown"
    )]
    pub fn take(&mut self, record: &Record) {
        let (at, run) = (record.at, record.body.run());
        if run.is_some_and(|run| run != self.run) || self.root.is_none() {
            return;
        }
        if run.is_some() {
            self.counts.take(&record.body);
            self.bill.take(record);
        }
        match &record.body {
            Body::ModelStarted(started) => self.on_model_started(started, at),
            Body::SummaryStarted(started) => self.on_model_started(&started.started, at),
            Body::ModelAnswered(answered) => {
                self.answer = Some((answered.call.iteration, at, Arc::clone(&answered.message)));
                if let Some(mut call) = self.open.remove(&answered.call) {
                    let reasons = vec![names::finish_reason(answered.finish).to_owned()];
                    call.span.set("gen_ai.response.finish_reasons", AttributeValue::Texts(reasons));
                    self.end_model_call(call, at, answered.usage.as_ref(), answered.is_discarded());
                }
            }
            Body::SummaryAnswered(answered) => {
                if let Some(call) = self.open.remove(&answered.call) {
                    self.end_model_call(call, at, answered.usage.as_ref(), answered.unusable.is_some());
                }
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) => {
                let class = failed.failure.class.name();
                let mut attributes =
                    vec![number("hermod.attempt", failed.attempt), text("error.type", class)];
                attributes.extend(failed.failure.usage.iter().flat_map(|usage| usage_attributes(usage)));
                self.note(failed.call, "hermod.attempt.failed", at, attributes);
                if let Some(call) = self.open.get_mut(&failed.call) {
                    call.failed = Some((at, class));
                }
            }
            Body::CallAdmitted(admitted) => {
                self.admitted.insert(admitted.call, (at, Arc::clone(&admitted.tool)));
            }
            Body::CallStarted(started) => self.on_tool_started(started.call, started.attempt, at),
            Body::CallLost(lost) => {
                let attributes = vec![
                    number("hermod.attempt", lost.attempt),
                    text("hermod.reason", names::retry_reason(lost.reason)),
                ];
                self.note(lost.call, "hermod.attempt.lost", at, attributes);
            }
            Body::CallEnded(ended) => self.on_tool_ended(ended, at),
            Body::RunReopened(_) => self.begin_at(at),
            Body::RunEnded(ended) => self.on_run_ended(ended, at),
            _ => self.take_event(record),
        }
    }

    /// The spans that have ended since the last call.
    pub fn drain(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.ended)
    }

    /// Number of spans that [`Self::drain`] would return.
    pub fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Adds a record that is an event of a span.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are not shown")]
    fn take_event(&mut self, record: &Record) {
        let at = record.at;
        match &record.body {
            // Before, nothing can have been interrupted: the session of a subagent is opened by its parent at first.
            Body::SessionRevived(_) if self.has_begun => {
                self.note_root("hermod.session.revived", at, Vec::new());
            }
            Body::MessageSteered(_) => self.note_root("hermod.message.steered", at, Vec::new()),
            Body::BudgetRaised(_) => self.note_root("hermod.budget.raised", at, Vec::new()),
            Body::RunStopping(stopping) => {
                let attributes = vec![text("hermod.run.outcome", stopping.ended.outcome.name())];
                self.note_root("hermod.run.stopping", at, attributes);
            }
            Body::RunExhausted(exhausted) => {
                let attributes = vec![text("hermod.budget.dimension", exhausted.refusal.dimension.name())];
                self.note_root("hermod.budget.exhausted", at, attributes);
            }
            Body::ContextCompacted(compacted) => {
                let attributes = vec![
                    text("hermod.compaction.method", compacted.method.name()),
                    number("hermod.compaction.tokens_before", compacted.tokens_before),
                    number("hermod.compaction.tokens_after", compacted.tokens_after),
                    number("hermod.compaction.waited_ms", compacted.waited_ms),
                ];
                self.note_root("hermod.context.compacted", at, attributes);
            }
            Body::ModelWaiting(waiting) => {
                let attributes = vec![number("hermod.wait_ms", waiting.until.ms_since(at))];
                self.note(waiting.call, "hermod.model.waiting", at, attributes);
            }
            Body::ModelLate(late) if late.anomaly.is_none() => {
                let usage = usage_attributes(&late.usage);
                let attributes = [number("hermod.attempt", late.attempt)].into_iter().chain(usage);
                self.note(late.call, "hermod.attempt.late", at, attributes.collect());
            }
            Body::ChildEnded(ended) => {
                let attributes = vec![
                    text("hermod.run.id", ended.child.run.to_string()),
                    text("hermod.run.outcome", ended.ended.outcome.name()),
                ];
                self.note(ended.call, "hermod.subagent.ended", at, attributes);
            }
            Body::ApprovalRequested(requested) => {
                let attributes = vec![text("hermod.call.id", requested.call.to_string())];
                self.note_root("hermod.approval.requested", at, attributes);
            }
            Body::ApprovalAnswered(answered) => {
                let attributes = vec![
                    text("hermod.call.id", answered.call.to_string()),
                    text("hermod.approval.decision", answered.decision.to_string()),
                ];
                self.note_root("hermod.approval.answered", at, attributes);
            }
            _ => {}
        }
    }

    /// The leg begins here: it goes on with a run that had ended.
    fn begin_at(&mut self, at: Timestamp) {
        if let Some(root) = &mut self.root {
            (root.start, root.end) = (at, at);
        }
    }

    fn on_model_started(&mut self, started: &ModelStarted, at: Timestamp) {
        self.has_begun = true;
        let (model, attempt) = (&started.model, started.attempt);
        if !self.open.contains_key(&started.call) {
            let mut span = self.call_span(started.call, SpanKind::Client, at);
            span.set("gen_ai.operation.name", "chat");
            if started.call.is_summary() {
                span.set("hermod.model.purpose", "summary");
            }
            self.open.insert(started.call, OpenCall { span, attempts: 0, price: None, failed: None });
        }
        let Some(call) = self.open.get_mut(&started.call) else { return };
        if attempt > 1 {
            let attributes =
                vec![number("hermod.attempt", attempt), text("gen_ai.request.model", &**model.model())];
            call.span.add_event("hermod.attempt.started", at, attributes);
        }
        (call.attempts, call.price, call.failed) = (attempt, started.price, None);
        call.span.name = format!("chat {}", model.model());
        set_model(&mut call.span, model);
        call.span.set("gen_ai.request.max_tokens", started.max_tokens);
    }

    fn end_model_call(&mut self, call: OpenCall, at: Timestamp, usage: Option<&Usage>, is_discarded: bool) {
        let OpenCall { mut span, attempts, price, .. } = call;
        span.set("hermod.attempts", attempts);
        if is_discarded {
            span.set("hermod.answer.discarded", true);
        }
        for (key, value) in usage.iter().flat_map(|usage| usage_attributes(usage)) {
            span.set(key, value);
        }
        if let Some(nano) = usage.zip(price).and_then(|(usage, price)| price.cost(usage)) {
            span.set("hermod.cost.usd", dollars(nano));
        }
        span.end_at(at);
        self.ended.push(span);
    }

    fn on_tool_started(&mut self, call: CallId, attempt: Attempt, at: Timestamp) {
        if let Some(open) = self.open.get_mut(&call) {
            open.attempts = attempt;
            open.span.add_event("hermod.attempt.started", at, vec![number("hermod.attempt", attempt)]);
            return;
        }
        let span = self.tool_span(call, at);
        self.open.insert(call, OpenCall { span, attempts: attempt, price: None, failed: None });
    }

    fn on_tool_ended(&mut self, ended: &CallEnded, at: Timestamp) {
        let (mut span, attempts) = if let Some(open) = self.open.remove(&ended.call) {
            (open.span, open.attempts)
        } else {
            let proposed = self.answer.as_ref().filter(|(iteration, ..)| *iteration == ended.call.iteration);
            let since = self.admitted.get(&ended.call).map(|(at, _)| *at);
            let since = since.or(proposed.map(|(_, at, _)| *at)).unwrap_or(at);
            (self.tool_span(ended.call, since), 0)
        };
        self.admitted.remove(&ended.call);
        let status = names::call_status(ended.end.status);
        span.set("hermod.attempts", attempts);
        span.set("hermod.tool.status", status);
        if names::is_tool_error(ended.end.status) {
            span.fail(status);
        }
        span.end_at(at);
        self.ended.push(span);
    }

    fn on_run_ended(&mut self, ended: &RunEnded, at: Timestamp) {
        let open = std::mem::take(&mut self.open);
        for OpenCall { mut span, attempts, failed, .. } in open.into_values() {
            let (end, class) = failed.unwrap_or((at, UNFINISHED));
            span.set("hermod.attempts", attempts);
            span.fail(class);
            span.end_at(end);
            self.ended.push(span);
        }
        let Some(mut root) = self.root.take() else { return };
        let outcome = ended.ended.outcome;
        root.set("hermod.run.outcome", outcome.name());
        root.set("hermod.run.iterations", self.counts.iterations);
        for (key, value) in usage_attributes(&self.counts.usage) {
            root.set(key, value);
        }
        if let Some(nano) = self.bill.nano_usd() {
            root.set("hermod.cost.usd", dollars(nano));
        }
        if !matches!(outcome, Outcome::Completed | Outcome::Stopped) {
            root.fail(outcome.name());
        }
        root.end_at(at);
        self.ended.push(root);
    }

    /// A span of a call, part of the leg's.
    fn call_span(&self, call: CallId, kind: SpanKind, start: Timestamp) -> Span {
        let mut span = new_span(self.leg.trace, SpanId::of_call(call), kind, start);
        span.parent = Some(SpanId::of_leg(self.run, self.leg.leg));
        span.set("gen_ai.conversation.id", self.leg.session.to_string());
        span.set("gen_ai.agent.name", self.spec.agent.as_str());
        span.set("hermod.call.id", call.to_string());
        span
    }

    fn tool_span(&self, call: CallId, start: Timestamp) -> Span {
        let proposed = self.answer.as_ref().filter(|(iteration, ..)| *iteration == call.iteration);
        let at = usize::try_from(call.n).ok().and_then(|n| n.checked_sub(1));
        let proposed = proposed.zip(at).and_then(|((_, _, message), at)| message.calls.get(at));
        let admitted = self.admitted.get(&call).map(|(_, tool)| &**tool);
        let named = proposed.map(|call| call.name.as_str());
        let named = named.filter(|name| self.spec.tools.iter().any(|tool| tool == name));
        let tool = admitted.or(named).unwrap_or(UNKNOWN_TOOL);
        let mut span = self.call_span(call, SpanKind::Internal, start);
        span.name = format!("execute_tool {tool}");
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool);
        span.set("gen_ai.tool.type", "function");
        if let Some(call) = proposed {
            span.set("gen_ai.tool.call.id", call.id.as_str());
        }
        span
    }

    /// Adds an event to the span of a call, or to that of the leg if the call has none.
    fn note(&mut self, call: CallId, name: &'static str, at: Timestamp, mut attributes: Vec<Attribute>) {
        if let Some(open) = self.open.get_mut(&call) {
            open.span.add_event(name, at, attributes);
        } else {
            attributes.push(text("hermod.call.id", call.to_string()));
            self.note_root(name, at, attributes);
        }
    }

    fn note_root(&mut self, name: &'static str, at: Timestamp, attributes: Vec<Attribute>) {
        if let Some(root) = &mut self.root {
            root.add_event(name, at, attributes);
        }
    }
}

/// The span of a leg, as it begins.
fn root_span(leg: TracedLeg, accepted: &RunAccepted, at: Timestamp) -> Span {
    let (run, agent) = (accepted.run, accepted.spec.agent.as_str());
    let mut root = new_span(leg.trace, SpanId::of_leg(run, leg.leg), SpanKind::Internal, at);
    root.parent = match (leg.leg, &accepted.parent) {
        (..=1, parent) => parent.map(|parent| SpanId::of_call(parent.call)),
        _ => Some(SpanId::of_leg(run, 1)),
    };
    root.name = format!("invoke_agent {agent}");
    root.set("gen_ai.operation.name", "invoke_agent");
    root.set("gen_ai.agent.name", agent);
    root.set("gen_ai.conversation.id", leg.session.to_string());
    if let Some(model) = accepted.spec.chain.first() {
        set_model(&mut root, model);
    }
    root.set("hermod.run.id", run.to_string());
    root.set("hermod.run.leg", leg.leg);
    root
}

fn new_span(trace: TraceId, id: SpanId, kind: SpanKind, start: Timestamp) -> Span {
    Span {
        trace,
        id,
        parent: None,
        name: String::new(),
        kind,
        start,
        end: start,
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        is_error: false,
    }
}

fn set_model(span: &mut Span, model: &ModelRef) {
    span.set("gen_ai.provider.name", names::provider(model.provider()));
    span.set("gen_ai.request.model", &**model.model());
}

fn usage_attributes(usage: &Usage) -> impl Iterator<Item = Attribute> + use<> {
    let always = [
        number("gen_ai.usage.input_tokens", usage.input_total()),
        number("gen_ai.usage.output_tokens", usage.output_total()),
    ];
    let cached = [
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
    ];
    let cached = cached.into_iter().filter(|(_, tokens)| *tokens > 0);
    always.into_iter().chain(cached.map(|(key, tokens)| number(key, tokens)))
}

#[expect(clippy::cast_precision_loss, reason = "dollars are shown, not counted")]
fn dollars(nano: u64) -> f64 {
    nano as f64 / NANO
}

fn text(key: &'static str, value: impl Into<AttributeValue>) -> Attribute {
    (key, value.into())
}

fn number(key: &'static str, value: impl Into<AttributeValue>) -> Attribute {
    (key, value.into())
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        Access, Amounts, ApprovalAnswered, ApprovalDecision, ApprovalRequested, ApprovalScope, CallAdmitted,
        CallEnd, CallLost, CallStarted, CallStatus, ChildEnded, CompactionMethod, ContextCompacted,
        DecisionSource, EffectClass, Failure, FailureClass, FinishReason, Hash, HistoryPosition, Incarnation,
        LimitIncrease, MessageSteered, ModelAnswered, ModelFailed, OutcomeDetail, ParentRef, RetryReason,
        RunReopened, SessionRevived, SubagentRef, SummaryAnswered, SummaryStarted, ToolCall,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(7);
    const OTHER: RunId = RunId::from_bits(8);
    const SESSION: SessionId = SessionId::from_bits(9);
    /// A text of users, models or tools.
    const SECRET: &str = "hunter2";
    const PRICE: Price =
        Price { input: 1_000, output: 2_000, cache_read: 100, cache_write: 1_250, up_to: None };

    const fn call(iteration: u32, n: u32) -> CallId {
        CallId { run: RUN, iteration, n }
    }

    fn accepted(run: RunId, parent: Option<ParentRef>) -> Body {
        let mut spec = RunSpec::new(vec!["mistral/large".parse().unwrap()], SECRET);
        spec.agent = "builder".parse().unwrap();
        spec.tools = vec!["shell".into(), "todo".into()];
        spec.profiles = vec![hermod_actors::model::ModelProfile { price: Some(PRICE), ..Default::default() }];
        let accepted = RunAccepted::new(run, SECRET, Arc::new(spec));
        Body::RunAccepted(Box::new(RunAccepted { parent, ..accepted }))
    }

    fn model_started(call: CallId, attempt: u32, model: &str) -> Arc<ModelStarted> {
        Arc::new(ModelStarted {
            call,
            attempt,
            model: model.parse().unwrap(),
            view_seq: 1,
            request_hash: Hash::of(b""),
            bytes: 0,
            images: 0,
            max_tokens: 100,
            prefix: None,
            reserved: Amounts::default(),
            price: Some(PRICE),
            incarnation: Incarnation::default(),
        })
    }

    fn started(iteration: u32, attempt: u32) -> Body {
        Body::ModelStarted(model_started(call(iteration, 0), attempt, "mistral/large"))
    }

    fn answered(iteration: u32, attempt: u32, tools: &[&str]) -> Body {
        let tool = |(at, name): (usize, &&str)| ToolCall {
            id: format!("vendor-{at}"),
            name: (*name).to_owned(),
            arguments: SECRET.into(),
        };
        let message = AssistantMessage {
            text: SECRET.into(),
            reasoning: SECRET.into(),
            calls: tools.iter().enumerate().map(tool).collect(),
            opaque: None,
        };
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: call(iteration, 0),
            attempt,
            message: Arc::new(message),
            finish: if tools.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls },
            flaw: None,
            fallback: None,
            usage: Some(Usage {
                input_tokens: 100,
                output_tokens: 10,
                cached_tokens: 40,
                ..Usage::default()
            }),
            anomaly: None,
        }))
    }

    fn failed(call: CallId, attempt: u32, class: FailureClass, retry_at: Option<Timestamp>) -> Body {
        Body::ModelFailed(ModelFailed::new(call.attempt(attempt), Failure::new(class, SECRET), retry_at))
    }

    fn admitted(n: u32, tool: &str) -> Body {
        Body::CallAdmitted(CallAdmitted {
            call: call(1, n),
            tool: tool.into(),
            effect: EffectClass::Once,
            access: Access::default(),
            detached: false,
            polls: false,
            arguments: Hash::of(b""),
            same_as: None,
        })
    }

    fn tool_started(n: u32, attempt: u32) -> Body {
        Body::CallStarted(CallStarted {
            call: call(1, n),
            attempt,
            incarnation: Incarnation::default(),
            boot: "b".into(),
            children: Arc::default(),
        })
    }

    fn tool_ended(n: u32, attempt: u32, status: CallStatus) -> Body {
        Body::CallEnded(CallEnded::new(call(1, n), attempt, CallEnd::new(status, SECRET)))
    }

    fn revived() -> Body {
        Body::SessionRevived(SessionRevived { incarnation: Incarnation::default(), boot: "b".into() })
    }

    fn ended(outcome: Outcome) -> Body {
        let ended = OutcomeDetail { outcome, cause: None };
        Body::RunEnded(RunEnded { run: RUN, ended, iterations: 2, usage: Usage::default() })
    }

    /// The spans of these records at their times in milliseconds; the first one accepts the run. No span has a text of
    /// users, models or tools.
    fn spans(leg: u32, records: Vec<(i64, Body)>) -> Vec<Span> {
        let mut records =
            records.into_iter().map(|(at, body)| Record { at: Timestamp(at), active_ms: 0, body });
        let leg = TracedLeg { trace: TraceId::of_root(RUN), session: SESSION, leg };
        let mut spans = LegSpans::new(leg, &records.next().unwrap()).unwrap();
        records.for_each(|record| spans.take(&record));
        let spans = spans.drain();
        let shown = format!("{spans:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        for span in &spans {
            assert_eq!(span.trace, leg.trace);
            assert!(span.end >= span.start, "{span:?}");
            let keys: Vec<&str> = span.attributes.iter().map(|(key, _)| *key).collect();
            assert!((1..keys.len()).all(|at| !keys[..at].contains(&keys[at])), "{keys:?}");
        }
        spans
    }

    #[track_caller]
    fn check_text(span: &Span, key: &str, expect: &str) {
        assert_eq!(span.attribute(key), Some(&AttributeValue::from(expect)), "{key}: {span:?}");
    }

    #[track_caller]
    fn check_number(span: &Span, key: &str, expect: u32) {
        assert_eq!(span.attribute(key), Some(&AttributeValue::from(expect)), "{key}: {span:?}");
    }

    /// Names of spans with their times.
    fn names_and_times(spans: &[Span]) -> Vec<(&str, i64, i64)> {
        spans.iter().map(|span| (span.name.as_str(), span.start.0, span.end.0)).collect()
    }

    fn events(span: &Span) -> Vec<(&str, i64)> {
        span.events.iter().map(|event| (event.name, event.at.0)).collect()
    }

    /// A run with two tool calls. Its process was killed in the first one and in the second model call.
    fn killed_run() -> Vec<Span> {
        spans(
            1,
            vec![
                (10, accepted(RUN, None)),
                (11, revived()),
                (20, started(1, 1)),
                (30, answered(1, 1, &["shell", "todo"])),
                (30, admitted(1, "shell")),
                (30, admitted(2, "todo")),
                (30, tool_ended(2, 0, CallStatus::Ok)),
                (40, tool_started(1, 1)),
                (500, revived()),
                (
                    500,
                    Body::CallLost(CallLost {
                        call: call(1, 1),
                        attempt: 1,
                        reason: RetryReason::NeverStarted,
                    }),
                ),
                (510, tool_started(1, 2)),
                (560, tool_ended(1, 2, CallStatus::Error)),
                (570, started(2, 1)),
                (900, revived()),
                (900, failed(call(2, 0), 1, FailureClass::Interrupted, Some(Timestamp(900)))),
                (910, started(2, 2)),
                (990, answered(2, 2, &[])),
                (990, ended(Outcome::Completed)),
            ],
        )
    }

    #[test]
    fn a_killed_run_is_one_trace_with_the_times_of_its_records() {
        let spans = killed_run();
        assert_eq!(
            names_and_times(&spans),
            [
                ("chat large", 20, 30),
                ("execute_tool todo", 30, 30),
                ("execute_tool shell", 40, 560),
                ("chat large", 570, 990),
                ("invoke_agent builder", 10, 990),
            ]
        );
        let root = spans.last().unwrap();
        assert_eq!((root.id, root.parent, root.kind), (SpanId::of_leg(RUN, 1), None, SpanKind::Internal));
        for span in &spans[..4] {
            assert_eq!(span.parent, Some(root.id), "{span:?}");
        }
        assert_eq!(events(root), [("hermod.session.revived", 500), ("hermod.session.revived", 900)]);
        assert_eq!(events(&spans[2]), [("hermod.attempt.lost", 500), ("hermod.attempt.started", 510)]);
        assert_eq!(events(&spans[3]), [("hermod.attempt.failed", 900), ("hermod.attempt.started", 910)]);
        assert_eq!(spans, killed_run(), "the same records give the same spans");
    }

    #[test]
    fn attributes_have_the_names_of_the_conventions() {
        let spans = killed_run();
        let (chat, tool, root) = (&spans[0], &spans[2], &spans[4]);
        assert_eq!((chat.kind, tool.kind), (SpanKind::Client, SpanKind::Internal));
        for span in [chat, tool, root] {
            check_text(span, "gen_ai.conversation.id", &SESSION.to_string());
            check_text(span, "gen_ai.agent.name", "builder");
        }
        for span in [chat, root] {
            check_text(span, "gen_ai.provider.name", "mistral_ai");
            check_text(span, "gen_ai.request.model", "large");
        }
        check_text(chat, "gen_ai.operation.name", "chat");
        check_text(chat, "hermod.call.id", &call(1, 0).to_string());
        check_number(chat, "gen_ai.request.max_tokens", 100);
        check_number(chat, "gen_ai.usage.input_tokens", 100);
        check_number(chat, "gen_ai.usage.output_tokens", 10);
        check_number(chat, "gen_ai.usage.cache_read.input_tokens", 40);
        let reasons = AttributeValue::Texts(vec!["tool_calls".into()]);
        assert_eq!(chat.attribute("gen_ai.response.finish_reasons"), Some(&reasons));
        let cost = AttributeValue::Real(0.000_084);
        assert_eq!(chat.attribute("hermod.cost.usd"), Some(&cost));
        check_text(tool, "gen_ai.operation.name", "execute_tool");
        check_text(tool, "gen_ai.tool.name", "shell");
        check_text(tool, "gen_ai.tool.type", "function");
        check_text(tool, "gen_ai.tool.call.id", "vendor-0");
        check_text(tool, "error.type", "error");
        check_number(tool, "hermod.attempts", 2);
        assert!(tool.is_error && !chat.is_error && !root.is_error);
        check_text(root, "gen_ai.operation.name", "invoke_agent");
        check_text(root, "hermod.run.id", &RUN.to_string());
        check_text(root, "hermod.run.outcome", "completed");
        check_number(root, "hermod.run.iterations", 2);
        check_number(root, "gen_ai.usage.input_tokens", 200);
        assert_eq!(root.attribute("hermod.cost.usd"), Some(&AttributeValue::Real(0.000_168)));
        assert_eq!(root.attribute("error.type"), None);
    }

    #[test]
    fn a_subagent_is_a_part_of_the_call_that_delegated_it() {
        let delegating = CallId { run: OTHER, iteration: 3, n: 1 };
        let parent = ParentRef { session: SessionId::from_bits(1), call: delegating, n: 0 };
        let spans = spans(1, vec![(1, accepted(RUN, Some(parent))), (2, ended(Outcome::Completed))]);
        assert_eq!(spans[0].parent, Some(SpanId::of_call(delegating)));
    }

    #[test]
    fn a_further_leg_is_a_part_of_the_first() {
        let reopened = RunReopened { run: RUN, leg: 2, increase: LimitIncrease::default() };
        let spans = spans(
            2,
            vec![
                (1, accepted(RUN, None)),
                (50, Body::RunReopened(reopened)),
                (60, started(4, 1)),
                (70, answered(4, 1, &[])),
                (80, ended(Outcome::BudgetExhausted)),
            ],
        );
        assert_eq!(names_and_times(&spans), [("chat large", 60, 70), ("invoke_agent builder", 50, 80)]);
        let (first, second) = (SpanId::of_leg(RUN, 1), SpanId::of_leg(RUN, 2));
        assert_eq!((spans[1].id, spans[1].parent), (second, Some(first)));
        assert_eq!(spans[0].parent, Some(second));
        check_number(&spans[1], "hermod.run.leg", 2);
        check_text(&spans[1], "error.type", "budget_exhausted");
        assert!(spans[1].is_error);
    }

    #[test]
    fn a_call_that_another_model_answers_has_its_name() {
        let started_by = |attempt, model| Body::ModelStarted(model_started(call(1, 0), attempt, model));
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, started_by(1, "mistral/large")),
                (3, failed(call(1, 0), 1, FailureClass::Overloaded, Some(Timestamp(4)))),
                (4, started_by(2, "openai/gpt")),
                (5, answered(1, 2, &[])),
                (5, ended(Outcome::Completed)),
            ],
        );
        assert_eq!(spans[0].name, "chat gpt");
        check_text(&spans[0], "gen_ai.provider.name", "openai");
        check_number(&spans[0], "hermod.attempts", 2);
        assert!(!spans[0].is_error, "it was answered");
        let failure = ("error.type", AttributeValue::from("overloaded"));
        assert!(spans[0].events[0].attributes.contains(&failure), "{:?}", spans[0].events);
    }

    #[test]
    fn a_call_without_an_answer_ends_with_its_last_failure() {
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, started(1, 1)),
                (5, failed(call(1, 0), 1, FailureClass::Auth, None)),
                (6, ended(Outcome::Failed)),
            ],
        );
        assert_eq!(names_and_times(&spans), [("chat large", 2, 5), ("invoke_agent builder", 1, 6)]);
        check_text(&spans[0], "error.type", "auth");
        check_text(&spans[1], "error.type", "failed");
    }

    #[test]
    fn a_call_that_its_run_leaves_open_ends_with_it() {
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, started(1, 1)),
                (3, answered(1, 1, &["shell"])),
                (3, admitted(1, "shell")),
                (4, tool_started(1, 1)),
                (9, ended(Outcome::Failed)),
                (10, started(2, 1)),
            ],
        );
        assert_eq!(
            names_and_times(&spans)[1..],
            [("execute_tool shell", 4, 9), ("invoke_agent builder", 1, 9)]
        );
        check_text(&spans[1], "error.type", "unfinished");
    }

    #[test]
    fn tools_that_a_model_makes_up_have_no_name_of_their_own() {
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, started(1, 1)),
                (3, answered(1, 1, &[SECRET, "shell"])),
                (4, tool_ended(1, 0, CallStatus::Error)),
                (4, tool_ended(2, 0, CallStatus::NotStarted)),
                (5, ended(Outcome::Stopped)),
            ],
        );
        let expect = [("execute_tool _unknown", 3, 4), ("execute_tool shell", 3, 4)];
        assert_eq!(names_and_times(&spans)[1..3], expect);
        check_text(&spans[2], "error.type", "not_started");
        assert!(!spans[3].is_error, "a person stopped it");
    }

    #[test]
    fn what_happens_to_a_call_is_an_event() {
        let child = SubagentRef { session: SESSION, run: OTHER };
        let child_ended = ChildEnded {
            call: call(1, 1),
            child,
            ended: OutcomeDetail { outcome: Outcome::Completed, cause: None },
            result: SECRET.into(),
            iterations: 1,
            usage: Usage::default(),
        };
        let requested = ApprovalRequested {
            call: call(1, 1),
            attempt: 0,
            question: SECRET.into(),
            rules: Vec::new(),
            allow_rules: Vec::new(),
            wants_text: false,
            expires_at: Timestamp(99),
        };
        let decided = ApprovalAnswered {
            call: call(1, 1),
            decision: ApprovalDecision::Allow,
            by: DecisionSource::Person,
            scope: ApprovalScope::Once,
        };
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, started(1, 1)),
                (3, answered(1, 1, &["shell"])),
                (3, admitted(1, "shell")),
                (4, Body::ApprovalRequested(requested)),
                (6, Body::ApprovalAnswered(decided)),
                (7, tool_started(1, 1)),
                (8, Body::ChildEnded(Box::new(child_ended))),
                (10, tool_ended(1, 1, CallStatus::Ok)),
                (12, ended(Outcome::Completed)),
            ],
        );
        assert_eq!(events(&spans[1]), [("hermod.subagent.ended", 8)]);
        let of_run = [("hermod.approval.requested", 4), ("hermod.approval.answered", 6)];
        assert_eq!(events(&spans[2]), of_run);
        assert_eq!((spans[1].start, spans[1].end), (Timestamp(7), Timestamp(10)), "a person is no tool");
    }

    #[test]
    fn what_happens_to_a_run_is_an_event() {
        let compacted = ContextCompacted {
            run: RUN,
            lineage: SESSION,
            method: CompactionMethod::Summarised,
            end: HistoryPosition::default(),
            summary: Some(SECRET.into()),
            tokens_before: 100,
            tokens_after: 10,
            waited_ms: 3,
        };
        let steered =
            |run| Body::MessageSteered(MessageSteered { run, text: SECRET.into(), followup_run: OTHER });
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, accepted(OTHER, None)),
                (3, steered(OTHER)),
                (4, steered(RUN)),
                (5, Body::ContextCompacted(Box::new(compacted))),
                (6, ended(Outcome::Completed)),
            ],
        );
        assert_eq!(events(&spans[0]), [("hermod.message.steered", 4), ("hermod.context.compacted", 5)]);
    }

    #[test]
    fn a_call_for_a_summary_is_a_call_of_its_model() {
        let id = CallId::summary(RUN, 1);
        let summary_started = SummaryStarted {
            started: model_started(id, 1, "openai/mini"),
            call_end: HistoryPosition::default(),
            summary_end: HistoryPosition::default(),
        };
        let summary = SummaryAnswered {
            call: id,
            attempt: 1,
            text: SECRET.into(),
            unusable: None,
            fallback: None,
            usage: Some(Usage { input_tokens: 7, ..Usage::default() }),
            anomaly: None,
        };
        let spans = spans(
            1,
            vec![
                (1, accepted(RUN, None)),
                (2, Body::SummaryStarted(Box::new(summary_started))),
                (5, Body::SummaryAnswered(summary)),
                (6, ended(Outcome::Completed)),
            ],
        );
        assert_eq!(names_and_times(&spans)[0], ("chat mini", 2, 5));
        check_text(&spans[0], "hermod.model.purpose", "summary");
        check_number(&spans[0], "gen_ai.usage.input_tokens", 7);
    }

    #[test]
    fn another_record_begins_no_trace() {
        let leg = TracedLeg { trace: TraceId::of_root(RUN), session: SESSION, leg: 1 };
        let record = Record { at: Timestamp(1), active_ms: 0, body: revived() };
        assert!(LegSpans::new(leg, &record).is_none());
    }
}
