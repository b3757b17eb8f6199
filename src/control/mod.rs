//! The control socket: whoever holds the store answers, and obeys, everybody else of the same user.
//!
//! One process holds the store, readers included. So it listens on `control.sock` in the state directory, and every
//! other process asks there first, and opens the store only when nobody answers. `docs/control.md` has the protocol.
//!
//! Architecture invariant: no client can hold up the holder. Lines, connections, waiting and orders are bounded, and a
//! connection is a task of its own.

mod approvals;
mod budget;
mod client;
mod connection;
mod copier;
mod desk;
mod fault;
mod lineage;
mod lines;
mod place;
mod protocol;
mod reader;
mod server;
mod status;
mod token;
mod told;
mod tree;
#[cfg(test)]
mod tree_tests;
mod upkeep;

pub use budget::{BudgetDetail, Purse};
pub use client::{Client, Lost};
pub use copier::Copier;
pub use desk::{Desk, Order, Ordered, Orders};
pub use fault::{Fault, FaultKind};
pub use protocol::{Answer, Approval, Node, Request, RunDetail, SessionDetail, SessionState, Stalled, shown};
pub use reader::{Named, PAGE, Reader};
pub use server::{ControlError, Server};
pub use status::{RunStatus, RunSummary};
pub use tree::Forest;
pub use upkeep::{Caretaker, Footprint, Room, StoreRoom, Sweep, Swept, SweptClass};
