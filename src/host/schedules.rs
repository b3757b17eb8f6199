//! Schedules of a service: its configured ones are put into the store, and occurrences become runs by its configuration.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    RunError, ScheduleError, SubmitError,
    model::{Lane, OccurrenceId, RunId, ScheduleSource, ScheduledTask},
    port::{OccurrenceError, OccurrenceSubmitter},
};

use super::{
    error::{HostError, StartError},
    new_run::RunInput,
    start::RuntimeHost,
    submission::{RunSubmitter, Submission},
};
use crate::{
    budget_limits::BudgetLimits,
    config::Config,
    control::{RequestError, RequestErrorKind},
    schedule::SystemCalendar,
};

/// What a standing agent reads behind the text of its heartbeat.
const HEARTBEAT_NOTE: &str = "This is a heartbeat: it comes at fixed times, and no person waits for an answer. See whether something needs \
                              attention. If nothing does, answer with NO_REPLY and nothing else; it is then not delivered.";

impl RuntimeHost {
    /// Puts the configured schedules into the store: new ones, changed ones, and those that are gone. What cannot be put is
    /// noted, and the others are.
    pub async fn reconcile_schedules(&self, config: &Config) -> Result<(), HostError> {
        let mut configured = BTreeSet::new();
        for (name, definition) in config.schedule_definitions() {
            let source = ScheduleSource::Config;
            match self.runtime.put_schedule(name.clone(), source, definition, &SystemCalendar).await {
                Ok(_) => {}
                Err(ScheduleError::Runtime(error)) => return Err(error.into()),
                Err(error) => self.note(&format!("schedule  {name} is not taken: {error}")),
            }
            configured.insert(name);
        }
        for schedule in self.runtime.schedules().await.map_err(RequestError::from)? {
            if schedule.source == ScheduleSource::Config && !configured.contains(&schedule.name) {
                match self.runtime.remove_schedule(&schedule.name, ScheduleSource::Config).await {
                    Ok(()) | Err(ScheduleError::Unknown(_)) => {}
                    Err(ScheduleError::Runtime(error)) => return Err(error.into()),
                    Err(error) => self.note(&format!("schedule  {} is not removed: {error}", schedule.name)),
                }
            }
        }
        Ok(())
    }

    /// Starts occurrences when they are due, and submits their runs to `submitter`.
    pub async fn start_schedules(
        &self,
        config: &Config,
        submitter: &Arc<RunSubmitter>,
    ) -> Result<(), HostError> {
        self.reconcile_schedules(config).await?;
        let submitter = Arc::new(OccurrenceRuns(Arc::clone(submitter)));
        self.runtime.start_scheduler(Arc::new(SystemCalendar), submitter);
        Ok(())
    }

    fn note(&self, line: &str) {
        if let Some(notes) = &self.notes {
            notes.note(line);
        }
    }
}

/// Submits the runs of occurrences by the configuration of the process.
#[derive(Debug)]
struct OccurrenceRuns(Arc<RunSubmitter>);

impl OccurrenceSubmitter for OccurrenceRuns {
    fn submit(
        &self,
        occurrence: OccurrenceId,
        task: ScheduledTask,
    ) -> BoxFuture<'static, Result<RunId, OccurrenceError>> {
        let submitter = Arc::clone(&self.0);
        Box::pin(async move {
            let submission = submission(occurrence, &task).map_err(OccurrenceError::Never)?;
            let accepted = submitter.submit(submission).await;
            accepted.map(|accepted| accepted.run).map_err(occurrence_error)
        })
    }
}

/// The submission of an occurrence's task.
fn submission(occurrence: OccurrenceId, task: &ScheduledTask) -> Result<Submission, String> {
    let text: Arc<str> = match task.heartbeat {
        true => format!("{}\n\n{HEARTBEAT_NOTE}", task.text).into(),
        false => Arc::clone(&task.text),
    };
    let budget =
        task.budget.as_deref().map(str::parse).transpose().map_err(|error| format!("budget: {error}"))?;
    Ok(Submission {
        input: RunInput {
            text,
            images: Vec::new(),
            history: Vec::new(),
            isolation_key: None,
            expects: Vec::new(),
            request_hash: None,
        },
        session: task.session.as_deref().map(str::to_owned),
        agent: task.agent.as_ref().map(ToString::to_string),
        model: task.model.as_deref().map(str::to_owned),
        workspace: task.workspace.as_deref().map(Into::into),
        budget: budget.unwrap_or_else(BudgetLimits::default),
        timeout: task.timeout_ms.map(Duration::from_millis),
        thinking: None,
        system: None,
        deliver_to: task.deliver_to.as_ref().map(|targets| targets.iter().map(ToString::to_string).collect()),
        must_answer: task.heartbeat.then_some(false),
        lane: Lane::Cron,
        idempotency_key: None,
        message: None,
        occurrence: Some(occurrence),
    })
}

/// What an error means for an occurrence. What the machine or the load causes may pass, and is tried again. What the
/// configuration or the definition causes does not pass by itself: the occurrence is missed, with the error as its reason.
fn occurrence_error(error: HostError) -> OccurrenceError {
    let text = error.to_string();
    let may_pass = match error {
        HostError::Run(RunError::NotAccepted(SubmitError::OccurrenceLeftOut(_))) => {
            return OccurrenceError::LeftOut;
        }
        HostError::Request(error) => may_pass(error.kind),
        HostError::Run(error) => may_pass(RequestError::from(error).kind),
        HostError::Start(error) => match error {
            StartError::Store(_) | StartError::State(_) | StartError::Listen(_) | StartError::Actors(_) => {
                true
            }
            StartError::NoHome
            | StartError::Config(_)
            | StartError::Workspace { .. }
            | StartError::DuplicateName { .. }
            | StartError::NoModel(_)
            | StartError::Agent { .. }
            | StartError::Provider(_)
            | StartError::NoModels
            | StartError::Script { .. } => false,
        },
        HostError::End(_) | HostError::ConnectionLost(_) => true,
    };
    if may_pass { OccurrenceError::NotNow(text) } else { OccurrenceError::Never(text) }
}

const fn may_pass(kind: RequestErrorKind) -> bool {
    match kind {
        RequestErrorKind::Busy
        | RequestErrorKind::Crowded
        | RequestErrorKind::Store
        | RequestErrorKind::Internal => true,
        RequestErrorKind::Usage | RequestErrorKind::Denied | RequestErrorKind::Config => false,
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::Timestamp;

    use super::*;

    fn task() -> ScheduledTask {
        serde_json::from_value(serde_json::json!({ "text": "Look" })).unwrap()
    }

    fn occurrence() -> OccurrenceId {
        OccurrenceId { schedule: "night".parse().unwrap(), at: Timestamp(5) }
    }

    #[test]
    fn an_occurrence_is_submitted_in_its_lane() {
        let submission = submission(occurrence(), &task()).unwrap();
        assert_eq!((submission.lane, submission.must_answer), (Lane::Cron, None));
        assert_eq!(&*submission.input.text, "Look");
        assert_eq!(submission.occurrence, Some(occurrence()));
    }

    #[test]
    fn a_heartbeat_need_not_answer_and_is_told_so() {
        let task = ScheduledTask { heartbeat: true, session: Some("schedule:night".into()), ..task() };
        let submission = submission(occurrence(), &task).unwrap();
        assert_eq!(submission.must_answer, Some(false));
        assert_eq!(submission.session.as_deref(), Some("schedule:night"));
        assert!(submission.input.text.starts_with("Look\n\n") && submission.input.text.contains("NO_REPLY"));
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let check = |error: HostError, expect: fn(String) -> OccurrenceError| {
            let text = error.to_string();
            assert_eq!(occurrence_error(error), expect(text));
        };
        check(RequestError::new(RequestErrorKind::Busy, "draining").into(), OccurrenceError::NotNow);
        check(HostError::usage("agent: there is no agent `x`"), OccurrenceError::Never);
        let overloaded = SubmitError::Overloaded { waiting: 1 };
        check(RunError::NotAccepted(overloaded).into(), OccurrenceError::NotNow);
        let reason = "is no folder".to_owned();
        check(StartError::Workspace { path: "/x".into(), reason }.into(), OccurrenceError::Never);
    }
}
