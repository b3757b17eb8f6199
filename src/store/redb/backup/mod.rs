//! Backups of the store: a consistent copy while the store is written (`copy.rs`), and a check of such a copy
//! (`inspect.rs`, unchanged through `overlay.rs`).
//! Also the replacement of the store by another one (`replace_store.rs`), which every opening completes if it was
//! interrupted.

mod copy;
mod inspect;
mod overlay;
mod replace_store;

pub use copy::Snapshot;
pub use inspect::{StoreContents, inspect};
pub use replace_store::{LockedStateDir, STORE_FOLDERS, stamp_restored};
pub(super) use replace_store::{RESTORE_GENERATION, open_locked};
