//! The commands of a chat. Each may be carried out again after a crash, with the same effect: an update is passed only
//! when its command is done.

use hermod_actors::{RunError, model::QueueMode};

use super::{address::ChatAddress, chat_channel::Channel, port::IncomingMessage};
use crate::hooks::CommandEvent;

const HELP: &str = "Write, and an answer comes. Pictures are taken too.\n\
    /new begins a new conversation\n\
    /stop stops what is under way and what waits\n\
    /status tells how things are\n\
    /mode steer, followup, collect or interrupt: what happens to a message while a run is under way; /mode default as configured";
/// Most characters of a command's name.
const MAX_NAME_CHARS: usize = 32;

/// A command of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatCommand {
    name: String,
    argument: String,
}

impl ChatCommand {
    /// The command of a text; `None` if it is none. A path is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix('/')?;
        let (name, argument) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME_CHARS
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| Self { name: name.to_lowercase(), argument: argument.trim().to_owned() })
    }

    /// Carries out the command of the update with this number, and returns what the chat is told. Hooks are told of it too.
    pub(super) async fn execute(
        &self,
        channel: &Channel,
        message: &IncomingMessage,
        number: i64,
    ) -> Result<String, RunError> {
        let at = &message.at;
        channel
            .door
            .commands
            .record(CommandEvent {
                id: format!("{}-{number:020}", channel.name),
                command: self.name.clone(),
                argument: self.argument.clone(),
                channel: channel.name.to_string(),
                chat: at.to_string(),
                sender: message.sender.id.clone(),
                session: channel.session_key(at).await,
            })
            .await;
        Ok(match self.name.as_str() {
            "new" | "reset" => {
                let chat = at.to_string();
                channel
                    .keep(|state| state.chats.entry(chat.clone()).or_default().generation = Some(number))
                    .await;
                "A new conversation begins.".to_owned()
            }
            "stop" => stop(channel, at).await?,
            "status" => status(channel, at).await?,
            "help" | "start" => HELP.to_owned(),
            "mode" => self.set_mode(channel, at).await,
            name => format!("There is no command /{name}.\n\n{HELP}"),
        })
    }

    async fn set_mode(&self, channel: &Channel, at: &ChatAddress) -> String {
        let mode = QueueMode::ALL.into_iter().find(|mode| mode.name() == self.argument);
        if mode.is_none() && self.argument != "default" {
            let names = QueueMode::ALL.map(QueueMode::name).join(", ");
            return format!("The modes are {names}, and default.");
        }
        let chat = at.to_string();
        channel.keep(|state| state.chats.entry(chat.clone()).or_default().mode = mode).await;
        format!("Messages are taken in the mode {}.", mode.map_or("that is configured", QueueMode::name))
    }
}

/// Stops all that was asked for in this chat.
async fn stop(channel: &Channel, at: &ChatAddress) -> Result<String, RunError> {
    let open = channel.open_runs_of(at).await?;
    let count = open.len();
    crate::control::stop(channel.runtime(), open).await?;
    Ok(match count {
        0 => "Nothing is under way.".to_owned(),
        1 => "Stopped.".to_owned(),
        count => format!("Stopped {count} runs."),
    })
}

async fn status(channel: &Channel, at: &ChatAddress) -> Result<String, RunError> {
    let key = channel.session_key(at).await;
    let mut lines = vec![format!("Conversation {key}")];
    let chat = at.to_string();
    let (mode, questions) = channel
        .state
        .read(|state| {
            let mode = state.chats.get(&chat).and_then(|chat| chat.mode);
            (mode, state.questions.values().filter(|asked| asked.chat == chat).count())
        })
        .await;
    let mode = mode.or_else(|| channel.section.mode.map(|mode| mode.0));
    lines.push(format!("Mode {}", mode.map_or("as configured for the agent", QueueMode::name)));
    let open = channel.open_runs_of(at).await?;
    lines.push(match open.as_slice() {
        [] => "Nothing is under way.".to_owned(),
        open => {
            let states: Vec<String> =
                open.iter().map(|row| format!("{:?}", row.state).to_lowercase()).collect();
            format!("Under way: {}", states.join(", "))
        }
    });
    if questions > 0 {
        lines.push(format!("{questions} questions wait for an answer."));
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_behind_a_slash() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let parsed = ChatCommand::parse(text).map(|command| (command.name, command.argument));
            assert_eq!(
                parsed,
                expect.map(|(name, argument)| (name.to_owned(), argument.to_owned())),
                "{text}"
            );
        };
        check("/new", Some(("new", "")));
        check(" /Mode  collect ", Some(("mode", "collect")));
        check("/new\nhello", Some(("new", "hello")));
        for text in ["/etc/hosts is odd", "/", "/ new", "new", "", "/neu-ä"] {
            check(text, None);
        }
    }
}
