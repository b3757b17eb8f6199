//! What tools really do, whether or not the session knows it.

use super::{chance::Chance, hold};
use crate::model::{Attempt, AttemptId, CallId};

#[derive(Debug, Default)]
pub(super) struct Outside(Vec<Deed>);

#[derive(Debug)]
struct Deed {
    call: CallId,
    attempt: Attempt,
    is_detached: bool,
    goes_on: bool,
    /// Whether its end can be found out.
    is_known: bool,
}

/// What an attach finds of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Ended,
    NeverStarted,
    Unknown,
}

impl Outside {
    /// Starts an attempt. No other attempt of the call may be running. A `once` call may start once, and once more for
    /// each of `leaves`.
    pub(super) fn begin(
        &mut self,
        id: AttemptId,
        (is_detached, is_once): (bool, bool),
        leaves: Attempt,
    ) -> Result<(), String> {
        let AttemptId { call, attempt } = id;
        let own = || self.0.iter().filter(|deed| deed.call == call);
        hold!(own().all(|deed| deed.attempt != attempt), "{call} attempt {attempt} is made twice");
        hold!(own().all(|deed| !deed.goes_on), "{call} attempt {attempt} is made while another goes on");
        let begun = Attempt::try_from(own().count()).unwrap_or(Attempt::MAX);
        hold!(
            !is_once || begun <= leaves,
            "{call} was begun {begun} times, and begins again with {leaves} leaves"
        );
        self.0.push(Deed { call, attempt, is_detached, goes_on: true, is_known: true });
        Ok(())
    }

    pub(super) fn has(&self, call: CallId, attempt: Attempt) -> bool {
        self.0.iter().any(|deed| (deed.call, deed.attempt) == (call, attempt))
    }

    /// Ends an attempt; `is_seen` if its end is known.
    pub(super) fn end(&mut self, call: CallId, attempt: Attempt, is_seen: bool) {
        for deed in self.0.iter_mut().filter(|deed| (deed.call, deed.attempt) == (call, attempt)) {
            deed.goes_on = false;
            deed.is_known &= is_seen;
        }
    }

    /// The process crashes, and perhaps the machine restarts.
    pub(super) fn die(&mut self, reboots: bool, chance: &mut Chance) {
        for deed in self.0.iter_mut().filter(|deed| deed.goes_on) {
            if !deed.is_detached || reboots {
                (deed.goes_on, deed.is_known) = (false, false);
            } else if chance.one_in(2) {
                deed.goes_on = false;
            }
        }
    }

    /// What the tool finds of an attempt of an earlier incarnation.
    pub(super) fn find(&self, call: CallId, attempt: Attempt, is_detached: bool) -> Found {
        match self.0.iter().find(|deed| (deed.call, deed.attempt) == (call, attempt)) {
            None if is_detached => Found::NeverStarted,
            Some(deed) if is_detached && deed.is_known => Found::Ended,
            Some(_) | None => Found::Unknown,
        }
    }
}
