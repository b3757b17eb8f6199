//! Artifacts as files of the state directory: `artifacts/<session>/<call>-<attempt>`.

mod files;
mod hash;
mod retired;

pub use files::FileArtifacts;
pub use retired::KeptArtifact;
pub(crate) use retired::looked_at;
