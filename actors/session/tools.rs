//! The tasks of tool calls: one that makes an attempt, and one that finds out what became of an attempt of before.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    hub::Piece,
    model::{Attempt, CallEnd, CallId, CallStatus},
    policy::arguments,
    port::{ArtifactName, Boot, Found, Invocation, Progress, Shelf, Tool},
    session::{
        Inner,
        calls::{Begun, Guard, Tasks, tell},
        output::presentable,
        said::Published,
        watchdog,
    },
    supervisor::Address,
    tool_executor::{QUICK_BYTES, ToolExecutorMsg},
    turn::{DelegationMode, Input, Turn},
};

/// All that a task needs of its call.
struct Called {
    id: (CallId, Attempt),
    name: Arc<str>,
    tool: Option<Arc<dyn Tool>>,
    /// The arguments as the model wrote them.
    text: String,
    /// Its arguments are null until `read`.
    invocation: Invocation,
    /// Why the arguments cannot be read.
    unreadable: Option<String>,
    shelf: Shelf,
    cancel: CancellationToken,
    span: tracing::Span,
}

impl Tasks {
    /// Makes the attempt of the tool call that is started.
    pub(super) fn run(&self, turn: &Turn, id: (CallId, Attempt), permit: OwnedSemaphorePermit) -> Begun {
        let cancel = CancellationToken::new();
        let guard = Guard::new(self.session.clone(), id.0, id.1);
        let Some(mut called) = self.called(turn, id, cancel.clone()) else { return Begun::Call(cancel) };
        let executor = Arc::clone(&self.wiring.executor);
        let span = called.span.clone();
        let task = async move {
            let report = Report(executor, Some(Arc::clone(&called.name)));
            called.read().await;
            let made = AssertUnwindSafe(called.make()).catch_unwind().await;
            drop(permit);
            let found = if let Ok(end) = made {
                report.ended();
                Found::Ended(end)
            } else {
                // It panicked, and what it had begun may go on without it.
                drop(report);
                called.find(Boot::Same).await
            };
            guard.answer(called.said(found).await);
        };
        self.tasks.spawn(task.instrument(span));
        Begun::Call(cancel)
    }

    /// Finds out what became of the attempt that an earlier incarnation has started.
    pub(super) fn attach(&self, turn: &Turn, id: (CallId, Attempt), cancel: CancellationToken) -> Begun {
        let guard = Guard::new(self.session.clone(), id.0, id.1);
        let Some(mut called) = self.called(turn, id, cancel.clone()) else { return Begun::Call(cancel) };
        let permits = Arc::clone(&self.wiring.tools.permits);
        let (boot, detached, span) = (turn.boot_of(id.0), turn.is_detached(id.0), called.span.clone());
        let task = async move {
            tracing::debug!(?boot, "taken up again");
            called.read().await;
            let found = match detached {
                true => holding(permits, called.find(boot)).await,
                false => Found::Unknown,
            };
            guard.answer(called.said(found).await);
        };
        self.tasks.spawn(task.instrument(span));
        Begun::Call(cancel)
    }

    /// The call has given tasks away: it ends by what is heard of them, unless they are done in the background.
    pub(super) fn delegated(&self, (call, attempt): (CallId, Attempt), ground: DelegationMode) -> Begun {
        if let DelegationMode::Background(end) = ground {
            tell(&self.session, Inner::Input(Input::ToolEnded { call, attempt, end }));
        }
        Begun::Call(CancellationToken::new())
    }

    fn called(
        &self,
        turn: &Turn,
        (call, attempt): (CallId, Attempt),
        cancel: CancellationToken,
    ) -> Option<Called> {
        let (name, text, spec) = turn.tool_call(call)?;
        let own = ArtifactName { session: self.id, call, attempt };
        let shelf =
            Shelf::new(Arc::clone(&self.wiring.tools.artifacts), own).with_hashes(turn.artifact_hashes());
        let invocation = Invocation {
            call,
            attempt,
            task: spec.task.as_str().into(),
            workspace: spec.workspace.as_str().into(),
            arguments: Value::Null,
            now: self.wiring.clock.at(),
            shelf: shelf.clone(),
            cancel: cancel.clone(),
            progress: self.progress(call, attempt),
        };
        let span = tracing::info_span!(
            "tool_call",
            session = %self.id,
            run = %call.run,
            call = %call,
            attempt,
            tool = %name,
        );
        let tool = self.wiring.tools.get(&name).cloned();
        let (text, unreadable) = (text.to_owned(), None);
        Some(Called { id: (call, attempt), name, tool, text, invocation, unreadable, shelf, cancel, span })
    }

    fn progress(&self, call: CallId, attempt: Attempt) -> Progress {
        let published = Published::new(&self.wiring.hub, self.id, (call, attempt));
        Progress::new(move |note| published.publish(|| Piece::Progress(note.into())))
    }
}

impl Called {
    /// Reads the arguments: long ones where that holds up no session.
    async fn read(&mut self) {
        let text = std::mem::take(&mut self.text);
        let read = match text.len() <= QUICK_BYTES {
            true => arguments(&text),
            false => match spawn_blocking(move || arguments(&text)).await {
                Ok(read) => read,
                Err(error) => {
                    self.unreadable = Some(format!("the arguments could not be read: {error}"));
                    return;
                }
            },
        };
        match read {
            Ok(arguments) => self.invocation.arguments = arguments,
            Err(error) => self.unreadable = Some(error.to_string()),
        }
    }

    async fn make(&self) -> CallEnd {
        match (&self.tool, &self.unreadable) {
            (Some(tool), None) => watchdog::end(&**tool, self.invocation.clone()).await,
            (None, _) => {
                let error = format!("the tool `{}` is not there any more", self.name);
                CallEnd::error(CallStatus::Error, &error, None, "try another way")
            }
            (_, Some(error)) => CallEnd::error(CallStatus::Error, error, None, "send one JSON object"),
        }
    }

    /// What the tool says of an attempt that was started before; of one that panics, nothing is known.
    async fn find(&self, boot: Boot) -> Found {
        let (Some(tool), None) = (&self.tool, &self.unreadable) else { return Found::Unknown };
        let found = watchdog::found(&**tool, self.invocation.clone(), boot);
        AssertUnwindSafe(found).catch_unwind().await.unwrap_or(Found::Unknown)
    }

    /// What the session is told.
    async fn said(&self, found: Found) -> Input {
        let (call, attempt) = self.id;
        match found {
            // Whoever ran it does not know either.
            Found::Ended(end) if end.status == CallStatus::InDoubt => Input::Lost { call, attempt },
            Found::Ended(end) => {
                let end = presentable(end, &self.shelf, &self.cancel).await;
                tracing::debug!(status = ?end.status, "ended");
                Input::ToolEnded { call, attempt, end }
            }
            Found::NeverBegun => Input::NeverBegun { call, attempt },
            Found::Unknown => Input::Lost { call, attempt },
        }
    }
}

/// Awaits a call that is under way already with a permit as soon as there is one: it waits for none, but takes its place in
/// front of those that have not begun.
async fn holding<T>(permits: Arc<Semaphore>, call: impl Future<Output = T>) -> T {
    let held = async {
        let _permit = permits.acquire_owned().await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        biased;
        done = call => done,
        never = held => match never {},
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
