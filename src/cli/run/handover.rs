//! Gives the run of `hermod run` to the process that holds the store, and shows it as if this process carried it out. If
//! the owner goes away, the caller tries again: the next owner gets the run, or this process becomes the owner.

use std::{future, ops::ControlFlow, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hermod_actors::model::SessionId;
use tokio::time::{Instant, sleep};

use super::{
    args::RunArgs,
    execute::{RunAndSession, RunCommand},
    follow::{FollowOutcome, FollowState},
    followed_view::{FollowedView, stop_at_owner, stopped},
    own_run::{format_known, print_accepted},
    subagents::SubagentMonitor,
};
use crate::{
    cli::{CliError, display::ProgressDisplay, print_note, print_progress, terminal::Tone},
    clock,
    control::{RequestError, RequestErrorKind, RunSubmission, SubmissionConversation, SubmittedRun},
    host::{
        self, ConversationChoice, FollowedStep, HandoverError, HostError, OwnerConnection, RunInput,
        ShutdownSignal, Signals, millis,
    },
    rehearsal,
};

/// How long a service that has gone is expected back before this process takes the store itself.
const SERVICE_RESTART_TIME: Duration = Duration::from_secs(5);
/// The name of the newest run that is no subagent's.
const LAST: &str = "last";
/// Time without an acceptance after which the user is told.
const ACCEPTANCE_NOTICE: Duration = Duration::from_secs(1);
/// Bounds of the growing pause between two tries.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Most tries in a row without a record of the run. Between them are owners that end at once.
const MAX_TRIES: u32 = 100;
/// Most tries in a row in which a process holds the store and does not listen; each waits 2 s for it. Once the run was
/// given away there are more: the next owner may take its time to open the store.
const MAX_SILENT_TRIES: u32 = 2;
const MAX_SILENT_TRIES_AFTER_HANDOVER: u32 = 30;

/// What this process knows of its run when it becomes the owner of the store.
pub(super) struct TakenRun {
    /// The idempotency key: the user's, or that with which the task may have been submitted already.
    pub(super) key: Option<Arc<str>>,
    /// The conversation that `last` named when the task was submitted first.
    pub(super) last: Option<SessionId>,
    /// The run, if an earlier owner has accepted it.
    pub(super) followed: Option<FollowState>,
}

/// The handover of one command, over all tries.
pub(super) struct Handover<'a> {
    command: &'a RunCommand<'a>,
    signals: Option<Signals>,
    /// The key of a task that was sent once.
    own_key: Option<Arc<str>>,
    /// The conversation that `last` named at the first try: another run may be the last one at the next.
    last: Option<SessionId>,
    followed: Option<FollowState>,
    /// Until when a service is expected back.
    service_until: Option<Instant>,
    tries: u32,
    silent_tries: u32,
    backoff: Duration,
}

/// The ids of the run once known, and its display.
type Shown<'a> = (&'a mut Option<RunAndSession>, &'a mut ProgressDisplay);

impl<'a> Handover<'a> {
    /// Nothing was given away yet.
    pub(super) const fn new(command: &'a RunCommand<'a>) -> Self {
        Self {
            command,
            signals: None,
            own_key: None,
            last: None,
            followed: None,
            service_until: None,
            tries: 0,
            silent_tries: 0,
            backoff: MIN_BACKOFF,
        }
    }

    /// What the owner has to know of the run.
    pub(super) fn into_taken(self) -> TakenRun {
        let key = self.command.args.key.as_deref().map(Into::into).or(self.own_key);
        TakenRun { key, last: self.last, followed: self.followed }
    }

    /// True while a service that has gone may come back: the store is left to it.
    pub(super) fn expects_service(&self) -> bool {
        self.service_until.is_some_and(|until| Instant::now() < until)
    }

    /// Runs `work` to its end or until a signal. Before the first try a signal ends the process.
    pub(super) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> ControlFlow<ShutdownSignal, T> {
        let signal = async {
            match &mut self.signals {
                Some(signals) => signals.next().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            signal = signal => ControlFlow::Break(signal),
            done = work => ControlFlow::Continue(done),
        }
    }

    /// Gives the run to the owner of the store, and follows it there. Continues if the owner has gone. `busy` is the
    /// error of opening the store, if that was tried.
    pub(super) async fn hand_over(
        &mut self,
        busy: Option<HostError>,
        (ids, display): Shown<'_>,
    ) -> Result<ControlFlow<FollowOutcome>, CliError> {
        if self.signals.is_none() {
            self.signals = Some(Signals::listen()?);
        }
        let state = self.command.state.clone();
        let owner = match self.run_until_signal(Box::pin(OwnerConnection::connect(&state))).await {
            ControlFlow::Continue(owner) => owner?,
            ControlFlow::Break(signal) => {
                return Ok(ControlFlow::Break(FollowOutcome::Interrupted(signal.into())));
            }
        };
        let Some(owner) = owner else { return self.on_absence(busy).await };
        let Some(kind) = owner.submissions else {
            return Err(busy.unwrap_or_else(|| taken_store(owner.pid)).into());
        };
        (self.silent_tries, self.service_until) = (0, None);
        let pid = owner.pid;
        match self.try_owner(owner, (ids, &mut *display)).await {
            Ok(outcome) => Ok(ControlFlow::Break(outcome)),
            Err(HandoverError::Failed(error)) => {
                if let Some(FollowState { run, .. }) = &self.followed {
                    let line = format!("left      run {run}: `hermod run --resume {run}` goes on with it");
                    display.line(Tone::Action, &line);
                }
                Err(of_option(error, self.command.args))
            }
            // The run goes on there, and only the view of it has to wait.
            Err(HandoverError::Crowded(_)) if self.followed.is_some() => {
                if self.tries == 0 {
                    let text = format!(
                        "waiting   process {pid} has too many clients that follow runs; the run goes on"
                    );
                    display.line(Tone::Quiet, &text);
                }
                let paused = self.pause().await;
                self.tries = 1;
                paused
            }
            Err(HandoverError::Crowded(error)) => Err(HostError::from(error).into()),
            Err(HandoverError::Gone) => {
                if kind.is_service() {
                    self.service_until = Some(Instant::now() + SERVICE_RESTART_TIME);
                }
                if self.tries == 0 {
                    let what = ids.map_or_else(|| "the task".to_owned(), |(run, _)| format!("run {run}"));
                    display.line(
                        Tone::Quiet,
                        &format!(
                            "handover  process {pid} has gone; {what} goes to the next one that has the store"
                        ),
                    );
                }
                self.pause().await
            }
        }
    }

    /// No process listens: the store is free by now, or its owner is starting or ending.
    async fn on_absence(&mut self, busy: Option<HostError>) -> Result<ControlFlow<FollowOutcome>, CliError> {
        if let Some(busy) = busy {
            self.silent_tries += 1;
            let is_given_away = self.followed.is_some() || self.own_key.is_some();
            let max = if is_given_away { MAX_SILENT_TRIES_AFTER_HANDOVER } else { MAX_SILENT_TRIES };
            if self.silent_tries >= max {
                return Err(busy.into());
            }
        }
        self.pause().await
    }

    /// Waits before the next try.
    async fn pause(&mut self) -> Result<ControlFlow<FollowOutcome>, CliError> {
        self.tries += 1;
        if self.tries > MAX_TRIES {
            let text =
                "the processes that hold the store come and go too fast to carry the run out; try again";
            return Err(HostError::from(RequestError::new(RequestErrorKind::Busy, text)).into());
        }
        let backoff = self.backoff;
        self.backoff = (backoff * 2).min(MAX_BACKOFF);
        Ok(match self.run_until_signal(sleep(backoff)).await {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(signal) => ControlFlow::Break(FollowOutcome::Interrupted(signal.into())),
        })
    }

    async fn try_owner(
        &mut self,
        mut owner: OwnerConnection,
        (ids, display): Shown<'_>,
    ) -> Result<FollowOutcome, HandoverError> {
        let pid = owner.pid;
        if self.followed.is_none() {
            if self.command.args.durability.is_some() {
                let text =
                    format!("--durability: process {pid} holds the store and decides that; leave it out");
                return Err(HostError::usage(text).into());
            }
            let (submitted, is_interrupted) = match self.give(&mut owner, display).await? {
                ControlFlow::Continue(submitted) => submitted,
                ControlFlow::Break(outcome) => return Ok(outcome),
            };
            *ids = Some((submitted.run, submitted.session));
            self.print(&submitted, pid);
            let followed = self.followed.insert(FollowState::new(submitted.run, submitted.first));
            followed.shown_from = submitted.next;
            followed.is_stopping = is_interrupted;
        }
        self.follow(owner, display).await
    }

    /// Gives the task to the owner, or the run to resume. Continues when the run is durable, with whether it is to be stopped.
    async fn give(
        &mut self,
        owner: &mut OwnerConnection,
        display: &mut ProgressDisplay,
    ) -> Result<ControlFlow<FollowOutcome, (SubmittedRun, bool)>, HandoverError> {
        let pid = owner.pid;
        if self.command.args.resume.as_deref() == Some(LAST) && self.last.is_none() {
            self.last = Some(owner.session_of(LAST).await?);
        }
        let submission = self.submission()?;
        let resumed = self.resumed();
        let submitted = async {
            match (&submission, &resumed) {
                (Some(submission), _) => owner.submit(submission).await,
                (None, Some(id)) => owner.resume(id).await,
                (None, None) => Err(HostError::usage("there is neither a TEXT nor a run to resume").into()),
            }
        };
        let (mut submitted, mut is_interrupted) = (Box::pin(submitted), false);
        let mut notice = Box::pin(sleep(ACCEPTANCE_NOTICE));
        let mut is_noticed = false;
        // The owner may accept the task after a signal too. So the first SIGINT stops the run once it is known.
        let submitted = loop {
            tokio::select! {
                biased;
                signal = next_signal(&mut self.signals) => {
                    if is_interrupted || signal == ShutdownSignal::Terminate {
                        return Ok(ControlFlow::Break(FollowOutcome::Left { exit: signal.into(), pid }));
                    }
                    is_interrupted = true;
                    let line = "interrupt the run is stopped once it is accepted; again leaves it";
                    display.line(Tone::Action, line);
                }
                submitted = &mut submitted => break submitted?,
                () = &mut notice, if !is_noticed => {
                    is_noticed = true;
                    let line = format!("waiting   process {pid} has not accepted the task yet");
                    display.line(Tone::Quiet, &line);
                }
            }
        };
        Ok(ControlFlow::Continue((submitted, is_interrupted)))
    }

    /// What `--resume` names, with `last` replaced by the conversation that it named first.
    fn resumed(&self) -> Option<String> {
        let resumed = self.command.args.resume.as_deref().map(str::to_owned);
        self.last.map(|session| session.to_string()).or(resumed)
    }

    /// The task for the owner; `None` resumes an unfinished run.
    fn submission(&mut self) -> Result<Option<RunSubmission>, HostError> {
        let RunCommand { args, state, new, .. } = self.command;
        let Some((input, workspace)) = new else { return Ok(None) };
        let key = match &args.key {
            Some(key) => Arc::from(&**key),
            None => Arc::clone(self.own_key.get_or_insert_with(new_key)),
        };
        let RunInput { text, images, history, isolation_key, expects, request_hash: _ } = input.clone();
        let budget = args.budget.unwrap_or_default();
        let script = args.rehearse.as_ref().map(|script| host::keep_script(script, state)).transpose()?;
        Ok(Some(RunSubmission {
            text,
            images: images.iter().map(|image| STANDARD.encode(image)).collect(),
            history,
            isolation_key,
            conversation: match args.conversation() {
                ConversationChoice::New => SubmissionConversation::New,
                ConversationChoice::Key(key) => SubmissionConversation::Key(key.to_owned()),
                ConversationChoice::Id(id) => {
                    SubmissionConversation::Id(self.resumed().unwrap_or_else(|| id.to_owned()))
                }
            },
            agent: args.agent.as_deref().map(str::to_owned),
            script: script.flatten(),
            provider: args.provider.as_deref().map(str::to_owned),
            model: args.model.as_deref().map(str::to_owned),
            workspace: workspace.clone(),
            folder: std::env::current_dir().ok(),
            budget: budget.amounts,
            wall_ms: budget.wall.map(millis),
            timeout_ms: args.timeout.map(millis),
            thinking: args.thinking,
            system: args.system.clone(),
            expects,
            deliver_to: args.deliver_to(),
            idempotency_key: key,
        }))
    }

    /// Prints what the owner of a run prints about its acceptance.
    fn print(&self, submitted: &SubmittedRun, pid: u32) {
        let SubmittedRun { run, session, model, workspace, .. } = submitted;
        if let Some(key) = self.command.args.key.as_ref().filter(|_| !submitted.is_new) {
            print_note(format_known(key, *run, *session));
        }
        if submitted.is_rehearsal {
            print_progress(format!("rehearsal {}", rehearsal::NOTICE));
        }
        submitted.notes.iter().for_each(print_progress);
        if submitted.is_new {
            print_accepted(*run, *session, (model, workspace));
        } else {
            print_progress(format!("goes on   run {run} session {session}"));
        }
        print_progress(format!("handover  process {pid} holds the store and carries it out"));
    }

    /// Shows the run until it ends, is parked, or a signal comes. The first SIGINT stops the run, a second one leaves it;
    /// SIGTERM leaves it at once.
    async fn follow(
        &mut self,
        owner: OwnerConnection,
        display: &mut ProgressDisplay,
    ) -> Result<FollowOutcome, HandoverError> {
        let Some(state) = &mut self.followed else { return Err(HandoverError::Gone) };
        let (pid, run, folder) = (owner.pid, state.run, self.command.state.as_path());
        let mut followed = owner.follow(run, state.next).await?;
        display.show_run(run);
        let stop = state.is_stopping.then(|| stop_at_owner(folder, run));
        let subagents = SubagentMonitor::at_owner(folder.to_owned());
        let mut view = FollowedView { pid, folder, state, display, subagents, stop };
        loop {
            let outcome = tokio::select! {
                biased;
                signal = next_signal(&mut self.signals) => view.on_signal(signal),
                step = followed.next() => {
                    let step = step?;
                    if let FollowedStep::Record(..) = &step {
                        (self.tries, self.backoff) = (0, MIN_BACKOFF);
                    }
                    view.on_step(step)
                }
                stopped = stopped(&mut view.stop) => {
                    view.stop = None;
                    match stopped {
                        // The followed run tells of the end of the owner too.
                        Ok(()) | Err(HandoverError::Gone) => None,
                        Err(error @ (HandoverError::Failed(_) | HandoverError::Crowded(_))) => return Err(error),
                    }
                }
                () = view.subagents.wait_for_poll() => {
                    view.display.show_subagents(view.subagents.poll().await);
                    None
                }
                () = view.display.frame() => {
                    view.display.draw();
                    None
                }
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }
}

/// The next signal; none comes before they are listened to.
async fn next_signal(signals: &mut Option<Signals>) -> ShutdownSignal {
    match signals {
        Some(signals) => signals.next().await,
        None => future::pending().await,
    }
}

/// A key for a task whose user gave none.
fn new_key() -> Arc<str> {
    format!("run-{:032x}", u128::from_le_bytes(clock::random_bytes())).into()
}

fn taken_store(pid: u32) -> HostError {
    let text =
        format!("process {pid} holds the store and takes no runs of others; try again when it has ended");
    RequestError::new(RequestErrorKind::Busy, text).into()
}

/// An error of the other process, worded as in this one: with the option that it is about.
fn of_option(error: HostError, args: &RunArgs) -> CliError {
    let HostError::Request(RequestError { kind: RequestErrorKind::Usage, text }) = &error else {
        return error.into();
    };
    for (start, option) in [("idempotency_key ", "--key "), ("workspace ", "--workspace ")] {
        if let Some(rest) = text.strip_prefix(start) {
            return CliError::usage(format!("{option}{rest}"));
        }
    }
    let is_about_conversation = args.text.is_none() || text.starts_with("there is no run or session ");
    if args.resume.is_some() && is_about_conversation {
        return CliError::of_option("--resume: ", error);
    }
    error.into()
}
