//! The chat in plain mode: lines of standard input, and lines of words at standard output.

use std::{
    io::{BufRead, Read as _},
    ops::ControlFlow,
    sync::Arc,
    thread,
    time::Duration,
};

use hermod_chat::{ChatEvent, Intent, PlainChat};
use tokio::{sync::mpsc, time::sleep};

use super::{
    conversation::{Beginning, Outboxes, ShownConversation, UserMessage},
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
    let mut outboxes = Outboxes::new(Arc::clone(&owner), told.clone());
    let conversation = outboxes.begin(beginning.clone());
    let requests = Requests::new(owner, told, variables.clone(), workspace);
    let signals = Signals::listen()?;
    let chat = PlainChat::default();
    let mut mode = PlainMode { chat, conversation, outboxes, requests, updates, beginning };
    mode.run(read_lines(), signals).await
}

/// The lines of standard input, read by a thread of its own. An error is the last one.
fn read_lines() -> mpsc::Receiver<Result<String, String>> {
    let (sender, lines) = mpsc::channel(MAX_QUEUED);
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Some(line) = read_line(&mut input).transpose() {
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// The next line; `None` at the end. The error says what is wrong with it.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let read = input.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
    match read.map_err(|error| format!("standard input cannot be read: {error}"))? {
        0 => Ok(None),
        length if length > MAX_LINE_BYTES => {
            Err(format!("a line of standard input has more than {MAX_LINE_BYTES} bytes; send it in parts"))
        }
        _ => String::from_utf8(line).map(Some).map_err(|error| {
            format!(
                "a line of standard input is not UTF-8, from byte {} on",
                error.utf8_error().valid_up_to()
            )
        }),
    }
}

struct PlainMode {
    chat: PlainChat,
    conversation: ShownConversation,
    outboxes: Outboxes,
    requests: Requests,
    updates: mpsc::Receiver<RequestUpdate>,
    beginning: Beginning,
}

impl PlainMode {
    async fn run(
        &mut self,
        mut lines: mpsc::Receiver<Result<String, String>>,
        mut signals: Signals,
    ) -> Result<Exit, CliError> {
        let mut is_open = true;
        loop {
            let is_sending = self.outboxes.are_sending();
            let is_done = !is_open && !self.chat.is_busy() && !self.requests.is_busy() && !is_sending;
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
                () = self.outboxes.earlier_sent(), if is_sending => {}
                // Answers come in the order of the lines.
                line = lines.recv(), if is_open && !self.requests.is_busy() => match line {
                    Some(line) => {
                        let line = line.map_err(CliError::usage)?;
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
        self.conversation = self.outboxes.begin(beginning);
        self.apply(ChatEvent::Conversation(None)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_none_is_an_error() {
        let check =
            |input: &[u8], expect: Result<Option<&str>, &str>| match (read_line(&mut { input }), expect) {
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (read, expect) => {
                    let expect = expect.map(|line| line.map(str::to_owned));
                    assert_eq!(read, expect.map_err(str::to_owned));
                }
            };
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        check(b"", Ok(None));
        check(b"one\ntwo", Ok(Some("one\n")));
        check(b"two", Ok(Some("two")));
        check(b"\xff\n", Err("is not UTF-8, from byte 0 on"));
        check(long.as_bytes(), Err("has more than 1048576 bytes"));
    }
}
