//! The sandbox of a model's commands: what they may read and write, which system calls they may make, and how much they
//! may use.
//!
//! A command is started by a thread of its own, which restricts itself first. The kernel hands a thread's restrictions
//! down to all processes that it starts, and nothing takes them back. The process of that thread stays free. The thread
//! lives as long as the command: it is the only one that can signal all processes of the sandbox at once.

mod command_sandbox;
mod files;
mod limits;
mod mount_table;
mod mounts;
mod namespace;
mod network;
mod observed;
mod places;
mod prepared;
mod probe;
mod restrict;
mod spec;
mod syscalls;
mod temp;
mod thread;
mod trial;

pub(super) use command_sandbox::CommandSandbox;
pub(super) use limits::ProcessLimits;
pub use network::{HostRule, NetworkAccess};
pub(super) use prepared::{PreparedSandbox, SandboxCache};
pub use probe::{ProbeOutcome, Protection, main as probe_main, probe};
pub use restrict::{SandboxError, SandboxStatus};
pub use spec::{SandboxLimits, SandboxMode, SandboxRules, SandboxSpec};
pub use temp::{remove_temp_folders, temp_folder};
pub use trial::{SandboxTrial, main as trial_main};
