//! Delivers the messages of the outbox to targets outside of the process: webhooks, e-mail, folders, standard output. A message
//! is delivered at least once, with the same id at each attempt; messages of one target are delivered in their order.
//!
//! No actor knows of it. `deliverer.rs` has a worker for each target, which reads the outbox through the journal port and
//! writes states through the runtime. `verdict.rs` decides what becomes of a message, and is pure.

mod abandoned;
mod attachments;
mod blocking_slot;
mod chat;
mod deliverer;
mod email;
mod folder;
mod outbox;
mod outbox_journal;
mod payload;
mod signature;
mod target;
mod verdict;
mod webhook;

pub use attachments::AttachedFile;
pub use blocking_slot::{LineOutput, SharedOutput};
pub use chat::{ChatOutput, ChatOutputs};
pub use deliverer::Deliverer;
pub(crate) use email::is_loopback;
pub use outbox_journal::{OutboxJournal, OutboxSignal};
pub(crate) use signature::hmac_key;
pub use target::{TargetOutputs, Targets, described_targets};
pub use verdict::SendResult;
