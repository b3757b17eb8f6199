//! Folds the records of one leg of a run into spans, in the terms of OpenTelemetry's conventions for generative AI. Pure:
//! the same records give the same spans. No text of users, models or tools becomes a part of a span.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{
    Bill,
    model::{
        AsideJob, AssistantMessage, Attempt, Body, CallEnded, CallId, ModelRef, ModelStarted, Outcome, Price,
        Record, RunAccepted, RunCounts, RunEnded, RunId, RunSpec, SessionId, Timestamp, Usage,
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
            // A call for a title is made when the run's trace has ended.
            Body::AsideStarted(started) if started.call.job() == Some(AsideJob::Memory) => {
                self.on_model_started(started, at);
            }
            Body::ModelAnswered(answered) => {
                self.answer = Some((answered.call.iteration, at, Arc::clone(&answered.message)));
                if let Some(mut call) = self.open.remove(&answered.call) {
                    let reasons = vec![names::finish_reason(answered.finish).to_owned()];
                    call.span.set("gen_ai.response.finish_reasons", AttributeValue::Texts(reasons));
                    self.end_model_call(call, at, answered.usage.as_ref(), answered.is_discarded());
                }
            }
            Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) => {
                if let Some(call) = self.open.remove(&answered.call) {
                    self.end_model_call(call, at, answered.usage.as_ref(), answered.unusable.is_some());
                }
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
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
            Body::RunVerified(verified) => {
                let misses = u64::try_from(verified.misses.len()).unwrap_or(u64::MAX);
                self.note_root("hermod.run.verified", at, vec![number("hermod.run.misses", misses)]);
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
            if let Some(job) = started.call.job() {
                span.set("hermod.model.purpose", job.name());
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
        let status = ended.end.status.name();
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
#[path = "fold_tests.rs"]
mod tests;
