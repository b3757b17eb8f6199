//! Compressor: the actor that admits the summary calls of all sessions, its messages and its status. Calls that a run
//! waits for come first, sessions take turns, and a number of permits bounds the calls in progress. The actor keeps
//! statistics of the summarisers (`policy/summarizer_stats.rs`), and orders the candidates of a call by them.
//!
//! It decides nothing that is recorded, and makes no call: see `docs/decisions/compressor.md`.

mod handle;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    handlers::HandlerWatch,
    inspect::Inspect,
    model::{CallId, SessionId},
    policy::{Candidate, FairQueue, SummarizerStats, SummarizerStatus, SummaryReport, SummaryUrgency},
    port::Clock,
};
pub(crate) use handle::{CompressorHandle, SummaryPermit};

/// The messages of [`CompressorActor`].
#[derive(Debug)]
pub(crate) enum CompressorMsg {
    /// A summary call waits for its admission.
    Request(SummaryJob),
    /// The urgency of a waiting call has changed.
    Update(CallId, SummaryUrgency),
    /// A permit is free; with the report of its attempt, if that tells something about the summariser.
    Released(Option<SummaryReport>),
    /// Inspects the state.
    Inspect(Inspect<CompressorState>),
}

/// A summary call that waits for its admission.
#[derive(Debug)]
pub(crate) struct SummaryJob {
    pub(crate) session: SessionId,
    pub(crate) call: CallId,
    pub(crate) urgency: SummaryUrgency,
    /// The models that may take the call, in the chain's order.
    pub(crate) candidates: Vec<Candidate>,
    /// Closed when the session needs the summary no longer.
    pub(crate) reply: oneshot::Sender<SummaryAdmission>,
}

/// Permission to lease a model for a summary call.
#[derive(Debug)]
pub(crate) struct SummaryAdmission {
    /// The models that may take the call, in the advised order.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) permit: SummaryPermit,
}

/// Status of the Compressor: the calls now, and the statistics since its actor was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressorStatus {
    /// Waiting calls for which a run waits.
    pub foreground: usize,
    /// Waiting calls whose runs continue meanwhile.
    pub background: usize,
    /// Calls in progress.
    pub running: usize,
    /// Statistics of the summarisers, by model.
    pub summarizers: Vec<SummarizerStatus>,
}

#[derive(Debug)]
pub(crate) struct CompressorActor;

/// The waiting calls, and what was learned about the summarisers.
pub(crate) struct CompressorState {
    handle: Arc<CompressorHandle>,
    clock: Arc<dyn Clock>,
    handlers: Arc<HandlerWatch>,
    queue: FairQueue<CallId, SessionId, SummaryJob>,
    stats: SummarizerStats,
}

impl Actor for CompressorActor {
    type Msg = CompressorMsg;
    type State = CompressorState;
    type Arguments = (Arc<CompressorHandle>, Arc<dyn Clock>, Arc<HandlerWatch>);

    async fn pre_start(
        &self,
        _me: ActorRef<CompressorMsg>,
        (handle, clock, handlers): Self::Arguments,
    ) -> Result<CompressorState, ActorProcessingErr> {
        let (queue, stats) = (FairQueue::default(), SummarizerStats::default());
        Ok(CompressorState { handle, clock, handlers, queue, stats })
    }

    async fn handle(
        &self,
        _me: ActorRef<CompressorMsg>,
        message: CompressorMsg,
        state: &mut CompressorState,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.handlers.enter("Compressor", None);
        let now_ms = state.clock.monotonic_ms();
        match message {
            CompressorMsg::Request(job) => state.queue.push(job.call, job.session, job),
            CompressorMsg::Update(call, urgency) => {
                // An admitted call waits no longer: its urgency decides nothing.
                state.queue.get_mut(call).into_iter().for_each(|job| job.urgency = urgency);
            }
            CompressorMsg::Released(report) => {
                report.into_iter().for_each(|report| state.stats.apply(&report, now_ms));
            }
            CompressorMsg::Inspect(inspect) => return inspect.run(state),
        }
        state.admit_waiting(now_ms);
        Ok(())
    }
}

impl CompressorState {
    /// Admits waiting calls while permits are free. Calls in the background leave the last permit to the foreground,
    /// unless there is only one.
    fn admit_waiting(&mut self, now_ms: u64) {
        self.queue.retain(|job| !job.reply.is_closed());
        while let Some(permit) = self.handle.try_permit() {
            let is_last = self.handle.is_last_of_several();
            let stats = &self.stats;
            let rank = |job: &SummaryJob| {
                let is_background = matches!(job.urgency, SummaryUrgency::Background(_));
                let begins = stats.should_begin(job.urgency, &job.candidates, now_ms);
                (begins && !(is_last && is_background)).then_some(is_background)
            };
            let Some(SummaryJob { candidates, reply, .. }) = self.queue.take(rank) else { return };
            let candidates = self.stats.in_advised_order(candidates, now_ms);
            let permit = SummaryPermit::new(permit, Arc::clone(&self.handle.actor));
            if reply.send(SummaryAdmission { candidates, permit }).is_err() {
                tracing::debug!("a summary was given up before its admission");
            }
        }
    }

    /// The status.
    pub(crate) fn status(&self) -> CompressorStatus {
        let waiting = self.queue.jobs().filter(|job| !job.reply.is_closed());
        let (foreground, background): (Vec<_>, Vec<_>) =
            waiting.partition(|job| job.urgency == SummaryUrgency::Foreground);
        CompressorStatus {
            foreground: foreground.len(),
            background: background.len(),
            running: self.handle.running(),
            summarizers: self.stats.statuses(self.clock.monotonic_ms()),
        }
    }
}
