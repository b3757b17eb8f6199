//! Artifacts as files of the state directory: `artifacts/<session>/<call>-<attempt>`.

mod expiry;
mod files;
mod hash;

pub use expiry::ArtifactFile;
pub(crate) use expiry::size_and_modified;
pub use files::FileArtifacts;
