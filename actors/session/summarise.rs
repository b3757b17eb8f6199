//! A summary is a model call like others: leased, booked before it is made, and made by a task of its session.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    model::Message,
    port::{ModelRequest, Segments},
    provider::Lease,
    session::{
        attempt,
        calls::{Begun, Guard, Tasks},
        said::Published,
    },
    turn::{Input, SUMMARY_PROMPT, SummaryRequest, Turn},
};

impl Tasks {
    /// Makes the attempt at a summary that is started.
    pub(super) fn summarise(&self, turn: &Turn, lease: Lease) -> Begun {
        let cancel = CancellationToken::new();
        let (Some(SummaryRequest { started, text }), Some((_, spec))) =
            (turn.summary_request(), turn.current())
        else {
            return Begun::Call(cancel);
        };
        let spec = Arc::clone(spec);
        let model = lease.admission.model().clone();
        let traits = spec.traits_of(&model);
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let encoder = lease.admission.endpoint().encoder(&model.model, &traits);
            let mut messages = Segments::default();
            encoder.messages(&[Message::User(text.into())], &mut messages);
            (encoder.head(SUMMARY_PROMPT, &[]), messages)
        }));
        let Ok((head, messages)) = rendered else {
            let why = "the provider's adapter panicked while it wrote the request";
            return self.not_made((started.call, started.attempt), why);
        };
        let request = ModelRequest {
            call: started.call,
            session: self.id,
            model: Arc::clone(&model.model),
            credential: lease.admission.credential(),
            max_tokens: started.max_tokens,
            thinking: None,
            deadlines: traits.deadlines,
            head,
            messages,
            pictures: BTreeMap::new(),
        };
        let guard = Guard::new(self.session.clone(), started.call, started.attempt);
        let wiring = Arc::clone(&self.wiring);
        let published = Published::new(&self.wiring.hub, self.id, (started.call, started.attempt));
        let span = tracing::info_span!(
            "summary", session = %self.id, run = %started.call.run, attempt = started.attempt, model = %model
        );
        let cancelled = cancel.clone();
        let task = async move {
            let made = attempt::make(&wiring, (lease, &spec), request, (&published, &cancelled)).await;
            guard.answer(match made {
                Ok(answer) => Input::Answered { plans: Arc::new([]), answer: Arc::new(answer), started },
                Err((failure, outlook)) => {
                    let (call, attempt) = (started.call, started.attempt);
                    Input::ModelFailed { call, attempt, failure, outlook }
                }
            });
        };
        self.tasks.spawn(task.instrument(span));
        Begun::Call(cancel)
    }
}
