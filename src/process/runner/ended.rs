//! Attempts of which this process has seen that they have ended: their folders can be removed without another look.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use super::files::SpoolName;

/// Most attempts that are remembered. The folders of others are looked through before they are removed.
const MAX_ENDED: usize = 1_000;

/// Attempts with an outcome and without a runner, the last at the end.
#[derive(Debug, Default)]
pub(super) struct EndedAttempts(Mutex<VecDeque<SpoolName>>);

impl EndedAttempts {
    pub(super) fn add(&self, name: SpoolName) {
        // Ignores poisoning: each change is one operation of the list.
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() == MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(name);
    }

    /// Forgets an attempt. True if it was known to have ended.
    pub(super) fn take(&self, name: SpoolName) -> bool {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ended.iter().position(|ended| *ended == name);
        at.and_then(|at| ended.remove(at)).is_some()
    }
}
