//! The budget of a run: what its leg has spent, and the reservation that did not fit.

use crate::model::{Amounts, BudgetRefusal, ModelRef, Usage};

/// The spend of a run, and what ended it.
#[derive(Debug, Clone, Default)]
pub(super) struct RunBudget {
    pub(super) usage: Usage,
    /// Assumed spend of all attempts.
    pub(super) spent: Amounts,
    /// Output limits of models, in tokens, as found out from their failures.
    pub(super) output_caps: Vec<(ModelRef, u64)>,
    /// Iteration numbers that are no iterations: grace calls of earlier legs, and a call that was given up where it
    /// started.
    pub(super) skipped_numbers: u32,
    /// The reservation that did not fit. From then on only the grace call is made.
    pub(super) exhausted: Option<BudgetRefusal>,
}
