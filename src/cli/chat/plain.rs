//! The chat in plain mode: lines of standard input, and lines of words at standard output.

use std::{io::BufRead as _, ops::ControlFlow, sync::Arc, thread, time::Duration};

use hermod_chat::{ChatEvent, Intent, PlainChat};
use tokio::{sync::mpsc, time::sleep};

use super::{
    conversation::{Beginning, Conversation, UserMessage},
    files,
    requests::{RequestUpdate, Requests, Then},
};
use crate::{
    cli::{
        CliError, Exit,
        output::{StdoutState, print_over},
        print_note,
        shared_owner::SharedOwner,
    },
    control::OwnerKind,
    discovery::Variables,
    host::{Signals, StoreClient},
};

/// Events of requests, and lines, that wait.
const MAX_QUEUED: usize = 64;
/// After the end of the input and of all runs, the chat ends when nothing has come for so long: a conversation that is opened
/// is printed first.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// The same, while the conversation is being opened.
const OPENING_PERIOD: Duration = Duration::from_secs(10);
/// Bytes of a line.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Runs the chat until the end of standard input, and of what it has begun.
pub(super) async fn run(
    beginning: Beginning,
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    let workspace = beginning.workspace.clone().unwrap_or_else(|| beginning.folder.clone());
    let (told, updates) = mpsc::channel(MAX_QUEUED);
    // Messages to sessions are taken by services alone. The screen shows what is waited for.
    let owner = Arc::new(SharedOwner::new(client.state().clone(), OwnerKind::is_service, |_| ()));
    let conversation = Conversation::begin(&owner, beginning.clone());
    let requests = Requests::new(owner, told, variables.clone(), workspace);
    let signals = Signals::listen()?;
    let mut mode = PlainMode { chat: PlainChat::default(), conversation, requests, updates, beginning };
    mode.run(read_lines(), signals).await
}

/// The lines of standard input, read by a thread of its own; `None` is its end.
fn read_lines() -> mpsc::Receiver<Option<String>> {
    let (sender, lines) = mpsc::channel(MAX_QUEUED);
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut input, MAX_LINE_BYTES as u64).read_until(b'\n', &mut line);
            let line = match read {
                Ok(0) | Err(_) => None,
                Ok(_) => Some(String::from_utf8_lossy(&line).into_owned()),
            };
            let is_end = line.is_none();
            if sender.blocking_send(line).is_err() || is_end {
                return;
            }
        }
    });
    lines
}

struct PlainMode {
    chat: PlainChat,
    conversation: Conversation,
    requests: Requests,
    updates: mpsc::Receiver<RequestUpdate>,
    beginning: Beginning,
}

impl PlainMode {
    async fn run(
        &mut self,
        mut lines: mpsc::Receiver<Option<String>>,
        mut signals: Signals,
    ) -> Result<Exit, CliError> {
        let mut is_open = true;
        loop {
            let is_done = !is_open && !self.chat.is_busy() && !self.requests.is_busy();
            let is_opening = self.beginning.session.is_some() && self.conversation.session.is_none();
            let quiet = if is_opening { OPENING_PERIOD } else { QUIET_PERIOD };
            // Without more input nothing can answer.
            if !is_open && self.chat.is_asking() {
                print_note("a question waits: answer it with `hermod attach` or `hermod approvals`");
                return Ok(Exit::Parked);
            }
            tokio::select! {
                biased;
                signal = signals.next() => return Ok(Exit::from(signal)),
                Some(update) = self.updates.recv() => {
                    let (event, then) = self.requests.on_update(update);
                    if let Some(event) = event
                        && self.apply(event)? == StdoutState::Closed
                    {
                        return Ok(Exit::Ok);
                    }
                    self.then(then)?;
                }
                Some(event) = self.conversation.next() => {
                    if self.apply(event)? == StdoutState::Closed {
                        return Ok(Exit::Ok);
                    }
                }
                () = sleep(quiet), if is_done => return Ok(Exit::Ok),
                // Answers come in the order of the lines.
                line = lines.recv(), if is_open && !self.requests.is_busy() => match line.flatten() {
                    Some(line) => {
                        if self.take_line(&line)?.is_break() {
                            return Ok(Exit::Ok);
                        }
                    }
                    None => is_open = false,
                },
            }
        }
    }

    fn apply(&mut self, event: ChatEvent) -> Result<StdoutState, CliError> {
        self.requests.on_event(&event);
        let text = self.chat.apply(event);
        self.conversation.set_active(self.chat.active_run());
        if text.is_empty() { Ok(StdoutState::Open) } else { print_over("", &text) }
    }

    fn take_line(&mut self, line: &str) -> Result<ControlFlow<()>, CliError> {
        let (intents, text) = self.chat.line(line);
        if !text.is_empty() && print_over("", &text)? == StdoutState::Closed {
            return Ok(ControlFlow::Break(()));
        }
        for intent in intents {
            let then = match intent {
                Intent::Quit => return Ok(ControlFlow::Break(())),
                Intent::Send { local, text, images } => {
                    files::append_history(self.requests.owner.state(), &text);
                    let (steers, model) = (self.chat.active_run().is_some(), self.requests.model.take());
                    self.conversation.send(UserMessage { local, text, images, steers, model });
                    Then::Nothing
                }
                Intent::Interrupt(_)
                | Intent::Decide(..)
                | Intent::DecideNamed(..)
                | Intent::Command(_)
                | Intent::EditInput(_)
                | Intent::PastePicture
                | Intent::CompletePath { .. }
                | Intent::Open(_)
                | Intent::Redraw
                | Intent::Suspend => {
                    self.requests.carry_out(intent, self.conversation.session, self.chat.active_run())
                }
            };
            self.then(then)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn then(&mut self, then: Then) -> Result<(), CliError> {
        let Then::Show((session, agent)) = then else { return Ok(()) };
        let agent = agent.or(self.beginning.agent.clone());
        let beginning = Beginning { session, agent, ..self.beginning.clone() };
        self.conversation = Conversation::begin(&self.requests.owner, beginning);
        self.apply(ChatEvent::Conversation(None)).map(drop)
    }
}
