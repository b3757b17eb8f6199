use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use hermod_actors::model::Hash;

use super::{
    Conversation, ScriptedAnswer,
    script::{FaultRule, ScriptFault},
};

/// How many attempts of each request have met their fault: the one thing that the model remembers.
///
/// One entry for each request that was ever to fail, until the process ends.
#[derive(Debug, Default)]
pub struct FaultCounter(Mutex<HashMap<Hash, u64>>);

impl FaultCounter {
    /// The fault that this attempt meets; counts the attempt.
    pub fn next_fault<'s>(
        &self,
        scripted: &ScriptedAnswer<'s>,
        conversation: &Conversation<'_>,
    ) -> Option<&'s ScriptFault> {
        let FaultRule { fault, times } = scripted.fault?;
        let Some(times) = *times else { return Some(fault) };
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let met = met.entry(conversation.key()).or_insert(0);
        if *met >= times {
            return None;
        }
        *met += 1;
        Some(fault)
    }
}
