//! Bounds the work of checking one command.

use super::HardRule;

/// The refusal of a script only because the check would take too much work.
pub const TOO_COMPLEX: HardRule =
    HardRule { name: "hard-too-complex", why: "nests or expands into more than can be judged" };

/// Bytes that one check may read or make. It is about twice what the longest command of the system (128 KiB) needs if
/// it is plain.
const MAX_WORK_BYTES: usize = 8 << 20;
/// Cost of a word beside its bytes.
const WORD_BYTES: usize = 32;

/// The remaining work of one check. Each step that depends on the script's length is paid before it is done, which
/// bounds time and memory.
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
    /// Pays for a step on `bytes` bytes.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), HardRule> {
        self.bytes_left = self.bytes_left.checked_sub(bytes.saturating_add(1)).ok_or(TOO_COMPLEX)?;
        Ok(())
    }

    /// Pays for `copies` steps on `bytes` bytes each.
    pub(super) fn spend_copies(&mut self, copies: usize, bytes: usize) -> Result<(), HardRule> {
        self.spend(copies.saturating_mul(bytes))
    }

    /// Pays for a pass over `words`.
    pub(super) fn spend_words(&mut self, words: &[String]) -> Result<(), HardRule> {
        words.iter().try_for_each(|word| self.spend(word.len() + WORD_BYTES))
    }

    /// Pays for creating a word of `bytes` bytes.
    pub(super) fn spend_word(&mut self, bytes: usize) -> Result<(), HardRule> {
        self.spend(bytes.saturating_add(WORD_BYTES))
    }
}
