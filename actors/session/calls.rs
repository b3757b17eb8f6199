//! The tasks of a session's calls. A task makes one attempt and answers; a guard in it answers `Lost` if it panics or is
//! aborted, so that nobody waits for ever.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use ractor::ActorRef;
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    hub::{Delta, Hub, Live, Piece, length},
    model::{Attempt, CallEnd, CallId, CallStatus, Failure, FailureClass, SessionId},
    policy::arguments,
    port::{ArtifactName, Artifacts, Deltas, Invocation, ModelRequest, Progress, Segments, Shelf},
    provider::{Lease, NoLease, ProviderMsg},
    session::{Inner, SessionMsg, Wiring, output::presentable, view::EncodedView, watchdog},
    supervisor::{Address, ProvidersMsg},
    tool_executor::ToolExecutorMsg,
    turn::{Effect, Input, Turn},
};

/// The running tasks of one session. The supervisor holds them too: it revives a session only when they have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallTasks(Arc<Running>);

#[derive(Debug)]
struct Running {
    /// `None` when they were ended: none is started any more.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Held while they are being ended, so that whoever comes second waits too.
    ending: tokio::sync::Mutex<()>,
}

impl Default for Running {
    fn default() -> Self {
        Self { tasks: Mutex::new(Some(JoinSet::new())), ending: tokio::sync::Mutex::default() }
    }
}

impl CallTasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tasks) = &mut *tasks else {
            // A set that is dropped aborts what is in it.
            return JoinSet::new().spawn(task);
        };
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Aborts all and resolves when they are gone. None is started after this.
    pub(crate) async fn end(&self) {
        let _ending = self.0.ending.lock().await;
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }
}

/// Something in flight.
#[derive(Debug)]
pub(crate) enum Begun {
    /// Ends by itself when told to, and then says how.
    Call(CancellationToken),
    /// Has nothing to say: ended by force.
    Wait(AbortHandle),
}

/// Starts tasks for one session.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: CallTasks,
    session: ActorRef<SessionMsg>,
    wiring: Arc<Wiring>,
    id: SessionId,
}

impl Tasks {
    pub(crate) fn new(
        tasks: CallTasks,
        session: ActorRef<SessionMsg>,
        wiring: Arc<Wiring>,
        id: SessionId,
    ) -> Self {
        Self { tasks, session, wiring, id }
    }

    /// Cancels what is begun and not due, and forgets it.
    pub(crate) fn cancel_all_but(begun: &mut BTreeMap<Effect, Begun>, due: &[Effect]) {
        begun.retain(|effect, begun| {
            let keep = due.contains(effect);
            if !keep {
                match begun {
                    Begun::Call(cancel) => cancel.cancel(),
                    Begun::Wait(handle) => handle.abort(),
                }
            }
            keep
        });
    }

    /// Forgets all timers: one of them has gone off, and whatever is still to be waited for is due again.
    pub(crate) fn forget_timers(begun: &mut BTreeMap<Effect, Begun>) {
        let calls: Vec<Effect> = begun.keys().filter(|effect| !effect.is_timer()).copied().collect();
        Self::cancel_all_but(begun, &calls);
    }

    /// Makes the attempt of the model call that is started.
    pub(crate) fn ask(&self, turn: &Turn, view: &mut EncodedView, lease: Lease) -> Begun {
        let cancel = CancellationToken::new();
        let (Some(started), Some((_, spec))) = (turn.asking(), turn.current()) else {
            return Begun::Call(cancel);
        };
        let (started, spec) = (Arc::clone(started), Arc::clone(spec));
        let tools = Arc::clone(&self.wiring.tools);
        // An adapter's panic is the call's, not the session's.
        let traits = spec.traits_of(&lease.model);
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let encoder = lease.endpoint.encoder(&lease.model.model, &traits);
            view.render(turn, &encoder, || tools.specs(&spec.tools))
        }));
        let Ok((head, messages)) = rendered else {
            *view = EncodedView::default();
            return self.lost(started.call, started.attempt);
        };
        let mut request = ModelRequest {
            call: started.call,
            session: self.id,
            model: Arc::clone(&lease.model.model),
            max_tokens: started.max_tokens,
            thinking: spec.thinking_of(&lease.model),
            head,
            messages,
            pictures: BTreeMap::new(),
        };
        let session = self.id;
        let guard = Guard::new(self.session.clone(), started.call, started.attempt);
        let providers = Arc::clone(&self.wiring.providers);
        let deltas = Published::new(&self.wiring.hub, self.id, (started.call, started.attempt));
        let span = tracing::info_span!(
            "model_call",
            session = %self.id,
            run = %started.call.run,
            call = %started.call,
            attempt = started.attempt,
            model = %lease.model,
        );
        let cancelled = cancel.clone();
        let task = async move {
            let attempt = async {
                request.pictures = pictures(&*tools.artifacts, session, &request.messages).await?;
                lease.endpoint.call(request, &deltas).await
            };
            let answer = watchdog::answer(attempt, &cancelled).await;
            match &answer {
                Ok(_) => tracing::debug!("answered"),
                Err(failure) => tracing::warn!(%failure, "failed"),
            }
            let report = answer.as_ref().map(|_| ()).map_err(Clone::clone);
            let name = Arc::clone(&lease.model.provider);
            if providers.cast(ProvidersMsg::To(name, ProviderMsg::Report(report))).is_err() {
                tracing::debug!("the supervisor of providers is gone");
            }
            guard.answer(match answer {
                Ok(answer) => Input::Answered {
                    plans: tools.plan(&answer.message.calls, &spec),
                    answer: Arc::new(answer),
                    started,
                },
                Err(failure) => {
                    let (call, attempt) = (started.call, started.attempt);
                    Input::ModelFailed { call, attempt, failure }
                }
            });
        };
        self.tasks.spawn(task.instrument(span));
        Begun::Call(cancel)
    }

    /// Makes the attempt of a tool call that is started.
    pub(crate) fn run(
        &self,
        turn: &Turn,
        (call, attempt): (CallId, Attempt),
        permit: OwnedSemaphorePermit,
    ) -> Begun {
        let cancel = CancellationToken::new();
        let guard = Guard::new(self.session.clone(), call, attempt);
        let Some((name, text, spec)) = turn.tool_call(call) else { return Begun::Call(cancel) };
        let own = ArtifactName { session: self.id, call, attempt };
        let shelf = Shelf::new(Arc::clone(&self.wiring.tools.artifacts), own);
        let invocation = arguments(text).map(|arguments| Invocation {
            call,
            attempt,
            task: spec.task.as_str().into(),
            workspace: spec.workspace.as_str().into(),
            arguments,
            now: self.wiring.clock.at(),
            shelf: shelf.clone(),
            cancel: cancel.clone(),
            progress: self.progress(call, attempt),
        });
        let (tool, cancelled) = (self.wiring.tools.get(&name).cloned(), cancel.clone());
        let executor = Arc::clone(&self.wiring.executor);
        let span = tracing::info_span!(
            "tool_call",
            session = %self.id,
            run = %call.run,
            call = %call,
            attempt,
            tool = %name,
        );
        let task = async move {
            let lost = Report(executor, Some(Arc::clone(&name)));
            let end = match (tool, invocation) {
                (Some(tool), Ok(invocation)) => watchdog::end(&*tool, invocation).await,
                (None, _) => {
                    let error = format!("the tool `{name}` is not there any more");
                    CallEnd::error(CallStatus::Error, &error, None, "try another way")
                }
                (_, Err(error)) => {
                    CallEnd::error(CallStatus::Error, &error.to_string(), None, "send one JSON object")
                }
            };
            let end = presentable(end, &shelf, &cancelled).await;
            drop(permit);
            lost.ended();
            tracing::debug!(status = ?end.status, "ended");
            guard.answer(Input::ToolEnded { call, attempt, end });
        };
        self.tasks.spawn(task.instrument(span));
        Begun::Call(cancel)
    }

    fn progress(&self, call: CallId, attempt: Attempt) -> Progress {
        let published = Published::new(&self.wiring.hub, self.id, (call, attempt));
        Progress::new(move |note| published.publish(|| Piece::Progress(note.into())))
    }

    /// A call that is started without the grant it was started with cannot be made: it is lost, and tried again.
    pub(crate) fn lost(&self, call: CallId, attempt: Attempt) -> Begun {
        drop(Guard::new(self.session.clone(), call, attempt));
        Begun::Call(CancellationToken::new())
    }

    /// Waits for what the call needs.
    pub(crate) fn seek(&self, turn: &Turn, call: CallId, attempt: Attempt) -> Begun {
        let Some(chain) = turn.chain().map(<[_]>::to_vec) else { return self.lost(call, attempt) };
        let (wiring, session) = (Arc::clone(&self.wiring), self.session.clone());
        Begun::Wait(self.tasks.spawn(async move {
            let said = if call.n == 0 {
                match lease(&wiring, &chain).await {
                    Ok(lease) => {
                        Inner::Leased(Input::Leased { call, attempt, model: lease.model.clone() }, lease)
                    }
                    Err(failure) => Inner::Input(Input::NoLease { call, attempt, failure }),
                }
            } else {
                match Arc::clone(&wiring.tools.permits).acquire_owned().await {
                    Ok(permit) => Inner::Permitted(Input::Permitted { call, attempt }, permit),
                    Err(_) => return,
                }
            };
            tell(&session, said);
        }))
    }

    /// Tells the session to go on when the tasks that can run now have run.
    pub(crate) fn gather(&self) {
        let session = self.session.clone();
        self.tasks.spawn(async move {
            tokio::task::yield_now().await;
            tell(&session, Inner::GoOn);
        });
    }

    /// Wakes the session up after so many milliseconds.
    pub(crate) fn wake_in(&self, ms: u64) -> Begun {
        let session = self.session.clone();
        Begun::Wait(self.tasks.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            tell(&session, Inner::Input(Input::Woke));
        }))
    }
}

/// Bytes that a picture may have.
const MAX_PICTURE: usize = 20 << 20;

/// The pictures that a request shows.
async fn pictures(
    kept: &dyn Artifacts,
    session: SessionId,
    messages: &Segments,
) -> Result<BTreeMap<String, Bytes>, Failure> {
    let mut pictures = BTreeMap::new();
    for image in messages.images() {
        let handle = &image.artifact.handle;
        if pictures.contains_key(handle) {
            continue;
        }
        let gone = |error: &dyn std::fmt::Display| {
            let message = format!("the picture {handle} of this conversation cannot be read: {error}");
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let name = ArtifactName::of_handle(session, handle).ok_or_else(|| gone(&"it is no artifact"))?;
        let read = kept.read(name, 0, MAX_PICTURE).await.map_err(|error| gone(&error))?;
        pictures.insert(handle.clone(), read.bytes);
    }
    Ok(pictures)
}

/// Waits until a link of the chain is free.
async fn lease(wiring: &Wiring, chain: &[crate::model::ModelRef]) -> Result<Lease, Failure> {
    loop {
        let permits = match wiring.leases.try_lease(chain) {
            Ok(lease) => return Ok(lease),
            Err(NoLease::Never(failure)) => return Err(failure),
            Err(NoLease::Busy(permits)) => permits,
        };
        let Ok(permit) = permits.acquire_owned().await else {
            return Err(Failure::new(FailureClass::Cancelled, "the provider is being taken away"));
        };
        match wiring.leases.lease(chain, permit) {
            Ok(lease) => return Ok(lease),
            Err(NoLease::Never(failure)) => return Err(failure),
            Err(NoLease::Busy(_)) => {}
        }
    }
}

fn tell(session: &ActorRef<SessionMsg>, said: Inner) {
    if session.cast(SessionMsg::Inner(said)).is_err() {
        tracing::debug!("a call ended after its session had gone");
    }
}

/// Answers `Lost` unless the task has answered.
struct Guard {
    session: ActorRef<SessionMsg>,
    lost: Option<Input>,
}

impl Guard {
    fn new(session: ActorRef<SessionMsg>, call: CallId, attempt: Attempt) -> Self {
        Self { session, lost: Some(Input::Lost { call, attempt }) }
    }

    fn answer(mut self, input: Input) {
        self.lost = None;
        tell(&self.session, Inner::Input(input));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            tell(&self.session, Inner::Input(lost));
        }
    }
}

/// Tells the executor how a tool's task ended.
struct Report(Arc<Address<ToolExecutorMsg>>, Option<Arc<str>>);

impl Report {
    fn ended(mut self) {
        if let Some(tool) = self.1.take() {
            self.send(ToolExecutorMsg::Ended(tool));
        }
    }

    fn send(&self, message: ToolExecutorMsg) {
        if self.0.cast(message).is_err() {
            tracing::debug!("the executor is gone");
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(tool) = self.1.take() {
            self.send(ToolExecutorMsg::Lost(tool));
        }
    }
}

/// Hands what a call says to the watchers, past the session.
struct Published {
    hub: Arc<Hub>,
    session: SessionId,
    call: CallId,
    attempt: Attempt,
    /// What was said before, in bytes; counted even if nobody listens, because somebody may come.
    text: AtomicU64,
    reasoning: AtomicU64,
}

impl Published {
    fn new(hub: &Arc<Hub>, session: SessionId, (call, attempt): (CallId, Attempt)) -> Self {
        let (text, reasoning) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { hub: Arc::clone(hub), session, call, attempt, text, reasoning }
    }

    fn publish(&self, piece: impl FnOnce() -> Piece) {
        if self.hub.is_watched() {
            let delta = Delta { call: self.call, attempt: self.attempt, piece: piece() };
            self.hub.publish(self.session, &Live::Delta(delta));
        }
    }
}

impl Deltas for Published {
    fn text(&self, delta: &str) {
        let at = self.text.fetch_add(length(delta), Ordering::Relaxed);
        self.publish(|| Piece::Text { at, delta: delta.into() });
    }

    fn reasoning(&self, delta: &str) {
        let at = self.reasoning.fetch_add(length(delta), Ordering::Relaxed);
        self.publish(|| Piece::Reasoning { at, delta: delta.into() });
    }
}
