//! Checks the calls for descriptions of pictures: each is on the account of the run under way, before the model call
//! that reads the pictures.

use std::sync::Arc;

use super::{State, Watch};
use crate::{
    model::{AsideAnswered, Attempt, AttemptId, Body, CallId, ModelFailed, ModelStarted},
    policy::{Billing, billing},
    turn::{DueAction, tests::fuzz::hold},
};

/// State of the calls for descriptions.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    /// The attempt under way.
    asked: Option<Arc<ModelStarted>>,
    /// The last call that is over.
    over: Option<CallId>,
}

impl Descriptions {
    /// Whether a due action for descriptions fits the attempt under way.
    pub(super) fn fits(&self, effect: &DueAction) -> bool {
        let asked = self.asked.as_ref().map(|asked| asked.id());
        match effect {
            DueAction::CallModel(id) => asked == Some(*id),
            DueAction::Acquire(AttemptId { call, .. }) => asked.is_none() && self.over != Some(*call),
            DueAction::RunTool { .. }
            | DueAction::EndTool { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => false,
        }
    }
}

impl Watch {
    /// Checks a record about descriptions.
    pub(super) fn description(&mut self, body: &Body) -> Result<(), String> {
        if let Body::AsideStarted(started) = body {
            self.description_started(started)
        } else if let Body::AsideAnswered(answered) = body {
            self.description_answered(answered)
        } else if let Body::AsideFailed(failed) = body {
            self.description_failed(failed)
        } else {
            Ok(())
        }
    }

    fn description_started(&mut self, asked: &Arc<ModelStarted>) -> Result<(), String> {
        let Descriptions { asked: open, over } = &self.descriptions;
        hold!(open.is_none() && *over != Some(asked.call), "{asked:?} again: {:?}", self.descriptions);
        hold!(self.asked.is_none(), "{asked:?} beside {:?}", self.asked);
        hold!(asked.view_seq + 1 == self.seq, "{asked:?} is record {}", self.seq);
        hold!(asked.reserved.iterations.is_none(), "{asked:?} costs an iteration");
        hold!(asked.reserved.tokens > Some(asked.max_tokens), "{asked:?} reserves too little");
        hold!(asked.attempt <= 4 && asked.images > 0, "{asked:?} describes nothing, or too often");
        let run = self.running(asked.call.run)?;
        hold!(run.state == State::Running && run.exhausted.is_none(), "{run:?} wants a description");
        let may_be = run.spec.vision.as_ref().is_some_and(|vision| vision.chain.contains(&asked.model));
        hold!(may_be && run.spec.profile_of(&asked.model).accepts_images(), "{asked:?} asks a blind model");
        run.held.reserve(&asked.reserved);
        self.descriptions.asked = Some(Arc::clone(asked));
        Ok(())
    }

    fn take_description(&mut self, call: CallId, attempt: Attempt) -> Result<Arc<ModelStarted>, String> {
        let asked = self.descriptions.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked = asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way"))?;
        self.running(call.run)?.held.give_back(&asked.reserved);
        Ok(asked)
    }

    fn description_answered(&mut self, answered: &AsideAnswered) -> Result<(), String> {
        let asked = self.take_description(answered.call, answered.attempt)?;
        hold!(answered.unusable.is_some() == answered.text.is_empty(), "{answered:?}");
        if answered.unusable.is_none() {
            self.descriptions.over = Some(answered.call);
        }
        if let Some(usage) = &answered.usage {
            self.used(answered.call.run, usage, &asked)?;
        }
        Ok(())
    }

    fn description_failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        if failed.retry_at.is_none() {
            self.descriptions.over = Some(failed.call);
        }
        // If no model can be called, no attempt was under way.
        if self.descriptions.asked.is_none() {
            hold!(failed.retry_at.is_none(), "{failed:?} of nothing");
            return Ok(());
        }
        let asked = self.take_description(failed.call, failed.attempt)?;
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.used(failed.call.run, usage, &asked)?;
        }
        if billing(&failed.failure) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }
}
