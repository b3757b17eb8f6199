//! Simulated providers. A model's answer is a function of the view (`answers.rs`), except for planned faults, which
//! happen once each. Each served call is recorded in the external world.

use std::{
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    answers::{planned_answer, position},
    context_pressure::answer_summary,
    descriptions::answer_description,
    external_world::{EndKind, ExternalWorld, ServedModelCall},
    flushes::answer_flush,
    loops,
    plan::{ModelFault, PlannedStep, SimulationPlan, ToolKind},
    titles::answer_title,
    view_invariants,
};
use crate::PlainEncoder;
use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    model::{AsideJob, Failure, Message, ModelAnswer, ModelProfile, ToolSpec, Usage},
    port::{DeltaSink, EncodedHead, Encoder, MessageBuffer, ModelProvider, ModelRequest},
};

/// Limit of steps after a run's last planned one that may still have faults. Some faults add calls and so another step;
/// without a limit, a run without limits would never end.
const MAX_FAULTS_AFTER_LAST: usize = 8;
/// Limit of model calls in a simulation: no plan needs as many, so more mean an endless loop.
const MAX_MODEL_CALLS: usize = 1_000;

/// A simulated provider.
#[derive(Debug)]
pub(super) struct SimulatedProvider {
    pub(super) plan: Arc<SimulationPlan>,
    pub(super) outside: Arc<ExternalWorld>,
    encoder: Arc<SimulatedEncoder>,
}

impl SimulatedProvider {
    pub(super) fn new(plan: Arc<SimulationPlan>, outside: Arc<ExternalWorld>) -> Self {
        let encoder = Arc::new(SimulatedEncoder { plan: Arc::clone(&plan), outside: Arc::clone(&outside) });
        Self { plan, outside, encoder }
    }

    /// Whether `MAX_MODEL_CALLS` is reached. The provider then never answers, so that time advances and the life ends.
    pub(super) fn is_endless(&self) -> bool {
        let count = self.outside.lock().model_calls.len();
        if count == MAX_MODEL_CALLS {
            self.outside.report_violation(
                "there is progress when faults stop",
                format!("models were asked {count} times"),
            );
        }
        count >= MAX_MODEL_CALLS
    }

    async fn answer(&self, request: ModelRequest) -> Result<ModelAnswer, Failure> {
        let messages = PlainEncoder::decode(&request);
        if request.call.is_summary() {
            return answer_summary(self, request, &messages).await;
        }
        if request.call.job() == Some(AsideJob::Memory) {
            return answer_flush(self, request, &messages).await;
        }
        if request.call.job() == Some(AsideJob::Vision) {
            return answer_description(self, request, &messages).await;
        }
        if request.call.is_aside() {
            return answer_title(self, request, &messages).await;
        }
        let shown_messages = view_invariants::check(&self.outside, request.session, &messages);
        let call = ServedCallGuard::start(&self.outside, &request, shown_messages);
        if self.is_endless() {
            return pending().await;
        }
        if let Some(refused) =
            self.plan.context_pressure.as_ref().and_then(|pressure| pressure.refusal(&messages))
        {
            self.outside.record_fault("model: too long a request");
            call.finish(None);
            return Err(refused);
        }
        let (run, at) = position(&messages);
        let nothing = PlannedStep::default();
        let run = run.and_then(|run| self.plan.run(run));
        let step = run.map_or(&nothing, |run| run.steps.get(at).unwrap_or(&run.last));
        let nth = self.outside.count(format!("{:?}.{at}", run.map(|run| run.n)));
        let is_over = run.is_some_and(|run| at >= run.steps.len() + MAX_FAULTS_AFTER_LAST);
        let mishap = step.faults.get(nth).copied().filter(|_| !is_over);
        if let Some(mishap) = mishap {
            self.outside.record_fault(mishap.name());
        } else if run.is_some_and(|run| loops::is_loop(run, at)) {
            self.outside.record_fault(loops::LOOP);
        }
        tokio::time::sleep(Duration::from_millis(step.ms)).await;
        let answered = planned_answer((&self.plan, run), (at, step, mishap), request.max_tokens);
        let answered = match answered {
            Some(answered) => answered,
            None if mishap == Some(ModelFault::Panic) => panic!("planned: the provider panics"),
            None => pending().await,
        };
        call.finish(answered.as_ref().ok().and_then(|answer| answer.usage));
        answered
    }
}

impl ModelProvider for SimulatedProvider {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::<SimulatedEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        async move {
            let answer = self.answer(request).await?;
            if !answer.message.text.is_empty() {
                deltas.text(&answer.message.text);
            }
            Ok(answer)
        }
        .boxed()
    }
}

impl ToolKind {
    pub(super) const ALL: [Self; 4] = [Self::Look, Self::Put, Self::Send, Self::Build];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Put => "put",
            Self::Send => "send",
            Self::Build => "build",
        }
    }
}

/// An attempt served by a provider. Dropping the guard unfinished records the end as `EndKind::Dropped`.
pub(super) struct ServedCallGuard {
    outside: Arc<ExternalWorld>,
    n: usize,
    ended: Mutex<Option<EndKind>>,
}

impl ServedCallGuard {
    pub(super) fn start(
        outside: &Arc<ExternalWorld>,
        request: &ModelRequest,
        shown_messages: Vec<usize>,
    ) -> Self {
        let mut inner = outside.lock();
        let call = request.call;
        // A request does not carry its attempt.
        let attempt = inner.observations.last_started(call);
        if attempt == 0 {
            inner.observations.report_violation(
                "an effect follows its record",
                format!("{call} was asked before its start was stored"),
            );
        }
        if let Some(earlier) =
            inner.model_calls.iter().find(|earlier| earlier.call == call && earlier.ended.is_none())
        {
            let what = format!("{call} attempt {attempt} was asked while attempt {} was", earlier.attempt);
            inner.observations.report_violation("attempts do not overlap", what);
        }
        inner.model_calls.push(ServedModelCall {
            call,
            attempt,
            ended: None,
            reported_usage: None,
            reported_at: 0,
            shown_messages,
        });
        let n = inner.model_calls.len() - 1;
        drop(inner);
        Self { outside: Arc::clone(outside), n, ended: Mutex::default() }
    }

    pub(super) fn finish(&self, usage: Option<Usage>) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(EndKind::Finished);
        let mut inner = self.outside.lock();
        let now = inner.now();
        let call = &mut inner.model_calls[self.n];
        (call.reported_usage, call.reported_at) = (usage, now);
    }
}

impl Drop for ServedCallGuard {
    fn drop(&mut self) {
        let how = self.ended.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(EndKind::Dropped);
        self.outside.lock().model_calls[self.n].ended.get_or_insert(how);
    }
}

/// Panics once for each run with `encoder_panics`.
#[derive(Debug)]
struct SimulatedEncoder {
    plan: Arc<SimulationPlan>,
    outside: Arc<ExternalWorld>,
}

impl Encoder for SimulatedEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        PlainEncoder.head(system, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        for message in messages {
            let Message::User(content) = message else { continue };
            for run in self.plan.runs.iter().chain(&self.plan.tasks).filter(|run| run.encoder_panics) {
                let is_its = *content.text == *format!("run-{}", run.n);
                let panics = is_its && self.outside.is_first(format!("encoder {}", run.n));
                if panics {
                    self.outside.record_fault("encoder: panics");
                }
                assert!(!panics, "planned: the encoder panics");
            }
        }
        PlainEncoder.messages(messages, to);
    }
}
