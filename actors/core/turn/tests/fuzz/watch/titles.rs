//! Checks the calls for titles: each is on the account of a run that has completed, and starts while no run is under
//! way.

use std::sync::Arc;

use super::{State, Watch};
use crate::{
    model::{AsideAnswered, AsideJob, Attempt, AttemptId, Body, CallId, ModelFailed, ModelStarted},
    policy::{Billing, billing},
    turn::{DueAction, Turn, tests::fuzz::hold},
};

/// State of the calls for titles.
#[derive(Debug, Default)]
pub(super) struct Titles {
    /// The attempt under way.
    asked: Option<Arc<ModelStarted>>,
    title: Option<Arc<str>>,
}

impl Titles {
    /// Whether a due action for a title fits the attempt under way.
    pub(super) fn fits(&self, call: CallId, attempt: Attempt, is_made: bool) -> bool {
        let asked = self.asked.as_ref().map(|asked| (asked.call, asked.attempt));
        if is_made { asked == Some((call, attempt)) } else { asked.is_none() && self.title.is_none() }
    }
}

/// Whether the action is, or may be, for a title.
pub(super) fn is_for_title(effect: &DueAction) -> bool {
    match effect {
        DueAction::CallModel(AttemptId { call, .. }) | DueAction::Acquire(AttemptId { call, .. }) => {
            call.job() == Some(AsideJob::Title)
        }
        DueAction::WakeAt(_) => true,
        DueAction::RunTool { .. }
        | DueAction::EndTool { .. }
        | DueAction::AwaitSubagent { .. }
        | DueAction::Verify(_)
        | DueAction::SaveMemory(_)
        | DueAction::Begin(_)
        | DueAction::WakeAtActive(_) => false,
    }
}

impl Watch {
    /// Checks a record about a title.
    pub(super) fn title(&mut self, body: &Body, turn: &Turn) -> Result<(), String> {
        if let Body::AsideStarted(started) = body {
            self.title_started(started)
        } else if let Body::AsideAnswered(answered) = body {
            self.title_answered(answered, turn)
        } else if let Body::AsideFailed(failed) = body {
            self.title_failed(failed)
        } else {
            Ok(())
        }
    }

    fn title_started(&mut self, asked: &Arc<ModelStarted>) -> Result<(), String> {
        hold!(
            self.titles.asked.is_none() && self.titles.title.is_none(),
            "{asked:?} again: {:?}",
            self.titles
        );
        hold!(asked.view_seq + 1 == self.seq, "{asked:?} is record {}", self.seq);
        hold!(asked.incarnation == self.incarnation, "{asked:?} in {}", self.incarnation);
        hold!(asked.reserved.iterations.is_none(), "{asked:?} costs an iteration");
        hold!(asked.reserved.tokens > Some(asked.max_tokens), "{asked:?} reserves too little");
        hold!(asked.attempt <= 4, "{asked:?} is one attempt too many");
        hold!(self.runs.iter().all(|run| run.state == State::Ended), "{asked:?} delays a run");
        let run = self.run(asked.call.run)?;
        let may_be = run.spec.title.as_ref().is_some_and(|title| title.chain.contains(&asked.model));
        hold!(may_be, "{asked:?} asks somebody else");
        run.held.reserve(&asked.reserved);
        self.titles.asked = Some(Arc::clone(asked));
        Ok(())
    }

    fn take_title(&mut self, call: CallId, attempt: Attempt) -> Result<Arc<ModelStarted>, String> {
        let asked = self.titles.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked = asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way"))?;
        self.run(call.run)?.held.give_back(&asked.reserved);
        Ok(asked)
    }

    fn title_answered(&mut self, answered: &AsideAnswered, turn: &Turn) -> Result<(), String> {
        let asked = self.take_title(answered.call, answered.attempt)?;
        hold!(answered.unusable.is_some() == answered.text.is_empty(), "{answered:?}");
        hold!(answered.text.chars().count() <= 60, "{answered:?}");
        if answered.unusable.is_none() {
            self.titles.title = Some(Arc::clone(&answered.text));
        }
        hold!(turn.title.title == self.titles.title, "the title is {:?}", turn.title);
        if let Some(usage) = &answered.usage {
            self.run(answered.call.run)?.held.excess +=
                usage.total().saturating_sub(asked.reserved.tokens.unwrap_or(0));
        }
        Ok(())
    }

    fn title_failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        // If no model can be called, no attempt was under way.
        if self.titles.asked.is_none() {
            hold!(failed.retry_at.is_none(), "{failed:?} of nothing");
            return Ok(());
        }
        let asked = self.take_title(failed.call, failed.attempt)?;
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.run(failed.call.run)?.held.excess +=
                usage.total().saturating_sub(asked.reserved.tokens.unwrap_or(0));
        }
        if billing(&failed.failure) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }
}
