//! The section `sandbox`: what the shell commands of a model may do.

use serde::Deserialize;
use serde_json::Value;

use super::values::{AbsolutePaths, Flag, OptionalByteSize, OptionalDuration, PositiveCount};

/// The section `sandbox`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSection {
    /// How strict the sandbox is.
    pub mode: SandboxModeName,
    /// Whether commands may use the network.
    pub network: NetworkName,
    /// Whether commands may use sockets with a path.
    pub unix_sockets: Flag,
    /// Further paths that commands may read.
    pub read: AbsolutePaths,
    /// Further paths that commands may write.
    pub write: AbsolutePaths,
    /// Further paths that commands may neither read nor write.
    pub hide: AbsolutePaths,
    /// The section `sandbox.limits`.
    pub limits: SandboxLimitsSection,
}

/// The section `sandbox.limits`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxLimitsSection {
    /// Processor time of one process.
    pub cpu: OptionalDuration,
    /// Private memory of one process.
    pub memory: OptionalByteSize,
    /// Size of one file.
    pub file_size: OptionalByteSize,
    /// Processes and threads besides those that run already.
    pub processes: PositiveCount,
    /// Open files of one process.
    pub open_files: PositiveCount,
}

/// How strict the sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum SandboxModeName {
    /// There is none.
    Off,
    /// Commands write only to the workspace.
    Workspace,
    /// Commands do not write to the workspace either.
    ReadOnly,
    /// As `Workspace`; nothing is run if the kernel lacks a protection.
    Required,
}

/// Whether commands may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum NetworkName {
    /// Not at all, not even this machine's own addresses.
    Off,
    /// Without limits.
    On,
}

impl TryFrom<Value> for SandboxModeName {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("off") => Ok(Self::Off),
            Some("workspace") => Ok(Self::Workspace),
            Some("read-only") => Ok(Self::ReadOnly),
            Some("required") => Ok(Self::Required),
            Some(_) | None => Err("must be \"off\", \"workspace\", \"read-only\" or \"required\""),
        }
    }
}

impl TryFrom<Value> for NetworkName {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("off") => Ok(Self::Off),
            Some("on") => Ok(Self::On),
            Some(_) | None => Err("must be \"off\" or \"on\""),
        }
    }
}
