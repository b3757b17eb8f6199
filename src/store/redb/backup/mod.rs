//! What belongs to backups of the store: a consistent copy of it while it is written (`copy.rs`), what such a copy
//! holds and whether it is whole (`inspect.rs`, which changes nothing: `overlay.rs`), and another store in the place of
//! this one (`swap.rs`, which every opening goes through).

mod copy;
mod inspect;
mod overlay;
mod replace_store;

pub use copy::{CopyError, Snapshot};
pub use inspect::{StoreContents, inspect};
pub use replace_store::{LockedStateDir, STORE_FOLDERS, stamp_restored};
pub(super) use replace_store::{RESTORE_GENERATION, open_locked};
