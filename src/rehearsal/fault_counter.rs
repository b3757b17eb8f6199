//! Counts the attempts of each request that met a scripted fault, so that a fault ends after its number of times.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use hermod_actors::model::Hash;

use super::{
    Conversation, ScriptedAnswer,
    script::{FaultRule, ScriptFault},
};

/// Counts the faulty attempts of each request. This and the [`PromptCache`](super::PromptCache) are the model's only
/// state.
///
/// One entry per request with a fault of limited number, until the server ends.
#[derive(Debug, Default)]
pub struct FaultCounter(Mutex<HashMap<Hash, u64>>);

impl FaultCounter {
    /// The fault of this attempt, if any; counts the attempt.
    pub fn next_fault<'s>(
        &self,
        scripted: &ScriptedAnswer<'s>,
        conversation: &Conversation<'_>,
    ) -> Option<&'s ScriptFault> {
        let FaultRule { fault, times } = scripted.fault?;
        let Some(times) = *times else { return Some(fault) };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(conversation.key()).or_insert(0);
        if *count >= times {
            return None;
        }
        *count += 1;
        Some(fault)
    }
}
