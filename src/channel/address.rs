//! Where a chat is, and the keys of its sessions. A key is `KIND:CHANNEL:CHAT`, then `:tTHREAD` for a thread, then
//! `:gNUMBER` for a conversation that `/new` has begun.

use std::fmt;

/// A chat, or a thread in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChatAddress {
    /// The id of the chat.
    pub(super) chat: String,
    /// The id of the thread.
    pub(super) thread: Option<String>,
}

/// As `CHAT` or `CHAT:THREAD`.
impl fmt::Display for ChatAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chat)?;
        self.thread.iter().try_for_each(|thread| write!(f, ":{thread}"))
    }
}

impl ChatAddress {
    /// The address of this text, as [`ChatAddress`] is shown.
    pub(super) fn parse(text: &str) -> Self {
        let (chat, thread) = text.split_once(':').map_or((text, None), |(chat, thread)| (chat, Some(thread)));
        Self { chat: chat.to_owned(), thread: thread.map(str::to_owned) }
    }

    /// The key of the conversation that began with the update of this number; without one, of the first one.
    pub(super) fn session_key(&self, (kind, channel): (&str, &str), generation: Option<i64>) -> String {
        let thread = self.thread.as_ref().map(|thread| format!(":t{thread}")).unwrap_or_default();
        let generation = generation.map(|number| format!(":g{number}")).unwrap_or_default();
        format!("{kind}:{channel}:{}{thread}{generation}", self.chat)
    }

    /// The address in a session's key; `None` if it is no key of this channel.
    pub(super) fn of_session_key(key: &str, (kind, channel): (&str, &str)) -> Option<Self> {
        let rest = key.strip_prefix(kind)?.strip_prefix(':')?.strip_prefix(channel)?.strip_prefix(':')?;
        let mut parts = rest.split(':').peekable();
        let chat = parts.next().filter(|chat| !chat.is_empty())?.to_owned();
        let thread = parts.next_if(|part| part.starts_with('t')).map(|part| part[1..].to_owned());
        let _generation = parts.next_if(|part| part.starts_with('g'));
        parts.next().is_none().then_some(Self { chat, thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_chats() {
        let own = ("telegram", "home");
        let check = |address: &str, generation: Option<i64>, key: &str| {
            let address = ChatAddress::parse(address);
            assert_eq!(address.session_key(own, generation), key);
            assert_eq!(ChatAddress::of_session_key(key, own), Some(address.clone()));
            assert_eq!(ChatAddress::parse(&address.to_string()), address);
        };
        check("17", None, "telegram:home:17");
        check("-100:7", None, "telegram:home:-100:t7");
        check("17", Some(5), "telegram:home:17:g5");
        check("-100:7", Some(5), "telegram:home:-100:t7:g5");
        for other in ["telegram:work:17", "telegram:home", "telegram:home:", "telegram:home:17:x", "17", ""] {
            assert_eq!(ChatAddress::of_session_key(other, own), None, "{other}");
        }
    }
}
