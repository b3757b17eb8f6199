//! Classifies the kinds of records: which attempt a record starts or ends, the usage that it settles, progress, and
//! bytes of text. A new kind is classified here and nowhere else: the last two functions name every kind, so that the
//! compiler leads here.
#![expect(clippy::wildcard_enum_match_arm, reason = "most kinds start, end and settle nothing")]

use super::{AttemptId, Body, CallStatus, FailureClass, Usage};

impl Body {
    /// The attempt of a model call, aside or tool call that this record starts.
    pub fn started_attempt(&self) -> Option<AttemptId> {
        match self {
            Self::ModelStarted(started) | Self::AsideStarted(started) => Some(started.id()),
            Self::SummaryStarted(started) => Some(started.started.id()),
            Self::CallStarted(started) => Some(started.id()),
            _ => None,
        }
    }

    /// The started attempt of a tool call that is over with this record.
    pub fn ended_tool_attempt(&self) -> Option<AttemptId> {
        match self {
            Self::CallEnded(ended) if ended.attempt > 0 => Some(ended.call.attempt(ended.attempt)),
            Self::CallLost(lost) => Some(lost.call.attempt(lost.attempt)),
            _ => None,
        }
    }

    /// The attempt of which this record reports the start, the end, or a wait.
    pub fn step(&self) -> Option<AttemptId> {
        match self {
            Self::ModelAnswered(body) => Some(body.call.attempt(body.attempt)),
            Self::ModelFailed(body) | Self::SummaryFailed(body) | Self::AsideFailed(body) => {
                Some(body.call.attempt(body.attempt))
            }
            Self::SummaryAnswered(body) | Self::AsideAnswered(body) => Some(body.call.attempt(body.attempt)),
            Self::ModelWaiting(body) => Some(body.call.attempt(body.attempt)),
            Self::CallEnded(body) => Some(body.call.attempt(body.attempt)),
            Self::CallLost(body) => Some(body.call.attempt(body.attempt)),
            Self::ApprovalRequested(body) => Some(body.call.attempt(body.attempt)),
            _ => self.started_attempt(),
        }
    }

    /// The attempt of a model call or aside whose cost this record settles, and its usage if that is known.
    pub fn settled_usage(&self) -> Option<(AttemptId, Option<&Usage>)> {
        match self {
            Self::ModelAnswered(body) => Some((body.call.attempt(body.attempt), body.usage.as_ref())),
            Self::SummaryAnswered(body) | Self::AsideAnswered(body) => {
                Some((body.call.attempt(body.attempt), body.usage.as_ref()))
            }
            Self::ModelFailed(body) | Self::SummaryFailed(body) | Self::AsideFailed(body) => {
                Some((body.call.attempt(body.attempt), body.failure.usage.as_deref()))
            }
            Self::ModelLate(body) => Some((body.id(), Some(&body.usage))),
            _ => None,
        }
    }

    /// Whether the record shows progress of its run. Records that only a revival causes, or that come from outside, do
    /// not.
    pub fn is_progress(&self) -> bool {
        match self {
            Self::ModelAnswered(_)
            | Self::SummaryAnswered(_)
            | Self::ContextCompacted(_)
            | Self::ModelWaiting(_)
            | Self::RunStopping(_)
            | Self::RunEnded(_)
            | Self::RunVerified(_)
            | Self::ApprovalRequested(_) => true,
            Self::ModelFailed(failed) | Self::SummaryFailed(failed) => {
                failed.failure.class != FailureClass::Interrupted
            }
            Self::CallEnded(ended) => match ended.end.status {
                CallStatus::Ok | CallStatus::Error | CallStatus::Stopped => true,
                CallStatus::NotStarted | CallStatus::InDoubt => false,
            },
            Self::SessionOpened(_)
            | Self::SessionRevived(_)
            | Self::RunAccepted(_)
            | Self::ModelStarted(_)
            | Self::SummaryStarted(_)
            | Self::AsideStarted(_)
            | Self::AsideAnswered(_)
            | Self::AsideFailed(_)
            | Self::MemorySaved(_)
            | Self::ModelLate(_)
            | Self::CallAdmitted(_)
            | Self::CallStarted(_)
            | Self::CallLost(_)
            | Self::MessageSteered(_)
            | Self::MessageCollected(_)
            | Self::MessageDropped(_)
            | Self::RunBegun(_)
            | Self::RunExhausted(_)
            | Self::RunReopened(_)
            | Self::BudgetRaised(_)
            | Self::ChildEnded(_)
            | Self::TodoChanged(_)
            | Self::QueueChanged(_)
            | Self::ApprovalAnswered(_) => false,
        }
    }

    /// Bytes of the texts in this record, without its fixed fields.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::SessionOpened(opened) => opened.prompt.len(),
            Self::RunAccepted(accepted) => {
                let system = accepted.spec.system.as_ref().map_or(0, |system| system.len());
                accepted.input.len() + accepted.history.bytes() + system
            }
            Self::ModelAnswered(answered) => {
                let message = &answered.message;
                let calls: usize = message.calls.iter().map(|call| call.arguments.len()).sum();
                message.text.len() + message.reasoning.len() + calls
            }
            Self::CallAdmitted(admitted) => {
                let hooked = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_ref());
                hooked.map_or(0, |arguments| arguments.len())
            }
            Self::SummaryStarted(started) => {
                let hooked = started.hooks.as_ref().and_then(|hooks| hooks.annotation.as_ref());
                hooked.map_or(0, |annotation| annotation.len())
            }
            Self::CallEnded(ended) => ended.end.content.len(),
            Self::ChildEnded(ended) => ended.result.len(),
            Self::ContextCompacted(compacted) => compacted.summary.as_deref().map_or(0, str::len),
            Self::SummaryAnswered(answered) | Self::AsideAnswered(answered) => answered.text.len(),
            Self::MessageSteered(steered) => steered.text.len(),
            Self::RunVerified(verified) => {
                verified.misses.iter().map(|miss| miss.expected.len() + miss.reason.len()).sum()
            }
            Self::MemorySaved(saved) => saved.save.refused.iter().map(|refusal| refusal.reason.len()).sum(),
            Self::MessageCollected(collected) => collected.text.len(),
            Self::MessageDropped(dropped) => dropped.excerpt.as_deref().map_or(0, str::len),
            Self::ApprovalRequested(request) => request.question.len(),
            Self::TodoChanged(changed) => {
                changed.items.0.iter().map(|item| 64 + item.id.len() + item.content.len()).sum()
            }
            Self::SessionRevived(_)
            | Self::RunBegun(_)
            | Self::RunStopping(_)
            | Self::RunEnded(_)
            | Self::ModelStarted(_)
            | Self::ModelFailed(_)
            | Self::ModelWaiting(_)
            | Self::ModelLate(_)
            | Self::CallStarted(_)
            | Self::CallLost(_)
            | Self::RunExhausted(_)
            | Self::RunReopened(_)
            | Self::BudgetRaised(_)
            | Self::SummaryFailed(_)
            | Self::QueueChanged(_)
            | Self::AsideStarted(_)
            | Self::AsideFailed(_)
            | Self::ApprovalAnswered(_) => 0,
        }
    }
}
