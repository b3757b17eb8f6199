//! The tools that come with Hermod: a new one is a file here and a line in `TOOLS`.

mod arguments;
mod blocking;
pub mod command_denylist;
mod command_reply;
mod current_time;
mod detached;
mod edit_file;
mod excerpt;
mod intent_log;
mod list_files;
mod memory;
mod page;
mod paths;
mod patterns;
mod read_artifact;
mod read_file;
mod replace;
mod search_files;
mod shell;
mod skill_view;
pub mod skills;
mod spool;
mod typed_tool;
mod write_file;

use std::{path::PathBuf, sync::Arc, time::Duration};

use hermod_actors::port::Tool;

use crate::{memory::MemoryFiles, process::runner::Runner};
use skills::SkillFolders;

pub use arguments::ArgumentSchema;
pub(crate) use paths::one_line;
pub use paths::{WorkspacePath, resolve};
pub use shell::SHELL;
pub use typed_tool::{ToolContext, TypedTool, make};

/// What the operator decides of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time that a command of `shell` may take if the model asks for no other.
    pub shell_timeout: Duration,
    /// What runs the commands of `shell`, so that they go on when this process ends, and are found again. Without it they
    /// are this process's own and die with it, and it is not known later what became of them.
    pub runner: Option<Runner>,
    /// Where `skill_view` finds skills.
    pub skills: SkillFolders,
    /// The real path of the state directory, which no file tool shows or touches, wherever the workspace is.
    pub state: Option<PathBuf>,
    /// What `memory` changes; without it there is no such tool.
    pub memory: Option<MemoryFiles>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shell_timeout: Duration::from_mins(2),
            runner: None,
            skills: SkillFolders::default(),
            state: None,
            memory: None,
        }
    }
}

/// Makes a tool.
pub type ToolFactory = fn(Settings) -> Arc<dyn Tool>;

/// The tool that reads skills: a run has it only if there are any.
pub const SKILL_VIEW: &str = "skill_view";
/// The name of the tool that changes what is remembered.
pub const MEMORY: &str = "memory";

/// Every built-in tool by its name.
pub const TOOLS: &[(&str, ToolFactory)] = &[
    ("current_time", make::<current_time::CurrentTime>),
    ("edit_file", make::<edit_file::EditFile>),
    ("list_files", make::<list_files::ListFiles>),
    (MEMORY, make::<memory::MemoryTool>),
    ("read_artifact", make::<read_artifact::ReadArtifact>),
    ("read_file", make::<read_file::ReadFile>),
    ("search_files", make::<search_files::SearchFiles>),
    ("shell", make::<shell::Shell>),
    (SKILL_VIEW, make::<skill_view::SkillView>),
    ("write_file", make::<write_file::WriteFile>),
];

/// All built-in tools that there are with these settings, in the order of their names.
pub fn builtin(settings: Settings) -> Vec<Arc<dyn Tool>> {
    let is_there = |name: &str| name != MEMORY || settings.memory.is_some();
    TOOLS.iter().filter(|(name, _)| is_there(name)).map(|(_, make)| make(settings.clone())).collect()
}
