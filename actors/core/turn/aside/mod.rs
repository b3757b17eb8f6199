//! Calls beside the runs of a session ("asides"): summaries, titles, descriptions and memory flushes. Here is what they share:
//! the request of such a call, and what follows from its answers and failures. The state of a call is in `aside_call.rs`. What each is
//! for, and when it is wanted, is decided in `summary/`, `title.rs`, `vision.rs` and `flush/`.
//!
//! Invariant: an aside is reserved and recorded before it is made, on the account of its run. No run fails because an
//! aside does.

mod decide;

pub(super) use decide::{AsideContent, aside_answered, aside_refusal};

use std::{borrow::Cow, sync::Arc};

use crate::{
    model::{AsideJob, CallId, MessageContent, ModelStarted, RunSpec, SessionTime},
    policy::{Candidate, SummaryUrgency, ViewGrowth},
    turn::Turn,
};

/// A request of an aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsideRequest {
    /// The started attempt.
    pub started: Arc<ModelStarted>,
    /// The system prompt.
    pub prompt: Cow<'static, str>,
    /// The user message.
    pub content: MessageContent,
    /// The spec of the run on whose account it is.
    pub spec: Arc<RunSpec>,
}

impl Turn {
    /// The request of the started attempt of this aside.
    pub fn aside_request(&self, call: CallId) -> Option<AsideRequest> {
        let request = match call.job()? {
            AsideJob::Summary => self.summary_request(),
            AsideJob::Title => self.title_request(),
            AsideJob::Vision => self.vision_request(),
            AsideJob::Memory => self.flush_request(),
        };
        request.filter(|request| request.started.call == call)
    }

    /// The models that may still be called for this aside.
    pub(super) fn aside_candidates(&self, call: CallId) -> Option<Vec<Candidate>> {
        match call.job()? {
            AsideJob::Summary => self.summary_candidates(),
            AsideJob::Title => self.title_candidates(),
            AsideJob::Vision => self.vision_candidates(),
            AsideJob::Memory => self.flush_candidates(),
        }
    }

    /// How soon this aside is needed. The Compressor orders and delays asides by it.
    pub fn aside_urgency(&self, call: CallId, now: SessionTime) -> SummaryUrgency {
        match call.job() {
            Some(AsideJob::Summary | AsideJob::Memory) => self.summary_urgency(now),
            Some(AsideJob::Vision) => SummaryUrgency::Foreground,
            Some(AsideJob::Title) | None => {
                SummaryUrgency::Background(ViewGrowth { fill_percent: 0, slack_ms: None })
            }
        }
    }
}
