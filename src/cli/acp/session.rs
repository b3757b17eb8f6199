//! An open session: a task that gives prompts to the owner of the store, follows what happens, shows it to the client, and asks
//! the user. `fold.rs` decides what is shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use agent_client_protocol::{
    Client, Error, ErrorCode,
    v1::{
        ConnectionTo,
        schema::{SessionId, SessionNotification, SessionUpdate, StopReason},
    },
};
use hermod_actors::model::{Amounts, CallId, OutcomeDetail, RunId, Seq};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::{AbortHandle, JoinSet},
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    asking::TaskEnd,
    fold::{Effect, UpdateFold, note},
    options::SessionOptions,
    prompt_content::PromptTask,
    prompt_end::PromptEnd,
    questions::OpenQuestion,
    transport::Window,
};
use crate::{
    cli::{
        print_note,
        shared_owner::{SessionStep, SessionStepResult, SharedOwner, follow},
    },
    clock,
    control::{RequestError, RequestErrorKind, RunSubmission, SubmissionConversation},
    host::HostError,
};

/// How often what commands print is shown, at most.
const PRINT_INTERVAL: Duration = Duration::from_millis(100);
/// How often questions of subagents are looked for, while there are subagents.
const SUBAGENT_INTERVAL: Duration = Duration::from_secs(1);

/// Answers a prompt.
type PromptReply = oneshot::Sender<Result<StopReason, Error>>;

/// What sessions share.
#[derive(Debug, Clone)]
pub(super) struct SessionFront {
    pub(super) owner: Arc<SharedOwner>,
    pub(super) client: ConnectionTo<Client>,
    pub(super) window: Arc<Window>,
    /// Whether the client shows forms.
    pub(super) has_forms: bool,
}

/// A request of the client to an open session.
#[derive(Debug)]
pub(super) enum SessionMessage {
    /// Does this, and answers when it has ended.
    Prompt {
        task: PromptTask,
        /// Held until the owner has the task.
        permit: OwnedSemaphorePermit,
        reply: PromptReply,
    },
    /// Stops everything that is under way.
    Cancel,
    /// Reads the session from its first record on, shown to the client or not; answers when that is done.
    Replay { is_shown: bool, done: oneshot::Sender<Result<(), Error>> },
    /// Sets the options of the next prompts.
    SetOptions(SessionOptions),
    /// Stops everything that is under way, and ends the session's task.
    Close(oneshot::Sender<()>),
}

/// Records that are read again.
#[derive(Debug)]
struct Replay {
    until: Seq,
    is_shown: bool,
    done: oneshot::Sender<Result<(), Error>>,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    conversation: SubmissionConversation,
    folder: PathBuf,
    pub(super) front: SessionFront,
    options: SessionOptions,
    steps: Option<mpsc::Receiver<SessionStepResult>>,
    pub(super) fold: UpdateFold,
    replay: Option<Replay>,
    pub(super) prompts: BTreeMap<RunId, Vec<PromptReply>>,
    /// Runs that the client has cancelled.
    pub(super) cancelled: BTreeSet<RunId>,
    /// Questions that the user is asked.
    pub(super) asked: BTreeMap<CallId, AbortHandle>,
    /// Questions of subagents.
    pub(super) questions_below: BTreeMap<CallId, OpenQuestion>,
    /// The question of a model that the next prompt answers, and the run that goes on then.
    pub(super) awaits_text: Option<(CallId, RunId)>,
    pub(super) tasks: JoinSet<TaskEnd>,
}

/// What an open session is: its id, its conversation in the store, and the folder of its tools.
#[derive(Debug, Clone)]
pub(super) struct SessionPlace {
    pub(super) id: SessionId,
    pub(super) conversation: SubmissionConversation,
    pub(super) folder: PathBuf,
}

impl Session {
    /// A session that is not followed yet.
    pub(super) fn new(place: SessionPlace, front: SessionFront) -> Self {
        let SessionPlace { id, conversation, folder } = place;
        let fold = UpdateFold::new(folder.clone());
        Self {
            id,
            conversation,
            folder,
            front,
            options: SessionOptions::default(),
            steps: None,
            fold,
            replay: None,
            prompts: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            asked: BTreeMap::new(),
            questions_below: BTreeMap::new(),
            awaits_text: None,
            tasks: JoinSet::new(),
        }
    }

    /// Serves the session until its mailbox is closed.
    pub(super) async fn serve(mut self, mut mailbox: mpsc::Receiver<SessionMessage>) {
        let (mut prints, mut looks) = (ticks(PRINT_INTERVAL), ticks(SUBAGENT_INTERVAL));
        loop {
            let (has_printed, has_subagents) =
                (self.fold.has_printed(), self.fold.subagents().next().is_some());
            tokio::select! {
                message = mailbox.recv() => match message {
                    Some(message) => self.on_message(message).await,
                    None => return,
                },
                step = next_step(&mut self.steps) => match step {
                    Ok(step) => self.on_step(step).await,
                    Err(error) => self.on_lost(&error),
                },
                Some(end) = self.tasks.join_next() => match end {
                    Ok(end) => self.on_task_end(end).await,
                    Err(error) => {
                        if error.is_panic() {
                            tracing::error!(%error, "a task of a session crashed");
                        }
                    }
                },
                _ = prints.tick(), if has_printed => {
                    for update in self.fold.take_printed() {
                        self.show(update).await;
                    }
                }
                _ = looks.tick(), if has_subagents => self.look_below(),
            }
        }
    }

    async fn on_message(&mut self, message: SessionMessage) {
        match message {
            SessionMessage::Prompt { task, permit, reply } => {
                match self.prompt(task).await {
                    Ok(run) => self.prompts.entry(run).or_default().push(reply),
                    Err(error) => answer(reply, Err(error)),
                }
                drop(permit);
            }
            SessionMessage::Cancel => self.cancel(),
            SessionMessage::Replay { is_shown, done } => {
                self.replay(is_shown, done).await;
            }
            SessionMessage::SetOptions(options) => self.options = options,
            SessionMessage::Close(done) => {
                self.close().await;
                answer(done, ());
            }
        }
    }

    async fn close(&mut self) {
        self.forget_questions();
        self.cancel();
        while let Some(end) = self.tasks.join_next().await {
            if let Ok(end) = end {
                self.on_task_end(end).await;
            }
        }
        for reply in std::mem::take(&mut self.prompts).into_values().flatten() {
            answer(reply, Ok(StopReason::Cancelled));
        }
    }

    /// Gives a task to the owner, or the answer to a question of the model; returns the run that has it. Meanwhile no record is
    /// read: one of this run comes when it is known whose it is.
    async fn prompt(&mut self, task: PromptTask) -> Result<RunId, Error> {
        if let Some(run) = self.answer_with(&task.text).await {
            return Ok(run);
        }
        let submission = RunSubmission {
            text: task.text.into(),
            images: task.images,
            history: Vec::new(),
            isolation_key: None,
            conversation: self.conversation.clone(),
            agent: self.options.agent.clone(),
            script: None,
            provider: None,
            model: self.options.model.clone(),
            workspace: Some(self.folder.clone()),
            folder: None,
            budget: Amounts::default(),
            wall_ms: None,
            timeout_ms: None,
            thinking: self.options.thinking,
            system: None,
            expects: Vec::new(),
            deliver_to: None,
            idempotency_key: format!("acp-{:032x}", u128::from_le_bytes(clock::random_bytes())).into(),
        };
        let submitted = self.front.owner.submit(&submission).await.map_err(|error| to_error(&error))?;
        submitted.notes.iter().for_each(print_note);
        self.fold.own(submitted.run);
        if self.steps.is_none() {
            let owner = Arc::clone(&self.front.owner);
            self.steps = Some(follow(owner, submitted.session.to_string(), submitted.first));
        }
        Ok(submitted.run)
    }

    /// Begins to read the session from its first record on.
    async fn replay(&mut self, is_shown: bool, done: oneshot::Sender<Result<(), Error>>) {
        let until = match self.last_record().await {
            Ok(until) => until,
            Err(error) => return answer(done, Err(to_error(&error))),
        };
        if let Some(before) = self.replay.take() {
            answer(before.done, Ok(()));
        }
        // A session without a record was made by this client, and has no prompt yet.
        let Some((session, until)) = until else {
            return answer(done, Ok(()));
        };
        self.forget_questions();
        self.fold = UpdateFold::new(self.folder.clone());
        self.steps = Some(follow(Arc::clone(&self.front.owner), session, 1));
        self.replay = Some(Replay { until, is_shown, done });
    }

    /// The id of the session and the number of its last record, as far as it can be known before it is read; `None` if it
    /// has no record.
    async fn last_record(&self) -> Result<Option<(String, Seq)>, HostError> {
        let owner = &self.front.owner;
        let Some(detail) = owner.session(&self.id.0).await? else { return Ok(None) };
        let last = match detail.runs.last() {
            Some(run) => owner.last_record(run.id).await?,
            None => 1,
        };
        Ok(Some((detail.session.id.to_string(), last)))
    }

    /// Takes what happened in the session.
    async fn on_step(&mut self, step: SessionStep) {
        match step {
            SessionStep::Record(seq, record) => {
                let is_replayed = self.replay.is_some();
                let is_hidden = self.replay.as_ref().is_some_and(|replay| !replay.is_shown);
                match record {
                    Ok(record) => {
                        for effect in self.fold.record(&record, is_replayed) {
                            self.on_effect(effect, (is_replayed, is_hidden)).await;
                        }
                    }
                    Err(reason) => tracing::warn!(seq, reason, "a record cannot be read"),
                }
                self.end_replay(seq).await;
            }
            SessionStep::Event(event) => {
                let is_hidden = self.replay.is_some();
                for effect in self.fold.event(&event) {
                    self.on_effect(effect, (false, is_hidden)).await;
                }
            }
            SessionStep::Note(_) | SessionStep::Joined(_) => {}
            SessionStep::Lost => {
                self.fold.rejoin();
                for run in self.prompts.keys().copied() {
                    let owner = Arc::clone(&self.front.owner);
                    self.tasks.spawn(async move { TaskEnd::Revived(run, owner.revive(run).await) });
                }
            }
        }
    }

    /// Ends the reading of old records with the last one: what is still asked then is asked now.
    async fn end_replay(&mut self, seq: Seq) {
        let Some(replay) = self.replay.take_if(|replay| seq >= replay.until) else { return };
        answer(replay.done, Ok(()));
        let open: Vec<CallId> = self.fold.questions().keys().copied().collect();
        for call in open {
            self.ask(call).await;
        }
    }

    async fn on_effect(&mut self, effect: Effect, (is_replayed, is_hidden): (bool, bool)) {
        match effect {
            Effect::Update(_) if is_hidden => {}
            Effect::Update(update) => self.show(*update).await,
            Effect::Ask(_) if is_replayed => {}
            Effect::Ask(call) => self.ask(call).await,
            Effect::Settle(call) => self.settle(call),
            Effect::End(run, ended) => self.end_prompts(run, &ended).await,
        }
    }

    async fn end_prompts(&mut self, run: RunId, ended: &OutcomeDetail) {
        let is_cancelled = self.cancelled.remove(&run);
        let Some(prompts) = self.prompts.remove(&run) else { return };
        let end = PromptEnd::new(run, ended, is_cancelled);
        if let Ok(PromptEnd { note: Some(text), .. }) = &end {
            self.show(note(text.clone())).await;
        }
        for reply in prompts {
            answer(reply, end.clone().map(|end| end.reason));
        }
    }

    /// The session cannot be followed any more. The next prompt tries again, and its runs go on.
    fn on_lost(&mut self, error: &HostError) {
        tracing::warn!(session = %self.id, %error, "a session is not followed any more");
        self.steps = None;
        if let Some(replay) = self.replay.take() {
            answer(replay.done, Err(to_error(error)));
        }
        for reply in std::mem::take(&mut self.prompts).into_values().flatten() {
            answer(reply, Err(to_error(error)));
        }
    }

    /// Shows this to the client, when it has read enough of what was shown before.
    pub(super) async fn show(&self, update: SessionUpdate) {
        self.front.window.reserve_update().await;
        let shown = self.front.client.send_notification(SessionNotification::new(self.id.clone(), update));
        if let Err(error) = shown {
            tracing::debug!(%error, "the client has gone");
        }
    }
}

/// Ticks at most this often.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn next_step(steps: &mut Option<mpsc::Receiver<SessionStepResult>>) -> SessionStepResult {
    let Some(receiver) = steps else { return std::future::pending().await };
    let ended = || RequestError::internal("the session is not read any more").into();
    receiver.recv().await.unwrap_or_else(|| Err(ended()))
}

/// Answers a request of the client, which may have gone.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, with: T) {
    if reply.send(with).is_err() {
        tracing::debug!("a request of the client is not waited for any more");
    }
}

/// An error of the host as one of ACP: its text says what to do.
pub(super) fn to_error(error: &HostError) -> Error {
    let is_usage = matches!(error, HostError::Request(error) if error.kind == RequestErrorKind::Usage);
    let code = if is_usage { ErrorCode::INVALID_PARAMS } else { ErrorCode::INTERNAL_ERROR };
    Error::new(code, error.to_string())
}
