//! The verifier of a runtime: exchanged while runs continue, and asked whether the expectations of a new run can be
//! checked.

use std::sync::{Arc, PoisonError, RwLock};

use super::{RunError, Runtime};
use crate::{
    model::{RunSpec, check_expectations},
    port::{NoVerifier, Verifier},
};

/// The verifier that is used at present. A check ends with the one that it began with.
#[derive(Debug)]
pub(crate) struct PresentVerifier(RwLock<Arc<dyn Verifier>>);

impl Default for PresentVerifier {
    fn default() -> Self {
        Self(RwLock::new(Arc::new(NoVerifier)))
    }
}

impl PresentVerifier {
    // Ignores poisoning: each access is one copy.
    pub(crate) fn get(&self) -> Arc<dyn Verifier> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, verifier: Arc<dyn Verifier>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
    }
}

impl Runtime {
    /// Checks the expectations of runs by this verifier from now on. Without this, no run may have expectations.
    pub fn set_verifier(&self, verifier: Arc<dyn Verifier>) {
        self.parts.verifier.set(verifier);
    }

    /// Refuses expectations that cannot be checked.
    pub(super) async fn check_expectations(&self, spec: &Arc<RunSpec>) -> Result<(), RunError> {
        if spec.expects.is_empty() {
            return Ok(());
        }
        let (verifier, spec) = (self.parts.verifier.get(), Arc::clone(spec));
        let is_quick = verifier.validates_without_blocking();
        let check = move || check_expectations(&spec.expects).and_then(|()| verifier.validate(&spec));
        let checked = if is_quick {
            check()
        } else {
            let checked = tokio::task::spawn_blocking(check).await;
            checked.unwrap_or_else(|_| Err("could not be judged: that panicked".into()))
        };
        checked.map_err(|error| RunError::Invalid { field: "expects", error })
    }
}
