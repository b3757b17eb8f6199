use super::DenyReason;

/// The reason of a refusal for which nothing speaks but that judging would take too much work.
pub const TOO_COMPLEX: &str = "nests or expands into more than can be judged";

/// Bytes that one judgement may look at or make: about twice what the longest command that a system takes (128 KiB) needs
/// if it is plain.
const MAX_WORK_BYTES: usize = 8 << 20;
/// What a word costs beside its bytes.
const WORD_BYTES: usize = 32;

/// The work that is left for one judgement. Everything that depends on the script's length pays before it is done, so
/// time and memory have a bound.
#[derive(Debug)]
pub(super) struct WorkBudget {
    bytes_left: usize,
}

impl Default for WorkBudget {
    fn default() -> Self {
        Self { bytes_left: MAX_WORK_BYTES }
    }
}

impl WorkBudget {
    /// Takes the cost of a step on `bytes` bytes.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), DenyReason> {
        self.bytes_left = self.bytes_left.checked_sub(bytes.saturating_add(1)).ok_or(TOO_COMPLEX)?;
        Ok(())
    }

    /// Takes the cost of `copies` steps on `bytes` bytes each.
    pub(super) fn spend_copies(&mut self, copies: usize, bytes: usize) -> Result<(), DenyReason> {
        self.spend(copies.saturating_mul(bytes))
    }

    /// Takes the cost of going through `words`.
    pub(super) fn spend_words(&mut self, words: &[String]) -> Result<(), DenyReason> {
        words.iter().try_for_each(|word| self.spend(word.len() + WORD_BYTES))
    }

    /// Takes the cost of making a word of `bytes` bytes.
    pub(super) fn spend_word(&mut self, bytes: usize) -> Result<(), DenyReason> {
        self.spend(bytes.saturating_add(WORD_BYTES))
    }
}
