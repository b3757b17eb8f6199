//! ToolExecutor: the actor that gives permits to the tool calls of all sessions, and closes tools that are not used any
//! more. Each class of calls has permits of its own, and runs take turns. Also its messages and its status.
//!
//! The actor decides nothing that is recorded, and runs no call: see `docs/decisions/tool-executor.md`. The recorded
//! verdict on a call is in `admission.rs`; the task of the answer asks for it.

mod admission;
mod generation;
mod handle;
mod hooked_admission;

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use crate::{
    handlers::HandlerWatch,
    inspect::Inspect,
    model::{RunId, ToolClass},
    policy::PermitQueue,
};
pub(crate) use admission::{Admission, AdmittedCall, judge};
pub(crate) use generation::{RegisteredTool, ToolGeneration};
use handle::CallCounts;
pub(crate) use handle::{ToolExecutorHandle, ToolPermit};
pub(crate) use hooked_admission::HookedAdmission;

/// Status of the ToolExecutor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStatus {
    /// Calls that ended since the runtime was started, by tool.
    pub ended: BTreeMap<String, u64>,
    /// Tasks that ended without a report, by tool.
    pub lost: BTreeMap<String, u64>,
    /// The generation of the tools: 1, and one more for each exchange.
    pub generation: u64,
    /// The calls now, by class.
    pub classes: BTreeMap<ToolClass, ToolClassStatus>,
}

/// The tool calls of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolClassStatus {
    /// Calls in progress.
    pub running: usize,
    /// Calls that wait for a permit.
    pub waiting: usize,
}

/// The messages of [`ToolExecutorActor`].
#[derive(Debug)]
pub(crate) enum ToolExecutorMsg {
    /// A call waits for a permit.
    Request(PermitJob),
    /// A permit is free, and a call waits.
    PermitFree,
    /// A tool is not used any more.
    Retired,
    /// Inspects the state.
    Inspect(Inspect<ToolExecutorState>),
}

/// A tool call that waits for a permit.
#[derive(Debug)]
pub(crate) struct PermitJob {
    run: RunId,
    class: ToolClass,
    /// Whether an earlier incarnation started the call.
    is_running: bool,
    /// Closed when the call needs the permit no longer.
    reply: oneshot::Sender<ToolPermit>,
}

#[derive(Debug)]
pub(crate) struct ToolExecutorActor;

/// The waiting calls.
pub(crate) struct ToolExecutorState {
    handle: Arc<ToolExecutorHandle>,
    handlers: Arc<HandlerWatch>,
    queues: BTreeMap<ToolClass, PermitQueue<PermitJob>>,
}

impl Actor for ToolExecutorActor {
    type Msg = ToolExecutorMsg;
    type State = ToolExecutorState;
    type Arguments = (Arc<ToolExecutorHandle>, Arc<HandlerWatch>);

    async fn pre_start(
        &self,
        _me: ActorRef<ToolExecutorMsg>,
        (handle, handlers): Self::Arguments,
    ) -> Result<ToolExecutorState, ActorProcessingErr> {
        handle.close_unused();
        Ok(ToolExecutorState { handle, handlers, queues: BTreeMap::new() })
    }

    async fn handle(
        &self,
        _me: ActorRef<ToolExecutorMsg>,
        message: ToolExecutorMsg,
        state: &mut ToolExecutorState,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.handlers.enter("ToolExecutor", None);
        match message {
            ToolExecutorMsg::Request(job) => {
                state.queues.entry(job.class).or_default().push(job.run, job.is_running, job);
            }
            ToolExecutorMsg::PermitFree => {}
            ToolExecutorMsg::Retired => state.handle.close_unused(),
            ToolExecutorMsg::Inspect(inspect) => return inspect.run(state),
        }
        state.admit_waiting();
        Ok(())
    }
}

impl ToolExecutorState {
    /// Gives free permits to waiting calls.
    fn admit_waiting(&mut self) {
        for (class, queue) in &mut self.queues {
            while queue.jobs().next().is_some()
                && let Some(permit) = self.handle.free_permit(*class)
            {
                // A refused permit returns by itself, with a message.
                if queue.take_next().is_some_and(|job| job.reply.send(permit).is_err()) {
                    tracing::debug!("a call was given up before its permit");
                }
            }
        }
    }

    /// The status.
    pub(crate) fn status(&self) -> ToolStatus {
        let waiting = |class| {
            let jobs = self.queues.get(&class).into_iter().flat_map(PermitQueue::jobs);
            jobs.filter(|job| !job.reply.is_closed()).count()
        };
        let class =
            |class| (class, ToolClassStatus { running: self.handle.running(class), waiting: waiting(class) });
        let CallCounts { ended, lost } = self.handle.counts();
        ToolStatus {
            ended,
            lost,
            generation: self.handle.tools().number,
            classes: ToolClass::ALL.map(class).into(),
        }
    }
}
