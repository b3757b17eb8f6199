//! What a decision writes to a journal, and the arithmetic and checks that all stores share. Pure: writes nothing.

mod append;
mod ledger;
mod validate;

pub use append::{
    Append, AppendReceipt, InboxItem, InboxRow, IndexRow, OpenedSession, SpawnedSession, StoredRecord,
    WriteOp, WriteOutcome, WriteRefusal,
};
pub use ledger::{Posting, post};
pub use validate::{StoreView, fence, validate_append};
