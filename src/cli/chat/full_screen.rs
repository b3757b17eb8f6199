//! The chat on the whole screen: keys, events and frames. Frames are coalesced, and drawn only when something changed.

use std::{io, sync::Arc, time::Duration};

use hermod_chat::{ChatEvent, ChatState, FRAME_MS, Intent, Look, Screen, restore_terminal};
use rustix::process::{getpid, kill_process};
use tokio::time::{Instant, sleep_until, timeout};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::{
    conversation::{Beginning, Outboxes, ShownConversation, UserMessage},
    files,
    requests::{RequestUpdate, Requests, Then},
};
use crate::{
    cli::{CliError, Exit, format::truncated_line, print, print_note, shared_owner::SharedOwner},
    clock,
    control::OwnerKind,
    discovery::Variables,
    host::StoreClient,
};

/// Shortest time between two frames: 60 in a second.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);
/// Events that are applied before the next frame.
const MAX_EVENTS_PER_FRAME: usize = 4_096;
/// How long the end of the chat waits for messages that are being sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters that are shown of a message that was not sent.
const MAX_UNSENT_CHARS: usize = 200;
/// Events of requests that wait.
const MAX_QUEUED_EVENTS: usize = 256;

/// Runs the chat until its user leaves it.
pub(super) async fn run(
    beginning: Beginning,
    look: Look,
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    let workspace = beginning.workspace.clone().unwrap_or_else(|| beginning.folder.clone());
    let mut state = ChatState::new(look, workspace.display().to_string());
    state.remember(files::read_history(client.state()));
    let mut screen = Screen::open().map_err(terminal_error)?;
    screen.draw(&mut state, 0).map_err(terminal_error)?;
    let signals = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
    let [terminate, hangup, interrupt] = signals;
    let listen = |signal: io::Result<Signal>| {
        signal.map_err(|error| CliError::internal(format!("signals cannot be listened to: {error}")))
    };
    let signals = [listen(terminate)?, listen(hangup)?, listen(interrupt)?];
    let (told, updates) = mpsc::channel(MAX_QUEUED_EVENTS);
    // Messages to sessions are taken by services alone. The screen shows what is waited for.
    let owner = Arc::new(SharedOwner::new(client.state().clone(), OwnerKind::is_service, |_| ()));
    let mut outboxes = Outboxes::new(Arc::clone(&owner), told.clone());
    let conversation = outboxes.begin(beginning.clone());
    let requests = Requests::new(owner, told, variables.clone(), workspace);
    let mut chat = FullScreen {
        state,
        screen,
        conversation,
        outboxes,
        requests,
        updates,
        beginning,
        signals,
        begun: Instant::now(),
        begun_ms: u64::try_from(clock::now().0).unwrap_or(0),
    };
    let ended = chat.run().await;
    let unsent = chat.finish().await;
    let session = chat.conversation.session;
    let answer = chat.state.last_answer().map(str::to_owned);
    drop(chat);
    restore_terminal();
    for text in unsent {
        print_note(format!("not sent  {}", truncated_line(&text, MAX_UNSENT_CHARS)));
    }
    ended.map_err(terminal_error)?;
    if let Some(session) = session {
        print(&files::farewell(answer.as_deref(), &session.to_string()))?;
    }
    Ok(Exit::Ok)
}

fn terminal_error(error: io::Error) -> CliError {
    CliError::internal(format!("the terminal cannot be used: {error}; `hermod chat --plain` needs none"))
}

struct FullScreen {
    state: ChatState,
    screen: Screen,
    conversation: ShownConversation,
    outboxes: Outboxes,
    requests: Requests,
    /// The answers of requests.
    updates: mpsc::Receiver<RequestUpdate>,
    beginning: Beginning,
    /// SIGTERM, SIGHUP, SIGINT.
    signals: [Signal; 3],
    begun: Instant,
    /// The time at the beginning, in milliseconds since 1970.
    begun_ms: u64,
}

impl FullScreen {
    /// In milliseconds since 1970; never goes back, unlike the clock.
    fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.begun_ms.saturating_add(elapsed_ms)
    }

    async fn run(&mut self) -> io::Result<()> {
        let (mut next_frame, mut is_changed) = (Instant::now(), true);
        loop {
            let [terminate, hangup, interrupt] = &mut self.signals;
            let frame = if is_changed { next_frame } else { next_frame + Duration::from_millis(FRAME_MS) };
            let has_frame = is_changed || self.state.is_animated();
            tokio::select! {
                biased;
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                input = self.screen.next(), if !self.requests.is_opening() => {
                    let now = self.now_ms();
                    let intents = self.state.input(input?, now);
                    for intent in intents {
                        if self.carry_out(intent).await?.is_break() {
                            return Ok(());
                        }
                    }
                }
                () = sleep_until(frame), if has_frame => {
                    let now = self.now_ms();
                    self.screen.draw(&mut self.state, now)?;
                    self.state.take_changed();
                    next_frame = Instant::now() + FRAME_INTERVAL;
                }
                update = self.updates.recv() => {
                    if let Some(update) = update {
                        self.on_update(update);
                    }
                }
                event = self.conversation.next() => {
                    if let Some(event) = event {
                        self.apply(event);
                    }
                    for _ in 0..MAX_EVENTS_PER_FRAME {
                        let Some(event) = self.conversation.try_next() else { break };
                        self.apply(event);
                    }
                }
            }
            is_changed = self.state.take_changed();
            if is_changed {
                self.state.mark_changed();
            }
        }
    }

    /// Waits until the service has what was sent; returns the messages that it does not get in time.
    async fn finish(&mut self) -> Vec<String> {
        let sent = async {
            while self.state.unsent().next().is_some() {
                let Some(event) = self.conversation.next().await else { return };
                self.apply(event);
            }
            self.outboxes.earlier_sent().await;
        };
        let is_late = timeout(SEND_TIMEOUT, sent).await.is_err();
        let mut unsent: Vec<String> = self.state.unsent().map(str::to_owned).collect();
        if is_late && self.outboxes.are_sending() {
            unsent.push("messages of a conversation before".to_owned());
        }
        // What earlier conversations could not send.
        while let Ok(update) = self.updates.try_recv() {
            if let RequestUpdate::Unasked(Some(ChatEvent::Notice(_, text))) = update {
                unsent.push(text);
            }
        }
        unsent
    }

    fn apply(&mut self, event: ChatEvent) {
        let now = self.now_ms();
        self.requests.on_event(&event);
        self.state.apply(event, now);
        self.conversation.set_active(self.state.active_run());
    }

    fn on_update(&mut self, update: RequestUpdate) {
        let (event, then) = self.requests.on_update(update);
        if let Some(event) = event {
            self.apply(event);
        }
        self.then(then);
    }

    async fn carry_out(&mut self, intent: Intent) -> io::Result<std::ops::ControlFlow<()>> {
        let then = match intent {
            Intent::Quit => return Ok(std::ops::ControlFlow::Break(())),
            Intent::Redraw => {
                self.screen.redraw()?;
                Then::Nothing
            }
            Intent::Suspend => {
                self.screen.suspend()?;
                // It is stopped here, until SIGCONT.
                kill_process(getpid(), rustix::process::Signal::TSTP)?;
                self.screen.resume()?;
                Then::Nothing
            }
            Intent::EditInput(text) => {
                self.edit_input(text).await?;
                Then::Nothing
            }
            Intent::Send { local, text, images } => {
                files::append_history(self.requests.owner.state(), &text);
                let (steers, model) = (self.state.active_run().is_some(), self.requests.model.take());
                self.conversation.send(UserMessage { local, text, images, steers, model });
                Then::Nothing
            }
            Intent::Interrupt(_)
            | Intent::Decide(..)
            | Intent::DecideNamed(..)
            | Intent::Command(_)
            | Intent::PastePicture
            | Intent::CompletePath { .. }
            | Intent::Open(_) => {
                self.requests.carry_out(intent, self.conversation.session, self.state.active_run())
            }
        };
        self.then(then);
        Ok(std::ops::ControlFlow::Continue(()))
    }

    fn then(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Show(beginning) => self.show(beginning),
        }
    }

    /// Shows another conversation.
    fn show(&mut self, (session, agent): (Option<String>, Option<String>)) {
        let beginning =
            Beginning { session, agent: agent.or(self.beginning.agent.clone()), ..self.beginning.clone() };
        let agent = beginning.agent.clone().filter(|_| beginning.session.is_none());
        self.conversation = self.outboxes.begin(beginning);
        self.apply(ChatEvent::Conversation(None));
        self.apply(ChatEvent::Named { title: None, agent });
    }

    async fn edit_input(&mut self, text: String) -> io::Result<()> {
        self.screen.suspend()?;
        let edited = files::edit(self.requests.owner.state(), &text, &self.requests.variables).await;
        self.screen.resume()?;
        match edited {
            Ok(text) => self.apply(ChatEvent::Input(text)),
            Err(reason) => self.state.notice(hermod_chat::Tone::Bad, reason),
        }
        Ok(())
    }
}
