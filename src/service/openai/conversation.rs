//! A conversation as a client sends it: its system messages, what was said before, and the user's new messages. The hash
//! of its beginning tells which session it continues.

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::model::{AssistantMessage, Hash, Hasher, Message, ToolCall};

use super::content::Content;

/// Stands in a history for an image, which a history cannot have.
const NO_IMAGE: &str = "[A picture was here. It is not in the history that was given.]";

/// Who said a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant {
        calls: Vec<ToolCall>,
    },
    Tool {
        /// The call that the message answers.
        call: String,
    },
}

/// A message of a client's conversation that is no system message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientMessage {
    pub(super) speaker: Speaker,
    pub(super) content: Content,
}

/// All messages of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ClientConversation {
    system: Content,
    /// The messages before the last ones of the user.
    before: Vec<ClientMessage>,
    /// The last messages, all of the user.
    new: Vec<ClientMessage>,
}

impl ClientConversation {
    pub(super) fn push_system(&mut self, text: &str) {
        self.system.push_text(text);
    }

    pub(super) fn push(&mut self, message: ClientMessage) {
        let is_user = message.speaker == Speaker::User;
        self.new.push(message);
        if !is_user {
            self.before.append(&mut self.new);
        }
    }

    /// The system message of the run; `None` if there is none.
    pub(super) fn system(&self) -> Option<String> {
        Some(self.system.text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// The text of the run: that of the last messages of the user.
    pub(super) fn input(&self) -> String {
        let mut input = Content::default();
        self.new.iter().for_each(|message| input.push_text(&message.content.text));
        input.text
    }

    /// The images that belong to the input.
    pub(super) fn images(&self) -> Vec<Bytes> {
        self.new.iter().flat_map(|message| &message.content.images).cloned().collect()
    }

    /// True if the client brings a conversation.
    pub(super) const fn has_history(&self) -> bool {
        !self.before.is_empty()
    }

    /// What was said before, as the beginning of a session.
    pub(super) fn history(&self) -> Vec<Message> {
        self.before.iter().map(ClientMessage::to_message).collect()
    }

    /// The hash of what was said before, by which a session is found. `token` is the id of the client's token.
    pub(super) fn prefix(&self, token: &str, agent: &str) -> Hash {
        self.hash(token, agent, self.before.iter())
    }

    /// The prefix of a conversation that goes on after this answer.
    pub(super) fn next_prefix(&self, token: &str, agent: &str, answer: &str) -> Hash {
        let speaker = Speaker::Assistant { calls: Vec::new() };
        let answer = ClientMessage { speaker, content: Content::text(answer) };
        self.hash(token, agent, self.before.iter().chain(&self.new).chain([&answer]))
    }

    fn hash<'a>(&self, token: &str, agent: &str, messages: impl Iterator<Item = &'a ClientMessage>) -> Hash {
        let mut hasher = Hasher::default();
        for part in [token, agent, self.system.text.trim()] {
            hasher.part(part.as_bytes());
        }
        messages.for_each(|message| message.hash(&mut hasher));
        hasher.finish()
    }
}

impl ClientMessage {
    fn to_message(&self) -> Message {
        let mut content = self.content.clone();
        self.content.images.iter().for_each(|_| content.push_text(NO_IMAGE));
        let text = content.text;
        match &self.speaker {
            Speaker::User => Message::User(text.into()),
            Speaker::Assistant { calls } => Message::Assistant(Arc::new(AssistantMessage {
                text,
                calls: calls.clone(),
                ..AssistantMessage::default()
            })),
            Speaker::Tool { call } => {
                Message::Tool { call: call.as_str().into(), name: "".into(), content: text.into() }
            }
        }
    }

    /// Clients differ in the space around a text that they send back.
    fn hash(&self, hasher: &mut Hasher) {
        let (speaker, calls) = match &self.speaker {
            Speaker::User => ("user", &[][..]),
            Speaker::Assistant { calls } => ("assistant", &calls[..]),
            Speaker::Tool { call } => {
                hasher.part(call.as_bytes());
                ("tool", &[][..])
            }
        };
        hasher.part(speaker.as_bytes());
        hasher.part(self.content.text.trim().as_bytes());
        hasher.part(&self.content.images.len().to_le_bytes());
        self.content.images.iter().for_each(|image| hasher.part(image));
        hasher.part(&calls.len().to_le_bytes());
        for call in calls {
            [&call.id, &call.name, &call.arguments].into_iter().for_each(|part| hasher.part(part.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ClientMessage {
        ClientMessage { speaker: Speaker::User, content: Content::text(text) }
    }

    fn assistant(text: &str) -> ClientMessage {
        let speaker = Speaker::Assistant { calls: Vec::new() };
        ClientMessage { speaker, content: Content::text(text) }
    }

    fn conversation(system: &str, messages: &[ClientMessage]) -> ClientConversation {
        let mut conversation = ClientConversation::default();
        conversation.push_system(system);
        messages.iter().cloned().for_each(|message| conversation.push(message));
        conversation
    }

    #[test]
    fn the_last_messages_of_the_user_are_the_input() {
        let check = |messages: &[ClientMessage], input: &str, history: usize| {
            let conversation = conversation("", messages);
            assert_eq!((&*conversation.input(), conversation.history().len()), (input, history));
        };
        check(&[user("a")], "a", 0);
        check(&[user("a"), user("b")], "a\n\nb", 0);
        check(&[user("a"), assistant("b"), user("c"), user("d")], "c\n\nd", 2);
        check(&[user("a"), assistant("b")], "", 2);
    }

    #[test]
    fn a_conversation_goes_on_where_its_prefix_ends() {
        let first = conversation("s", &[user("a")]).next_prefix("1", "default", "b");
        let check = |token: &str, agent: &str, system: &str, messages: &[ClientMessage], expect: bool| {
            let prefix = conversation(system, messages).prefix(token, agent);
            assert_eq!(prefix == first, expect, "{token} {agent} {system} {messages:?}");
        };
        let same = [user("a"), assistant("b"), user("c")];
        check("1", "default", "s", &same, true);
        check("1", "default", "s\n", &[user("a"), assistant(" b\n"), user("c"), user("d")], true);
        check("2", "default", "s", &same, false);
        check("1", "other", "s", &same, false);
        check("1", "default", "", &same, false);
        check("1", "default", "s", &[user("a"), assistant("x"), user("c")], false);
        check("1", "default", "s", &[user("ab"), assistant(""), user("c")], false);
        let mut seen = user("a");
        seen.content.images.push(Bytes::from_static(b"x"));
        check("1", "default", "s", &[seen, assistant("b"), user("c")], false);
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: "{}".into() };
        let called = ClientMessage { speaker: Speaker::Assistant { calls: vec![call] }, ..assistant("b") };
        check("1", "default", "s", &[user("a"), called, user("c")], false);
    }

    #[test]
    fn a_history_says_where_an_image_was() {
        let mut seen = user("look");
        seen.content.images.push(Bytes::from_static(b"x"));
        let history = conversation("", &[seen, assistant("a cat"), user("sure?")]).history();
        assert_eq!(history[0], Message::User(format!("look\n\n{NO_IMAGE}").into()));
    }
}
