//! The owner's side of a handover: submissions of other processes, resolved by this process's configuration.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use hermod_actors::{
    RunError,
    model::{Lane, RunId, RunRow, RunSpec, RunState, ScheduleDefinition, Seq, SessionId},
};

use super::submission_file;
use crate::{
    budget_limits::BudgetLimits,
    control::{
        MessageSubmission, RequestError, RequestErrorKind, RunSubmission, SubmissionConversation,
        SubmissionService, SubmittedRun,
    },
    host::{
        conversation::{ConversationChoice, ConversationTarget},
        endpoints::script_path,
        error::{HostError, StartError},
        model_choice::RehearsalScript,
        new_run::RunInput,
        submission::{MessageOptions, ResolvedRun, RunSubmitter, Submission, SubmissionOptions},
    },
    view::AgentView,
};

/// The name of the session of the newest run that is no subagent's.
const LAST: &str = "last";

impl SubmissionService for RunSubmitter {
    fn submit(&self, submission: RunSubmission) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async move { self.take(submission).await.map_err(request_error) })
    }

    fn submit_file(&self, name: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async move {
            // No file is read before its task may go on: many may wait for the end of a probation.
            self.revivals.cancelled().await;
            let submission = submission_file::take(self.state(), name).await?;
            self.take(submission).await.map_err(request_error)
        })
    }

    fn send(&self, message: MessageSubmission) -> BoxFuture<'_, Result<RunId, RequestError>> {
        Box::pin(async move { self.take_message(message).await.map_err(request_error) })
    }

    fn send_file(&self, name: String) -> BoxFuture<'_, Result<RunId, RequestError>> {
        Box::pin(async move {
            self.revivals.cancelled().await;
            let message = submission_file::take(self.state(), name).await?;
            self.take_message(message).await.map_err(request_error)
        })
    }

    fn check_schedule(&self, definition: &ScheduleDefinition) -> Result<(), RequestError> {
        let checked = self.settings().config.check_schedule(definition);
        checked.map_err(|(part, reason)| RequestError::usage(format!("{part}: {reason}")))
    }

    fn agents(&self) -> Vec<AgentView> {
        self.settings().config.agents().map(|(_, config)| AgentView::new(config)).collect()
    }

    fn resume(&self, id: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>> {
        Box::pin(async move {
            let target = ConversationTarget::find(self.reader(), ConversationChoice::Id(&id)).await;
            let target = target.map_err(request_error)?;
            let row = target.unfinished().map_err(request_error)?.0.clone();
            self.go_on(row, &target).await.map_err(request_error)
        })
    }

    fn revive(&self, session: SessionId) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(async move { self.revive_session(session).await.map_err(request_error) })
    }
}

impl RunSubmitter {
    async fn take(&self, submission: RunSubmission) -> Result<SubmittedRun, HostError> {
        let choice = match &submission.conversation {
            SubmissionConversation::New => ConversationChoice::New,
            SubmissionConversation::Key(key) => ConversationChoice::Key(key),
            SubmissionConversation::Id(id) => ConversationChoice::Id(id),
        };
        let target = ConversationTarget::find(self.reader(), choice).await?;
        let options = SubmissionOptions {
            provider: submission.provider.clone(),
            script: submission.script.map(|script| RehearsalScript::File {
                path: script_path(self.state(), script),
                name: "the script of the rehearsal".to_owned(),
            }),
            folder: submission.folder.clone(),
            is_attended: true,
        };
        let submission = decode(submission)?;
        if let Some(row) = self.first_of_key(&submission, &target).await? {
            let target = ConversationTarget::of_run(self.reader(), row.clone()).await?;
            return self.go_on(row, &target).await;
        }
        let ResolvedRun { accepted, spec, is_new, notes } =
            self.submit_to(target, submission, options).await?;
        let row = self.reader().run(&accepted.run.to_string()).await?;
        Ok(SubmittedRun { is_new, notes, ..submitted(&row, &spec, (row.first, row.first)) })
    }

    /// Sends a message to the session that it names. What names no session is the key of a new one.
    async fn take_message(&self, message: MessageSubmission) -> Result<RunId, HostError> {
        let MessageSubmission { session, text, mode, images, idempotency_key } = message;
        if session.trim().is_empty() {
            return Err(HostError::usage("session: it is empty; give its id or a key".to_owned()));
        }
        let known = self.reader().session_of_id_or_key(&session).await?;
        let named = match known {
            Some(row) => row.id.to_string(),
            None => match self.reader().session(&session).await {
                Ok(row) => row.id.to_string(),
                Err(error) if error.kind == RequestErrorKind::Usage && session != LAST => session,
                Err(error) => return Err(error.into()),
            },
        };
        let images = images.into_iter().map(image).collect::<Result<_, _>>()?;
        let input = RunInput {
            text,
            images,
            history: Vec::new(),
            isolation_key: None,
            expects: Vec::new(),
            request_hash: None,
        };
        // Who may use the socket may do everything.
        let options = MessageOptions { mode, may_steer: true };
        let submission = Submission {
            idempotency_key: Some(idempotency_key),
            ..Submission::of_message(named, input, options)
        };
        Ok(RunSubmitter::submit(self, submission).await?.run)
    }

    /// Lets a run go on that was accepted earlier.
    async fn go_on(&self, row: RunRow, target: &ConversationTarget) -> Result<SubmittedRun, HostError> {
        let first = target.open.iter().map(|(row, _)| row.first).chain([row.first]).min();
        let first = first.unwrap_or(row.first);
        let mut next = first;
        self.reader().records(row.session, first, |seq, _| next = seq + 1).await?;
        let spec = self.reader().acceptance(&row).await?.spec;
        if row.state != RunState::Ended {
            self.revive_session(row.session).await?;
        }
        Ok(submitted(&row, &spec, (first, next)))
    }
}

fn submitted(row: &RunRow, spec: &RunSpec, (first, next): (Seq, Seq)) -> SubmittedRun {
    SubmittedRun {
        run: row.id,
        session: row.session,
        accepted_at: row.accepted_at,
        first,
        next,
        is_new: false,
        model: spec.chain.first().map_or_else(String::new, ToString::to_string),
        workspace: spec.workspace.clone(),
        is_rehearsal: spec.script.is_some(),
        notes: Vec::new(),
    }
}

/// The submission for this process's submitter; the conversation is given beside it.
fn decode(submission: RunSubmission) -> Result<Submission, HostError> {
    for (field, path) in [("workspace", &submission.workspace), ("folder", &submission.folder)] {
        if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
            let path = path.display();
            return Err(HostError::usage(format!("{field}: `{path}` is not absolute; say where it lies")));
        }
    }
    let input = RunInput {
        text: submission.text,
        images: submission.images.into_iter().map(image).collect::<Result<_, _>>()?,
        history: submission.history,
        isolation_key: submission.isolation_key,
        expects: submission.expects,
        request_hash: None,
    };
    let wall = submission.wall_ms.map(Duration::from_millis);
    Ok(Submission {
        input,
        session: None,
        agent: submission.agent,
        model: submission.model,
        workspace: submission.workspace,
        budget: BudgetLimits { amounts: submission.budget, wall },
        timeout: submission.timeout_ms.map(Duration::from_millis),
        thinking: submission.thinking,
        system: submission.system,
        deliver_to: submission.deliver_to,
        // A person waits for the run.
        must_answer: Some(true),
        lane: Lane::Main,
        idempotency_key: Some(Arc::clone(&submission.idempotency_key)),
        message: None,
        occurrence: None,
    })
}

/// An image that came in base64.
fn image(text: String) -> Result<Bytes, HostError> {
    let decoded = STANDARD.decode(text).map(Bytes::from);
    decoded.map_err(|error| HostError::usage(format!("images: {error}; send each file in base64")))
}

/// The error for the client, of a kind that gives it the exit code of an owner.
pub(crate) fn request_error(error: HostError) -> RequestError {
    let kind = match &error {
        HostError::Request(error) => return error.clone(),
        HostError::Run(error) => return error.clone().into(),
        HostError::End(end) => return RunError::Terminated(end.clone()).into(),
        HostError::ConnectionLost(_) => RequestErrorKind::Internal,
        HostError::Start(error) => match error {
            StartError::Workspace { .. } => RequestErrorKind::Usage,
            StartError::NoHome
            | StartError::NoModels
            | StartError::DuplicateName { .. }
            | StartError::Config(_)
            | StartError::NoModel(_)
            | StartError::Agent { .. }
            | StartError::Provider(_) => RequestErrorKind::Config,
            StartError::Store(_) | StartError::State(_) | StartError::Script { .. } => {
                RequestErrorKind::Store
            }
            StartError::Listen(_) | StartError::Actors(_) => RequestErrorKind::Internal,
        },
    };
    RequestError::new(kind, error.to_string())
}
