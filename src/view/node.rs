//! View of a run and its subagents, as a tree. `control/tree.rs` builds it.

use hermod_actors::model::{Amounts, BudgetAccount, ParentRef};
use serde::{Deserialize, Serialize};

use super::{
    encoding,
    run::{RunView, WaitView},
};

/// A run and its subagents: `{…of the run, parent, input, limits, spent, reserved, waits, children}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The delegating call; `None` for a run that is no subagent's.
    pub parent: Option<ParentRef>,
    /// The beginning of the input, at most 200 characters; empty if the journal cannot be read.
    pub input: String,
    /// The limits of the run's account; `None` without an account.
    #[serde(with = "encoding::money")]
    pub limits: Option<Amounts>,
    /// What is spent of them.
    #[serde(with = "encoding::money")]
    pub spent: Option<Amounts>,
    /// What calls in progress have reserved of them.
    #[serde(with = "encoding::money")]
    pub reserved: Option<Amounts>,
    /// What the run waits for; empty if it has ended.
    pub waits: Vec<WaitView>,
    /// The subagents, including ended ones, in the order of their start.
    pub children: Vec<NodeView>,
}

impl NodeView {
    /// A node without input, waits and children.
    pub fn new(run: RunView, parent: Option<ParentRef>, account: Option<&BudgetAccount>) -> Self {
        Self {
            run,
            parent,
            input: String::new(),
            limits: account.map(|account| account.limits),
            spent: account.map(|account| account.spent),
            reserved: account.map(|account| account.reserved),
            waits: Vec::new(),
            children: Vec::new(),
        }
    }
}
