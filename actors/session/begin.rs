//! The task that gets permission for a held run to begin: a place in its lane, then the verdict of hooks. A hook without
//! a verdict refuses the run.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;

use crate::{
    model::{CallId, HookAnswer, HookDecision, HookPoint, HookRuling, RunId},
    policy::hooked_run,
    port::{HookQuestion, HookSubject},
    redaction::redact_hook_answer,
    session::{
        SessionInternalMsg,
        shell::Grant,
        tasks::{InFlightTask, TaskSpawner, send},
    },
    supervisor::RuntimeParts,
    turn::{BeginningRun, Input, Turn},
};

impl TaskSpawner {
    /// Waits for permission for the run to begin. Dropping the task gives up its turn, and ends the hooks.
    pub(super) fn begin(&self, turn: &Turn, run: RunId) -> InFlightTask {
        let beginning = turn.beginning_run(run);
        let (parts, session, id) = (Arc::clone(&self.parts), self.session.clone(), self.id);
        let panic_guard = self.report_panic();
        InFlightTask::Wait(self.tasks.spawn(async move {
            let _panic_guard = panic_guard;
            let Some(BeginningRun { input, spec, hold, accepted_at }) = beginning else { return };
            let place = match hold.lane {
                Some(lane) => Some(parts.lanes.acquire(lane, accepted_at).await),
                None => None,
            };
            let hooks = if hold.hooks && parts.hooks.is_asked(HookPoint::BeforeRun, None) {
                let call = CallId { run, iteration: 0, n: 0 };
                let subject = HookSubject::Run { input };
                let point = HookPoint::BeforeRun;
                let question = HookQuestion { point, session: id, id: call.attempt(0), spec, subject };
                Some(Arc::new(hooked_run(&ask(&parts, question).await)))
            } else {
                None
            };
            let input = Input::MayBegin { run, hooks };
            send(
                &session,
                match place {
                    Some(place) => SessionInternalMsg::Granted(input, Grant::Place(place)),
                    None => SessionInternalMsg::Input(input),
                },
            );
        }))
    }
}

async fn ask(parts: &RuntimeParts, question: HookQuestion) -> HookAnswer {
    let asked = async { parts.hooks.ask(question).await };
    let mut answer = AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|_| {
        let point = HookPoint::BeforeRun;
        let reason = Some("it panicked".into());
        let decision = HookDecision { hook: point.name().into(), point, ruling: HookRuling::Refused, reason };
        HookAnswer { decisions: vec![decision], replacement: None }
    });
    redact_hook_answer(&mut answer, &*parts.redactor);
    answer
}
