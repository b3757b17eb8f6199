//! The limits of all runs of the store together: set while runs continue, and read with what is used of them.

use std::sync::{PoisonError, RwLock};

use super::Runtime;
use crate::model::StoreLimits;

/// The limits that hold at present. Sessions read them before each decision.
#[derive(Debug, Default)]
pub(crate) struct PresentStoreLimits(RwLock<StoreLimits>);

impl PresentStoreLimits {
    // Ignores poisoning: each access is one copy.
    pub(crate) fn get(&self) -> StoreLimits {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, limits: StoreLimits) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}

impl Runtime {
    /// The limits of all runs of the store together.
    pub fn store_limits(&self) -> StoreLimits {
        self.parts.store_limits.get()
    }

    /// Sets the limits of all runs of the store together: from the next call of a model on. Without this there are none.
    pub fn set_store_limits(&self, limits: StoreLimits) {
        self.parts.store_limits.set(limits);
    }
}
