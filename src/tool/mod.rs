//! The built-in tools, and the operator's [`Settings`] of them. A new tool is a file here and a line in `TOOLS`.

mod arguments;
mod blocking;
mod command_reply;
mod current_time;
mod detached;
mod edit_file;
mod expectation;
mod intents;
mod list_files;
mod memory;
mod memory_writer;
mod message;
mod page;
mod paths;
mod patterns;
mod read_artifact;
mod read_file;
mod replace;
mod sandbox_hint;
mod search_files;
mod shell;
mod skill_view;
pub mod skills;
mod spool;
mod typed_tool;
mod write_file;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use hermod_actors::{model::AgentName, port::Tool};

use crate::{
    memory::MemoryFiles,
    process::{runner::Runner, sandbox::SandboxRules},
};
use skills::SkillFolders;

pub use arguments::ArgumentSchema;
pub use expectation::ExpectationVerifier;
pub use memory_writer::MemoryFilesWriter;
pub use message::MessageTool;
pub(crate) use paths::one_line;
pub use paths::{WorkspacePath, resolve};
pub use shell::SHELL;
pub use typed_tool::{ToolContext, TypedTool, make};

/// Characters of an argument in an error.
const MAX_ARGUMENT_CHARS: usize = 400;

/// The operator's settings of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time limit of a `shell` command if the model sets none.
    pub shell_timeout: Duration,
    /// Runs the commands of `shell` detached, so that they outlive this process and can be attached to. Without it they
    /// end with this process, and their outcome is unknown later.
    pub runner: Option<Runner>,
    /// The sandbox of the commands of `shell`; without it they may do what this user may.
    pub sandbox: Option<SandboxRules>,
    /// The folders with skills for `skill_view`.
    pub skills: SkillFolders,
    /// The real path of the state directory. No file tool goes into it, wherever the workspace is.
    pub state: Option<PathBuf>,
    /// The files that `memory` changes; `None` removes the tool.
    pub memory: Option<MemoryFiles>,
    /// The settings for runs of other agents than `default`; `None` if agents do not differ.
    pub agents: Option<Arc<AgentSettings>>,
}

/// The settings of agents other than `default`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentSettings {
    /// Those of the configured agents.
    pub by_name: BTreeMap<AgentName, Settings>,
    /// Those of all others.
    pub unknown: Settings,
}

impl Settings {
    /// The settings for runs of this agent.
    #[must_use]
    pub fn for_agent(&self, agent: &AgentName) -> Self {
        match &self.agents {
            Some(agents) if !agent.is_default() => {
                agents.by_name.get(agent).unwrap_or(&agents.unknown).clone()
            }
            Some(_) | None => self.clone(),
        }
    }

    /// True if an agent has memory files.
    fn has_memory(&self) -> bool {
        let mut others = self.agents.iter().flat_map(|agents| agents.by_name.values());
        self.memory.is_some() || others.any(|settings| settings.memory.is_some())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shell_timeout: Duration::from_mins(2),
            runner: None,
            sandbox: None,
            skills: SkillFolders::default(),
            state: None,
            memory: None,
            agents: None,
        }
    }
}

/// Creates a tool from the settings.
pub type ToolFactory = fn(Settings) -> Arc<dyn Tool>;

/// Name of the tool that reads skills. A run has it only if there are skills.
pub const SKILL_VIEW: &str = "skill_view";
/// Name of the tool that changes the memory files.
pub const MEMORY: &str = hermod_actors::MEMORY_TOOL;

/// All built-in tools, sorted by name.
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

/// The built-in tools that these settings allow, sorted by name.
pub fn builtin(settings: Settings) -> Vec<Arc<dyn Tool>> {
    let is_available = |name: &str| name != MEMORY || settings.has_memory();
    TOOLS.iter().filter(|(name, _)| is_available(name)).map(|(_, make)| make(settings.clone())).collect()
}
