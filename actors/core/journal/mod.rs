//! What a decision writes to a journal (`append.rs`), and the arithmetic of accounts (`ledger.rs`) and the checks
//! (`validate.rs`) that all stores share. Pure: writes nothing.

mod append;
mod ledger;
mod validate;

pub use append::{
    Append, AppendReceipt, InboxItem, InboxRow, IndexRow, KEPT_DELIVERIES, OpenedSession, SpawnedSession,
    StoredRecord, WriteOp, WriteOutcome, WriteRefusal,
};
pub use ledger::{Posting, post};
pub use validate::{StoreView, fence, validate_append};
