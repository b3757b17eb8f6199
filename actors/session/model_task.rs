//! Model calls: for the next answer of a run, or for a summary. Each call has a lease, is recorded before it is made,
//! and is made by a task of its session.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    model::{Message, ModelStarted, RunSpec, ThinkingRequest},
    port::{EncodedHead, Encoder, MessageBuffer, ModelRequest, ToolChoice},
    provider::Lease,
    session::{
        model_attempt,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, LostGuard, TaskSpawner},
        view::EncodedView,
    },
    tool_executor::ToolRegistry,
    turn::{CallAdmission, Input, SUMMARY_PROMPT, SummaryRequest, Turn},
};

/// The encoded request for a model.
type RenderedRequest = (EncodedHead, MessageBuffer);

impl TaskSpawner {
    /// Makes the attempt of a model call that is recorded as started.
    pub(crate) fn call_model(&self, turn: &Turn, view: &mut EncodedView, lease: Lease) -> InFlightTask {
        let (Some(started), Some((_, spec))) = (turn.model_started(), turn.current()) else {
            return InFlightTask::Call(CancellationToken::new());
        };
        let (started, spec) = (Arc::clone(started), Arc::clone(spec));
        let tools = Arc::clone(&self.wiring.tools);
        let rendered = render_request(&spec, &lease, |encoder| {
            let (head, messages) = view.render(turn, encoder, || tools.specs(&spec.tools));
            let head = if turn.offers_tools() { head } else { encoder.head(&turn.system_prompt(), &[]) };
            (head, messages)
        });
        let tool_choice = if turn.is_exhausted() { ToolChoice::NoCalls } else { ToolChoice::Auto };
        if rendered.is_none() {
            *view = EncodedView::default();
        }
        let thinking = spec.thinking_request_of(lease.admission.model());
        self.spawn_attempt((started, spec), lease, (rendered, thinking, tool_choice), Some(tools))
    }

    /// Makes the attempt of a summary that is recorded as started.
    pub(crate) fn summarise(&self, turn: &Turn, lease: Lease) -> InFlightTask {
        let (Some(SummaryRequest { started, text }), Some((_, spec))) =
            (turn.summary_request(), turn.current())
        else {
            return InFlightTask::Call(CancellationToken::new());
        };
        let rendered = render_request(spec, &lease, |encoder| {
            let mut messages = MessageBuffer::default();
            encoder.messages(&[Message::User(text.into())], &mut messages);
            (encoder.head(SUMMARY_PROMPT, &[]), messages)
        });
        self.spawn_attempt((started, Arc::clone(spec)), lease, (rendered, None, ToolChoice::Auto), None)
    }

    /// Makes a recorded attempt in a task, with the rendered request, the thinking request, and the tool choice.
    /// `tools` admits the calls of the answer in that task.
    fn spawn_attempt(
        &self,
        (started, spec): (Arc<ModelStarted>, Arc<RunSpec>),
        lease: Lease,
        (rendered, thinking, tool_choice): (Option<RenderedRequest>, Option<ThinkingRequest>, ToolChoice),
        tools: Option<Arc<ToolRegistry>>,
    ) -> InFlightTask {
        let (call, attempt) = (started.call, started.attempt);
        let Some((head, messages)) = rendered else {
            return self
                .fail_unsent((call, attempt), "the provider's adapter panicked while it wrote the request");
        };
        let model = lease.admission.model();
        let request = ModelRequest {
            call,
            session: self.id,
            model: Arc::clone(model.model()),
            credential: lease.admission.credential(),
            max_tokens: started.max_tokens,
            thinking,
            deadlines: spec.profile_of(model).deadlines,
            head,
            tool_choice,
            messages,
            images: BTreeMap::new(),
        };
        let span = tracing::info_span!(
            "model_call", session = %self.id, run = %call.run, call = %call, attempt, model = %model
        );
        let guard = LostGuard::new(self.session.clone(), call, attempt);
        let wiring = Arc::clone(&self.wiring);
        let published = StreamPublisher::new(&self.wiring.hub, self.id, (call, attempt));
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let task = async move {
            let made =
                model_attempt::run(&wiring, (lease, &spec, &started), request, (&published, &cancelled))
                    .await;
            guard.complete(match made {
                Ok(answer) => {
                    let answer = Arc::new(answer);
                    let plans: Arc<[CallAdmission]> = match tools {
                        Some(tools) => tools.admit_calls(&answer, &spec, &cancelled).await,
                        None => Arc::new([]),
                    };
                    Input::Answered { admissions: plans, answer, started }
                }
                Err((failure, outlook)) => {
                    Input::ModelFailed { call, attempt, failure: Box::new(failure), failover: outlook }
                }
            });
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }
}

/// The request for the leased model; `None` if its adapter panics: that fails the call, not the session.
fn render_request(
    spec: &RunSpec,
    lease: &Lease,
    render: impl FnOnce(&Arc<dyn Encoder>) -> RenderedRequest,
) -> Option<RenderedRequest> {
    let model = lease.admission.model();
    catch_unwind(AssertUnwindSafe(|| {
        render(&lease.admission.endpoint().encoder(model.model(), &spec.profile_of(model)))
    }))
    .ok()
}
