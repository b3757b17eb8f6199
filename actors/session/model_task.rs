//! Starts the tasks of model calls, for the next answer of a run or for an aside. A task makes its attempt
//! (`model_attempt.rs`) with the request that is rendered here, and reports the result. Each attempt has a lease and is
//! recorded before it is made. The task also has the tool calls of an answer admitted, and tells the Compressor how a
//! summary ended.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    compressor::SummaryPermit,
    model::{
        AttemptId, CallId, Failure, Message, ModelAnswer, ModelStarted, RunSpec, SessionId, ThinkingRequest,
    },
    policy::{SummaryReport, SummaryResult},
    port::{EncodedHead, Encoder, MessageBuffer, ModelRequest, ToolChoice},
    provider::Lease,
    session::{
        SessionInternalMsg,
        aside_admission::AsideLease,
        model_attempt,
        shell::Grant,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, LostGuard, TaskSpawner},
        view::EncodedView,
    },
    supervisor::RuntimeParts,
    tool_executor::{Admission, HookedAdmission, ToolGeneration},
    turn::{AsideRequest, Input, Turn, summary_defect},
};

/// What an attempt is for.
enum CallPurpose {
    /// The next answer of a run; these tools admit its calls.
    Answer(Arc<ToolGeneration>),
    /// An aside; the permit ends with the attempt.
    Aside(SummaryPermit),
}

/// The encoded request for a model.
type RenderedRequest = (EncodedHead, MessageBuffer);

impl TaskSpawner {
    /// Makes the recorded attempt of a model call or aside with its grant.
    pub(super) fn start_model_call(
        &self,
        turn: &Turn,
        view: &mut EncodedView,
        id: AttemptId,
        grant: Option<Grant>,
    ) -> InFlightTask {
        match grant {
            Some(Grant::Aside(lease)) => self.call_aside(turn, id.call, *lease),
            Some(Grant::Lease(lease)) => self.call_model(turn, view, lease),
            Some(Grant::Permit(_) | Grant::Place(_)) | None => {
                self.fail_unsent(id, "there was no lease for it")
            }
        }
    }

    /// Makes the attempt of a model call that is recorded as started.
    fn call_model(&self, turn: &Turn, view: &mut EncodedView, lease: Lease) -> InFlightTask {
        let (Some(started), Some((_, spec))) = (turn.model_started(), turn.current()) else {
            return InFlightTask::Call(CancellationToken::new());
        };
        let (started, spec) = (Arc::clone(started), Arc::clone(spec));
        let tools = self.parts.executor.tools();
        let rendered = render_request(&spec, &lease, |encoder| {
            let (head, messages) = view.render(turn, encoder, || tools.specs(&spec.tools));
            let head = if turn.offers_tools() { head } else { encoder.head(&turn.system_prompt(), &[]) };
            (head, messages)
        });
        let tool_choice = if turn.forbids_calls() { ToolChoice::NoCalls } else { ToolChoice::Auto };
        if rendered.is_none() {
            *view = EncodedView::default();
        }
        let thinking = spec.thinking_request_of(&lease.admission.model);
        let purpose = CallPurpose::Answer(tools);
        self.spawn_attempt((started, spec), lease, (rendered, thinking, tool_choice), purpose)
    }

    /// Makes the attempt of an aside that is recorded as started.
    fn call_aside(
        &self,
        turn: &Turn,
        call: CallId,
        AsideLease { lease, permit }: AsideLease,
    ) -> InFlightTask {
        let Some(AsideRequest { started, prompt, content, spec }) = turn.aside_request(call) else {
            return InFlightTask::Call(CancellationToken::new());
        };
        let rendered = render_request(&spec, &lease, |encoder| {
            let mut messages = MessageBuffer::default();
            encoder.messages(&[Message::User(content)], &mut messages);
            (encoder.head(&prompt, &[]), messages)
        });
        let request = (rendered, None, ToolChoice::Auto);
        self.spawn_attempt((started, spec), lease, request, CallPurpose::Aside(permit))
    }

    /// Makes a recorded attempt in a task, with the rendered request, the thinking request, and the tool choice.
    fn spawn_attempt(
        &self,
        (started, spec): (Arc<ModelStarted>, Arc<RunSpec>),
        lease: Lease,
        (rendered, thinking, tool_choice): (Option<RenderedRequest>, Option<ThinkingRequest>, ToolChoice),
        purpose: CallPurpose,
    ) -> InFlightTask {
        let (id, session) = (started.id(), self.id);
        let Some((head, messages)) = rendered else {
            return self.fail_unsent(id, "the provider's adapter panicked while it wrote the request");
        };
        let model = &lease.admission.model;
        let request = Box::new(ModelRequest {
            call: id.call,
            session: self.id,
            model: Arc::clone(model.model()),
            credential: lease.admission.credential,
            max_tokens: started.max_tokens,
            thinking,
            deadlines: spec.profile_of(model).deadlines,
            head,
            tool_choice,
            messages,
            images: BTreeMap::new(),
        });
        let span = tracing::info_span!(
            "model_call", session = %self.id, run = %id.call.run, call = %id.call, attempt = id.attempt, model = %model
        );
        let guard = LostGuard::new(self.session.clone(), id);
        let parts = Arc::clone(&self.parts);
        let publisher = StreamPublisher::new(&self.parts, self.id, id);
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let task = async move {
            let from_ms = parts.clock.monotonic_ms();
            let answer =
                model_attempt::run(&parts, (lease, &spec, &started), request, (&publisher, &cancelled)).await;
            let tools = match purpose {
                CallPurpose::Answer(tools) => Some(tools),
                CallPurpose::Aside(permit) => {
                    let ms = parts.clock.monotonic_ms().saturating_sub(from_ms);
                    let result = answer.as_ref().map_err(|(failure, _)| failure);
                    let report = summary_report(&started, result, ms);
                    permit.end_call(report);
                    None
                }
            };
            guard.complete(match answer {
                Ok(answer) => {
                    let answer = Arc::new(answer);
                    let admissions = match tools {
                        Some(tools) => {
                            let admission = hooked_admission(&parts, &spec, (session, started.call));
                            Box::pin(admission.admit_calls(&tools, &answer, &cancelled)).await
                        }
                        None => Vec::new(),
                    };
                    answered_message(started, answer, admissions)
                }
                Err((failure, failover)) => {
                    let failure = Box::new(failure);
                    SessionInternalMsg::Input(Input::ModelFailed { id, failure, failover })
                }
            });
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }
}

/// The admission of the calls of the answer to a model call.
fn hooked_admission<'a>(
    parts: &'a RuntimeParts,
    spec: &'a Arc<RunSpec>,
    (session, model_call): (SessionId, CallId),
) -> HookedAdmission<'a> {
    let RuntimeParts { hooks, redactor, executor, .. } = parts;
    HookedAdmission { hooks, redactor, policy: &executor.policy, session, spec, model_call }
}

/// Tells the session that the model has answered, with the admissions of the answer's tool calls.
fn answered_message(
    started: Arc<ModelStarted>,
    answer: Arc<ModelAnswer>,
    admissions: Vec<Admission>,
) -> SessionInternalMsg {
    let (admissions, calls): (Vec<_>, Vec<_>) = admissions.into_iter().unzip();
    let calls = calls.into_iter().zip(1..);
    let admitted = calls.filter_map(|(call, n)| Some((CallId { n, ..started.call }, call?))).collect();
    SessionInternalMsg::Answered(Input::Answered { admissions: admissions.into(), answer, started }, admitted)
}

/// What the Compressor learns from an attempt at a summary that took `ms` milliseconds. Other asides tell it nothing.
fn summary_report(
    started: &ModelStarted,
    answer: Result<&ModelAnswer, &Failure>,
    ms: u64,
) -> Option<SummaryReport> {
    if !started.call.is_summary() {
        return None;
    }
    let result = match answer {
        Ok(answer) => match summary_defect(&answer.message.text, started) {
            None => {
                let written = answer.message.text.trim().len() as u64;
                SummaryResult::Usable { read: started.bytes, written }
            }
            Some(_) => SummaryResult::Failed,
        },
        Err(failure) => SummaryResult::of_failure(&failure.class)?,
    };
    Some(SummaryReport { model: started.model.clone(), ms, result })
}

/// The request for the leased model; `None` if its adapter panics: that fails the call, not the session.
fn render_request(
    spec: &RunSpec,
    lease: &Lease,
    render: impl FnOnce(&Arc<dyn Encoder>) -> RenderedRequest,
) -> Option<RenderedRequest> {
    let model = &lease.admission.model;
    catch_unwind(AssertUnwindSafe(|| {
        render(&lease.admission.endpoint().encoder(model.model(), &spec.profile_of(model)))
    }))
    .ok()
}
