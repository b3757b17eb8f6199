//! Announces the tool calls of an answer to watchers, each as soon as it is complete in the stream. Tools run only from
//! the finished answer, never from an announcement.

use hermod_actors::port::DeltaSink;

use super::loose::is_object;

/// A tool call as far as the stream has delivered it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// The vendor sends no more of this call.
    pub(super) is_closed: bool,
}

/// Counts the announced calls of one answer. Calls are announced in the order of the answer, so their numbers match it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Announcer {
    count: u32,
    /// A closed call was malformed. No later call is announced, and its arguments are not parsed again with each event.
    has_given_up: bool,
}

impl Announcer {
    /// Announces the closed calls among `calls`, the calls of the answer in their order. Stops at the first open call.
    pub(super) fn announce<'a>(
        &mut self,
        calls: impl Iterator<Item = PartialCall<'a>>,
        deltas: &dyn DeltaSink,
    ) {
        if self.has_given_up {
            return;
        }
        let announced = usize::try_from(self.count).unwrap_or(usize::MAX);
        for call in calls.skip(announced).take_while(|call| call.is_closed) {
            // Some vendors send no arguments at all for a tool without parameters.
            if call.name.is_empty() || !(call.arguments.trim().is_empty() || is_object(call.arguments)) {
                self.has_given_up = true;
                return;
            }
            self.count += 1;
            deltas.tool_call(self.count, call.name, call.arguments);
        }
    }
}
