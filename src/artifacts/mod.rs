//! Artifacts as files of the state directory: `artifacts/<session>/<call>-<attempt>`. `files.rs` writes and reads them,
//! `expiry.rs` lists and removes them.

mod expiry;
mod files;
mod hash;

pub use expiry::ArtifactFile;
pub(crate) use expiry::{existing_files, size_and_modified};
pub use files::FileArtifacts;
