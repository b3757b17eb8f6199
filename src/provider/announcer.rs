//! Announces the tool calls of an answer to watchers, each as soon as the stream has brought it whole. The answer itself
//! stays the only source of what runs.

use hermod_actors::port::DeltaSink;

use super::loose::is_object;

/// A call as far as the stream has brought it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// The vendor sends no more of it.
    pub(super) is_closed: bool,
}

/// How many calls of one answer were announced. Calls are announced in the order of the answer, so that their numbers are
/// those of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Announcer {
    count: u32,
    /// A closed call was malformed. No later one is announced, and its arguments are not parsed again with each event.
    has_given_up: bool,
}

impl Announcer {
    /// Announces what is closed of `calls`, the calls of the answer in their order.
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
            // A tool without parameters is called with no arguments at all by some vendors.
            if call.name.is_empty() || !(call.arguments.trim().is_empty() || is_object(call.arguments)) {
                self.has_given_up = true;
                return;
            }
            self.count += 1;
            deltas.tool_call(self.count, call.name, call.arguments);
        }
    }
}
